"""Trusted folders: the project of the working directory, and the folders that the user trusts for this command."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from agentv.errors import UsageError
from agentv.settings.project import GRANTED, is_inside, is_too_wide, project_root
from agentv.support.private_files import is_own, is_shared

FilePath = str | os.PathLike[str]

Ask = Callable[[str], bool]
"""Shows a question to the user and returns whether the answer is yes."""

Advice = Callable[[str], str]
"""Returns how to trust a path and go on; for an empty path, how to trust a run."""


def _python_advice(path: str) -> str:
    if not path:
        return "Run the command line: agentv rescore RUN --trust-run"
    return f"Look at these files. If you trust them, pass trust={path!r}"


_ask: ContextVar[Ask | None] = ContextVar("ask", default=None)
_trusts_runs: ContextVar[bool] = ContextVar("trusts_runs", default=False)
_advice: ContextVar[Advice] = ContextVar("advice", default=_python_advice)


@contextmanager
def trusting(paths: Iterable[FilePath], ask: Ask | None = None, advice: Advice = _python_advice) -> Iterator[None]:
    """Trust these files and folders for a while.

    `ask` asks about others; without it, they are refused. `advice` is the hint of a refusal.
    """
    grant_token, ask_token, advice_token = GRANTED.set(GRANTED.get()), _ask.set(ask), _advice.set(advice)
    runs_token = _trusts_runs.set(False)
    try:
        for path in paths:
            grant(path)
        yield
    finally:
        GRANTED.reset(grant_token)
        _ask.reset(ask_token)
        _advice.reset(advice_token)
        _trusts_runs.reset(runs_token)


@contextmanager
def trusting_only_the_project() -> Iterator[None]:
    """Read files as if no other folder were trusted, to find out what they would use."""
    token = GRANTED.set(())
    try:
        yield
    finally:
        GRANTED.reset(token)


def grant(path: FilePath) -> None:
    """Trust a file or a folder until the command ends. Raises UsageError if it is missing, or contains everything."""
    real = os.path.realpath(path)
    if not os.path.exists(real):
        raise UsageError(f"Cannot trust {path}", "It does not exist")
    if is_too_wide(real):
        hint = "Name the folder of the dataset or the project that you want to trust"
        raise UsageError(f"Cannot trust {path}", "It is your home folder or the root of all files", hint)
    GRANTED.set((*GRANTED.get(), real))


def advice(path: str) -> str:
    """Return how to trust a path and go on; for an empty path, how to trust a run."""
    return _advice.get()(path)


def trust_runs() -> None:
    """Trust commands that only a run folder names, until the command ends."""
    _trusts_runs.set(True)


def trusts_runs() -> bool:
    """Whether commands that only a run folder names may run."""
    return _trusts_runs.get()


def question() -> Ask | None:
    """Return the function that asks the user; None without a terminal."""
    return _ask.get()


def is_trusted(path: str) -> bool:
    """Whether a file or folder is in the project of the working directory, or in another trusted folder.

    Links are followed first: a link out of the project is outside.
    """
    real = os.path.realpath(path)
    return in_project(real) or any(is_inside(real, root) for root in GRANTED.get())


def in_project(real: str) -> bool:
    """Whether a real path is in the project of the working directory, and no other user could have written it."""
    root = project_root(".")
    if is_too_wide(root):
        # In the home folder, only files of the folder itself and its settings are the project.
        own = (root, os.path.join(root, ".agentv"))
        return (real in own or os.path.dirname(real) in own) and not distrust(real)
    return is_inside(real, root) and not distrust(real)


def distrust(real: str) -> str:
    """Return why a path in the project could have been written by another user; empty if it could not.

    The project must belong to this user or to root, as must the path. If others can write to the project, as to
    `/tmp`, all folders on the path must be this user's own too. A project that the user trusts needs none of this.
    """
    root, granted = project_root("."), GRANTED.get()
    if granted and any(is_inside(place, path) for place in (root, os.path.realpath(real)) for path in granted):
        return ""
    status, places = os.stat(root), [real]
    if not is_own(status):
        return f"{root} belongs to another user"
    if is_shared(status):
        if real == root or not status.st_mode & stat.S_ISVTX:
            return f"others can write to {root}"
        places = [real, *(str(path) for path in Path(real).parents if str(path) != root and is_inside(str(path), root))]
    for place in places:
        try:
            status = os.lstat(place)
        except OSError:  # not written yet
            continue
        if not is_own(status):
            return f"{place} belongs to another user"
        if len(places) > 1 and is_shared(status):
            return f"others can write to {place}"
    return ""


def own_root() -> str:
    """Return the root of the project that contains the working directory."""
    return project_root(".")


_variables: dict[str, set[str]] = {}


def note_variables(path: str, names: Iterable[str]) -> None:
    """Note which variables a file names."""
    _variables.setdefault(os.path.realpath(path), set()).update(names)


def noted_variables(path: str) -> list[str]:
    """Return the names of the variables that a file names, if it has been read."""
    return sorted(_variables.get(os.path.realpath(path), ()))
