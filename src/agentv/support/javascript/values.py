"""Values of JavaScript: how they are printed, compared, added and written as JSON. Lists and objects are Python's."""

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from agentv.support.templates import TemplateProblem

MAX_CHARACTERS = 10_000_000
"""Maximum size of a text that a template makes."""

SPACES = " \t\n\v\f\r\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
"""The characters that JavaScript trims."""

_EXACT = 2**53
_EXPONENT = re.compile(r"e([+-])0*(\d)")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_PREFIXED = re.compile(r"0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+")


class Undefined:
    """The type of `undefined`."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED: Final = Undefined()


def is_missing(value: Any) -> bool:
    """Whether a value is null or undefined."""
    return value is None or value is UNDEFINED


def is_number(value: Any) -> bool:
    """Whether a value is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_list(value: Any) -> bool:
    """Whether a value is an array."""
    return isinstance(value, list | tuple)


def limited(text: str) -> str:
    """Return a text. Raises TemplateProblem if it is too large."""
    if len(text) > MAX_CHARACTERS:
        raise TemplateProblem(f"the text is longer than {MAX_CHARACTERS:,} characters")
    return text


def as_number(value: float) -> int | float:
    """Return a number with the precision that JavaScript has."""
    if not isinstance(value, int) or -_EXACT < value < _EXACT:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def number_text(value: float) -> str:
    """Return a number as JavaScript prints it: `2` for 2.0, and an exponent only for very large and small ones."""
    value = as_number(value)
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value and not 1e-6 <= abs(value) < 1e21:
        return _EXPONENT.sub(r"e\1\2", repr(value))
    text = format(Decimal(repr(value or 0.0)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def to_text(value: Any) -> str:
    """Return a value as text, like `String(value)`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    if is_list(value):
        return limited(",".join(map(printed, value)))
    if isinstance(value, Mapping):
        return "[object Object]"
    if callable(value):
        raise TemplateProblem("a function cannot be inserted; call it")
    return "null" if value is None else "undefined" if value is UNDEFINED else str(value)


def printed(value: Any) -> str:
    """Return the text that a template inserts for a value: nothing for null and undefined."""
    return "" if is_missing(value) else to_text(value)


def is_truthy(value: Any) -> bool:
    """Whether a condition holds for a value: empty lists and objects are true."""
    if isinstance(value, list | tuple | Mapping):
        return True
    return not is_missing(value) and bool(value) and not (isinstance(value, float) and math.isnan(value))


def to_number(value: Any) -> int | float:
    """Return a value as a number, like `Number(value)`."""
    if isinstance(value, int | float):
        return as_number(value) if not isinstance(value, bool) else int(value)
    if is_missing(value):
        return 0 if value is None else math.nan
    text = to_text(value).strip(SPACES)
    if _NUMBER.fullmatch(text):
        return _parsed(text)
    if _PREFIXED.fullmatch(text):
        return as_number(int(text, 0))
    return {"": 0, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}.get(text, math.nan)


def _parsed(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


def _primitive(value: Any) -> Any:
    return to_text(value) if isinstance(value, list | tuple | Mapping) else value


def add(one: Any, two: Any) -> Any:
    """Return the sum of numbers, or two texts together if one is text."""
    one, two = _primitive(one), _primitive(two)
    if isinstance(one, str) or isinstance(two, str):
        return limited(to_text(one) + to_text(two))
    return as_number(to_number(one) + to_number(two))


def _divide(one: float, two: float) -> float:
    if two:
        return one / two
    return math.nan if not one or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1, two)


def _power(one: float, two: float) -> float:
    try:
        result = float(one) ** float(two)
    except (OverflowError, ZeroDivisionError):
        return math.inf
    return math.nan if isinstance(result, complex) else result


def _remainder(one: float, two: float) -> float:
    return math.fmod(one, two) if two and math.isfinite(one) else math.nan


_ARITHMETIC: dict[str, Callable[[Any, Any], float]] = {
    "-": lambda one, two: one - two,
    "*": lambda one, two: one * two,
    "/": _divide,
    "//": lambda one, two: floor(_divide(one, two)),
    "%": _remainder,
    "**": _power,
}


def floor(value: float) -> float:
    """Return the next lower integer; infinite values stay as they are."""
    return math.floor(value) if math.isfinite(value) else value


def calculate(operator: str, one: Any, two: Any) -> Any:
    """Return the result of an operator for two values."""
    if operator == "+":
        return add(one, two)
    return as_number(_ARITHMETIC[operator](to_number(one), to_number(two)))


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if is_number(value) else "text" if isinstance(value, str) else "object"


def is_identical(one: Any, two: Any) -> bool:
    """Whether `one === two`: lists and objects equal only themselves."""
    if is_missing(one) or is_missing(two):
        return one is two
    kind = _kind(one)
    return kind == _kind(two) and (one is two if kind == "object" else bool(one == two))


def is_equal(one: Any, two: Any) -> bool:
    """Whether `one == two`, which converts values of different types."""
    if is_missing(one) or is_missing(two):
        return is_missing(one) and is_missing(two)
    if _kind(one) == _kind(two):
        return is_identical(one, two)
    one, two = _primitive(one), _primitive(two)
    return bool(one == two) if isinstance(one, str) and isinstance(two, str) else bool(to_number(one) == to_number(two))


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda one, two: one < two,
    ">": lambda one, two: one > two,
    "<=": lambda one, two: one <= two,
    ">=": lambda one, two: one >= two,
}


def compare(operator: str, one: Any, two: Any) -> bool:
    """Return the result of a comparison: texts by their characters, other values as numbers."""
    if operator in ("==", "!="):
        return is_equal(one, two) == (operator == "==")
    if operator in ("===", "!=="):
        return is_identical(one, two) == (operator == "===")
    one, two = _primitive(one), _primitive(two)
    if not (isinstance(one, str) and isinstance(two, str)):
        one, two = to_number(one), to_number(two)
    return _ORDERS[operator](one, two)


def contains(value: Any, part: Any) -> bool:
    """Whether `part in value`. Raises TemplateProblem for values that contain nothing."""
    if isinstance(value, str):
        return to_text(part) in value
    if is_list(value):
        return any(is_identical(item, part) for item in value)
    if isinstance(value, Mapping):
        return to_text(part) in value
    raise TemplateProblem(f"cannot search for {to_text(part)[:40]!r} in {to_text(value)[:40]!r}")


def stringify(value: Any, indent: Any = UNDEFINED) -> Any:
    """Return a value as JSON, like `JSON.stringify(value, null, indent)`; undefined for undefined."""
    step = indent[:10] if isinstance(indent, str) else " " * min(10, int(indent)) if is_number(indent) else ""
    return UNDEFINED if value is UNDEFINED or callable(value) else limited(_json(value, step, "\n"))


def _json(value: Any, step: str, line: str) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if is_missing(value) or callable(value) or (isinstance(value, float) and not math.isfinite(value)):
        return "null"
    inner = line + step
    if is_list(value):
        return _enclosed("[]", [_json(item, step, inner) for item in value], step, line)
    if isinstance(value, Mapping):
        colon = ": " if step else ":"
        pairs = ((str(key), item) for key, item in value.items() if item is not UNDEFINED and not callable(item))
        return _enclosed(
            "{}", [f"{_json(key, '', '')}{colon}{_json(item, step, inner)}" for key, item in pairs], step, line
        )
    return to_text(value)


def _enclosed(marks: str, items: list[str], step: str, line: str) -> str:
    if not items:
        return marks
    gap = line + step if step else ""
    return f"{marks[0]}{gap}{f',{gap}'.join(items)}{line if step else ''}{marks[1]}"
