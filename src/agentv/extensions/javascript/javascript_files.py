"""Call functions of JavaScript files with Node.js, in a process that stays open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from agentv.support.processes.function_process import CallFailure, function_process

_TYPESCRIPT = (".ts", ".mts", ".cts")
_RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "function_runner.mjs")
_SECONDS = 60.0


def call_file(
    path: str, name: str, arguments: list[Any], env: Mapping[str, str] | None = None, *, is_transform: bool = False
) -> Any:
    """Return what a function of a file returns, or the value that the file exports. Raises CallFailure.

    A transform may be the default export, whatever its name.
    """
    process = function_process([_program(path), _RUNNER], path, os.environ if env is None else env)
    reply = process.call({"name": name, "arguments": arguments, "isTransform": is_transform}, _SECONDS)
    if "error" in reply:
        raise CallFailure(str(reply["error"]))
    return reply["value"]


def _program(path: str) -> str:
    """Return the program that runs a file: Bun for TypeScript if it is installed, otherwise Node.js."""
    names = ("bun", "node") if path.lower().endswith(_TYPESCRIPT) else ("node",)
    program = next((place for name in names if (place := shutil.which(name))), None)
    if program is None:
        raise CallFailure("JavaScript files need Node.js, and `node` is not on the PATH. Install Node.js")
    return program
