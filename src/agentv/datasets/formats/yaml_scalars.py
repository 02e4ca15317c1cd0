"""What a plain YAML scalar means: the core schema of YAML 1.2, with the numbers that JSON can hold."""

from __future__ import annotations

import re
from typing import Any


class WrittenInt(int):
    """An integer not written in its plain form (`007`, `0x1F`): an id keeps the digits it was written with."""

    written: str


_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_START = frozenset("-+.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_DIGITS = 4300
_TOO_MANY_DIGITS = f"an integer of more than {_MAX_DIGITS:,} digits"


def resolve(text: str) -> Any:
    """What a plain scalar means under the core schema of YAML 1.2. Raises ValueError for numbers JSON cannot hold."""
    if text[:1] in _NUMBER_START:
        return _resolve_number(text)
    return _CONSTANTS.get(text, text)


def _resolve_number(text: str) -> Any:
    if not text:
        return None
    if _INTEGER.fullmatch(text):
        if len(text.lstrip("+-")) > _MAX_DIGITS:
            raise ValueError(_TOO_MANY_DIGITS)
        return _integer(text, int(text))
    if _BASED.fullmatch(text):
        value = int(text[2:], 8 if text[1] == "o" else 16)
        if value >= 10**_MAX_DIGITS:
            raise ValueError(_TOO_MANY_DIGITS)
        return _integer(text, value)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"the number {text}, which is out of range")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"the value {text}, which JSON has no form for")
    return text


def _integer(text: str, value: int) -> int:
    if text.isdigit() and (text[0] != "0" or text == "0"):
        return value
    number = WrittenInt(value)
    number.written = text
    return number
