"""Agent Skills of a coding agent: where agents look for them, and how they are installed for a call."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator

import msgspec

from agentv.model.workspace_settings import WorkspaceFile

SKILL_FILE = "SKILL.md"
_NAME = re.compile(r"^name:[ \t]*[\"']?([A-Za-z0-9][\w.-]{0,63})[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_LONGEST = 64 * 1024
_DEEPEST = 4
_LEFT_OUT = re.compile(
    r"evals?|evals?\.json|.*trigger[_-]?evals?.*\.jsonl?|\.env(?:\..*)?|\.git|\.agentv|__pycache__|\.venv|node_modules",
    re.IGNORECASE,
)
"""What is not installed: evals contain the answers, `.env` secrets; the others are of tools."""


class SkillPlaces(msgspec.Struct, frozen=True):
    """The folders in which an agent looks for skills: in its home, and in a workspace. Skills go to the first one."""

    home: tuple[str, ...]
    workspace: tuple[str, ...]


def skill_name(folder: str) -> str:
    """Return the name in a skill's front matter, else that of its folder."""
    try:
        with open(os.path.join(folder, SKILL_FILE), encoding="utf-8-sig", errors="replace") as stream:
            front = _FRONT_MATTER.match(stream.read(_LONGEST))
    except OSError:
        front = None
    named = _NAME.search(front[1]) if front else None
    return named[1] if named else os.path.basename(os.path.abspath(folder))


def is_skill(folder: str) -> bool:
    """Whether a folder has a SKILL.md."""
    return os.path.isfile(os.path.join(folder, SKILL_FILE))


def installed_files(folder: str) -> list[str]:
    """Return the names in a skill's folder that are installed: not its evals, which contain the answers, nor `.env`."""
    return sorted(name for name in os.listdir(folder) if not _LEFT_OUT.fullmatch(name))


def install_skill(folder: str, place: str) -> None:
    """Copy a skill to a folder for skills, in place of one of the same name. Raises OSError."""
    target = os.path.join(place, skill_name(folder))
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    for name in installed_files(folder):
        source = os.path.join(folder, name)
        if os.path.isdir(source):
            shutil.copytree(source, os.path.join(target, name), symlinks=True)
        else:
            shutil.copy(source, target, follow_symlinks=False)


def workspace_skill(folder: str, place: str) -> Iterator[WorkspaceFile]:
    """Yield the files of a skill for the workspace of a job; `place` is the workspace's folder for skills."""
    target = f"{place}/{skill_name(folder)}"
    for name in installed_files(folder):
        file = os.path.join(folder, name)
        yield WorkspaceFile(f"{target}/{name}", file, "", file)


def skills_in(start: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the folder of each skill in a folder for skills."""
    for parent, folders, files in os.walk(start, followlinks=True):
        if os.path.relpath(parent, start).count(os.sep) >= _DEEPEST:
            folders.clear()
        if SKILL_FILE in files:
            folders.clear()
            yield skill_name(parent), parent


def find_skill(name: str, folders: Iterable[str]) -> str | None:
    """Return the folder of a skill with this name in one of the folders for skills; None if there is none."""
    for start in folders:
        for found, folder in skills_in(start):
            if name in (found, os.path.basename(folder)):
                return folder
    return None


def workspace_folders(places: SkillPlaces, work: str) -> Iterator[str]:
    """Yield the folders for skills in a working folder and all its parents, where agents look too."""
    folder = os.path.realpath(work)
    while True:
        yield from (os.path.join(folder, place) for place in places.workspace)
        if (parent := os.path.dirname(folder)) == folder:
            return
        folder = parent
