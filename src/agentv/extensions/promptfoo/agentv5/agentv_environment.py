"""Environments of AgentV (TypeScript) 5 on this machine, as workspaces: a folder, and a command that prepares it."""

from __future__ import annotations

import os
from typing import Any

from agentv.datasets.foreign.values import text_of
from agentv.extensions.promptfoo.suite_files import SuiteFiles

_SETUP = """
case $0 in /*) workdir=$0 ;; *) workdir=$AGENTV_DATASET_FOLDER/$0 ;; esac
mkdir -p "$workdir" && workdir=$(cd "$workdir" && pwd) || exit
AGENTV_ENVIRONMENT_WORKDIR=$workdir "$@" && cp -R "$workdir"/. "$AGENTV_WORKSPACE_PATH"
"""
"""Runs a setup command as AgentV does: next to the suite, with a folder that it may create. Jobs get copies of that."""

_CONTAINER = "only `host` is. Run agentv in the container, or write an environment of type `host`"


def workspace_of(environment: Any, files: SuiteFiles) -> dict[str, Any]:
    """Return the workspace of an environment. Paths in a file of its own are relative to it. Raises ValueError."""
    folder = ""
    if isinstance(environment, str):
        path = files.path(environment)
        folder, environment = os.path.relpath(os.path.dirname(path) or ".", files.folder), files.data(path)
    kind = environment.get("type", "host") if isinstance(environment, dict) else None
    if kind != "host":
        raise ValueError(f"'environment' of type '{text_of(kind)}' is not supported: {_CONTAINER}")
    for key in environment.keys() - {"type", "workdir", "setup"}:
        raise ValueError(f"'environment.{key}' is not supported")
    setup = environment.get("setup")
    setup = {"command": setup} if isinstance(setup, str | list) else dict(setup or {})
    for key in setup.keys() - {"command", "cwd", "timeout_ms"}:
        raise ValueError(f"'environment.setup.{key}' is not supported")
    workdir = environment.get("workdir")
    if isinstance(workdir, str) and workdir.strip():
        workdir = os.path.normpath(os.path.join(folder, workdir))
        if not setup and os.path.isdir(os.path.join(files.folder, workdir)):
            return {"template": workdir}
        command = setup.get("command", ["true"])
        words = ["sh", "-c", command] if isinstance(command, str) else command
        if not isinstance(words, list):
            raise ValueError(f"'environment.setup.command' must be a list of texts, got {text_of(words)[:80]}")
        setup["command"] = ["sh", "-c", _SETUP.strip(), workdir, *words]
    if folder and setup:
        setup["cwd"] = os.path.join(folder, setup.get("cwd") or "")
    return {"hooks": {"before_all": setup}} if setup else {}
