"""The code judge: a program that reads the answer as JSON from standard input and prints a score."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.evaluators.base import Count, Evaluator, Seconds, program_complaints
from agentv.evaluators.checks.reference import quoted
from agentv.evaluators.code.isolation import Sandbox, refusal_of, way_for, with_level
from agentv.evaluators.code.programs import payload, with_names_of_4x
from agentv.evaluators.code.python_function import score_in
from agentv.evaluators.pool.setup import SCRIPT_FUNCTION, Setup, Way, stamp_of
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.judgement import Judgement
from agentv.settings.diagnostics import Problems

if TYPE_CHECKING:
    from agentv.evaluators.code.judge_host import JudgeHost


Megabytes = Annotated[int, Meta(ge=1)]


class ProxyLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How often the program may ask a model."""

    max_calls: Count = 50


class CodeJudge(Evaluator, frozen=True, kw_only=True):
    """A program as a list of arguments or a shell string. Keys that are no fields join `config`, which it is given.

    `target_proxy` lets it ask a model; `target: true` and `target: {max_calls: 10}` on the entry mean the same.
    A Python file that defines `agentv_judge` is kept warm; with `fresh`, in a new process for each judgement.
    """

    aliases: ClassVar[dict[str, str]] = {"command": "script"}
    unsupported: ClassVar[dict[str, str]] = {}
    open_settings: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("script",)

    script: str | list[str]
    cwd: str | None = None
    timeout_seconds: Seconds = 60.0
    memory_mb: Megabytes = 4096
    sandbox: Sandbox = "limits"
    fresh: bool = False
    config: dict[str, Any] = {}
    target_proxy: bool | ProxyLimit = False

    def complaints(self) -> list[str]:
        """A blank program."""
        return program_complaints("script", self.script)

    def preflight(self, find_file: Callable[[str], str], folder: str) -> Problems:  # noqa: ARG002
        """A script that is not there; it may still be made before it is run, so this is a warning."""
        from agentv.evaluators.code.programs import script_problems  # late: only this check needs it

        return script_problems(self.script, os.path.join(folder, self.cwd or ""))

    @property
    def judge_calls(self) -> int:
        """One where it may ask a model, so that there is one to ask; how often it does, the program decides."""
        return 1 if self.target_proxy else 0

    @property
    def refusal(self) -> str:
        """A machine that cannot isolate as required."""
        return refusal_of(self.sandbox, bool(self.target_proxy))

    async def evaluate(self, judgement: Judgement) -> Score:
        """Runs the program once, or its function in a warm process, and takes the score that it gives."""
        from agentv.evaluators.code.judge_host import (
            host_of,  # late: it needs asyncio, and settings are read without it
        )
        from agentv.evaluators.code.programs import warm_script

        way = way_for(self.sandbox, bool(self.target_proxy))
        cwd = os.path.abspath(os.path.join(judgement.workdir, self.cwd or ""))
        file = warm_script(self.script, cwd)
        async with host_of(judgement) as host, self._granted(host, judgement) as (variables, port):
            if file is None:
                score = await self._run(judgement, cwd, way, variables, port)
            else:
                score = await self._judge_warm(host, judgement, file, cwd, way, variables, port)
        return with_level(score, self.sandbox, way, port is not None)

    async def _run(
        self, judgement: Judgement, cwd: str, way: Way, variables: dict[str, str], port: int | None
    ) -> Score:
        from agentv.evaluators.code.programs import Program  # late: as above

        program = Program(
            script=self.script,
            cwd=cwd,
            timeout_s=self.timeout_seconds,
            environment=judgement.environment,
            variables=variables,
            memory_mb=self.memory_mb,
            way=way,
            port=port,
        )
        try:
            stdin = msgspec.json.encode(with_names_of_4x(payload(judgement, self.config)))
        except (TypeError, ValueError) as error:
            raise EvaluatorFailure(f"The answer cannot be written as JSON: {error}") from None
        return read_score(await program.run(stdin))

    async def _judge_warm(
        self,
        host: JudgeHost,
        judgement: Judgement,
        file: str,
        cwd: str,
        way: Way,
        variables: dict[str, str],
        port: int | None,
    ) -> Score:
        from agentv.evaluators.pool.asking import judge_with  # late: as above

        name = f"{os.path.basename(file)}:{SCRIPT_FUNCTION}"
        setup = Setup(
            reference=name,
            path=file,
            name=name,
            cwd=cwd,
            given="payload",
            fresh=self.fresh,
            memory_mb=self.memory_mb,
            stamp=stamp_of(file),
            way=way,
            port=port,
        )
        return await judge_with(host.pool, setup, judgement, self.config, self.timeout_seconds, variables)

    @asynccontextmanager
    async def _granted(self, host: JudgeHost, judgement: Judgement) -> AsyncIterator[tuple[dict[str, str], int | None]]:
        """Variables of the program besides those it inherits, and the one port that it may reach when isolated."""
        workspace = judgement.workspace_path
        variables = {"AGENTV_WORKSPACE_PATH": workspace} if workspace else {}
        if not self.target_proxy:
            yield variables, None
            return
        limit = self.target_proxy if isinstance(self.target_proxy, ProxyLimit) else ProxyLimit()
        proxy = await host.proxy()
        async with proxy.granted(judgement, limit.max_calls) as found:
            yield {**variables, **found}, proxy.port


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
