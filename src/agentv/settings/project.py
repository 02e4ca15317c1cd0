"""The project of a folder: where its root is, and which folders the user trusts in addition."""

import os
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

from agentv.support.private_files import is_own, is_shared

CONFIG_FILE = os.path.join(".agentv", "config.yaml")
_PROJECT_MARKS = (CONFIG_FILE, os.path.join(".agentv", "targets.yaml"))

GRANTED: ContextVar[tuple[str, ...]] = ContextVar("granted", default=())
"""The real paths that are trusted for this command; `agentv.trust.roots` sets them."""


def granted_paths() -> tuple[str, ...]:
    """Return the real paths of the files and folders that are trusted in addition to the project."""
    return GRANTED.get()


def project_root(folder: str) -> str:
    """Return the folder that a dataset may read from; see `docs/how-to/datasets.md`, Files.

    The home folder and `/` are returned only for a folder that is one of them: see `is_too_wide`.
    """
    real = os.getcwd() if folder == "." and os.name == "posix" else os.path.realpath(folder)
    return _project_root(real, _too_wide(), granted_paths())


def is_too_wide(root: str) -> bool:
    """Whether a folder contains too much to be a project: the home folder or `/`."""
    return os.path.realpath(root) in _too_wide()


def _too_wide() -> frozenset[str]:
    return _real_folders(os.path.expanduser("~"), os.path.abspath(os.sep))


@lru_cache(maxsize=4)
def _real_folders(*folders: str) -> frozenset[str]:
    return frozenset(map(os.path.realpath, folders))


@lru_cache(maxsize=256)
def _project_root(folder: str, too_wide: frozenset[str], granted: tuple[str, ...]) -> str:
    parents = [path for path in (folder, *map(str, Path(folder).parents)) if path not in too_wide]

    def marks(parent: str, mark: str) -> bool:
        return _has_mark(parent, mark) and not _mark_problem(parent, mark, folder, granted)

    for parent in parents:
        if marks(parent, ".git"):
            return parent
    for parent in reversed(parents):
        if any(marks(parent, mark) for mark in _PROJECT_MARKS):
            return parent
    return next((parent for parent in parents if marks(parent, "SKILL.md")), folder)


def _has_mark(parent: str, mark: str) -> bool:
    path = os.path.join(parent, mark)
    return os.path.exists(path) if mark == ".git" else os.path.isfile(path)


def _mark_problem(parent: str, mark: str, folder: str, granted: tuple[str, ...]) -> str:
    """Return why a mark does not make its folder the project of a folder; empty if it does.

    Mark and folder must belong to this user, to root or to the owner of the inner folder, and no one else may write to
    the folder. Links are not followed: another user's link may lead to anyone's file.
    """
    if any(is_inside(parent, root) for root in granted):
        return ""
    owner = os.stat(folder).st_uid if os.path.exists(folder) else 0
    places = [os.path.join(parent, mark)]
    if os.path.dirname(mark):
        places.append(os.path.dirname(places[0]))
    foreign = (place for place in places if not is_own(os.lstat(place), owner))
    status = os.stat(parent)
    path = next(foreign, "" if is_own(status, owner) else parent)
    if path:
        return f"{path} belongs to another user"
    return f"others can write to {parent}" if is_shared(status) else ""


def ignored_marks(folder: str) -> dict[str, str]:
    """Return the folders above a folder that are marked as projects but are not, each with the reason."""
    real, granted = os.path.realpath(folder), granted_paths()
    parents = [path for path in (real, *map(str, Path(real).parents)) if not is_too_wide(path)]
    root = project_root(real)
    if root in parents and _has_mark(root, ".git"):  # marks above a repository do not matter
        parents = parents[: parents.index(root)]
    reasons = {
        parent: _mark_problem(parent, mark, real, granted)
        for parent in parents
        for mark in (".git", *_PROJECT_MARKS)
        if _has_mark(parent, mark)
    }
    return {parent: reason for parent, reason in reasons.items() if reason}


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it. Both must be real paths."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def roots_as_written(path: str) -> list[str]:
    """Return the project roots that contain a path as it is written, without following its links."""
    full_path = os.path.abspath(path)
    roots = [_project_root(os.path.dirname(full_path), _too_wide(), granted_paths())]
    here = os.getcwd()
    if is_inside(full_path, project := _project_root(here, _too_wide(), granted_paths())):
        roots.append(project)
    return roots
