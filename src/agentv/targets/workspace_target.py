"""Targets that work in the workspace of a job: files that they add to it, and Agent Skills installed for them."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from agentv.errors import UsageError
from agentv.lazy_regex import lazy_regex
from agentv.model.workspace_settings import WorkspaceFile
from agentv.support.hashes import leaves_folder
from agentv.targets.target import Target


class WorkspaceTarget(Target, frozen=True, kw_only=True):
    """A target that works in a folder.

    `workspace_files` are added to the workspace of every job: paths in it, and the files or folders to copy there. With
    null, what the case has at that path is removed.
    """

    cwd: str | None = None
    """Working directory, relative to the targets file."""

    workspace_files: dict[str, str | None] = {}
    """Files to add to the workspace of every job: paths in it, and what to copy there; `null` removes what is there."""

    def added_files(self, home: str) -> tuple[WorkspaceFile, ...]:
        """Return the files of `workspace_files`; sources are relative to the targets file."""
        return tuple(
            WorkspaceFile(path, source or "", "", "" if source is None else _located(source, home))
            for path, source in self.workspace_files.items()
        )

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """Return the sources of `workspace_files`."""
        return [_located(source, home) for source in self.workspace_files.values() if source is not None]

    @property
    def needs_workspace(self) -> bool:
        """Whether each job needs its own folder if the case has no workspace."""
        return bool(self.workspace_files)

    def complaints(self) -> list[str]:
        """Check that files are added inside the workspace, and that there is one."""
        complaints = [
            f"'workspace_files' has '{path}', which is not a path inside the workspace"
            for path in self.workspace_files
            if leaves_folder(path) or os.path.normpath(path) == os.curdir
        ]
        if self.workspace_files and self.cwd is not None:
            complaints.append("'workspace_files' and 'cwd' cannot be combined: files are added to workspaces only")
        return complaints

    def check_files(self, home: str) -> None:
        """Raise UsageError if a source of `workspace_files` does not exist."""
        for path in WorkspaceTarget.files_named(self, home, ()):
            if not os.path.exists(path):
                hint = "Paths in `workspace_files` are relative to the targets file"
                raise UsageError(f"Target '{self.name}' cannot be called", f"There is no file {path}", hint)


def _located(path: str, home: str) -> str:
    return os.path.join(home, os.path.expanduser(path))


SKILL_FILE = "SKILL.md"
_NAME = lazy_regex(r"^name:[ \t]*[\"']?([A-Za-z0-9][\w.-]{0,63})[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)
_FRONT_MATTER = lazy_regex(r"\A---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_LONGEST = 64 * 1024
_DEEPEST = 4
_LEFT_OUT = lazy_regex(
    r"evals?|evals?\.json|.*trigger[_-]?evals?.*\.jsonl?|\.env(?:\..*)?|\.git|\.agentv|__pycache__|\.venv|node_modules",
    re.IGNORECASE,
)
"""What is not installed: evals contain the answers, `.env` secrets; the others are of tools."""


class SkillPlaces(msgspec.Struct, frozen=True):
    """The folders in which an agent looks for skills: in its home, and in a workspace. Skills go to the first one."""

    home: tuple[str, ...]
    workspace: tuple[str, ...]


class SkillTarget(Protocol):
    """A target that Agent Skills can be installed for."""

    name: str
    skills: tuple[str, ...]
    hidden_skills: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    home_template: str | None
    user_settings: bool

    def check_ready(self, home: str) -> None: ...

    def skill_folders(self, home: str) -> list[str]:
        """Return the folders of `skills`, which are relative to the targets file."""

    def folders_for_skills(self, home: str | None, work: str, environment: Mapping[str, str]) -> Iterator[str]:
        """Yield where the target looks for skills: in its home, which variables may move, and where it works."""


def skill_name(folder: str) -> str:
    """Return the name in a skill's front matter, else that of its folder."""
    try:
        with open(os.path.join(folder, SKILL_FILE), encoding="utf-8-sig", errors="replace") as stream:
            front = _FRONT_MATTER.match(stream.read(_LONGEST))
    except OSError:
        front = None
    match = _NAME.search(front[1]) if front else None
    return match[1] if match else os.path.basename(os.path.abspath(folder))


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
        for own_name, folder in skills_in(start):
            if name in (own_name, os.path.basename(folder)):
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
