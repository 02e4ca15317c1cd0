"""The code judge: a program that reads the answer as JSON on its standard input and prints a score."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import msgspec

from agentv.evaluators.base import Count, Evaluator, Seconds, program_complaints
from agentv.evaluators.payload import payload, with_names_of_4x
from agentv.evaluators.returned import score_in
from agentv.evaluators.scoring import quoted
from agentv.model.judgement import Judgement
from agentv.model.score import EvaluatorFailure, Score


class ProxyLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How often the program may ask a model."""

    max_calls: Count = 50


class CodeJudge(Evaluator, frozen=True, kw_only=True):
    """A program as a list of arguments or a shell string. Keys that are no fields join `config`, which it is given.

    `target_proxy` lets it ask a model; `target: true` and `target: {max_calls: 10}` on the entry mean the same.
    """

    aliases: ClassVar[dict[str, str]] = {"command": "script"}
    unsupported: ClassVar[dict[str, str]] = {}
    open_settings: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("script",)

    script: str | list[str]
    cwd: str | None = None
    timeout_seconds: Seconds = 60.0
    config: dict[str, Any] = {}
    target_proxy: bool | ProxyLimit = False

    def complaints(self) -> list[str]:
        """A blank program."""
        return program_complaints("script", self.script)

    @property
    def can_run(self) -> bool:
        """A program that asks a model finds nobody to ask yet."""
        return not self.target_proxy

    async def evaluate(self, judgement: Judgement) -> Score:
        """Runs the program once and takes the score that it prints."""
        from agentv.evaluators.program import Program  # late: it needs asyncio, and settings are read without it

        cwd = os.path.join(judgement.workdir, self.cwd or "")
        program = Program(
            script=self.script, cwd=cwd, timeout_s=self.timeout_seconds, environment=judgement.environment
        )
        try:
            stdin = msgspec.json.encode(with_names_of_4x(payload(judgement, self.config)))
        except (TypeError, ValueError) as error:
            raise EvaluatorFailure(f"The answer cannot be written as JSON: {error}") from None
        return read_score(await program.run(stdin))


def read_score(printed: str) -> Score:
    """The score that a program printed as a JSON object. Anything else raises EvaluatorFailure."""
    try:
        data = msgspec.json.decode(printed.strip())
    except (ValueError, RecursionError) as error:
        what = f"{quoted(printed)} ({error})" if printed.strip() else "nothing"
        raise EvaluatorFailure(f"The program must print a JSON object with a score, and printed {what}") from None
    if not isinstance(data, dict):
        raise EvaluatorFailure(f"The program must print a JSON object with a score, and printed {quoted(printed)}")
    return score_in(data)
