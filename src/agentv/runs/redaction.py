"""Remove secrets, by value, from everything that is written or printed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from agentv.settings.environment import SHORTEST_SECRET

REPLACEMENT = "[redacted]"

_ENCODED = re.compile(rb"%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}")
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")
# Nested JSON doubles backslashes. The pattern starts with a fixed character and is bounded, which keeps it fast.
_SLASHES = r"\\\\{0,31}"
_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}

# Fields that identify a record, and values from closed sets. They are kept even if a weak password such as "postgres"
# is part of a path: otherwise a run could not be resumed, or its records not be read.
_KEPT = frozenset((
    "schema_version", "timestamp", "run_id", "eval_id", "id", "dataset", "dataset_path", "conversation_id",
    "target", "prompt", "trial", "status", "verdict", "class", "stage", "name", "type", "provider",
    "carried_from", "fingerprint", "input_fingerprint", "digest", "path", "paths", "started_at", "finished_at",
    "exit_code", "git_commit", "seed", "attempts", "contents",
))  # fmt: skip
# Nested objects with fields defined by agentv; everything else in a record is user data.
_RECORDS = frozenset((
    "evaluator_results", "error", "execution_metrics", "token_usage", "trace_summary", "datasets", "targets",
    "judges", "counts", "merged_from",
))  # fmt: skip
# Settings that a resumed run needs unchanged; objects nested in them are user data.
_FLAT = frozenset(("options", "defaults", "versions", "fingerprints"))


class Redactor:
    """Replaces secrets, including those escaped in JSON (at any depth) or percent-encoded."""

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {form for secret in secrets for form in (secret, secret.strip()) if len(form) >= SHORTEST_SECRET}
        self._values = sorted(values, key=len, reverse=True)
        # The longest part of each secret that no escaping changes; empty (found in every line) if there is none.
        self._runs = tuple({max(_PLAIN.findall(value), key=len, default="").encode() for value in self._values})
        self._pattern: re.Pattern[str] | None = None

    def redact_text(self, text: str) -> str:
        """Redact plain text."""
        return self._compiled().sub(REPLACEMENT, text) if self._values else text

    def redact_line(self, line: bytes) -> bytes:
        """Redact a JSON line or document. It stays valid, with the same keys in agentv's own objects."""
        if not self._occurs_in(line):
            return line
        try:
            data = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.redact_text(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        ending = b"\n" if line.endswith(b"\n") else b""
        return msgspec.json.encode(self._redacted(data, isinstance(data, dict))) + ending

    def _occurs_in(self, line: bytes) -> bool:
        """Return whether a secret occurs, optimised for lines without one."""
        if not self._values:
            return False
        found = any(map(line.__contains__, self._runs))
        # Searching for one character is ten times as fast as for two or for a pattern.
        if not found and (b"%" in line or b"\\" in line):
            found = _ENCODED.search(line) is not None
        return found and self._compiled().search(line.decode("utf-8", "replace")) is not None

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


def _spellings(character: str) -> str:
    """Return a pattern that matches every encoding of one character."""
    code = ord(character)
    units = [code] if code < 0x10000 else [0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF)]
    ways = [
        re.escape(character),
        "(?i:" + "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "replace")) + ")",
        "".join(f"{_SLASHES}u(?i:{unit:04x})" for unit in units),
    ]
    if character in '"/':
        ways.append(_SLASHES + character)
    elif character == "\\":
        ways.append(_SLASHES)
    elif character == " ":
        ways.append(r"\+")
    elif character in _ESCAPES:
        ways.append(_SLASHES + _ESCAPES[character])
    return f"(?:{'|'.join(ways)})"
