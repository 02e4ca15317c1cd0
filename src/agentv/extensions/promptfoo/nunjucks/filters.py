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
from agentv.support.javascript import values as js
from agentv.support.templates import TemplateProblem

_HTML = {"&": "&amp;", '"': "&quot;", "'": "&#39;", "<": "&lt;", ">": "&gt;"}
_MARKUP = re.compile(r"</?[a-z][a-z0-9]*\b[^>]*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_FLOAT = re.compile(r"[+-]?(?:Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_MOST_ITEMS = 1_000_000


def _text(value: Any, name: str) -> str:
    """Return a text; null, undefined and false are empty."""
    if js.is_missing(value) or value is False:
        return ""
    if not isinstance(value, str):
        raise TemplateProblem(f"the filter '{name}' needs text, got {js.to_text(value)[:40]}")
    return value


def _items(value: Any, name: str) -> list[Any]:
    if not js.is_list(value):
        raise TemplateProblem(f"the filter '{name}' needs a list, got {js.to_text(value)[:40]}")
    return list(value)


def _mapped(value: Any) -> list[Any]:
    """Return the items that Nunjucks copies: those of a list; none of a missing value."""
    return [] if js.is_missing(value) else _items(value, "sort")


def _capitalized(text: str) -> str:
    text = text.lower()
    return text[:1].upper() + text[1:]


def _default(value: Any, other: Any = js.UNDEFINED, or_falsy: Any = js.UNDEFINED) -> Any:
    if js.is_truthy(or_falsy):
        return value if js.is_truthy(value) else other
    return other if value is js.UNDEFINED else value


def _length(value: Any) -> Any:
    if js.is_missing(value) or value is False:
        return 0
    if isinstance(value, Mapping):
        return len(value)
    return len(value) if isinstance(value, str) or js.is_list(value) else js.UNDEFINED


def _list(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [{"key": key, "value": item} for key, item in value.items()]
    if isinstance(value, str) or js.is_list(value):
        return list(value)
    raise TemplateProblem("the filter 'list' needs a text, a list or an object")


def _join(value: Any, separator: Any = "", name: Any = js.UNDEFINED) -> str:
    items = _items(value, "join")
    if js.is_truthy(name):
        items = [member(item, name) for item in items]
    return js.limited((js.to_text(separator) if js.is_truthy(separator) else "").join(map(js.printed, items)))


def _replace(value: Any, part: Any = js.UNDEFINED, other: Any = js.UNDEFINED, most: Any = js.UNDEFINED) -> Any:
    if not (isinstance(part, str) or js.is_number(part)) or not (isinstance(value, str) or js.is_number(value)):
        return value
    text, other = js.to_text(value), js.to_text(other)
    if part == "":
        return js.limited(other + other.join(text) + other)
    return js.limited(text.replace(js.to_text(part), other, -1 if most is js.UNDEFINED else int(js.to_number(most))))


def _reverse(value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else _mapped(value)[::-1]


def _round(value: Any, digits: Any = 0, method: Any = js.UNDEFINED) -> Any:
    factor = js.calculate("**", 10, digits if js.is_truthy(digits) else 0)
    number = js.calculate("*", value, factor)
    if math.isfinite(number):
        number = math.ceil(number) if method == "ceil" else js.floor(number if method == "floor" else number + 0.5)
    return js.calculate("/", number, factor)


def _sort(value: Any, *arguments: Any, **kwargs: Any) -> list[Any]:
    names = ("reverse", "case_sensitive", "attribute")
    options = dict(zip(names, arguments, strict=False)) | kwargs
    path = options.get("attribute", js.UNDEFINED)

    def key(item: Any) -> Any:
        for name in js.to_text(path).split(".") if js.is_truthy(path) else ():
            item = member(item, name)
        return item

    def order(one: Any, two: Any) -> int:
        one, two = key(one), key(two)
        if not js.is_truthy(options.get("case_sensitive")) and isinstance(one, str) and isinstance(two, str):
            one, two = one.lower(), two.lower()
        sign = -1 if js.compare("<", one, two) else 1 if js.compare(">", one, two) else 0
        return -sign if js.is_truthy(options.get("reverse")) else sign

    return sorted(_mapped(value), key=cmp_to_key(order))


def _group(value: Any, name: Any = js.UNDEFINED) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in _items(value, "groupby"):
        groups.setdefault(js.to_text(member(item, name)), []).append(item)
    return groups


def _dict_sort(value: Any, case_sensitive: Any = js.UNDEFINED, by: Any = "key") -> list[Any]:
    if not isinstance(value, Mapping) or by not in ("key", "value", js.UNDEFINED):
        raise TemplateProblem("the filter 'dictsort' needs an object, sorted by 'key' or 'value'")
    pairs = [[key, item] for key, item in value.items()]
    return _sort(pairs, False, case_sensitive, "1" if by == "value" else "0")


def _sum(value: Any, name: Any = js.UNDEFINED, start: Any = 0) -> Any:
    total: Any = 0
    for item in _items(value, "sum"):
        total = js.add(total, member(item, name) if js.is_truthy(name) else item)
    return js.add(0 if start is js.UNDEFINED else start, total)


def _batch(value: Any, size: Any = js.UNDEFINED, filler: Any = js.UNDEFINED) -> list[Any]:
    items, count = _items(value, "batch"), _count(size)
    rows = [items[place : place + count] for place in range(0, len(items), count)]
    if rows and js.is_truthy(filler):
        rows[-1] += [filler] * (count - len(rows[-1]))
    return rows


def _count(value: Any) -> int:
    number = js.to_number(value)
    if not 1 <= number <= _MOST_ITEMS:
        raise TemplateProblem(f"{js.to_text(value)} is not a number of items")
    return int(number)


def _sliced(value: Any, slices: Any = js.UNDEFINED, filler: Any = js.UNDEFINED) -> list[Any]:
    items, count = _items(value, "slice"), _count(slices)
    size, extra = divmod(len(items), count)
    rows, place = [], 0
    for number in range(count):
        end = place + size + (number < extra)
        rows.append(items[place:end] + ([filler] if js.is_truthy(filler) and number >= extra else []))
        place = end
    return rows


def _truncate(value: Any, length: Any = 255, cuts_words: Any = js.UNDEFINED, end: Any = js.UNDEFINED) -> str:
    """Shorten a text: at the last space, and with the end in addition to the length."""
    text, size = _text(value, "truncate"), int(js.to_number(length)) if js.is_truthy(length) else 255
    if len(text) <= size:
        return text
    place = size if js.is_truthy(cuts_words) else text.rfind(" ", 0, size + 1)
    return text[: size if place == -1 else place] + ("..." if js.is_missing(end) else js.to_text(end))


def _indent(value: Any, width: Any = 4, first: Any = js.UNDEFINED) -> str:
    text, spaces = _text(value, "indent"), " " * min(1000, int(js.to_number(width)) if js.is_truthy(width) else 4)
    return js.limited((spaces if text and js.is_truthy(first) else "") + text.replace("\n", f"\n{spaces}"))


def _center(value: Any, width: Any = 80) -> str:
    text, size = _text(value, "center"), int(js.to_number(width)) if js.is_truthy(width) else 80
    spaces = min(size, _MOST_ITEMS) - len(text)
    if spaces <= 0:
        return text
    half = spaces / 2
    return " " * math.ceil(half - spaces % 2) + text + " " * math.ceil(half)


def _strip_tags(value: Any, keeps_lines: Any = js.UNDEFINED) -> str:
    text = _MARKUP.sub("", _text(value, "striptags")).strip(js.SPACES)
    if not js.is_truthy(keeps_lines):
        return re.sub(rf"[{js.SPACES}]+", " ", text)
    text = re.sub(r" +", " ", re.sub(r"^ +| +$", "", text, flags=re.MULTILINE))
    return re.sub(r"\n\n\n+", "\n\n", text.replace("\r\n", "\n"))


def _url(value: Any) -> str:
    def encoded(item: Any) -> str:
        return quote(js.to_text(item), safe="!'()*~-_.")

    if isinstance(value, str):
        return encoded(value)
    pairs = value.items() if isinstance(value, Mapping) else _items(value, "urlencode")
    return "&".join(f"{encoded(member(pair, 0))}={encoded(member(pair, 1))}" for pair in map(list, pairs))


def _float(value: Any, default: Any = js.UNDEFINED) -> Any:
    number = _FLOAT.match(js.to_text(value).strip(js.SPACES))
    return default if number is None else js.to_number(number[0])


def _int(value: Any, default: Any = js.UNDEFINED, base: Any = 10) -> Any:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"[: int(js.to_number(10 if base is js.UNDEFINED else base))]
    number = re.match(rf"[+-]?[{digits}]+", js.to_text(value).strip(js.SPACES), re.IGNORECASE)
    return default if number is None else js.to_number(int(number[0], len(digits)))


def _load(value: Any) -> Any:
    try:
        return json.loads(js.to_text(value))
    except (ValueError, RecursionError) as error:
        raise TemplateProblem(f"the filter 'load' needs JSON: {error}") from None


def _words(value: Any) -> int | None:
    return len(re.findall(r"\w+", _text(value, "wordcount"), re.ASCII)) or None


def _trim(value: Any) -> str:
    if not isinstance(value, str):
        raise TemplateProblem(f"the filter 'trim' needs text, got {js.to_text(value)[:40]}")
    return value.strip(js.SPACES)


def _string(value: Any) -> str:
    if js.is_missing(value):
        raise TemplateProblem("the filter 'string' needs a value")
    return js.to_text(value)


def _first(value: Any) -> Any:
    return member(_defined(value, "first"), 0)


def _last(value: Any) -> Any:
    return (
        member(_defined(value, "last"), len(value) - 1) if isinstance(value, str) or js.is_list(value) else js.UNDEFINED
    )


def _defined(value: Any, name: str) -> Any:
    if js.is_missing(value):
        raise TemplateProblem(f"the filter '{name}' needs a value")
    return value


def _selector(keeps: bool) -> Callable[..., list[Any]]:
    def select(value: Any, test: Any = "truthy", argument: Any = js.UNDEFINED) -> list[Any]:
        check = test_named(js.to_text(test))
        return [item for item in _items(value, "select") if js.is_truthy(check(item, argument)) is keeps]

    return select


def _escaped(value: Any) -> str:
    return js.limited("".join(_HTML.get(letter, letter) for letter in js.printed(value)))


FILTERS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: abs(js.to_number(value)),
    "batch": _batch,
    "capitalize": lambda value: _capitalized(_text(value, "capitalize")),
    "center": _center,
    **dict.fromkeys(("default", "d"), _default),
    "dictsort": _dict_sort,
    "dump": js.stringify,
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
    "rejectattr": lambda value, name=js.UNDEFINED: [
        item for item in _items(value, "rejectattr") if not js.is_truthy(member(item, name))
    ],
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": js.printed,
    "select": _selector(True),
    "selectattr": lambda value, name=js.UNDEFINED: [
        item for item in _items(value, "selectattr") if js.is_truthy(member(item, name))
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
    "defined": lambda value, _: value is not js.UNDEFINED,
    "divisibleby": lambda value, other: js.calculate("%", value, other) == 0,
    **dict.fromkeys(("equalto", "eq", "sameas"), js.is_identical),
    "even": lambda value, _: js.calculate("%", value, 2) == 0,
    "falsy": lambda value, _: not js.is_truthy(value),
    "ge": lambda value, other: js.compare(">=", value, other),
    **dict.fromkeys(("greaterthan", "gt"), lambda value, other: js.compare(">", value, other)),
    "iterable": lambda value, _: isinstance(value, str) or js.is_list(_defined(value, "iterable")),
    "le": lambda value, other: js.compare("<=", value, other),
    **dict.fromkeys(("lessthan", "lt"), lambda value, other: js.compare("<", value, other)),
    "lower": lambda value, _: _text(value, "lower").lower() == value,
    "mapping": lambda value, _: isinstance(value, Mapping),
    "ne": lambda value, other: not js.is_identical(value, other),
    "null": lambda value, _: value is None,
    "number": lambda value, _: js.is_number(value),
    "odd": lambda value, _: js.calculate("%", value, 2) == 1,
    "string": lambda value, _: isinstance(value, str),
    "truthy": lambda value, _: js.is_truthy(value),
    "undefined": lambda value, _: value is js.UNDEFINED,
    "upper": lambda value, _: _text(value, "upper").upper() == value,
}


def test_named(name: str) -> Callable[..., bool]:
    """Return a test, which takes a value and an argument. Raises TemplateProblem."""
    if name not in _TESTS:
        raise TemplateProblem(f"unknown test: {name}")
    return _TESTS[name]


def _range(start: Any = js.UNDEFINED, stop: Any = js.UNDEFINED, step: Any = js.UNDEFINED) -> list[Any]:
    first, last, width = (0, start, 1) if stop is js.UNDEFINED else (start, stop, step if js.is_truthy(step) else 1)
    first, last, width = js.to_number(first), js.to_number(last), js.to_number(width)
    numbers: list[Any] = []
    while first < last if width > 0 else first > last:
        numbers.append(first)
        first = js.calculate("+", first, width)
        if len(numbers) > _MOST_ITEMS or math.isnan(width):
            raise TemplateProblem(f"range() has more than {_MOST_ITEMS:,} numbers")
    return numbers


def _joiner(separator: Any = ",") -> Callable[[], str]:
    texts = [js.to_text(separator) if js.is_truthy(separator) else ",", ""]
    return lambda: texts.pop() if len(texts) > 1 else texts[0]


FUNCTIONS: dict[str, Callable[..., Any]] = {"range": _range, "joiner": _joiner}
