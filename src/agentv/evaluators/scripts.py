"""Scripts that may be kept warm: Python files, run by this very Python, that define a function for it."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import sys
from functools import lru_cache
from pathlib import Path

from agentv.evaluators.pool.setup import SCRIPT_FUNCTION
from agentv.problems import Problems

_ENDINGS = (".py", ".js", ".ts", ".mjs", ".cjs", ".sh", ".rb")


def script_problems(script: str | list[str], folder: str) -> Problems:
    """A warning for each word of a command that looks like a script and is no file."""
    problems = Problems()
    folder = os.path.normpath(folder)
    for word in script.split() if isinstance(script, str) else script:
        if word.endswith(_ENDINGS) and not os.path.exists(os.path.join(folder, word)):
            problems.warning((), f"The script '{word}' was not found in {folder}")
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
