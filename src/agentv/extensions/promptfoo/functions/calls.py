"""Call the functions that a configuration of promptfoo names, if its files are trusted. Results are cached."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import lru_cache
from typing import Any

from agentv.extensions.promptfoo.functions import CodeNotRun
from agentv.model.values import to_json
from agentv.registry import service
from agentv.settings.project import project_root
from agentv.support.processes.function_process import CallFailure, function_process
from agentv.support.user_code import may_import
from agentv.trust.env_file import load_environment
from agentv.trust.policy import load_policy, why_denied
from agentv.trust.roots import is_trusted

FUNCTION_FILE = re.compile(r"(?:file://)?(?P<file>.+\.(?:py|[cm]?[jt]s))(?::(?P<name>[\w.]+))?$")
"""A file of Python or JavaScript, and the name of a function in it."""

PYTHON_RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_runner.py")
_SECONDS = 60.0
_CACHE_SIZE = 20_000


def check_allowed(label: str, path: str) -> None:
    """Raise CodeNotRun if the command only checks, and ValueError if the program may not run."""
    if not may_import():
        raise CodeNotRun(f"'{label}' is not called by a command that only checks files")
    policy = load_policy()
    if policy.programs == "deny":
        raise ValueError(f"{why_denied()[0]} allows no programs, so that '{label}' is not called")
    if policy.sandbox == "required":
        raise ValueError(f"Your policy requires a sandbox, and '{label}' cannot be isolated")
    if not is_trusted(path):
        raise ValueError(f"'{label}' is not called: {path} is not trusted")


def call_function(path: str, name: str, arguments: list[Any], *, is_transform: bool = False) -> Any:
    """Return what a function of a file returns. Raises CodeNotRun, or ValueError with the reason of a failure."""
    label = f"{os.path.basename(path)}:{name}" if name else os.path.basename(path)
    check_allowed(label, path)
    status = os.stat(path)
    try:
        text = _called((path, name, is_transform), (status.st_mtime_ns, status.st_size), to_json(arguments))
    except CallFailure as failure:
        raise ValueError(f"'{label}' failed: {failure}") from None
    return json.loads(text)


@lru_cache(maxsize=_CACHE_SIZE)
def _called(function: tuple[str, str, bool], stamp: tuple[int, int], arguments: bytes) -> str:  # noqa: ARG001
    """Return the JSON of what a function returns. A file that changed has another stamp, and is called again."""
    path, name, is_transform = function
    folder = os.path.dirname(path)
    env = load_environment(folder, project_root(folder)).variables
    values = json.loads(arguments)
    if not path.endswith(".py"):
        call = service("javascript-files", f"The file {path}")
        return json.dumps(call(path, name, values, env, is_transform=is_transform))
    process = function_process([sys.executable, PYTHON_RUNNER], path, env)
    reply = process.call({"name": name, "arguments": values}, _SECONDS)
    if "error" in reply:
        raise CallFailure(str(reply["error"]))
    return json.dumps(reply["value"])


def run_program(words: list[str], path: str, argument: Any, folder: str) -> str:
    """Return what a program prints in a folder for an argument, as JSON. Raises as `call_function` does."""
    check_allowed(os.path.basename(path), path)
    command = [*words, to_json(argument).decode()]
    env = load_environment(folder, project_root(folder)).variables
    try:
        result = subprocess.run(  # noqa: S603 - the user's own program
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeError) as error:
        raise ValueError(f"'{os.path.basename(path)}' failed: {error}") from None
    return result.stdout.strip()
