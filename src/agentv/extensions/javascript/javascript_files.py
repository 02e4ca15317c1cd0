"""Call functions of JavaScript files with Node.js, in a process that stays open."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentv.support.processes.function_process import CallFailure, function_process

_TYPESCRIPT = (".ts", ".mts", ".cts")
_TYPES_WITH_FLAG = (22, 6)
_TYPES = (22, 18)
"""The versions of Node.js that run TypeScript: with a flag, and without."""

RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "function_runner.mjs")
"""The program that calls functions and providers of a file."""

_CHECK_RUNNER = os.path.join(os.path.dirname(RUNNER), "node_runner.mjs")
_SECONDS = 60.0


def call_file(
    path: str, name: str, arguments: list[Any], env: Mapping[str, str] | None = None, *, is_transform: bool = False
) -> Any:
    """Return what a function of a file returns, or the value that the file exports. Raises CallFailure.

    A transform may be the default export, whatever its name.
    """
    process = function_process([*program_of(path), RUNNER], path, os.environ if env is None else env)
    reply = process.call({"name": name, "arguments": arguments, "isTransform": is_transform}, _SECONDS)
    if "error" in reply:
        raise CallFailure(str(reply["error"]))
    return reply["value"]


def check_program(path: str) -> list[str]:
    """Return the program that calls one function of a file with an answer and a context. Raises CallFailure.

    Its arguments are the name of the function, and that of another export to call if there is no default one.
    """
    return [*program_of(path), _CHECK_RUNNER, path]


def program_of(path: str) -> list[str]:
    """Return the program that runs a file: Node.js; for TypeScript Bun, or a Node.js that can. Raises CallFailure."""
    is_typescript = path.lower().endswith(_TYPESCRIPT)
    if is_typescript and (bun := shutil.which("bun")):
        return [bun]
    if (node := shutil.which("node")) is None:
        raise CallFailure("JavaScript files need Node.js, and `node` is not on the PATH. Install Node.js")
    return [node, *_typescript_options(node, os.path.dirname(path))] if is_typescript else [node]


def _typescript_options(node: str, folder: str) -> list[str]:
    parents = [folder]
    while parents[-1] != os.path.dirname(parents[-1]):
        parents.append(os.path.dirname(parents[-1]))
    if any(os.path.isdir(os.path.join(parent, "node_modules", "tsx")) for parent in parents):
        return ["--import", "tsx"]
    version, text = _version_of(node)
    if version < _TYPES_WITH_FLAG:
        hint = "Install Bun or Node.js 22.6 or later, or run `npm install tsx` in the project"
        raise CallFailure(f"TypeScript files need Bun, the package tsx, or Node.js 22.6; here is {text}. {hint}")
    return [] if version >= _TYPES else ["--experimental-strip-types"]


@lru_cache(maxsize=4)
def _version_of(node: str) -> tuple[tuple[int, ...], str]:
    text = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    return tuple(map(int, re.findall(r"\d+", text)[:2])), text
