"""A program of the user's that reads JSON and prints an answer: run with limits, its whole group of processes ended."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from agentv.evaluators.code.isolation import Way, limit_process, prefix, scratch_folder
from agentv.model.evaluator import EvaluatorFailure
from agentv.settings.diagnostics import Problems
from agentv.settings.environment import Environment, judge_environment
from agentv.support.processes.subprocesses import ProcessFailure, ProcessSpec, run_process

SCRIPT_FUNCTION = "agentv_judge"
"""The function that a script defines to be kept warm instead of being started for each answer."""

MAX_OUTPUT_BYTES = 4 * 1024 * 1024


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What is run and where: a list of arguments, or a string for the shell. `variables` are set besides."""

    script: str | list[str]
    cwd: str
    timeout_s: float
    environment: Environment = Environment()
    variables: Mapping[str, str] = {}
    memory_mb: int = 4096
    way: Way = "limits"
    port: int | None = None

    async def run(self, stdin: bytes) -> str:
        """What the program prints. Raises EvaluatorFailure when it ends with an error, too late or with too much."""
        with scratch_folder(self.way) as scratch:
            variables = {**self.variables, **({"TMPDIR": scratch} if scratch else {})}
            try:
                ended = await run_process(
                    ProcessSpec(
                        command=self._command(scratch),
                        cwd=self.cwd,
                        env={**judge_environment(self.environment), **variables},
                        timeout_s=self.timeout_s,
                        stdin=stdin,
                        max_output_bytes=MAX_OUTPUT_BYTES,
                        grace_s=0,
                        noun="The program",
                        started=lambda pid: limit_process(pid, self.memory_mb),
                        leaves_nothing=True,
                    )
                )
            except ProcessFailure as failure:
                raise EvaluatorFailure(failure.message) from None
        return ended.stdout

    def _command(self, scratch: str) -> str | list[str]:
        if self.way == "limits":
            return self.script
        arguments = ["/bin/sh", "-c", self.script] if isinstance(self.script, str) else self.script
        return [*prefix(self.way, scratch, self.cwd, self.port), *arguments]


_ENDINGS = (".py", ".js", ".ts", ".mjs", ".cjs", ".sh", ".rb")


def script_problems(script: str | list[str], folder: str) -> Problems:
    """A warning for each word of a command that looks like a script and is no file."""
    problems = Problems()
    folder = os.path.normpath(folder)
    for index, word in enumerate(script.split() if isinstance(script, str) else script):
        if word.endswith(_ENDINGS) and not os.path.exists(os.path.join(folder, word)):
            place = () if isinstance(script, str) else (index,)
            problems.warning(place, f"The script '{word}' was not found in {folder}")
    return problems


def warm_script(script: str | list[str], cwd: str) -> str | None:
    """The file of a program that opts in; None for every other program, which is started for each answer."""
    try:
        arguments = shlex.split(script) if isinstance(script, str) else script
    except ValueError:
        return None
    if len(arguments) != 2 or not arguments[1].endswith(".py") or not _is_this_python(arguments[0]):
        return None
    path = os.path.abspath(os.path.join(cwd, arguments[1]))
    try:
        status = os.stat(path)
        return path if _defines_it(path, status.st_mtime_ns, status.st_size) else None
    except OSError:
        return None


@lru_cache(maxsize=64)
def _is_this_python(name: str) -> bool:
    # By the folder it lies in: another environment's Python may be a link to the same file, with other packages.
    found = shutil.which(name)
    if found is None or not sys.executable:
        return False
    same_folder = os.path.dirname(os.path.abspath(found)) == os.path.dirname(os.path.abspath(sys.executable))
    return same_folder and os.path.samefile(found, sys.executable)


@lru_cache(maxsize=256)
def _defines_it(path: str, changed: int, size: int) -> bool:  # noqa: ARG001 - another version is another question
    """Whether a file defines the function, by its text alone: nothing of it is run."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return False
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(each, kinds) and each.name == SCRIPT_FUNCTION for each in tree.body)
