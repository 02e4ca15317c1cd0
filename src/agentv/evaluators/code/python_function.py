"""The Python evaluator: a function of the user's that gets the answer and returns a score, in a warm process."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from numbers import Real
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.evaluators.base import Evaluator, Seconds
from agentv.evaluators.checks.reference import as_sentences, as_share, file_finder, missed, passed, quoted
from agentv.evaluators.code.isolation import Sandbox, refusal_of, way_for, with_level
from agentv.evaluators.code.judge_host import host_of
from agentv.evaluators.code.static_checks import function_problems
from agentv.evaluators.pool.setup import Setup, stamp_of
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.judgement import Judgement
from agentv.settings.diagnostics import Problems

_FUNCTION = re.compile(r"(.+\.py|[^\W\d][\w.]*):[^\W\d][\w.]*")

Megabytes = Annotated[int, Meta(ge=1)]


class PythonFunction(Evaluator, frozen=True, kw_only=True):
    """A function named as `file.py:name` or `module:name`, called in a process of its own that is kept warm.

    `fresh` gives every judgement a new process, also when the one before it left no trace.
    """

    aliases: ClassVar[dict[str, str]] = {"value": "function"}
    files: ClassVar[tuple[str, ...]] = ("function",)

    function: str
    timeout_seconds: Seconds = 60.0
    memory_mb: Megabytes = 4096
    sandbox: Sandbox = "limits"
    fresh: bool = False
    config: dict[str, Any] = {}

    def complaints(self) -> list[str]:
        """A function named in no known form, code written out included."""
        if _FUNCTION.fullmatch(self.function):
            return []
        return ["'function' must name a function as 'file.py:name' or 'module:name'; code itself is not run"]

    def preflight(self, find_file: Callable[[str], str], folder: str) -> Problems:  # noqa: ARG002
        """A file that is no Python or lacks the function; what a module has is known once it is imported."""
        file = self.function.rpartition(":")[0]
        return function_problems(self.function, find_file(file)) if file.endswith(".py") else Problems()

    @property
    def refusal(self) -> str:
        """A machine that cannot isolate as required."""
        return refusal_of(self.sandbox)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Has the function called in a warm process."""
        from agentv.evaluators.pool.asking import judge_with  # late: settings are read without asyncio

        path = _located(self.function, judgement)
        setup = Setup(
            reference=self.function,
            path=path,
            name=self.function,
            cwd=os.getcwd(),
            fresh=self.fresh,
            memory_mb=self.memory_mb,
            stamp=_stamp(self.function, path),
            way=way_for(self.sandbox),
        )
        async with host_of(judgement) as host:
            score = await judge_with(host.pool, setup, judgement, self.config, self.timeout_seconds)
        return with_level(score, self.sandbox, setup.way)


def _located(function: str, judgement: Judgement) -> str:
    """Where the file of a function is."""
    place = function.rpartition(":")[0]
    if not place.endswith(".py"):
        return place
    try:
        return file_finder(judgement)(place)
    except Exception as error:
        raise EvaluatorFailure(str(error)) from None


def _stamp(function: str, path: str) -> tuple[int, int] | None:
    """What tells one version of a file from another; None for a module."""
    place = function.rpartition(":")[0]
    if not place.endswith(".py"):
        return None
    try:
        return stamp_of(path)
    except OSError as error:
        raise EvaluatorFailure(f"File '{place}' cannot be read: {error.strerror}") from None


def score_of(name: str, returned: Any) -> Score:
    """The score that a function returned. Anything that is none raises EvaluatorFailure."""
    if isinstance(returned, bool):
        return passed(f"{name} returned True") if returned else missed(f"{name} returned False")
    if isinstance(returned, Score):
        return msgspec.structs.replace(
            returned,
            score=as_share(_plain_number(returned.score), name),
            hits=as_sentences(returned.hits, f"'hits' of {name}"),
            misses=as_sentences(returned.misses, f"'misses' of {name}"),
        )
    number = _plain_number(returned)
    if not isinstance(number, int | float):
        kind = type(returned).__name__
        raise EvaluatorFailure(f"{name} must return a Score, a number or a bool, got {kind}")
    return Score(as_share(number, name))


def score_in(data: dict[str, Any], source: str = "The program", gave: str = "printed") -> Score:
    """The score in an object as AgentV's programs print it, 2.x or 4.x. Without one, raises EvaluatorFailure."""
    held, failed, share = _assertions(data.get("assertions"))
    value = data.get("score", share)
    if value is None:
        raise EvaluatorFailure(f"{source} {gave} no 'score': {quoted(data)}")
    reasoning = data.get("reasoning")
    of = source[0].lower() + source[1:]
    return Score(
        as_share(value, source),
        hits=(*as_sentences(data.get("hits"), f"'hits' of {of}"), *held),
        misses=(*as_sentences(data.get("misses"), f"'misses' of {of}"), *failed),
        reasoning=reasoning if reasoning is None or isinstance(reasoning, str) else str(reasoning),
        details=data.get("details"),
    )


def _assertions(value: Any) -> tuple[list[str], list[str], float | None]:
    """What AgentV 4.x programs print instead of hits and misses, and the share that holds for those without a score."""
    if value is None or value == []:
        return [], [], None
    if not isinstance(value, list) or not all(isinstance(item, dict) and "passed" in item for item in value):
        raise EvaluatorFailure("'assertions' of the program must be a list of {text, passed}")
    held = [_sentence(item) for item in value if item["passed"] is True]
    failed = [_sentence(item) for item in value if item["passed"] is not True]
    return held, failed, len(held) / len(value)


def _sentence(item: dict[str, Any]) -> str:
    text, evidence = str(item.get("text", "")), item.get("evidence")
    return f"{text} ({evidence})" if evidence else text


def _plain_number(value: Any) -> Any:
    """Fractions, booleans and the numbers of other libraries as a float; anything that is no number as it is."""
    return float(value) if isinstance(value, Real) else value
