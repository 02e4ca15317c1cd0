"""User programs that read JSON and print a score or a prompt: run with resource limits or in a sandbox."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from agentv.evaluators.base import Evaluator, Seconds, stamp_of
from agentv.model.environment import Environment
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.job import Judgement
from agentv.model.sandbox_settings import CONTAINERS, Megabytes
from agentv.sandbox import methods
from agentv.sandbox.confinement import Confinement
from agentv.sandbox.subprocesses import ProcessFailure, ProcessOutput, ProcessSpec, ending_of, run_process
from agentv.settings.child_environment import child_environment
from agentv.support.code_outline import parse_file
from agentv.support.processes.process_limits import ProcessLimits
from agentv.support.temporary_folders import temporary_folder

Sandbox = Literal["limits", "preferred", "required"]
"""`limits`: memory and file size. `preferred`: isolated if the machine supports it. `required`: isolated or refused."""


def confinement_for(sandbox: Sandbox, judgement: Judgement, with_proxy: bool = False) -> Confinement | None:
    """Return how to isolate a judge; None for limits only. Raises EvaluatorFailure if it must be but cannot be.

    The sandbox of the run isolates all judges. They run on this machine even if that is a container, whose image does
    not have their Python packages.
    """
    run = judgement.environment.sandbox.of()
    if sandbox == "limits" and run is None:
        return None
    engine = "auto" if run is None or run.engine in CONTAINERS else run.engine
    confinement = available_confinement("required" if run is not None else sandbox, with_proxy, engine)
    if confinement is None:
        return None
    origin = judgement.case.place.origin
    folders = dict.fromkeys(os.path.abspath(path) for path in (origin.root, origin.base_dir, judgement.workdir) if path)
    secret_files = (judgement.environment.path,) if judgement.environment.path else ()
    return replace(confinement, readable=tuple(folders), secret_files=secret_files)


def workspace_confinement(sandbox: Sandbox, judgement: Judgement) -> Confinement | None:
    """Return how to isolate a check of a workspace, which needs the same programs as the target: in its container."""
    run = judgement.environment.sandbox.of()
    if run is None or run.engine not in CONTAINERS:
        return confinement_for(sandbox, judgement)
    from agentv.sandbox.sandbox import opened  # late: few runs use containers

    try:
        return opened(run, judgement.environment).confinement
    except methods.CannotConfine as error:
        raise EvaluatorFailure(f"The program cannot be isolated: {error}") from None


def available_confinement(sandbox: Sandbox, with_proxy: bool = False, engine: str = "auto") -> Confinement | None:
    """Return the isolation of this machine. If there is none, raises EvaluatorFailure or, if it is optional, None."""
    if not (problem := _sandbox_problem(with_proxy, engine)):
        return methods.confinement_by(engine)
    if sandbox == "required":
        raise EvaluatorFailure(f"'sandbox: required' is not possible on this machine: {problem}")
    return None


def _sandbox_problem(with_proxy: bool, engine: str = "auto") -> str:
    try:
        has_network = methods.confinement_by(engine).has_namespaces
    except methods.CannotConfine as error:
        return str(error)
    return "" if has_network or not with_proxy else "it cannot have a network of its own for the model proxy"


class SandboxedEvaluator(Evaluator, frozen=True, kw_only=True):
    """Settings of every type that runs user code."""

    timeout_seconds: Seconds = 60.0
    memory_mb: Megabytes = 4096
    sandbox: Sandbox = "limits"

    @property
    def refusal(self) -> str:
        """Why this machine cannot provide the required isolation."""
        try:
            if self.sandbox == "required":
                available_confinement(self.sandbox, self._has_proxy)
        except EvaluatorFailure as failure:
            return str(failure)
        return ""

    @property
    def caution(self) -> str:
        """A warning if this machine cannot provide the preferred isolation."""
        problem = _sandbox_problem(self._has_proxy) if self.sandbox == "preferred" else ""
        return (
            f"Evaluators with `sandbox: preferred` run without isolation on this machine: {problem}" if problem else ""
        )

    @property
    def _has_proxy(self) -> bool:
        return bool(getattr(self, "target_proxy", False))


def scratch_folder(confinement: Confinement | None) -> AbstractContextManager[str]:
    """Create a temporary folder that an isolated process may write to; empty for others."""
    return nullcontext("") if confinement is None else temporary_folder("agentv-judge-")


def with_level(score: Score, sandbox: Sandbox, confinement: Confinement | None, with_proxy: bool = False) -> Score:
    """Add the isolation level to the score's details, unless it is the default level.

    Details that are not an object stay unchanged.
    """
    if not isinstance(score.details, dict | None) or (sandbox == "limits" and confinement is None):
        return score
    level: dict[str, Any] = {"level": "limits"}
    if confinement is not None:
        level = {"level": "isolated", "by": confinement.method, "network": "proxy" if with_proxy else "none"}
    return replace(score, details={**(score.details or {}), "sandbox": level})


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
    confinement: Confinement | None = None
    listener: int | None = None
    writable: tuple[str, ...] = ()
    exit_hint: str = ""
    noun: str = "The program"

    @classmethod
    def of(
        cls, settings: Any, judgement: Judgement, *, script: Any = None, folder: str | None = None, **limits: Any
    ) -> Program:
        """Return the program in an evaluator's settings: `script`, `cwd` in a folder, and `timeout_seconds`.

        It is isolated if the run is.
        """
        limits.setdefault("confinement", confinement_for("limits", judgement))
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
        confinement, limits = self.confinement, ProcessLimits(self.memory_mb)
        if confinement is not None:
            limits = ProcessLimits(self.memory_mb, folders=self.writable)
            writable = (*confinement.writable, *self.writable)
            confinement = replace(confinement, writable=writable, memory_mb=self.memory_mb)
        try:
            return await run_process(
                ProcessSpec(
                    command=self.script,
                    cwd=self.cwd,
                    env={**child_environment(environment=self.environment), **self.variables},
                    timeout_s=self.timeout_s,
                    stdin=stdin,
                    max_output_bytes=MAX_OUTPUT_BYTES,
                    grace_s=0,
                    noun=self.noun,
                    limits=limits,
                    accepts=accepts,
                    leaves_nothing=True,
                    confinement=confinement,
                    listener=self.listener,
                )
            )
        except ProcessFailure as failure:
            message, code = failure.message, failure.exit_code
            if code is not None and self.exit_hint:
                message = message.replace(ending_of(code), f"{ending_of(code)} ({self.exit_hint})", 1)
            raise EvaluatorFailure(message) from None


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
    path = shutil.which(name)
    if path is None or not sys.executable:
        return False
    same_folder = os.path.dirname(os.path.abspath(path)) == os.path.dirname(os.path.abspath(sys.executable))
    return same_folder and os.path.samefile(path, sys.executable)


@lru_cache(maxsize=256)
def _defines_judge(path: str, _stamp: tuple[int, int]) -> bool:
    """Return whether a file defines the function, by parsing it without running it."""
    try:
        tree = parse_file(path)
    except (SyntaxError, ValueError):
        return False
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(node, kinds) and node.name == SCRIPT_FUNCTION for node in tree.body)
