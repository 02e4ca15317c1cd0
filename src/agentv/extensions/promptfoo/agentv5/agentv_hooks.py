"""Lifecycle extensions of AgentV (TypeScript) 5 as hooks and files of a workspace."""

from __future__ import annotations

import os
import shlex
from typing import Any

from agentv.datasets.foreign.values import is_blank, text_of

_HOOKS = {"beforeAll": "before_all", "beforeEach": "before_each", "afterEach": "after_each", "afterAll": "after_all"}
_EXTENSIONS_MS = 60_000
"""Time for extensions after a setup with a time limit."""

_RULES = "agentv:agent-rules"
_RULE_KINDS = ("skills", "hooks", "agents", "rules")
_PROGRAMS = {".mjs": "node", ".js": "node", ".cjs": "node", ".ts": "bun", ".mts": "bun", ".cts": "bun"}
_RUN = """
import { pathToFileURL } from "node:url";
let text = "";
for await (const part of process.stdin) text += part;
const [hookName, ...calls] = process.argv.slice(-COUNT);
for (let index = 0; index < calls.length; index += 2) {
  const module = await import(pathToFileURL(calls[index]));
  const hook = module[calls[index + 1]] ?? module.default?.[calls[index + 1]];
  if (typeof hook !== "function") throw new Error(`${calls[index]} does not export ${calls[index + 1]}`);
  await hook({ hook_name: hookName, eval_dir: process.cwd(), ...JSON.parse(text) }, { hookName });
}
"""
"""Imports modules one after another, and calls a function of each with the context of the hook."""


def workspace_of_extensions(extensions: Any) -> dict[str, Any]:
    """Return the workspace with the hooks and files of extensions. Raises ValueError for one that is not supported."""
    calls: dict[str, list[str]] = {}
    files: dict[str, str] = {}
    for extension in extensions if isinstance(extensions, list) else [extensions]:
        id = extension.get("id") if isinstance(extension, dict) else extension
        if not isinstance(id, str) or not id.startswith((_RULES, "file://")):
            raise ValueError(f"The extension '{text_of(extension)[:80]}' is not supported: name a file or {_RULES}")
        if id.startswith(_RULES):
            files |= _rule_files(extension if isinstance(extension, dict) else {})
            continue
        path, _, function = id.removeprefix("file://").rpartition(":")
        hook = extension.get("hook", function) if isinstance(extension, dict) else function
        if hook not in _HOOKS or os.path.splitext(path)[1] not in _PROGRAMS:
            raise ValueError(f"The extension '{id}' must name a JavaScript file and a hook: file://hooks.mjs:beforeAll")
        calls.setdefault(hook, []).extend((path, function))
    hooks = {_HOOKS[hook]: {"command": _command(hook, names)} for hook, names in calls.items()}
    return {**({"hooks": hooks} if hooks else {}), **({"files": files} if files else {})}


def with_extensions(workspace: dict[str, Any], extensions: Any) -> dict[str, Any]:
    """Return the workspace of an environment whose setup runs before the hooks of extensions for all jobs."""
    setup, hooks = workspace.get("hooks"), workspace_of_extensions(extensions).get("hooks", {})
    if not setup or "before_all" not in hooks:
        return workspace
    first = setup["before_all"]
    limit = {"timeout_ms": first["timeout_ms"] + _EXTENSIONS_MS} if "timeout_ms" in first else {}
    steps = " && ".join(f'printf %s "$context" | ({_shell_line(hook)})' for hook in (first, hooks["before_all"]))
    return {**workspace, "hooks": {"before_all": {"command": ["sh", "-c", f"context=$(cat)\n{steps}"], **limit}}}


def _shell_line(hook: dict[str, Any]) -> str:
    command = hook["command"] if isinstance(hook["command"], str) else shlex.join(hook["command"])
    return f"cd {shlex.quote(hook['cwd'])} && {command}" if hook.get("cwd") else command


def _rule_files(settings: dict[str, Any]) -> dict[str, str]:
    """Return where the rules of an agent are copied to in the workspace; those already in it stay where they are."""
    files: dict[str, str] = {}
    for kind in _RULE_KINDS:
        sources = settings.get(kind)
        for source in [] if is_blank(sources) else sources if isinstance(sources, list) else [sources]:
            files[f".agentv/agent-rules/{kind}/{os.path.basename(str(source).rstrip('/'))}"] = str(source)
    return files


def _command(hook: str, names: list[str]) -> list[str]:
    program = "bun" if any(_PROGRAMS[os.path.splitext(path)[1]] == "bun" for path in names[::2]) else "node"
    options = ["--input-type=module"] if program == "node" else []
    return [program, *options, "-e", _RUN.strip().replace("COUNT", str(1 + len(names))), hook, *names]
