"""The Python evaluator: a user's function that gets the answer and returns a score, in a warm process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from agentv.evaluators.base import Evaluator, Seconds
from agentv.evaluators.checks.reference import file_finder
from agentv.evaluators.code.isolation import Megabytes, Sandbox, refusal_of, way_for, with_level
from agentv.evaluators.code.judge_host import host_of
from agentv.evaluators.code.static_checks import function_reference
from agentv.evaluators.pool.protocol import Setup, stamp_of
from agentv.model.evaluator import EvaluatorFailure, FileReference, Score
from agentv.model.judgement import Judgement

_FUNCTION = re.compile(r"(.+\.py|[^\W\d][\w.]*):[^\W\d][\w.]*")


class PythonJudge(Evaluator, frozen=True, kw_only=True):
    """A function named as `file.py:name` or `module:name`, called in a process of its own that is kept warm.

    `fresh` gives every judgement a new process.
    """

    aliases: ClassVar[dict[str, str]] = {"value": "function"}

    function: str
    timeout_seconds: Seconds = 60.0
    memory_mb: Megabytes = 4096
    sandbox: Sandbox = "limits"
    fresh: bool = False
    config: dict[str, Any] = {}

    def complaints(self) -> list[str]:
        """A function that is not named in a known form, such as code written out."""
        if _FUNCTION.fullmatch(self.function):
            return []
        return ["'function' must name a function as 'file.py:name' or 'module:name'; code itself is not run"]

    def references(self) -> Iterator[FileReference]:
        """The function."""
        yield function_reference(("function",), self.function)

    @property
    def refusal(self) -> str:
        """Why this machine cannot isolate it as required."""
        return refusal_of(self.sandbox)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Call the function in a warm process."""
        path, stamp = _located(self.function.rpartition(":")[0], judgement)
        setup = Setup(
            reference=self.function,
            path=path,
            cwd=os.getcwd(),
            fresh=self.fresh,
            memory_mb=self.memory_mb,
            stamp=stamp,
            way=way_for(self.sandbox),
        )
        async with host_of(judgement) as host:
            score = await host.pool.judge(setup, judgement, self.config, self.timeout_seconds, {})
        return with_level(score, self.sandbox, setup.way)


def _located(place: str, judgement: Judgement) -> tuple[str, tuple[int, int] | None]:
    """Return the path and the version of a function's file; a module has neither."""
    if not place.endswith(".py"):
        return place, None
    try:
        path = file_finder(judgement)(place)
        return path, stamp_of(path)
    except OSError as error:
        raise EvaluatorFailure(f"File '{place}' cannot be read: {error.strerror}") from None
    except Exception as error:
        raise EvaluatorFailure(str(error)) from None
