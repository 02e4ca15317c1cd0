"""Programs of the user that read JSON and print an answer: run with limits, or isolated as far as the entry asks."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.settings.diagnostics import Problems
from agentv.settings.environment import Environment, judge_environment
from agentv.support import sandbox as sandbox_tools
from agentv.support.subprocesses import ProcessFailure, ProcessSpec, run_process, temporary_folder

Sandbox = Literal["limits", "preferred", "required"]
"""`limits`: of memory and files. `preferred`: isolated where the machine can. `required`: isolated, or not at all."""

Way = Literal["limits", "landlock", "bubblewrap"]
Megabytes = Annotated[int, Meta(ge=1)]

MAX_FILE_BYTES = 1024 * 1024 * 1024


def refusal_of(sandbox: Sandbox, with_proxy: bool = False) -> str:
    """Why this machine cannot isolate as an entry requires; empty if it can or need not."""
    if sandbox == "required":
        try:
            way_for(sandbox, with_proxy)
        except EvaluatorFailure as failure:
            return str(failure)
    return ""


def way_for(sandbox: Sandbox, with_proxy: bool = False) -> Way:
    """Return how to isolate a process. Raises EvaluatorFailure if the requirement cannot be met."""
    if sandbox == "limits":
        return "limits"
    try:
        return "landlock" if sandbox_tools.way_to_isolate(with_proxy) == "landlock" else "bubblewrap"
    except sandbox_tools.CannotIsolate as error:
        if sandbox == "required":
            raise EvaluatorFailure(f"'sandbox: required' cannot be met here: {error}") from None
        return "limits"


def prefix(way: Way, scratch: str, cwd: str, port: int | None) -> list[str]:
    """Return the arguments to put before a program's own."""
    if way == "limits":
        return []
    return sandbox_tools.launched([scratch], port) if way == "landlock" else sandbox_tools.wrapped([scratch], cwd)


@contextmanager
def scratch_folder(way: Way) -> Iterator[str]:
    """A temporary folder that an isolated process may write to; empty for others, which use the system's."""
    if way == "limits":
        yield ""
    else:
        with temporary_folder("agentv-judge-") as folder:
            yield folder


def limit_process(pid: int, memory_mb: int) -> None:
    """Limit another process, where the system can: memory, the size of a file, no core dumps."""
    import resource  # late: POSIX only

    if not hasattr(resource, "prlimit"):
        return
    data_bytes = memory_mb * 1024 * 1024
    with suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
        resource.prlimit(pid, resource.RLIMIT_DATA, (data_bytes, data_bytes))


def with_level(score: Score, sandbox: Sandbox, way: Way, with_proxy: bool = False) -> Score:
    """Add the level that was reached to the details, where an entry asks for more than the default.

    Details that are not an object have no place for it and stay as they are.
    """
    if sandbox == "limits" or not isinstance(score.details, dict | None):
        return score
    level: dict[str, Any] = {"level": "limits"}
    if way != "limits":
        level = {"level": "isolated", "by": way, "network": "proxy" if with_proxy else "none"}
    return msgspec.structs.replace(score, details={**(score.details or {}), "sandbox": level})


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
