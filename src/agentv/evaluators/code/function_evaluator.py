"""A Python function as an evaluator, for `agentv.evaluate`: called in the process of the run."""

import asyncio
import inspect
import os
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from agentv.evaluators.base import Evaluator, reference_value
from agentv.evaluators.code.judge_host import host_of
from agentv.evaluators.code.judge_io import score_in, score_of
from agentv.model.evaluator import EvaluatorFailure, EvaluatorSpec, Needs, Score
from agentv.model.job import Judgement
from agentv.model.message import tool_calls_in
from agentv.model.values import digest, freeze
from agentv.support.function_call import FunctionCall, is_cancelled
from agentv.support.user_code import describe

_TIMEOUT_S = 60.0


def _expected(judgement: Judgement) -> Any:
    return reference_value(judgement) if judgement.has_reference else None


KNOWN: dict[str, Callable[[Judgement], Any]] = {
    "answer": lambda judgement: judgement.candidate_answer,
    "output": lambda judgement: judgement.candidate_answer,
    "case": lambda judgement: judgement.case,
    "input": lambda judgement: judgement.question,
    "expected": _expected,
    "expected_output": _expected,
    "tool_calls": lambda judgement: tool_calls_in(judgement.response.messages),
    "messages": lambda judgement: judgement.output_messages,
    "metrics": lambda judgement: judgement.execution_metrics,
    "context": lambda judgement: judgement,
}
"""The arguments of a function by parameter name. `context` has everything that other evaluators receive."""

_FROM_TRACE = ("tool_calls", "messages")


class FunctionEvaluator(Evaluator, frozen=True, kw_only=True, dict=True):
    """A function object. Other processes can use it only if it can be pickled."""

    call: Callable[..., Any]

    @cached_property
    def _function(self) -> FunctionCall[Judgement]:
        return FunctionCall(self.call, label_of(self.call), KNOWN, "answer")

    @property
    def needs(self) -> Needs:
        """The trace if the function takes tool calls or messages."""
        return Needs(trace=any(name in _FROM_TRACE for name in self._function.names))

    async def evaluate(self, judgement: Judgement) -> Score:
        """Call the function and convert its result to a score."""
        label = label_of(self.call)
        returned = await self._returned(judgement, label)
        return score_in(returned, label, "returned") if isinstance(returned, dict) else score_of(label, returned)

    async def _returned(self, judgement: Judgement, label: str) -> Any:
        timer = asyncio.timeout(_TIMEOUT_S)
        try:
            async with host_of(judgement) as host, timer:
                return await self._function.call(judgement, host.threads)
        except EvaluatorFailure:
            raise
        except BaseException as error:
            if isinstance(error, GeneratorExit) or is_cancelled(error):
                raise
            if isinstance(error, TimeoutError) and timer.expired():
                raise EvaluatorFailure(f"{label} did not return within {_TIMEOUT_S:g} s") from None
            raise EvaluatorFailure(f"{label} failed: {describe(error, os.getcwd())}") from error


def function_spec(call: Callable[..., Any]) -> EvaluatorSpec:
    """Return the entry of a function. Raises AgentvError if its parameters are unknown.

    Its settings name the function and a hash of its source, so that results are reused only if it is unchanged.
    """
    evaluator = FunctionEvaluator(call=call)
    assert evaluator.needs  # raises for unknown parameters
    inner = _unwrapped(call)
    reference = f"{getattr(inner, '__module__', '')}:{getattr(inner, '__qualname__', type(inner).__qualname__)}"
    settings = {"function": reference, "source": digest(_source(inner))}
    return EvaluatorSpec(type="python", name=label_of(call), settings=freeze(settings), evaluator=evaluator)


def label_of(call: Callable[..., Any]) -> str:
    """Return the name of a function in results."""
    inner = _unwrapped(call)
    name = str(getattr(inner, "__name__", type(inner).__name__))
    return "lambda" if name == "<lambda>" else name


def _unwrapped(call: Any) -> Any:
    return _unwrapped(call.func) if isinstance(call, partial) else call


def _source(call: Any) -> str:
    """Return the source of a function or of an object's class; its bytecode if there is no source."""
    code = getattr(call, "__code__", None)
    try:
        return inspect.getsource(call if code is not None else type(call))
    except (OSError, TypeError):
        return repr((code.co_code, code.co_consts, code.co_names)) if code is not None else repr(type(call))
