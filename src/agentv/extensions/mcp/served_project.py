"""The project that a tool server serves: its limits, its settings at the start, and the paths that tools may name."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from agentv.datasets.discovery import find_datasets
from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.loader import ignore
from agentv.datasets.stamps import files_of
from agentv.engine.named_runs import named_run
from agentv.engine.run_in_progress import Observer
from agentv.engine.run_plan import RunPlan
from agentv.engine.run_project import SETTINGS_FILES
from agentv.errors import AgentvError, UsageError
from agentv.extensions.mcp.run_budget import ServerBudget
from agentv.model.sandbox_settings import Engine
from agentv.runs.redaction import Redactor
from agentv.settings.frozen_settings import FrozenSettings, content_hash, enforcing, target_hash
from agentv.settings.project import is_too_wide, project_root
from agentv.support.patterns import upward
from agentv.support.user_code import importing_nothing
from agentv.trust.env_file import load_environment
from agentv.trust.policy import denying_programs, policy_path
from agentv.trust.roots import Advice, in_project, own_root, trusting

_SKIPPED_FOLDERS = frozenset((".git", ".agentv", "node_modules", "__pycache__", "venv", "site-packages"))
_SUITES = (".yaml", ".yml", ".json")
_LARGEST_SUITE = 4_000_000
"""Larger files are datasets without targets of their own."""


class SettingsSnapshot:
    """The targets files, configurations, `.env` files and policy of a project, and the targets that datasets define.

    Folders with installed packages are not searched: settings in them count as new.
    """

    def __init__(self, targets_file: str | None = None) -> None:
        self._root = own_root()
        self._repositories: set[str] = set()
        paths = [policy_path()]
        if targets_file is not None:
            paths += (
                targets_file,
                *(os.path.join(targets_file, name) for name in SETTINGS_FILES),
            )  # a file or a folder
        suites: list[str] = []
        for folder, names in _folders(self._root):
            paths += (os.path.join(folder, name) for name in SETTINGS_FILES)
            suites += (os.path.join(folder, name) for name in names if name.endswith(_SUITES))
            if os.path.lexists(os.path.join(folder, ".git")):
                self._repositories.add(folder)
        contents = {os.path.abspath(path): _content(path) for path in paths}
        files = {path: content_hash(content) for path, content in contents.items() if content is not None}
        with importing_nothing(), denying_programs("The server only reads the targets of datasets when it starts"):
            targets = frozenset(target_hash(entry) for path in suites for entry in _targets_of(path))
        self._frozen = FrozenSettings(files, targets)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Refuse other settings for a while."""
        with enforcing(self._frozen):
            yield

    def check_sources(self, sources: Iterable[Source]) -> None:
        """Raise UsageError if settings that apply to datasets were removed, or if a folder became a project."""
        for folder in dict.fromkeys((*(source.folder for source in sources), ".")):
            root = project_root(folder)
            if self._is_new_root(root):
                headline = f"{root} became a project of its own since the server was started"
                hint = "Remove its `.git`, or ask the user to restart the server"
                raise UsageError(headline, "Other settings would apply to its datasets", hint)
            for parent in upward(folder, root):
                for path in (os.path.join(parent, name) for name in SETTINGS_FILES):
                    if path in self._frozen.files and not os.path.isfile(path):
                        self._frozen.check_file(path, None)

    def _is_new_root(self, root: str) -> bool:
        if own_root() != self._root:
            return True
        is_repository = os.path.lexists(os.path.join(root, ".git"))
        return root != self._root and is_repository and root not in self._repositories


def _folders(root: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the folders of a project with the names of their files, without installed packages."""
    for parent, folders, names in os.walk(root):
        folders[:] = () if is_too_wide(root) else sorted(name for name in folders if not _is_skipped(parent, name))
        yield parent, names


def _is_skipped(parent: str, name: str) -> bool:
    return name in _SKIPPED_FOLDERS or os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))


def _content(path: str, most_bytes: float = math.inf) -> bytes | None:
    """Return the contents of a regular file; None if there is none that can be read, or if it is larger."""
    try:
        is_read = os.path.isfile(path) and os.path.getsize(path) <= most_bytes
        return Path(path).read_bytes() if is_read else None
    except OSError:
        return None


def _targets_of(path: str) -> list[dict[str, Any]]:
    """Return the targets that a dataset defines; none if the file is something else or cannot be read."""
    try:
        content = _content(path, _LARGEST_SUITE) or b""
        if b"providers" not in content and b"targets" not in content:
            return []
        sources = find_datasets(os.path.relpath(path), ignore, ignore)
        return [entry for source in sources for entry in source.format.targets(source)]
    except (AgentvError, OSError, ValueError):
        return []


class ServedProject:
    """The project of the working directory, and the limits that the user set when the server was started."""

    def __init__(self, budget: ServerBudget, *, allows_programs: bool, advice: Advice) -> None:
        self.budget = budget
        self.targets_file: str | None = None
        self.sandbox: Engine | None = None
        self.workers: int | None = None
        self.display: Callable[[RunPlan], Observer] = lambda plan: Observer()  # noqa: ARG005
        self.run_lock = Lock()
        self._allows_programs = allows_programs
        self._advice = advice
        self._snapshot: SettingsSnapshot | None = None

    def freeze(self) -> None:
        """Read the settings that runs may use. Those that are new or changed later are refused."""
        if self.budget.allows_runs:
            self._snapshot = SettingsSnapshot(self.targets_file)

    @property
    def snapshot(self) -> SettingsSnapshot:
        """The settings that runs may use."""
        assert self._snapshot is not None, "call freeze() before runs"
        return self._snapshot

    @contextmanager
    def limits(self) -> Iterator[None]:
        """Apply the trust rules while a tool works: no questions, and programs only if the user allows them."""
        with trusting((), None, self._advice):
            if self._allows_programs:
                yield
                return
            with denying_programs("Only the user can allow this, by adding --allow-programs to `agentv mcp`"):
                yield

    def redactor(self) -> Redactor:
        """Return what removes the secrets of the project and of the environment from answers."""
        root = own_root()
        return Redactor(load_environment(root, root).secrets)

    @staticmethod
    def dataset_paths(paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths that a tool was given. Raises UsageError if one of them is outside the project."""
        if not (project_paths := tuple(_inside(path) for path in paths)):
            raise UsageError("No dataset given", hint="Pass at least one file, folder or glob of the project")
        return project_paths

    @staticmethod
    def check_sources(sources: Iterable[Source]) -> None:
        """Raise UsageError if a dataset in a folder or glob is a link out of the project."""
        for source in sources:
            for file in files_of(source):
                _inside(file)

    @staticmethod
    def run(run: str) -> tuple[str, str | None]:
        """Return the path of a run, and the target or prompt of `RUN:name`. Raises UsageError if it is outside."""
        if "\0" in run or os.sep in run or os.path.exists(run):  # do not tell which files exist elsewhere
            _inside(run)
        path, name = named_run(run)
        _inside(path)
        for entry in os.scandir(path) if os.path.isdir(path) else ():
            _inside(entry.path)
        return path, name


def _inside(path: str) -> str:
    """Return a path unchanged. Raises UsageError if it leads out of the project, also through a link."""
    if "\0" not in path and in_project(os.path.realpath(path)):
        return path
    detail = f"The server reads and runs only what is in {own_root()}"
    hint = "Copy the files into the project, or ask the user to start a server there: agentv mcp --project DIR"
    raise UsageError(f"{path[:200]!r} is outside the project", detail, hint)


def check_path(path: str | None) -> None:
    """Raise UsageError if a path is outside the project."""
    if path:
        _inside(path)
