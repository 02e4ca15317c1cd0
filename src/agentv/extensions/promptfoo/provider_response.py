"""Call a Python provider of promptfoo, `call_api(prompt, options, context)`, and read what it returns."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from agentv.model.message import Message
from agentv.model.response import Response, TargetFailure
from agentv.support.javascript.values import number_text
from agentv.targets.answers import response_from_object
from agentv.targets.python_call import KNOWN

_EXPONENTS = 1e21
"""Numbers from here on are written with an exponent."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_MOST_INDEX = 2**32 - 1


def with_names(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a provider of promptfoo, which is called by position, with the names that its parameters have there."""
    try:
        signature = inspect.signature(call)
        signature.bind("", {}, {})
    except (TypeError, ValueError):
        return call
    if set(signature.parameters) <= set(KNOWN):
        return call
    return lambda prompt, options, context: call(prompt, options, context)


def read_response(value: Any) -> Response:
    """Return the response of a provider.

    Its output is read as promptfoo reads the JSON of it, so that numbers and keys are those of JavaScript.
    """
    if not isinstance(value, dict) or not ("output" in value or value.get("error")):
        raise TargetFailure("invalid_response", "The function must return a dict with 'output' or 'error'")
    if value.get("error"):
        raise TargetFailure("process", str(value["error"]))
    try:
        output = script_value(json.dumps(value["output"], allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TargetFailure("invalid_response", f"The output of the function is not valid JSON: {error}") from None
    if output is None:
        raise TargetFailure("invalid_response", "The function returned no output")
    usage = value.get("tokenUsage") or value.get("token_usage") or {}
    tokens = {"input": usage.get("prompt"), "output": usage.get("completion")} if isinstance(usage, dict) else {}
    figures = {"cost_usd": value.get("cost"), "duration_ms": value.get("latencyMs")}
    response = response_from_object({"text": "", **figures, "token_usage": tokens if all(tokens.values()) else None})
    return msgspec.structs.replace(response, messages=(Message("assistant", output),))


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
