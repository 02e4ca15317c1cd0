"""Judges in user code: a program that reads the answer and prints a score or exits with one, or a Python function."""

import os
import re
import shlex
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from agentv.evaluators.base import (
    OTHER_TOOLS,
    Count,
    Limit,
    Seconds,
    cut,
    find_path,
    pass_if,
    program_complaints,
    script_problems,
    stamp_of,
)
from agentv.evaluators.code.judge_host import JudgeHost, host_of
from agentv.evaluators.code.judge_io import Setup, inverted, read_score
from agentv.evaluators.code.payload import program_input
from agentv.evaluators.code.program import (
    SCRIPT_FUNCTION,
    Program,
    SandboxedEvaluator,
    confinement_for,
    warm_script,
    with_level,
    workspace_confinement,
)
from agentv.evaluators.code.static_checks import function_reference
from agentv.model.evaluator import EvaluatorFailure, FileReference, Needs, Score
from agentv.model.job import Judgement
from agentv.registry import service
from agentv.sandbox.confinement import Confinement
from agentv.sandbox.subprocesses import ending_of, tail_of

_EXIT_HINT = "to score a program by its exit code, use `type: command`"
_PROTOCOL = "grader_protocol: agentv-4"


class ProxyLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum number of model calls per judgement."""

    max_calls: Count = 50


class CodeJudge(SandboxedEvaluator, frozen=True, kw_only=True):
    """A program that prints a score, as a list of arguments or a shell string. Unknown keys are passed in `config`.

    `target_proxy` gives it access to a model; `target: true` and `target: {max_calls: 10}` on the entry do the same.
    A Python file that defines `agentv_judge` is kept warm in a process; `fresh` starts a new process for each
    judgement. `grader_protocol: agentv-4`, the default in files with `tests`, is that of code graders of AgentV
    (TypeScript) 4.x: the program reads their input, and its exit code decides if it prints text instead of JSON.
    """

    aliases: ClassVar[dict[str, str]] = {"command": "script"}
    unsupported: ClassVar[dict[str, str]] = {}
    open_settings: ClassVar[bool] = True
    target_field: ClassVar[str | None] = "target_proxy"

    script: str | list[str]
    cwd: str | None = None
    fresh: bool = False
    config: dict[str, Any] = {}
    target_proxy: bool | ProxyLimit = False
    grader_protocol: Literal["agentv-4"] | None = None

    def complaints(self) -> list[str]:
        """A blank program."""
        return program_complaints("script", self.script)

    def references(self) -> Iterator[FileReference]:
        """The program. A script that does not exist is only a warning, since it may still be created."""
        cwd = self.cwd or ""
        yield FileReference(
            ("script",),
            self.script,
            lambda _, at: script_problems(self.script, os.path.join(at, cwd)),
            cwd,
            executes="command",
        )

    @property
    def needs(self) -> Needs:
        """A judge if the program may call a model. The number of calls is up to the program."""
        return Needs(judge_calls=1 if self.target_proxy else 0)

    async def evaluate(self, judgement: Judgement) -> Score:
        """Run the program, or its function in a warm process, and return its score."""
        confinement = confinement_for(self.sandbox, judgement, bool(self.target_proxy))
        async with host_of(judgement) as host, self._access(host, judgement, confinement) as variables:
            limits: dict[str, Any] = {"memory_mb": self.memory_mb, "confinement": confinement}
            program = Program.of(self, judgement, variables=variables, exit_hint=_EXIT_HINT, **limits)
            if (file := warm_script(self.script, program.cwd)) is not None:
                setup = Setup(
                    reference=f"{os.path.basename(file)}:{SCRIPT_FUNCTION}",
                    path=file,
                    cwd=program.cwd,
                    given=self.grader_protocol or "payload",
                    fresh=self.fresh,
                    stamp=stamp_of(file),
                    has_proxy=bool(self.target_proxy),
                    **limits,
                )
                score = await host.pool.judge(setup, judgement, self.config, self.timeout_seconds, variables)
            else:
                score = await self._run(program, host, judgement)
        return with_level(score, self.sandbox, confinement, bool(self.target_proxy))

    async def _run(self, program: Program, host: JudgeHost, judgement: Judgement) -> Score:
        """Start the program, and score its output. If it is isolated, the proxy serves a socket in its network."""
        if program.confinement is None or not self.target_proxy:
            return await self._scored(program, judgement)
        ours, theirs = socket.socketpair()
        stop = (await host.proxy()).serve(ours)
        try:
            with theirs:
                return await self._scored(replace(program, listener=theirs.fileno()), judgement)
        finally:
            stop()

    async def _scored(self, program: Program, judgement: Judgement) -> Score:
        if self.grader_protocol is None:
            return read_score(await program.run(program_input(judgement, self.config)))
        score: Score = await service("code-grader", _PROTOCOL)(program, judgement, self.config)
        return score

    @asynccontextmanager
    async def _access(
        self, host: JudgeHost, judgement: Judgement, confinement: Confinement | None
    ) -> AsyncIterator[dict[str, str]]:
        """Yield the program's additional environment variables."""
        workspace = judgement.workspace_path
        variables = {"AGENTV_WORKSPACE_PATH": workspace} if workspace else {}
        if not self.target_proxy:
            yield variables
            return
        limit = self.target_proxy if isinstance(self.target_proxy, ProxyLimit) else ProxyLimit()
        proxy = await host.proxy()
        async with proxy.granted(judgement, limit.max_calls, confinement is not None) as access:
            yield {**variables, **access}


_INLINE = "agentv.evaluators.code.inline_python:inline_score"
_FUNCTION = re.compile(r"(.+\.py|[^\W\d][\w.]*):[^\W\d][\w.]*")


class PythonJudge(SandboxedEvaluator, frozen=True, kw_only=True):
    """A function, named as `file.py:name` or `module:name`, called in a separate process that is kept warm.

    It has one parameter, the context, or those of promptfoo: `output` and `context`. `code` is inline code with these
    two instead: one expression, or several lines with a `return`. `fresh` starts a new process for each judgement. With
    `syntax: promptfoo`, an object that is returned must have `pass`, `score` and `reason`. A number and the score
    of an object must be at least `threshold`. With `inverse: true`, a fail passes and a pass fails with the same score.
    """

    aliases: ClassVar[dict[str, str]] = {"value": "function"}
    unsupported: ClassVar[dict[str, str]] = {key: hint for key, hint in OTHER_TOOLS.items() if key != "threshold"}

    function: str | None = None
    code: str | None = None
    fresh: bool = False
    syntax: Literal["any", "promptfoo"] = "any"
    threshold: Limit | None = None
    inverse: bool = False
    config: dict[str, Any] = {}

    def complaints(self) -> list[str]:
        """Not exactly one of function and code, or a value that does not name a function."""
        if (self.function is None) == (self.code is None):
            return ["needs either 'function' or 'code'"]
        if self.function is None or _FUNCTION.fullmatch(self.function):
            return []
        return ["'function' must name a function as 'file.py:name' or 'module:name'. Write inline code as 'code'"]

    def references(self) -> Iterator[FileReference]:
        """The function, or the code."""
        if self.function is not None:
            yield function_reference(("function",), self.function)
        else:
            yield FileReference(("code",), self.code, executes="script")

    async def evaluate(self, judgement: Judgement) -> Score:
        """Call the function, or run the code, in a warm process."""
        function = self.function or _INLINE
        path, stamp = _located(function.rpartition(":")[0], judgement)
        setup = Setup(
            reference=function,
            path=path,
            cwd=os.getcwd(),
            given="context" if self.syntax == "any" else "promptfoo",
            fresh=self.fresh,
            memory_mb=self.memory_mb,
            stamp=stamp,
            confinement=confinement_for(self.sandbox, judgement),
        )
        async with host_of(judgement) as host:
            config = (
                self.config if self.code is None else {"code": self.code, "config": self.config, "syntax": self.syntax}
            )
            try:
                score = await host.pool.judge(setup, judgement, config, self.timeout_seconds, {})
            except EvaluatorFailure as failure:
                raise EvaluatorFailure(str(failure).replace(_INLINE, "The Python code")) from None
        return with_level(self._judged(score), self.sandbox, setup.confinement)

    def _judged(self, score: Score) -> Score:
        """Apply `threshold` and `inverse`. The score of a boolean has its verdict and one sentence, and no reason."""
        if self.threshold is None and not self.inverse:
            return score
        is_boolean = score.reasoning is None and score.verdict == ("pass" if score.score else "fail")
        is_boolean &= score.score in (0, 1) and len(score.hits) + len(score.misses) == 1
        is_pass = score.score > 0 if self.threshold is None else score.score >= self.threshold
        if score.verdict is not None:
            is_pass = score.verdict == "pass" and (is_pass or is_boolean or self.threshold is None)
        score = msgspec.structs.replace(score, verdict="pass" if is_pass else "fail")
        return inverted(score, is_boolean=is_boolean) if self.inverse else score


def _located(place: str, judgement: Judgement) -> tuple[str, tuple[int, int] | None]:
    """Return the path and the version of a function's file. A module has no version."""
    if not place.endswith(".py"):
        return place, None
    try:
        path = find_path(judgement, place)
        return path, stamp_of(path)
    except OSError as error:
        raise EvaluatorFailure(f"Cannot read file '{place}': {error.strerror}") from None
    except Exception as error:
        raise EvaluatorFailure(str(error)) from None


ExitCodes = Annotated[tuple[Annotated[int, Meta(ge=0, le=255)], ...], Meta(min_length=1)]


class CommandCheck(SandboxedEvaluator, frozen=True, kw_only=True):
    """A program whose exit code decides: 0 passes, 1 fails. Its output is the reason.

    `command` is a list of arguments, or a string for the shell, such as `pytest -q`. It runs in the job's workspace, or
    in the dataset's folder if there is none; `cwd` is relative to that. It reads the answer from stdin. Exit codes that
    are neither in `pass_codes` nor in `fail_codes`, signals and timeouts are errors: a crash is not a score. With
    `sandbox`, the program may write to the workspace.
    """

    command: str | list[str]
    cwd: str | None = None
    timeout_seconds: Seconds = 300.0
    pass_codes: ExitCodes = (0,)
    fail_codes: ExitCodes = (1,)

    def complaints(self) -> list[str]:
        """A blank program, or an exit code that means both."""
        both = sorted(set(self.pass_codes) & set(self.fail_codes))
        twice = [f"Exit code {both[0]} is in 'pass_codes' and in 'fail_codes'"] if both else []
        return program_complaints("command", self.command) + twice

    def references(self) -> Iterator[FileReference]:
        """The program, which may be in the workspace and is therefore not checked."""
        yield FileReference(("command",), self.command, executes="command")

    async def evaluate(self, judgement: Judgement) -> Score:
        """Run the program and score its exit code."""
        workspace = judgement.workspace_path
        program = Program.of(
            self,
            judgement,
            script=self.command,
            folder=workspace or judgement.workdir,
            variables={"AGENTV_WORKSPACE_PATH": workspace} if workspace else {},
            memory_mb=self.memory_mb,
            confinement=workspace_confinement(self.sandbox, judgement),
            writable=(workspace,) if workspace else (),
            noun="The command",
        )
        ended = await program.finish(
            judgement.candidate_answer.encode(errors="replace"), frozenset((*self.pass_codes, *self.fail_codes))
        )
        command = self.command if isinstance(self.command, str) else shlex.join(self.command)
        sentence = cut(f"`{command}` {ending_of(ended.code)}")
        output = tail_of((ended.stdout + ended.stderr).encode(errors="replace")).removeprefix(": ")
        score = pass_if(ended.code in self.pass_codes, sentence)
        return with_level(replace(score, reasoning=output or None), self.sandbox, program.confinement)
