"""What in a template of a workspace needs trust: settings that tools execute on their own, and links out of it."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from agentv.settings.project import is_inside
from agentv.trust.roots import in_project

MOST_ENTRIES = 100_000

_TOOL_SETTINGS = frozenset(
    (
        *(".git", ".claude", ".codex", ".copilot", ".gemini", ".opencode", ".pi", ".cursor", ".windsurf", ".kiro"),
        *(".vscode", ".idea", ".zed", ".devcontainer", ".husky"),
        *(".mcp.json", "opencode.json", "opencode.jsonc", "bunfig.toml", ".aider.conf.yml"),
    )
)
"""Names that agents, editors and Git execute on their own, in any folder that they work in."""
_VARIABLES = ".env"
"""The beginning of files with variables, such as the address of an API, which agents read in their folder."""


def template_uses(template: str) -> Iterator[str]:
    """Yield what needs trust in a template, at any depth. Links are not followed.

    In a template of the project, links may lead anywhere. What is too large to be searched needs trust as a whole.
    """
    root, count = os.path.realpath(template), 0
    checks_links = not in_project(root)
    for parent, folders, files in os.walk(template):
        folders.sort()
        names = sorted((*folders, *files))
        count += len(names)
        if count > MOST_ENTRIES:
            yield f"{template} (more than {MOST_ENTRIES:,} files, not searched)"
            return
        if is_repository(names):
            yield f"{parent} (a Git repository)"
        for name in names:
            path = os.path.join(parent, name)
            if _is_setting(name, os.path.basename(parent)):
                yield path
            elif checks_links and os.path.islink(path) and _leads_out(path, root):
                yield f"link to {os.readlink(path)} ({path})"
        folders[:] = [name for name in folders if not _is_setting(name, os.path.basename(parent))]


def is_tool_setting(path: str) -> bool:
    """Whether a path in a workspace has a name that tools execute on their own."""
    parts = path.replace("\\", "/").split("/")
    return any(_is_setting(part, folder) for folder, part in zip(("", *parts), parts, strict=False))


def _is_setting(name: str, folder: str) -> bool:
    """Whether a file or folder with this name, in a folder with another, has settings of tools."""
    name = name.lower()
    is_hook = name == "hooks" and folder.lower() == ".github"  # of Copilot
    return name in _TOOL_SETTINGS or name.startswith(_VARIABLES) or is_hook


def added_repositories(template: str, paths: Iterable[str]) -> Iterator[str]:
    """Yield the folders that Git takes for repositories after files were added to a template, each file at its path."""
    names: dict[str, set[str]] = {}
    for path in paths:
        parts = os.path.normpath(path).split(os.sep)
        for depth, part in enumerate(parts):
            names.setdefault(os.path.join("", *parts[:depth]), set()).add(part)
    for folder, added in names.items():
        with suppress(OSError):
            if template:
                added |= set(os.listdir(os.path.join(template, folder)))
        if is_repository(list(added)):
            yield f"{folder or '.'} (a Git repository)"


def is_repository(names: list[str]) -> bool:
    """Whether Git takes a folder with these names for a repository, whatever the folder is called."""
    lower_names = {name.lower() for name in names}
    return "head" in lower_names and ("commondir" in lower_names or {"objects", "refs"} <= lower_names)


def _leads_out(link: str, root: str) -> bool:
    """Whether a link leads out of the copy of a template: an absolute one always does."""
    return os.path.isabs(os.readlink(link)) or not is_inside(os.path.realpath(link), root)
