"""Call a Python provider of promptfoo, `call_api(prompt, options, context)`, and read what it returns."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import msgspec

from agentv.extensions.promptfoo.nunjucks.json_values import script_value
from agentv.model.message import Message
from agentv.model.response import Response, TargetFailure
from agentv.targets.answers import response_from_object
from agentv.targets.python_call import KNOWN

_FIGURES = ("output", "error", "cost", "latencyMs", "tokenUsage", "token_usage")


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
    more = {key: item for key, item in value.items() if key not in _FIGURES}
    more |= {"cached": False} if "cached" in more else {}  # as in promptfoo, which has just called it
    try:
        data = script_value(json.dumps(more, allow_nan=False)) or None
    except (TypeError, ValueError, RecursionError) as error:
        raise TargetFailure("invalid_response", f"What the function returned is not valid JSON: {error}") from None
    return msgspec.structs.replace(response, messages=(Message("assistant", output),), provider_data=data)
