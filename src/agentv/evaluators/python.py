"""The Python evaluator: a function of the user's that gets the answer and returns a score, in a warm process."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.evaluators.base import Evaluator, Seconds
from agentv.evaluators.definitions import function_problems
from agentv.evaluators.host import host_of
from agentv.evaluators.isolation import Sandbox, refusal_of, way_for, with_level
from agentv.evaluators.pool.setup import Setup, stamp_of
from agentv.evaluators.scoring import file_finder
from agentv.model.judgement import Judgement
from agentv.model.score import EvaluatorFailure, Score
from agentv.problems import Problems

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
