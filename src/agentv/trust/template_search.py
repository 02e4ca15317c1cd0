"""What in a template of a workspace needs trust: settings that tools execute on their own, and links out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from agentv.settings.project import is_inside
from agentv.trust.roots import in_project

MOST_ENTRIES = 100_000

_TOOL_SETTINGS = frozenset(
    (
        *(".git", ".claude", ".codex", ".cursor", ".gemini", ".opencode", ".pi", ".vscode", ".devcontainer", ".husky"),
        *(".envrc", ".mcp.json", "opencode.json"),
    )
)
"""Names that agents, editors and Git execute on their own, in any folder that they work in."""


def template_uses(template: str) -> Iterator[str]:
    """Yield what needs trust in a template, at any depth. Links are not followed.

    In a template of the project, links may lead anywhere. What is too large to be searched needs trust as a whole.
    """
    root, seen = os.path.realpath(template), 0
    checks_links = not in_project(root)
    for parent, folders, files in os.walk(template):
        folders.sort()
        names = sorted((*folders, *files))
        seen += len(names)
        if seen > MOST_ENTRIES:
            yield f"{template} (more than {MOST_ENTRIES:,} files, not searched)"
            return
        if is_repository(names):
            yield f"{parent} (a Git repository)"
        for name in names:
            path = os.path.join(parent, name)
            if name.lower() in _TOOL_SETTINGS:
                yield path
            elif checks_links and os.path.islink(path) and _leads_out(path, root):
                yield f"link to {os.readlink(path)} ({path})"
        folders[:] = [name for name in folders if name.lower() not in _TOOL_SETTINGS]


def is_tool_setting(path: str) -> bool:
    """Whether a path in a workspace has a name that tools execute on their own."""
    return any(part.lower() in _TOOL_SETTINGS for part in path.replace("\\", "/").split("/"))


def is_repository(names: list[str]) -> bool:
    """Whether Git takes a folder with these names for a repository, whatever the folder is called."""
    found = {name.lower() for name in names}
    return "head" in found and ("commondir" in found or {"objects", "refs"} <= found)


def _leads_out(link: str, root: str) -> bool:
    """Whether a link leads out of the copy of a template: an absolute one always does."""
    return os.path.isabs(os.readlink(link)) or not is_inside(os.path.realpath(link), root)
