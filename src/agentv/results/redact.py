"""Secrets taken out, by value, of everything that is written or said. Knows no file and reads no environment itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

SHORTEST = 8
"""A shorter value is no secret: replacing it would eat ordinary words."""

REPLACEMENT = "[redacted]"

_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_ENCODED = re.compile(rb"%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}")
_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}

# What a record is found by, and values from closed sets. They stay as they are even where a weak password such as
# "postgres" is a part of a path: without them a run could not be resumed, or its records not be read.
_KEPT = frozenset(
    (
        "schema_version",
        "timestamp",
        "run_id",
        "eval_id",
        "id",
        "dataset",
        "dataset_path",
        "conversation_id",
        "target",
        "prompt",
        "trial",
        "status",
        "verdict",
        "class",
        "stage",
        "name",
        "type",
        "provider",
        "carried_from",
        "fingerprint",
        "input_fingerprint",
        "digest",
        "path",
        "paths",
        "started_at",
        "finished_at",
        "exit_code",
        "git_commit",
        "seed",
        "attempts",
    )
)
# Records inside records, with names of ours; everything else inside a record is a user's.
_RECORDS = frozenset(
    ("evaluator_results", "error", "execution_metrics", "token_usage", "trace_summary", "datasets", "targets", "counts")
)
# What the user typed on the command line comes back from here on resume; deeper settings are a user's.
_FLAT = frozenset(("options", "versions", "fingerprints"))


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """The values of variables whose names say that they are secrets."""
    return [value for name, value in environment.items() if name.upper().endswith(_SECRET_NAMES)]


class Redactor:
    """Replaces secrets, also where they are escaped as JSON (at any depth) or percent-encoded."""

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {form for secret in secrets for form in (secret, secret.strip()) if len(form) >= SHORTEST}
        self._values = sorted(values, key=len, reverse=True)
        self._needles = tuple({needle for value in self._values for needle in _needles(value)})
        self._pattern: re.Pattern[str] | None = None

    def redact_text(self, text: str) -> str:
        """For messages and logs."""
        return self._compiled().sub(REPLACEMENT, text) if self._values else text

    def redact_line(self, line: bytes) -> bytes:
        """For what goes into a file: a line or document of JSON stays one, its names and keys included."""
        if not self._occurs_in(line):
            return line
        try:
            data = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.redact_text(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        ending = b"\n" if line.endswith(b"\n") else b""
        return msgspec.json.encode(self._redacted(data, isinstance(data, dict))) + ending

    def _occurs_in(self, line: bytes) -> bool:
        """Whether there is anything to do, which there hardly ever is: a search for each value and no more."""
        if any(map(line.__contains__, self._needles)):
            return True
        # One character is looked for ten times as fast as two or a pattern.
        if not self._needles or not (b"%" in line or b"\\" in line) or not _ENCODED.search(line):
            return False
        return self._compiled().search(line.decode("utf-8", "replace")) is not None

    def _compiled(self) -> re.Pattern[str]:
        if self._pattern is None:
            self._pattern = re.compile("|".join("".join(map(_spellings, value)) for value in self._values))
        return self._pattern

    def _redacted(self, value: Any, ours: bool) -> Any:
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, dict):
            return dict(self._entry(key, item, ours) for key, item in value.items())
        if isinstance(value, list):
            return [self._redacted(item, ours) for item in value]
        return REPLACEMENT if type(value) is int and str(value) in self._values else value

    def _entry(self, key: str, value: Any, ours: bool) -> tuple[str, Any]:
        if not ours:
            return self.redact_text(key), self._redacted(value, False)
        if key in _KEPT and not isinstance(value, dict):
            return key, value
        if key in _FLAT and isinstance(value, dict):
            return key, {k: self._redacted(v, False) if isinstance(v, dict) else v for k, v in value.items()}
        return key, self._redacted(value, key in _RECORDS)


def _needles(value: str) -> list[bytes]:
    """The value as it stands in text, in JSON, in JSON inside JSON, and so on. Most values look the same in all."""
    forms = [value, value.replace(" ", "+"), value.replace("/", "\\/")]
    found = []
    for form in forms:
        for _ in range(4):
            found.append(form.encode("utf-8", "surrogateescape"))
            form = _escaped(form)
    return found


def _escaped(text: str) -> str:
    return msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()[1:-1]


def _spellings(character: str) -> str:
    """A pattern for one character in every way it can be written."""
    code = ord(character)
    ways = [re.escape(character)]
    ways.append("(?i:" + "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "replace")) + ")")
    units = [code] if code < 0x10000 else [0xD800 + (code - 0x10000 >> 10), 0xDC00 + (code & 0x3FF)]
    ways.append("".join(rf"\\\\*u(?i:{unit:04x})" for unit in units))
    if character in '"/':
        ways.append(rf"\\\\*{character}")
    elif character == "\\":
        ways.append(r"\\\\*")
    elif character == " ":
        ways.append(r"\+")
    elif character in _ESCAPES:
        ways.append(rf"\\\\*{_ESCAPES[character]}")
    return f"(?:{'|'.join(ways)})"
