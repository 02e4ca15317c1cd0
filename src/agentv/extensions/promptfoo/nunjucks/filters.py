"""The filters, tests and functions of Nunjucks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cmp_to_key
from typing import Any
from urllib.parse import quote

from agentv.extensions.promptfoo.nunjucks.methods import member
from agentv.support.javascript.values import (
    SPACES,
    UNDEFINED,
    add,
    calculate,
    compare,
    floor,
    is_identical,
    is_list,
    is_missing,
    is_number,
    is_truthy,
    limited,
    printed,
    stringify,
    to_number,
    to_text,
)
from agentv.support.templates import TemplateProblem

_HTML = {"&": "&amp;", '"': "&quot;", "'": "&#39;", "<": "&lt;", ">": "&gt;"}
_MARKUP = re.compile(r"</?[a-z][a-z0-9]*\b[^>]*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_FLOAT = re.compile(r"[+-]?(?:Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_MOST_ITEMS = 1_000_000


def _text(value: Any, name: str) -> str:
    """Return a text; null, undefined and false are empty."""
    if is_missing(value) or value is False:
        return ""
    if not isinstance(value, str):
        raise TemplateProblem(f"the filter '{name}' needs text, got {to_text(value)[:40]}")
    return value


def _items(value: Any, name: str) -> list[Any]:
    if not is_list(value):
        raise TemplateProblem(f"the filter '{name}' needs a list, got {to_text(value)[:40]}")
    return list(value)


def _mapped(value: Any) -> list[Any]:
    """Return the items that Nunjucks copies: those of a list; none of a missing value."""
    return [] if is_missing(value) else _items(value, "sort")


def _capitalized(text: str) -> str:
    text = text.lower()
    return text[:1].upper() + text[1:]


def _default(value: Any, other: Any = UNDEFINED, or_falsy: Any = UNDEFINED) -> Any:
    if is_truthy(or_falsy):
        return value if is_truthy(value) else other
    return other if value is UNDEFINED else value


def _length(value: Any) -> Any:
    if is_missing(value) or value is False:
        return 0
    if isinstance(value, Mapping):
        return len(value)
    return len(value) if isinstance(value, str) or is_list(value) else UNDEFINED


def _list(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [{"key": key, "value": item} for key, item in value.items()]
    if isinstance(value, str) or is_list(value):
        return list(value)
    raise TemplateProblem("the filter 'list' needs a text, a list or an object")


def _join(value: Any, separator: Any = "", name: Any = UNDEFINED) -> str:
    items = _items(value, "join")
    if is_truthy(name):
        items = [member(item, name) for item in items]
    return limited((to_text(separator) if is_truthy(separator) else "").join(map(printed, items)))


def _replace(value: Any, part: Any = UNDEFINED, other: Any = UNDEFINED, most: Any = UNDEFINED) -> Any:
    if not (isinstance(part, str) or is_number(part)) or not (isinstance(value, str) or is_number(value)):
        return value
    text, other = to_text(value), to_text(other)
    if part == "":
        return limited(other + other.join(text) + other)
    return limited(text.replace(to_text(part), other, -1 if most is UNDEFINED else int(to_number(most))))


def _reverse(value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else _mapped(value)[::-1]


def _round(value: Any, digits: Any = 0, method: Any = UNDEFINED) -> Any:
    factor = calculate("**", 10, digits if is_truthy(digits) else 0)
    number = calculate("*", value, factor)
    if math.isfinite(number):
        number = math.ceil(number) if method == "ceil" else floor(number if method == "floor" else number + 0.5)
    return calculate("/", number, factor)


def _sort(value: Any, *arguments: Any, **kwargs: Any) -> list[Any]:
    names = ("reverse", "case_sensitive", "attribute")
    options = dict(zip(names, arguments, strict=False)) | kwargs
    path = options.get("attribute", UNDEFINED)

    def key(item: Any) -> Any:
        for name in to_text(path).split(".") if is_truthy(path) else ():
            item = member(item, name)
        return item

    def order(one: Any, two: Any) -> int:
        one, two = key(one), key(two)
        if not is_truthy(options.get("case_sensitive")) and isinstance(one, str) and isinstance(two, str):
            one, two = one.lower(), two.lower()
        sign = -1 if compare("<", one, two) else 1 if compare(">", one, two) else 0
        return -sign if is_truthy(options.get("reverse")) else sign

    return sorted(_mapped(value), key=cmp_to_key(order))


def _group(value: Any, name: Any = UNDEFINED) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in _items(value, "groupby"):
        groups.setdefault(to_text(member(item, name)), []).append(item)
    return groups


def _dict_sort(value: Any, case_sensitive: Any = UNDEFINED, by: Any = "key") -> list[Any]:
    if not isinstance(value, Mapping) or by not in ("key", "value", UNDEFINED):
        raise TemplateProblem("the filter 'dictsort' needs an object, sorted by 'key' or 'value'")
    pairs = [[key, item] for key, item in value.items()]
    return _sort(pairs, False, case_sensitive, "1" if by == "value" else "0")


def _sum(value: Any, name: Any = UNDEFINED, start: Any = 0) -> Any:
    total: Any = 0
    for item in _items(value, "sum"):
        total = add(total, member(item, name) if is_truthy(name) else item)
    return add(0 if start is UNDEFINED else start, total)


def _batch(value: Any, size: Any = UNDEFINED, filler: Any = UNDEFINED) -> list[Any]:
    items, count = _items(value, "batch"), _count(size)
    rows = [items[place : place + count] for place in range(0, len(items), count)]
    if rows and is_truthy(filler):
        rows[-1] += [filler] * (count - len(rows[-1]))
    return rows


def _count(value: Any) -> int:
    number = to_number(value)
    if not 1 <= number <= _MOST_ITEMS:
        raise TemplateProblem(f"{to_text(value)} is not a number of items")
    return int(number)


def _sliced(value: Any, slices: Any = UNDEFINED, filler: Any = UNDEFINED) -> list[Any]:
    items, count = _items(value, "slice"), _count(slices)
    size, extra = divmod(len(items), count)
    rows, place = [], 0
    for number in range(count):
        end = place + size + (number < extra)
        rows.append(items[place:end] + ([filler] if is_truthy(filler) and number >= extra else []))
        place = end
    return rows


def _truncate(value: Any, length: Any = 255, cuts_words: Any = UNDEFINED, end: Any = UNDEFINED) -> str:
    """Shorten a text: at the last space, and with the end in addition to the length."""
    text, size = _text(value, "truncate"), int(to_number(length)) if is_truthy(length) else 255
    if len(text) <= size:
        return text
    place = size if is_truthy(cuts_words) else text.rfind(" ", 0, size + 1)
    return text[: size if place == -1 else place] + ("..." if is_missing(end) else to_text(end))


def _indent(value: Any, width: Any = 4, first: Any = UNDEFINED) -> str:
    text, spaces = _text(value, "indent"), " " * min(1000, int(to_number(width)) if is_truthy(width) else 4)
    return limited((spaces if text and is_truthy(first) else "") + text.replace("\n", f"\n{spaces}"))


def _center(value: Any, width: Any = 80) -> str:
    text, size = _text(value, "center"), int(to_number(width)) if is_truthy(width) else 80
    spaces = min(size, _MOST_ITEMS) - len(text)
    if spaces <= 0:
        return text
    half = spaces / 2
    return " " * math.ceil(half - spaces % 2) + text + " " * math.ceil(half)


def _strip_tags(value: Any, keeps_lines: Any = UNDEFINED) -> str:
    text = _MARKUP.sub("", _text(value, "striptags")).strip(SPACES)
    if not is_truthy(keeps_lines):
        return re.sub(rf"[{SPACES}]+", " ", text)
    text = re.sub(r" +", " ", re.sub(r"^ +| +$", "", text, flags=re.MULTILINE))
    return re.sub(r"\n\n\n+", "\n\n", text.replace("\r\n", "\n"))


def _url(value: Any) -> str:
    def encoded(item: Any) -> str:
        return quote(to_text(item), safe="!'()*~-_.")

    if isinstance(value, str):
        return encoded(value)
    pairs = value.items() if isinstance(value, Mapping) else _items(value, "urlencode")
    return "&".join(f"{encoded(member(pair, 0))}={encoded(member(pair, 1))}" for pair in map(list, pairs))


def _float(value: Any, default: Any = UNDEFINED) -> Any:
    number = _FLOAT.match(to_text(value).strip(SPACES))
    return default if number is None else to_number(number[0])


def _int(value: Any, default: Any = UNDEFINED, base: Any = 10) -> Any:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"[: int(to_number(10 if base is UNDEFINED else base))]
    number = re.match(rf"[+-]?[{digits}]+", to_text(value).strip(SPACES), re.IGNORECASE)
    return default if number is None else to_number(int(number[0], len(digits)))


def _load(value: Any) -> Any:
    try:
        return json.loads(to_text(value))
    except (ValueError, RecursionError) as error:
        raise TemplateProblem(f"the filter 'load' needs JSON: {error}") from None


def _words(value: Any) -> int | None:
    return len(re.findall(r"\w+", _text(value, "wordcount"), re.ASCII)) or None


def _trim(value: Any) -> str:
    if not isinstance(value, str):
        raise TemplateProblem(f"the filter 'trim' needs text, got {to_text(value)[:40]}")
    return value.strip(SPACES)


def _string(value: Any) -> str:
    if is_missing(value):
        raise TemplateProblem("the filter 'string' needs a value")
    return to_text(value)


def _first(value: Any) -> Any:
    return member(_defined(value, "first"), 0)


def _last(value: Any) -> Any:
    return member(_defined(value, "last"), len(value) - 1) if isinstance(value, str) or is_list(value) else UNDEFINED


def _defined(value: Any, name: str) -> Any:
    if is_missing(value):
        raise TemplateProblem(f"the filter '{name}' needs a value")
    return value


def _selector(keeps: bool) -> Callable[..., list[Any]]:
    def select(value: Any, test: Any = "truthy", argument: Any = UNDEFINED) -> list[Any]:
        check = test_named(to_text(test))
        return [item for item in _items(value, "select") if is_truthy(check(item, argument)) is keeps]

    return select


def _escaped(value: Any) -> str:
    return limited("".join(_HTML.get(letter, letter) for letter in printed(value)))


FILTERS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: abs(to_number(value)),
    "batch": _batch,
    "capitalize": lambda value: _capitalized(_text(value, "capitalize")),
    "center": _center,
    **dict.fromkeys(("default", "d"), _default),
    "dictsort": _dict_sort,
    "dump": stringify,
    **dict.fromkeys(("escape", "e", "forceescape"), _escaped),
    "first": _first,
    "float": _float,
    "groupby": _group,
    "indent": _indent,
    "int": _int,
    "join": _join,
    "last": _last,
    "length": _length,
    "list": _list,
    "load": _load,
    "lower": lambda value: _text(value, "lower").lower(),
    "nl2br": lambda value: re.sub(r"\r?\n", "<br />\n", _text(value, "nl2br")),
    "reject": _selector(False),
    "rejectattr": lambda value, name=UNDEFINED: [
        item for item in _items(value, "rejectattr") if not is_truthy(member(item, name))
    ],
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": printed,
    "select": _selector(True),
    "selectattr": lambda value, name=UNDEFINED: [
        item for item in _items(value, "selectattr") if is_truthy(member(item, name))
    ],
    "slice": _sliced,
    "sort": _sort,
    "string": _string,
    "striptags": _strip_tags,
    "sum": _sum,
    "title": lambda value: " ".join(map(_capitalized, _text(value, "title").split(" "))),
    "trim": _trim,
    "truncate": _truncate,
    "upper": lambda value: _text(value, "upper").upper(),
    "urlencode": _url,
    "wordcount": _words,
}

_TESTS: dict[str, Callable[..., bool]] = {
    "callable": lambda value, _: callable(value),
    "defined": lambda value, _: value is not UNDEFINED,
    "divisibleby": lambda value, other: calculate("%", value, other) == 0,
    **dict.fromkeys(("equalto", "eq", "sameas"), is_identical),
    "even": lambda value, _: calculate("%", value, 2) == 0,
    "falsy": lambda value, _: not is_truthy(value),
    "ge": lambda value, other: compare(">=", value, other),
    **dict.fromkeys(("greaterthan", "gt"), lambda value, other: compare(">", value, other)),
    "iterable": lambda value, _: isinstance(value, str) or is_list(_defined(value, "iterable")),
    "le": lambda value, other: compare("<=", value, other),
    **dict.fromkeys(("lessthan", "lt"), lambda value, other: compare("<", value, other)),
    "lower": lambda value, _: _text(value, "lower").lower() == value,
    "mapping": lambda value, _: isinstance(value, Mapping),
    "ne": lambda value, other: not is_identical(value, other),
    "null": lambda value, _: value is None,
    "number": lambda value, _: is_number(value),
    "odd": lambda value, _: calculate("%", value, 2) == 1,
    "string": lambda value, _: isinstance(value, str),
    "truthy": lambda value, _: is_truthy(value),
    "undefined": lambda value, _: value is UNDEFINED,
    "upper": lambda value, _: _text(value, "upper").upper() == value,
}


def test_named(name: str) -> Callable[..., bool]:
    """Return a test, which takes a value and an argument. Raises TemplateProblem."""
    if name not in _TESTS:
        raise TemplateProblem(f"unknown test: {name}")
    return _TESTS[name]


def _range(start: Any = UNDEFINED, stop: Any = UNDEFINED, step: Any = UNDEFINED) -> list[Any]:
    first, last, width = (0, start, 1) if stop is UNDEFINED else (start, stop, step if is_truthy(step) else 1)
    first, last, width = to_number(first), to_number(last), to_number(width)
    numbers: list[Any] = []
    while first < last if width > 0 else first > last:
        numbers.append(first)
        first = calculate("+", first, width)
        if len(numbers) > _MOST_ITEMS or math.isnan(width):
            raise TemplateProblem(f"range() has more than {_MOST_ITEMS:,} numbers")
    return numbers


def _joiner(separator: Any = ",") -> Callable[[], str]:
    texts = [to_text(separator) if is_truthy(separator) else ",", ""]
    return lambda: texts.pop() if len(texts) > 1 else texts[0]


FUNCTIONS: dict[str, Callable[..., Any]] = {"range": _range, "joiner": _joiner}
