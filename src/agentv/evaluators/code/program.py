"""User programs that read JSON and print a score or a prompt: run with resource limits or in a sandbox."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agentv.evaluators.base import Evaluator, Seconds, stamp_of
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement
from agentv.settings.diagnostics import Problems
from agentv.settings.environment import Environment, judge_environment
from agentv.support import sandbox as sandbox_tools
from agentv.support.process_limits import ProcessLimits
from agentv.support.subprocesses import (
    ProcessFailure,
    ProcessOutput,
    ProcessSpec,
    ending_of,
    run_process,
    temporary_folder,
)

Sandbox = Literal["limits", "preferred", "required"]
"""`limits`: memory and file size. `preferred`: isolated if the machine supports it. `required`: isolated or refused."""

Isolation = Literal["limits", "landlock", "bubblewrap"]
Megabytes = Annotated[int, Meta(ge=1)]


def isolation_for(sandbox: Sandbox, with_proxy: bool = False) -> Isolation:
    """Return how to isolate a process. Raises EvaluatorFailure if isolation is required but not available."""
    if sandbox == "limits":
        return "limits"
    try:
        return "landlock" if sandbox_tools.isolation_method(with_proxy) == "landlock" else "bubblewrap"
    except sandbox_tools.CannotIsolate as error:
        if sandbox == "required":
            raise EvaluatorFailure(f"'sandbox: required' is not possible on this machine: {error}") from None
        return "limits"


class SandboxedEvaluator(Evaluator, frozen=True, kw_only=True):
    """Settings of every type that runs user code."""

    timeout_seconds: Seconds = 60.0
    memory_mb: Megabytes = 4096
    sandbox: Sandbox = "limits"

    @property
    def refusal(self) -> str:
        """Why this machine cannot provide the required isolation."""
        try:
            isolation_for(self.sandbox, bool(getattr(self, "target_proxy", False)))
        except EvaluatorFailure as failure:
            return str(failure)
        return ""


def prefix(isolation: Isolation, writable: Sequence[str], cwd: str, port: int | None) -> list[str]:
    """Return the arguments to put before a program's own; it may write to the folders in `writable`."""
    if isolation == "limits":
        return []
    if isolation == "landlock":
        return sandbox_tools.landlock_command(writable, port)
    return sandbox_tools.bubblewrap_command(writable, cwd)


def scratch_folder(isolation: Isolation) -> AbstractContextManager[str]:
    """Create a temporary folder that an isolated process may write to; empty for others."""
    return nullcontext("") if isolation == "limits" else temporary_folder("agentv-judge-")


def with_level(score: Score, sandbox: Sandbox, isolation: Isolation, with_proxy: bool = False) -> Score:
    """Add the isolation level to the score's details, unless the entry uses the default level.

    Details that are not an object stay unchanged.
    """
    if sandbox == "limits" or not isinstance(score.details, dict | None):
        return score
    level: dict[str, Any] = {"level": "limits"}
    if isolation != "limits":
        level = {"level": "isolated", "by": isolation, "network": "proxy" if with_proxy else "none"}
    return msgspec.structs.replace(score, details={**(score.details or {}), "sandbox": level})


SCRIPT_FUNCTION = "agentv_judge"
"""The function that a script defines to run in a warm process instead of being started for each answer."""

MAX_OUTPUT_BYTES = 4 * 1024 * 1024


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program, as a list of arguments or a shell string.

    `variables` are additional environment variables. `writable` are folders that it may write to if isolated, in
    addition to a temporary one. `exit_hint` is added to the message about an exit code.
    """

    script: str | list[str]
    cwd: str
    timeout_s: float
    environment: Environment = Environment()
    variables: Mapping[str, str] = {}
    memory_mb: int = 4096
    isolation: Isolation = "limits"
    port: int | None = None
    writable: tuple[str, ...] = ()
    exit_hint: str = ""
    noun: str = "The program"

    @classmethod
    def of(
        cls, settings: Any, judgement: Judgement, *, script: Any = None, folder: str | None = None, **limits: Any
    ) -> Program:
        """Return the program in an evaluator's settings: `script`, `cwd` in a folder, and `timeout_seconds`."""
        return cls(
            script=settings.script if script is None else script,
            cwd=os.path.abspath(os.path.join(folder or judgement.workdir, settings.cwd or "")),
            timeout_s=settings.timeout_seconds,
            environment=judgement.environment,
            **limits,
        )

    async def run(self, stdin: bytes) -> str:
        """Return the program's output. Raises EvaluatorFailure if it fails, times out or prints too much."""
        return (await self.finish(stdin, frozenset({0}))).stdout

    async def finish(self, stdin: bytes, accepts: frozenset[int]) -> ProcessOutput:
        """Return the output and the exit code. Raises EvaluatorFailure for other exit codes, and as `run` does."""
        with scratch_folder(self.isolation) as scratch:
            variables = {**self.variables, **({"TMPDIR": scratch} if scratch else {})}
            try:
                return await run_process(
                    ProcessSpec(
                        command=self._command(scratch),
                        cwd=self.cwd,
                        env={**judge_environment(self.environment), **variables},
                        timeout_s=self.timeout_s,
                        stdin=stdin,
                        max_output_bytes=MAX_OUTPUT_BYTES,
                        grace_s=0,
                        noun=self.noun,
                        limits=ProcessLimits(self.memory_mb),
                        accepts=accepts,
                        leaves_nothing=True,
                    )
                )
            except ProcessFailure as failure:
                message, code = failure.message, failure.exit_code
                if code is not None and self.exit_hint:
                    message = message.replace(ending_of(code), f"{ending_of(code)} ({self.exit_hint})", 1)
                raise EvaluatorFailure(message) from None

    def _command(self, scratch: str) -> str | list[str]:
        if self.isolation == "limits":
            return self.script
        arguments = ["/bin/sh", "-c", self.script] if isinstance(self.script, str) else self.script
        return [*prefix(self.isolation, (scratch, *self.writable), self.cwd, self.port), *arguments]


_SCRIPT_SUFFIXES = (".py", ".js", ".ts", ".mjs", ".cjs", ".sh", ".rb")


def script_problems(script: str | list[str], folder: str) -> Problems:
    """Warn about each word of a command that looks like a script but does not exist."""
    problems = Problems()
    folder = os.path.normpath(folder)
    for index, word in enumerate(script.split() if isinstance(script, str) else script):
        if word.endswith(_SCRIPT_SUFFIXES) and not os.path.exists(os.path.join(folder, word)):
            place = () if isinstance(script, str) else (index,)
            problems.warning(place, f"The script '{word}' was not found in {folder}")
    return problems


def warm_script(script: str | list[str], cwd: str) -> str | None:
    """Return the file of a script that can be kept warm; None for other programs, which are started for each answer."""
    try:
        arguments = shlex.split(script) if isinstance(script, str) else script
    except ValueError:
        return None
    if len(arguments) != 2 or not arguments[1].endswith(".py") or not _is_this_python(arguments[0]):
        return None
    path = os.path.abspath(os.path.join(cwd, arguments[1]))
    try:
        return path if _defines_judge(path, stamp_of(path)) else None
    except OSError:
        return None


@lru_cache(maxsize=64)
def _is_this_python(name: str) -> bool:
    # Compare folders too: another environment's Python may be a link to the same file, with other packages.
    found = shutil.which(name)
    if found is None or not sys.executable:
        return False
    same_folder = os.path.dirname(os.path.abspath(found)) == os.path.dirname(os.path.abspath(sys.executable))
    return same_folder and os.path.samefile(found, sys.executable)


@lru_cache(maxsize=256)
def _defines_judge(path: str, _stamp: tuple[int, int]) -> bool:
    """Return whether a file defines the function, by parsing it without running it."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return False
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(each, kinds) and each.name == SCRIPT_FUNCTION for each in tree.body)
