"""Remove secrets, by value and in any encoding, from everything that is written or printed."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.lazy_regex import lazy_regex
from agentv.model.environment import SHORTEST_SECRET

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

REPLACEMENT = "[redacted]"

_ENCODED = lazy_regex(rb"%[0-9A-Fa-f]{2}|\\{1,32}u[0-9A-Fa-f]{4}")
_PLAIN = lazy_regex(r"[A-Za-z0-9_.~-]+")
_LETTERS_AND_DIGITS = lazy_regex(r"[A-Za-z0-9]+")
# Nested JSON doubles backslashes. The pattern starts with a fixed character and is bounded, which keeps it fast.
_SLASHES = r"\\\\{0,31}"
_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}

# Names are redacted only if they contain a strong secret. A weak password such as "postgres" may be part of a name,
# and then the run could not be resumed.
_NAMES = frozenset(("eval_id", "id", "dataset", "conversation_id", "cluster", "target", "prompt", "name"))
# Paths and values from closed sets are kept: without them a run could not be resumed, or its records not be read.
_KEPT = frozenset((
    "schema_version", "timestamp", "run_id", "dataset_path",
    "trial", "status", "verdict", "class", "stage", "type", "provider",
    "carried_from", "fingerprint", "input_fingerprint", "digest", "path", "paths", "started_at", "finished_at",
    "exit_code", "git_commit", "git_branch", "seed", "attempts", "contents",
))  # fmt: skip
# Nested objects with fields defined by agentv; everything else in a record is user data.
_RECORDS = frozenset((
    "evaluator_results", "error", "execution_metrics", "token_usage", "trace_summary", "datasets", "targets",
    "judges", "counts", "merged_from",
))  # fmt: skip
# Settings that a resumed run needs unchanged; objects nested in them are user data.
_FLAT = frozenset(("options", "defaults", "versions", "fingerprints"))


_SHAPE_PARTS = (
    *(b"sk-", b"eyJ", b"xox", b"AKIA", b"ASIA", b"PRIVATE KEY"),
    *(b"github_pat_", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"),
)
"""Every match of the next pattern contains one of these."""
_SHAPES = lazy_regex(
    r"""(?<![A-Za-z0-9])(?:
      sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}
    | gh[pousr]_[A-Za-z0-9]{30,} | github_pat_[A-Za-z0-9_]{30,}
    | xox[abeprs]-[A-Za-z0-9-]{20,} | (?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])
    | eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}
    ) | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)""",
    re.VERBOSE,
)
"""Keys of services, JSON Web Tokens and private keys, which are secrets wherever they come from."""


class _Form(msgspec.Struct, frozen=True):
    """One encoding of a secret: its longest part that no escaping changes, in lower case, and a pattern for it."""

    run: bytes
    pattern: str
    is_strong: bool


Find = Callable[[bytes], list[tuple[int, int, int]]]


def _finder(parts: tuple[bytes, ...]) -> Find:
    """Return a function that finds these bytes, only the first of matches that overlap: with vector instructions."""
    from ahocorasick_rs import BytesAhoCorasick, MatchKind  # late: only needed to write

    return BytesAhoCorasick(parts, matchkind=MatchKind.LeftmostFirst).find_matches_as_indexes


class Redactor:
    """Replaces secrets: in any letter case, escaped in JSON at any depth, percent-encoded, in base64 or in hex."""

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {form for secret in secrets for form in (secret, secret.strip()) if len(form) >= SHORTEST_SECRET}
        self._values = sorted(values, key=len, reverse=True)
        self._patterns: dict[tuple[int, ...], re.Pattern[str]] = {}

    def redact_text(self, text: str) -> str:
        """Redact plain text."""
        pattern = self._pattern(text.encode("utf-8", "replace")) if self._values else None
        return _SHAPES.sub(REPLACEMENT, text if pattern is None else pattern.sub(REPLACEMENT, text))

    def redact_name(self, text: str) -> str:
        """Redact a name, unless the secret in it is so weak that it may be an ordinary word."""
        pattern = self._pattern(text.encode("utf-8", "replace"), strong=True) if self._values else None
        return text if pattern is None else pattern.sub(REPLACEMENT, text)

    def redact_line(self, line: bytes) -> bytes:
        """Redact a JSON line or document. It stays valid, with the same keys in agentv's own objects."""
        # Searching for fixed bytes first takes a twentieth of the time of a pattern.
        patterns = [_SHAPES] if self._find_shape_part(line) else []
        if self._values and (pattern := self._pattern(line)) is not None:
            patterns.append(pattern)
        if not patterns:
            return line
        text = line.decode("utf-8", "replace")
        if all(pattern.search(text) is None for pattern in patterns):
            return line
        try:
            data = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.redact_text(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        ending = b"\n" if line.endswith(b"\n") else b""
        return msgspec.json.encode(self._redacted(data, isinstance(data, dict))) + ending

    def _pattern(self, data: bytes, *, strong: bool = False) -> re.Pattern[str] | None:
        """Return a pattern for the forms that may occur in some data; None, after one pass over it, if there are none.

        Searching with a pattern is slow, and most data contains no secret.
        """
        runs = self._runs_in(data.lower())
        # Searching for one character is ten times as fast as for two or for a pattern.
        if (b"%" in data or b"\\" in data) and _ENCODED.search(data):
            runs |= self._runs_in(_ENCODED.sub(_decoded, data).lower())
        forms = (
            tuple(
                place
                for place, form in enumerate(self._forms)
                if (not form.run or self._places[form.run] in runs) and (form.is_strong or not strong)
            )
            if runs or self._has_any_run
            else ()
        )
        if not forms:
            return None
        if (pattern := self._patterns.get(forms)) is None:
            pattern = self._patterns[forms] = re.compile("|".join(self._forms[place].pattern for place in forms))
        return pattern

    def _runs_in(self, data: bytes) -> set[int]:
        if not self._find_run(data):  # ten times as fast as finding all of them
            return set()
        return {place for place, _, _ in self._runs.find_matches_as_indexes(data, overlapping=True)}

    @cached_property
    def _forms(self) -> list[_Form]:
        return [form for value in self._values for form in _forms_of(value)]

    @cached_property
    def _has_any_run(self) -> bool:
        """Whether a form has no part that no encoding changes, so that it may occur anywhere."""
        return not all(form.run for form in self._forms)

    @cached_property
    def _places(self) -> dict[bytes, int]:
        return {run: place for place, run in enumerate(dict.fromkeys(form.run for form in self._forms if form.run))}

    @cached_property
    def _find_run(self) -> Find:
        return _finder(tuple(self._places))

    @cached_property
    def _find_shape_part(self) -> Find:
        return _finder(_SHAPE_PARTS)

    @cached_property
    def _runs(self) -> BytesAhoCorasick:
        from ahocorasick_rs import BytesAhoCorasick  # late: only needed if there are secrets

        return BytesAhoCorasick(list(self._places))

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


def _forms_of(value: str) -> Iterator[_Form]:
    strong = _is_strong(value)
    yield _Form(_run(_PLAIN, value), "".join(map(_spellings, value)), strong)
    yield _Form(_hex(value).encode(), f"(?i:{_hex(value)})", strong)
    for core in _base64(value):
        yield _Form(_run(_LETTERS_AND_DIGITS, core), _base64_pattern(core), strong)


def _run(unchanged: re.Pattern[str], form: str) -> bytes:
    return max(unchanged.findall(form), key=len, default="").lower().encode()


def _decoded(match: re.Match[bytes]) -> bytes:
    """Return the character that `%41` or `\\u0041` encodes."""
    code = int(match[0].lstrip(b"%\\u"), 16)
    return bytes((code,)) if match[0].startswith(b"%") else chr(code).encode("utf-8", "replace")


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
    return "[A-Za-z0-9+/_-]?" + "".join(either.get(char, char) for char in core) + "[A-Za-z0-9+/_-]?={0,2}"


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
