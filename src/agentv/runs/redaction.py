"""Remove secrets, by value and in any encoding, from everything that is written or printed."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.settings.environment import SHORTEST_SECRET

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

REPLACEMENT = "[redacted]"

_ENCODED = re.compile(rb"%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}")
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")
_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z0-9]+")
# Nested JSON doubles backslashes. The pattern starts with a fixed character and is bounded, which keeps it fast.
_SLASHES = r"\\\\{0,31}"
_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}

# Names are redacted only if they contain a strong secret. A weak password such as "postgres" may be part of a name,
# and then the run could not be resumed.
_NAMES = frozenset(("eval_id", "id", "dataset", "conversation_id", "target", "prompt", "name"))
# Paths and values from closed sets are kept: without them a run could not be resumed, or its records not be read.
_KEPT = frozenset((
    "schema_version", "timestamp", "run_id", "dataset_path",
    "trial", "status", "verdict", "class", "stage", "type", "provider",
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
    """Replaces secrets: in any letter case, escaped in JSON at any depth, percent-encoded, in base64 or in hex."""

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {form for secret in secrets for form in (secret, secret.strip()) if len(form) >= SHORTEST_SECRET}
        self._values = sorted(values, key=len, reverse=True)

    def redact_text(self, text: str) -> str:
        """Redact plain text."""
        if not self._values or not self._may_occur_in(text.encode("utf-8", "replace")):
            return text
        return self._pattern.sub(REPLACEMENT, text)

    def redact_name(self, text: str) -> str:
        """Redact a name, unless the secret in it is so weak that it may be an ordinary word."""
        if not self._values or self._strong is None or not self._may_occur_in(text.encode("utf-8", "replace")):
            return text
        return self._strong.sub(REPLACEMENT, text)

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
        if not self._values or not self._may_occur_in(line):
            return False
        return self._pattern.search(line.decode("utf-8", "replace")) is not None

    def _may_occur_in(self, line: bytes) -> bool:
        if self._is_found_everywhere or self._runs.find_matches_as_indexes(line.lower()):
            return True
        # Searching for one character is ten times as fast as for two or for a pattern.
        return (b"%" in line or b"\\" in line) and _ENCODED.search(line) is not None

    @cached_property
    def _is_found_everywhere(self) -> bool:
        """Whether a secret has no part that no encoding changes, so that every line must be searched."""
        return not all(map(_PLAIN.search, self._values))

    @cached_property
    def _runs(self) -> BytesAhoCorasick:
        """The longest part of each form of the secrets that no escaping changes, in lower case."""
        from ahocorasick_rs import BytesAhoCorasick  # late: only needed if there are secrets

        plain = (max(_PLAIN.findall(value), key=len, default="") for value in self._values)
        coded = (form for value in self._values for form in (_hex(value), *_base64(value)))
        runs = (max(_LETTERS_AND_DIGITS.findall(form), key=len, default="") for form in coded)
        return BytesAhoCorasick({run.lower().encode() for run in (*plain, *runs) if run})

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return _pattern_of(self._values)

    @cached_property
    def _strong(self) -> re.Pattern[str] | None:
        strong = [value for value in self._values if _is_strong(value)]
        return _pattern_of(strong) if strong else None

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
        if key in _NAMES and isinstance(value, str):
            return key, self.redact_name(value)
        if key in _KEPT and not isinstance(value, dict):
            return key, value
        if key in _FLAT and isinstance(value, dict):
            return key, {k: self._redacted(v, False) if isinstance(v, dict) else v for k, v in value.items()}
        return key, self._redacted(value, key in _RECORDS)


def _is_strong(value: str) -> bool:
    """Whether a value is probably random: long, or with letters and digits."""
    has_both = any(map(str.isalpha, value)) and any(map(str.isdigit, value))
    return len(value) >= 20 or (len(value) >= 12 and has_both)


def _pattern_of(values: list[str]) -> re.Pattern[str]:
    """Return a pattern that matches every form of the secrets."""
    plain = ("".join(map(_spellings, value)) for value in values)
    coded = (form for value in values for form in (f"(?i:{_hex(value)})", *map(_base64_pattern, _base64(value))))
    return re.compile("|".join((*plain, *coded)))


def _hex(value: str) -> str:
    return value.encode("utf-8", "replace").hex()


def _base64(value: str) -> Iterator[str]:
    """Yield the characters that a secret determines in base64, for each position modulo three that it may start at."""
    data = value.encode("utf-8", "replace")
    for before in range(3):
        first, end = -(-8 * before // 6), 8 * (before + len(data)) // 6
        yield b64encode(b"\0" * before + data).decode()[first:end]


def _base64_pattern(core: str) -> str:
    """Return a pattern for base64 in either alphabet, with the characters next to it, which contain a part of it."""
    either = {"+": r"(?:[+-]|(?i:%2b))", "/": r"(?:\\*[/_]|(?i:%2f))"}
    return "[A-Za-z0-9+/_-]?" + "".join(either.get(each, each) for each in core) + "[A-Za-z0-9+/_-]?={0,2}"


def _spellings(character: str) -> str:
    """Return a pattern that matches every encoding of one character, in either case."""
    code = ord(character)
    units = [code] if code < 0x10000 else [0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF)]
    ways = [
        f"(?i:{re.escape(character)})" if character.isalpha() else re.escape(character),
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
