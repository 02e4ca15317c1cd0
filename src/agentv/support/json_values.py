"""JSON values: paths into them, an equality that distinguishes true from 1, and repair of malformed JSON."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from agentv.lazy_regex import lazy_regex

Step = str | int

_STEP = lazy_regex(
    r"""\.(?P<name>[^.\[\]*?'"]+) | \[(?P<index>-?\d+)\] | \[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]""", re.VERBOSE
)


MISSING: Final = object()
"""Result of a path that leads nowhere; None is the value null."""


@lru_cache(maxsize=4096)
def steps_of(path: str) -> tuple[Step, ...]:
    """Parse a path such as `order.lines[0].price`, `$.order` or `['a key']`. Raises ValueError."""
    if (text := path.strip()) == "$":
        return ()
    if text.startswith(("$.", "$[")):
        text = text[1:]
    elif not text.startswith("["):
        text = "." + text
    steps: list[Step] = []
    position = 0
    while position < len(text):
        if (match := _STEP.match(text, position)) is None:
            raise ValueError(f"'{path}' is not a valid path. Use names, [0] and ['key'], as in 'order.lines[0].price'")
        index = match["index"]
        steps.append(int(index) if index is not None else match["name"] if match["name"] is not None else match["key"])
        position = match.end()
    return tuple(steps)


def value_at(value: Any, path: str) -> Any:
    """Return the value at a path, or MISSING. A name of digits can also be the index of a list."""
    for step in steps_of(path):
        if (value := _inside(value, step)) is MISSING:
            return MISSING
    return value


def json_or(text: str | bytes, otherwise: Any) -> Any:
    """Decode JSON; return `otherwise` for invalid or too deeply nested JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return otherwise


def repeated_keys(pairs: list[tuple[str, Any]]) -> Iterator[str]:
    """Yield the keys of an object that it had before."""
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            yield key
        keys.add(key)


def repeated_key(text: str) -> str | None:
    """Return a key that an object in valid JSON has twice; None if there is none."""
    import json  # late: only programs that print JSON need it

    repeats: list[str] = []

    try:
        json.loads(text, object_pairs_hook=lambda pairs: repeats.extend(repeated_keys(pairs)), strict=False)
    except (ValueError, RecursionError):
        return None  # not JSON that both decoders accept
    return repeats[0] if repeats else None


def same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal: 1 equals 1.0, and neither equals true."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(value, second[key]) for key, value in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(same(one, other) for one, other in zip(first, second, strict=True))
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    return bool(first == second)


def _inside(value: Any, step: Step) -> Any:
    if isinstance(value, dict):
        return value.get(step, MISSING) if isinstance(step, str) else MISSING
    if not isinstance(value, list):
        return MISSING
    if isinstance(step, str):
        if not step.isdecimal():
            return MISSING
        step = int(step)
    return value[step] if -len(value) <= step < len(value) else MISSING


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HALF = lazy_regex(rb"\\u[dD][89a-fA-F]")
# Matches all escapes, so that `\\ud800`, an escaped backslash and five letters, is left alone.
_ESCAPE = lazy_regex(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def repair_json(body: bytes) -> bytes:
    """Remove a byte order mark from JSON, and replace lone surrogates with U+FFFD. Other data is left unchanged."""
    body = body.removeprefix(_BYTE_ORDER_MARK)
    is_json = body.lstrip()[:1] in (b"{", b"[", b'"')
    if not is_json or _HALF.search(body) is None:
        return body
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match["half"] else match[0], body)
