"""Python in the style of promptfoo, in a judging process: inline code, and functions of `output` and `context`.

A judging process imports this module, so its imports must stay small.
"""

import inspect
import textwrap
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from agentv.model.evaluator import EvaluatorFailure

PARAMETERS = ["output", "context"]


def inline_score(context: Any) -> Any:
    """Return what the code in `config` returns: one expression, or several lines with a `return`."""
    config = context.config
    argument = second_argument(context, config["config"], is_promptfoo=config["syntax"] == "promptfoo")
    return _compiled(config["code"])(_output(context), argument)


@lru_cache(maxsize=64)
def _compiled(code: str) -> Callable[[Any, dict[str, Any]], Any]:
    body = textwrap.dedent(code).strip("\n")
    lines = body.rstrip() if "\n" in body.strip() else f"return {body.strip()}"
    names: dict[str, Any] = {}
    try:
        exec(f"import json\ndef check(output, context):\n{textwrap.indent(lines, '    ')}\n", names)  # noqa: S102
    except SyntaxError as error:
        raise EvaluatorFailure(f"The Python code is not valid: {error.msg}") from None
    function: Callable[[Any, dict[str, Any]], Any] = names["check"]
    return function


def with_two_arguments(function: Callable[..., Any], *, is_promptfoo: bool = False) -> Callable[..., Any]:
    """Return a function of `output` and `context` as a function of one argument; any other function unchanged."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return function
    if names[:2] != PARAMETERS:
        return function
    return lambda context: function(
        _output(context), second_argument(context, context.config, is_promptfoo=is_promptfoo)
    )


def _output(context: Any) -> Any:
    """Return the answer: data if the target or a transform in JavaScript returned data, otherwise its text."""
    return context.candidate_answer if context.candidate_data is None else context.candidate_data


def second_argument(context: Any, config: Any, *, is_promptfoo: bool) -> dict[str, Any]:
    """Return the `context` of promptfoo. There, `metadata` is that of the answer, if it has any."""
    case, metrics = context.case, context.execution_metrics
    variables = dict(case.variables or {})
    data = {} if metrics is None else metrics.provider_data or {}
    metadata = data.get("metadata") if is_promptfoo else context.metadata
    return {
        "vars": variables,
        "prompt": context.question,
        "config": config,
        **({"metadata": metadata} if metadata or not is_promptfoo else {}),
        "providerResponse": _provider_response(context, data),
        "latencyMs": None if metrics is None else metrics.duration_ms,
        "cost": None if metrics is None else metrics.cost_usd,
        "test": {"vars": variables, "metadata": context.metadata, "description": case.id},
    }


def _provider_response(context: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Return the answer before transforms and its figures that are known, under promptfoo's names."""
    answers = [message.get("content") for message in context.output_messages if message["role"] == "assistant"]
    response, metrics = {**data, "output": answers[-1] if answers else ""}, context.execution_metrics
    if metrics is None:
        return response
    usage = metrics.token_usage
    tokens = usage and {"total": usage.input + usage.output, "prompt": usage.input, "completion": usage.output}
    figures = {"cost": metrics.cost_usd, "latencyMs": metrics.duration_ms, "tokenUsage": tokens}
    return {**response, **{name: value for name, value in figures.items() if value is not None}}
