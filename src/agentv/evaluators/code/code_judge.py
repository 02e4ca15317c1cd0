"""Judges in the user's code: a program that reads the answer as JSON and prints a score, or a Python function."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec

from agentv.evaluators.base import Count, Evaluator, Seconds, file_finder, program_complaints
from agentv.evaluators.code.judge_host import JudgeHost, host_of
from agentv.evaluators.code.judge_io import Setup, program_input, read_score, stamp_of
from agentv.evaluators.code.program import (
    SCRIPT_FUNCTION,
    Megabytes,
    Program,
    Sandbox,
    refusal_of,
    script_problems,
    warm_script,
    way_for,
    with_level,
)
from agentv.evaluators.code.static_checks import function_reference
from agentv.model.evaluator import EvaluatorFailure, FileReference, Needs, Score
from agentv.model.job import Judgement


class ProxyLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How often the program may call a model."""

    max_calls: Count = 50


class _CodeEvaluator(Evaluator, frozen=True, kw_only=True):
    """Settings of every type that runs the user's code."""

    timeout_seconds: Seconds = 60.0
    memory_mb: Megabytes = 4096
    sandbox: Sandbox = "limits"
    fresh: bool = False
    config: dict[str, Any] = {}

    @property
    def refusal(self) -> str:
        """Why this machine cannot isolate it as required."""
        return refusal_of(self.sandbox, bool(getattr(self, "target_proxy", False)))


class CodeJudge(_CodeEvaluator, frozen=True, kw_only=True):
    """A program as a list of arguments or a shell string. Keys that are no fields join `config`, which it is given.

    `target_proxy` lets it ask a model; `target: true` and `target: {max_calls: 10}` on the entry mean the same.
    A Python file that defines `agentv_judge` is kept warm; with `fresh`, in a new process for each judgement.
    """

    aliases: ClassVar[dict[str, str]] = {"command": "script"}
    unsupported: ClassVar[dict[str, str]] = {}
    open_settings: ClassVar[bool] = True
    target_field: ClassVar[str | None] = "target_proxy"

    script: str | list[str]
    cwd: str | None = None
    target_proxy: bool | ProxyLimit = False

    def complaints(self) -> list[str]:
        """A blank program."""
        return program_complaints("script", self.script)

    def references(self) -> Iterator[FileReference]:
        """The program, with a warning about a script that does not exist: it may still be created."""
        cwd = self.cwd or ""
        yield FileReference(
            ("script",), self.script, lambda _, at: script_problems(self.script, os.path.join(at, cwd)), cwd
        )

    @property
    def needs(self) -> Needs:
        """A judge if it may call a model; how often it does, the program decides."""
        return Needs(judge_calls=1 if self.target_proxy else 0)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Run the program, or its function in a warm process, and return its score."""
        async with host_of(judgement) as host, self._access(host, judgement) as (variables, port):
            program = Program(
                script=self.script,
                cwd=os.path.abspath(os.path.join(judgement.workdir, self.cwd or "")),
                timeout_s=self.timeout_seconds,
                environment=judgement.environment,
                variables=variables,
                memory_mb=self.memory_mb,
                way=way_for(self.sandbox, bool(self.target_proxy)),
                port=port,
            )
            file = warm_script(self.script, program.cwd)
            if file is not None:
                setup = Setup(
                    reference=f"{os.path.basename(file)}:{SCRIPT_FUNCTION}",
                    path=file,
                    cwd=program.cwd,
                    given="payload",
                    fresh=self.fresh,
                    memory_mb=self.memory_mb,
                    stamp=stamp_of(file),
                    way=program.way,
                    port=port,
                )
                score = await host.pool.judge(setup, judgement, self.config, self.timeout_seconds, variables)
            else:
                score = read_score(await program.run(program_input(judgement, self.config)))
        return with_level(score, self.sandbox, program.way, port is not None)

    @asynccontextmanager
    async def _access(self, host: JudgeHost, judgement: Judgement) -> AsyncIterator[tuple[dict[str, str], int | None]]:
        """Additional environment variables of the program, and the one port that it may reach when isolated."""
        workspace = judgement.workspace_path
        variables = {"AGENTV_WORKSPACE_PATH": workspace} if workspace else {}
        if not self.target_proxy:
            yield variables, None
            return
        limit = self.target_proxy if isinstance(self.target_proxy, ProxyLimit) else ProxyLimit()
        proxy = await host.proxy()
        async with proxy.granted(judgement, limit.max_calls) as found:
            yield {**variables, **found}, proxy.port


_FUNCTION = re.compile(r"(.+\.py|[^\W\d][\w.]*):[^\W\d][\w.]*")


class PythonJudge(_CodeEvaluator, frozen=True, kw_only=True):
    """A function named as `file.py:name` or `module:name`, called in a process of its own that is kept warm.

    `fresh` gives every judgement a new process.
    """

    aliases: ClassVar[dict[str, str]] = {"value": "function"}

    function: str

    def complaints(self) -> list[str]:
        """A function that is not named in a known form, such as code written out."""
        if _FUNCTION.fullmatch(self.function):
            return []
        return ["'function' must name a function as 'file.py:name' or 'module:name'; code itself is not run"]

    def references(self) -> Iterator[FileReference]:
        """The function."""
        yield function_reference(("function",), self.function)

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
