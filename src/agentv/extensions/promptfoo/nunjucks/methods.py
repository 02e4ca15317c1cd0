"""Properties and methods that texts, lists, objects and numbers have in JavaScript."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from agentv.support.javascript import values as js
from agentv.support.templates import TemplateProblem


def member(value: Any, key: Any) -> Any:
    """Return a part of a value: a property, an item or a character; undefined if there is none."""
    if js.is_missing(value):
        return js.UNDEFINED
    if isinstance(value, Mapping):
        return value.get(js.to_text(key), js.UNDEFINED)
    if not (isinstance(value, str) or js.is_list(value)):
        return js.UNDEFINED
    if key == "length":
        return len(value)
    number = js.to_number(key) if js.is_number(key) or (isinstance(key, str) and key.isdecimal()) else -1
    is_index = number == int(number) and 0 <= number < len(value) if math.isfinite(number) else False
    return value[int(number)] if is_index else js.UNDEFINED


def call_method(value: Any, name: str, arguments: list[Any]) -> Any:
    """Return the result of a method. Raises TemplateProblem if it is unknown, or its value is missing."""
    if js.is_missing(value):
        raise TemplateProblem(f"{name}() of a value that is not set")
    if isinstance(value, Mapping) and callable(value.get(name)):
        return value[name](*arguments)
    for is_kind, methods in _METHODS:
        if is_kind(value) and name in methods:
            return methods[name](value, *arguments)
    names = sorted({name for _, methods in _METHODS for name in methods})
    raise TemplateProblem(f"The method '{name}' in a template is not supported. Known: {', '.join(names)}")


def _place(value: Any, size: int, default: int) -> int:
    """Return a position in a text or list: negative ones count from the end."""
    if value is js.UNDEFINED:
        return default
    number = _integer(value)
    return max(0, size + number) if number < 0 else min(number, size)


def _integer(value: Any) -> int:
    number = js.to_number(value)
    if math.isnan(number):
        return 0
    return int(max(-(2**53), min(2**53, number)))


def _slice(value: Any, start: Any = js.UNDEFINED, end: Any = js.UNDEFINED) -> Any:
    size = len(value)
    return value[_place(start, size, 0) : _place(end, size, size)]


def _substring(value: str, start: Any = js.UNDEFINED, end: Any = js.UNDEFINED) -> str:
    size = len(value)
    places = sorted(
        max(0, min(size, size if place is js.UNDEFINED and number else _integer(place)))
        for number, place in enumerate((start, end))
    )
    return value[places[0] : places[1]]


def _substr(value: str, start: Any = js.UNDEFINED, length: Any = js.UNDEFINED) -> str:
    first = _place(start, len(value), 0)
    return value[first:] if length is js.UNDEFINED else value[first : first + max(0, _integer(length))]


def _split(value: str, separator: Any = js.UNDEFINED, most: Any = js.UNDEFINED) -> list[str]:
    if separator is js.UNDEFINED:
        return [value]
    parts = list(value) if separator == "" else value.split(js.to_text(separator))
    return parts if most is js.UNDEFINED else parts[: _integer(most)]


def _replacer(count: int) -> Callable[..., str]:
    def replace(value: str, part: Any = js.UNDEFINED, other: Any = js.UNDEFINED) -> str:
        if "$" in js.to_text(other):
            raise TemplateProblem("replace() with '$' in the new text is not supported")
        return js.limited(value.replace(js.to_text(part), js.to_text(other), count))

    return replace


def _padder(is_start: bool) -> Callable[..., str]:
    def pad(value: str, width: Any = 0, filler: Any = " ") -> str:
        missing = _width(width) - len(value)
        text = js.to_text(filler)
        if missing <= 0 or not text:
            return value
        padding = (text * (missing // len(text) + 1))[:missing]
        return padding + value if is_start else value + padding

    return pad


def _width(value: Any) -> int:
    number = _integer(value)
    js.limited(" " * min(number, 10_000_001))
    return number


def _repeat(value: str, count: Any = 0) -> str:
    number = _integer(count)
    if number < 0 or number * len(value) > 10_000_000:
        raise TemplateProblem(f"repeat() cannot repeat a text {number} times")
    return value * number


def _list_index(value: Any, part: Any = js.UNDEFINED) -> int:
    return next((place for place, item in enumerate(value) if js.is_identical(item, part)), -1)


def _concat(value: Any, *others: Any) -> list[Any]:
    items = list(value)
    for other in others:
        items += list(other) if js.is_list(other) else [other]
    return items


def _join(value: Any, separator: Any = ",") -> str:
    return js.limited(("," if separator is js.UNDEFINED else js.to_text(separator)).join(map(js.printed, value)))


def _to_fixed(value: float, digits: Any = 0) -> str:
    from decimal import ROUND_HALF_UP, Decimal

    count = _integer(digits)
    if not 0 <= count <= 100 or not math.isfinite(value) or abs(value) >= 1e21:
        raise TemplateProblem(f"toFixed({count}) of {js.to_text(value)} is not supported")
    return format(Decimal(value).quantize(Decimal(1).scaleb(-count), ROUND_HALF_UP), "f")


_TEXT: dict[str, Callable[..., Any]] = {
    "charAt": lambda value, place=0: value[_integer(place) : _integer(place) + 1] if _integer(place) >= 0 else "",
    "concat": lambda value, *others: js.limited(value + "".join(map(js.to_text, others))),
    "endsWith": lambda value, part=js.UNDEFINED: value.endswith(js.to_text(part)),
    "includes": lambda value, part=js.UNDEFINED: js.to_text(part) in value,
    "indexOf": lambda value, part=js.UNDEFINED: value.find(js.to_text(part)),
    "lastIndexOf": lambda value, part=js.UNDEFINED: value.rfind(js.to_text(part)),
    "padEnd": _padder(False),
    "padStart": _padder(True),
    "repeat": _repeat,
    "replace": _replacer(1),
    "replaceAll": _replacer(-1),
    "slice": _slice,
    "split": _split,
    "startsWith": lambda value, part=js.UNDEFINED: value.startswith(js.to_text(part)),
    "substr": _substr,
    "substring": _substring,
    "toLowerCase": lambda value: value.lower(),
    "toString": js.to_text,
    "toUpperCase": lambda value: value.upper(),
    "trim": lambda value: value.strip(js.SPACES),
    "trimEnd": lambda value: value.rstrip(js.SPACES),
    "trimStart": lambda value: value.lstrip(js.SPACES),
}
_LIST: dict[str, Callable[..., Any]] = {
    "concat": _concat,
    "includes": lambda value, part=js.UNDEFINED: js.contains(value, part),
    "indexOf": _list_index,
    "join": _join,
    "slice": _slice,
    "toString": js.to_text,
}
_NUMBER: dict[str, Callable[..., Any]] = {"toFixed": _to_fixed, "toString": js.to_text}
_METHODS: tuple[tuple[Callable[[Any], bool], dict[str, Callable[..., Any]]], ...] = (
    (lambda value: isinstance(value, str), _TEXT),
    (js.is_list, _LIST),
    (js.is_number, _NUMBER),
    (lambda value: isinstance(value, bool | Mapping), {"toString": js.to_text}),
)
