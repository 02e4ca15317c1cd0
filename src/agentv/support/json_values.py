"""JSON values: paths into them, and an equality that tells true from 1. Knows nothing of where they come from."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import msgspec

Step = str | int

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]*?'"]+) | \[(?P<index>-?\d+)\] | \[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]""", re.VERBOSE
)


class _Missing:
    """What stands for a value that is not there; null is a value that is."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


@lru_cache(maxsize=1024)
def steps_of(path: str) -> tuple[Step, ...]:
    """The steps of a path such as `order.lines[0].price`, `$.order` or `['a key']`. Raises ValueError for others."""
    text = path.strip()
    if text == "$":
        return ()
    if text.startswith(("$.", "$[")):
        text = text[1:]
    elif not text.startswith("["):
        text = "." + text
    steps: list[Step] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise ValueError(f"'{path}' is no path: names, [0] and ['a key'] are known, as in 'order.lines[0].price'")
        steps.append(_step(found))
        position = found.end()
    return tuple(steps)


def value_at(value: Any, path: str) -> Any:
    """What a path leads to, or MISSING. A name of digits also counts through a list."""
    for step in steps_of(path):
        value = _inside(value, step)
        if value is MISSING:
            return MISSING
    return value


def json_or(text: str | bytes, otherwise: Any) -> Any:
    """The value that a text is JSON for; `otherwise` for a text that is not, or is nested too deep."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return otherwise


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal: 1 is 1.0, and neither is true."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(one, other) for one, other in zip(left, right, strict=True))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def _step(found: re.Match[str]) -> Step:
    if found["name"] is not None:
        return found["name"]
    return int(found["index"]) if found["index"] is not None else found["key"]


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
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# Escapes one after another, so that `\\ud800`, a backslash and five letters, stays what it is.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def mended_json(body: bytes) -> bytes:
    """The same without a byte order mark, and with U+FFFD in place of each half of a surrogate pair.

    What is no JSON stays as it is.
    """
    body = body.removeprefix(_BYTE_ORDER_MARK)
    is_json = body.lstrip()[:1] in (b"{", b"[", b'"')
    if not is_json or _HALF.search(body) is None:
        return body
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found["half"] else found[0], body)
