"""The arms of a comparison: the same target with and without something, as variants of the configured target."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from agentv.errors import UsageError
from agentv.registry import TARGETS
from agentv.targets.catalog import Targets
from agentv.targets.target import ModelApi, Target
from agentv.targets.targets_file import Variant
from agentv.targets.workspace_target import SkillTarget, WorkspaceTarget, find_skill, skill_name

WITHOUT, PREVIOUS, WITH, OTHER = "without", "previous", "with", "against"


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a comparison: a target, and the settings that differ from those of the file."""

    base: str
    label: str
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the variant in runs."""
        return f"{self.base}-{self.label}"

    @property
    def variant(self) -> Variant:
        """The target to run."""
        return Variant(name=self.name, base=self.base, settings=self.settings)


def coding_agents(file: Targets, selection: Iterable[str]) -> list[SkillTarget]:
    """Return the named coding agents, else all of a targets file. Raises UsageError for another kind of target."""
    names = file.pick(selection) if (selection := tuple(selection)) else file.names
    agents: list[SkillTarget] = []
    for name in names:
        if not selection and not _is_agent(file, name):
            continue
        target = file.get(name)
        if target.takes_skills:
            agents.append(cast("SkillTarget", target))
        elif selection:
            detail = f"Its provider is '{target.provider}'; skills are installed for coding agents"
            raise UsageError(
                f"Target '{name}' is not a coding agent", detail, "Use `agentv ablate` for a prompt or file"
            )
    if not agents:
        hint = "Add a target with provider claude-code, codex, gemini-cli, copilot-cli, opencode or pi-coding-agent"
        raise UsageError("No target is a coding agent", f"Targets: {', '.join(file.names) or 'none'}", hint)
    return agents


def _is_agent(file: Targets, name: str) -> bool:
    """Whether a target's provider is a coding agent, without the values of its variables."""
    provider = file.raw(name).get("provider")
    kind_name = TARGETS.canonical(provider) if isinstance(provider, str) else None
    return kind_name is not None and getattr(TARGETS.find(kind_name), "takes_skills", False)


def skill_arms(target: SkillTarget, home: str, folders: Mapping[str, str]) -> list[Arm]:
    """Return the arms of an agent: without the skill, and with each version of it, by label and folder."""
    name = next(skill_name(folder) for folder in folders.values())
    pairs = zip(target.skills, target.skill_folders(home), strict=True)
    others = [skill for skill, folder in pairs if skill_name(folder) != name]
    hidden = [*target.hidden_skills, name]
    versions = {WITHOUT: [], **{label: [os.path.abspath(folder)] for label, folder in folders.items()}}
    return [
        Arm(base=target.name, label=label, settings={"skills": [*others, *own], "hidden_skills": hidden})
        for label, own in versions.items()
    ]


def check_leaks(target: SkillTarget, name: str, home: str, temporary: str) -> None:
    """Raise UsageError if the agent would see the skill anyway: in a home, its folder, or a parent of that."""
    template = None if target.home_template is None else os.path.join(home, os.path.expanduser(target.home_template))
    own = os.path.expanduser("~") if target.user_settings else template
    work = temporary if target.cwd is None else os.path.join(home, os.path.expanduser(target.cwd))
    moved = {**os.environ, **target.env} if target.user_settings else {}
    if (leak := find_skill(name, target.folders_for_skills(own, work, moved))) is None:
        return
    detail = f"{leak} is a skill of the same name, which it would see without yours too"
    hint = f"Move it away while you measure: mv {leak} {os.path.dirname(os.path.dirname(leak))}/{name}.away"
    if target.cwd is not None:
        hint = "Remove `cwd` of the target: each job then has a folder of its own"
    raise UsageError(f"Target '{target.name}' cannot be measured without the skill '{name}'", detail, hint)


def prompt_arms(target: Target, text: str, other: str | None) -> list[Arm]:
    """Return the arms of a target with a system prompt, and without it or with another one."""
    if "system_prompt" not in target.__struct_fields__:
        detail = f"Provider '{target.provider}' has no `system_prompt`"
        raise UsageError(f"Target '{target.name}' cannot have a prompt", detail, "Use a model API or a coding agent")
    return _pair(target.name, {"system_prompt": text}, {"system_prompt": other}, has_other=other is not None)


def file_arms(target: Target, path: str, file: str, other: str | None) -> list[Arm]:
    """Return the arms of a target with a file in the workspace, and without it or with another one."""
    if not isinstance(target, WorkspaceTarget):
        detail = f"Targets of provider '{target.provider}' do not work in a folder"
        raise UsageError(f"Target '{target.name}' has no workspace", detail, "Use a coding agent or a `cli` target")
    other_files = {name: source for name, source in target.workspace_files.items() if name != path}
    before = None if other is None else os.path.abspath(other)
    settings = [{"workspace_files": {**other_files, path: source}} for source in (os.path.abspath(file), before)]
    return _pair(target.name, *settings, has_other=other is not None)


def mcp_arms(target: Target, name: str, settings: Mapping[str, Any]) -> list[Arm]:
    """Return the arms of a target with and without one of its MCP servers. `settings` are its settings in the file."""
    tools = settings.get("tools")
    tools = list(tools) if isinstance(tools, list) and isinstance(target, ModelApi) else []
    matches = [tool for tool in tools if isinstance(tool, dict) and _names(tool.get("mcp"), name)]
    if len(matches) != 1:
        servers = [tool["mcp"] for tool in tools if isinstance(tool, dict) and "mcp" in tool]
        names = "; ".join(item if isinstance(item, str) else " ".join(map(str, item)) for item in servers) or "none"
        what = "has no MCP server" if not matches else "has several MCP servers"
        hint = "MCP servers are in `tools` of model targets; for a coding agent, pass its file: --file .mcp.json"
        raise UsageError(f"Target '{target.name}' {what} '{name}'", f"Its MCP servers: {names}", hint)
    other_tools = [tool for tool in tools if tool is not matches[0]]
    return _pair(target.name, {"tools": tools}, {"tools": other_tools}, has_other=False)


def _names(server: Any, name: str) -> bool:
    """Whether a command or an address of an MCP server contains a name."""
    words = [server] if isinstance(server, str) else server if isinstance(server, list) else []
    return any(name.lower() in str(word).lower() for word in words)


def _pair(base: str, own: dict[str, Any], other: dict[str, Any], *, has_other: bool) -> list[Arm]:
    label = OTHER if has_other else WITHOUT
    return [Arm(base=base, label=label, settings=other), Arm(base=base, label=WITH, settings=own)]
