"""The project that a tool server serves: its limits, and the datasets and runs inside it that tools may name."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.stamps import files_of
from agentv.engine.named_runs import named_run
from agentv.engine.run_in_progress import Observer
from agentv.engine.run_plan import RunPlan
from agentv.errors import UsageError
from agentv.extensions.mcp.run_budget import ServerBudget
from agentv.extensions.mcp.settings_snapshot import SettingsSnapshot
from agentv.model.sandbox_settings import Engine
from agentv.runs.redaction import Redactor
from agentv.trust.env_file import load_environment
from agentv.trust.policy import denying_programs
from agentv.trust.roots import Advice, in_project, own_root, trusting


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
