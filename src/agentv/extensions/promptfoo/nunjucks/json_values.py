"""JSON with the values that JavaScript has for it."""

from __future__ import annotations

import json
import re
from typing import Any

from agentv.support.javascript.values import number_text

_EXPONENTS = 1e21
"""Numbers from here on are written with an exponent."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_MOST_INDEX = 2**32 - 1


def script_value(text: str) -> Any:
    """Return the data in JSON, with the numbers and the order of keys of JavaScript. Raises ValueError."""
    return json.loads(
        text, parse_float=_number, parse_int=_number, parse_constant=_refuse_constant, object_pairs_hook=_object
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid in JSON")


def _number(text: str) -> int | float:
    """Return a number of JSON with the precision and the spelling of JavaScript."""
    value = float(text)
    return int(number_text(value)) if abs(value) < _EXPONENTS and value.is_integer() else value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object with its keys in the order of JavaScript: whole numbers first."""
    values = dict(pairs)
    numbers = sorted((key for key in values if _INDEX.fullmatch(key) and int(key) < _MOST_INDEX), key=int)
    return {key: values[key] for key in (*numbers, *values)} if numbers else values
