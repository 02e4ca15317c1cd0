"""The files of a search in the project, so that it can be continued."""

import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from agentv.engine.run_options import EvalOptions
from agentv.errors import AgentvError, UsageError
from agentv.extensions.bisect.search import SearchProgress, SearchSettings
from agentv.runs.folder import write_whole
from agentv.settings.git_repository import GitRepository

FOLDER = ".agentv/bisect"
_VERSION = 1


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to search: two commits by hash, the options with absolute paths, and the settings."""

    good: str
    bad: str
    options: EvalOptions
    settings: SearchSettings
    kept: tuple[str, ...] = ()
    setup: str | None = None
    own_dataset: bool = False


class SearchState(msgspec.Struct, kw_only=True):
    """A search, in progress or finished. `measure` is the fingerprint of the datasets, evaluators and judges."""

    version: int = _VERSION
    is_finished: bool = False
    request: SearchRequest
    measure: str
    progress: SearchProgress


class StateFolder:
    """The folder of the search: its state, the runs of each commit, and the worktrees. Git ignores it."""

    def __init__(self, repository: GitRepository) -> None:
        self.path = Path(repository.root, FOLDER)
        self._file = self.path / "state.json"
        self._repository = repository

    def read(self) -> SearchState | None:
        """Return the stored search; None if there is none. Raises AgentvError if it cannot be read."""
        if not self._file.is_file():
            return None
        with suppress(msgspec.DecodeError, OSError):
            state = msgspec.json.decode(self._file.read_bytes(), type=SearchState)
            if state.version == _VERSION:
                return state
        raise AgentvError(f"Cannot read {self._file}", hint="Discard it with `agentv bisect --reset`")

    def write(self, state: SearchState) -> None:
        """Store the search."""
        self.create()
        write_whole(self._file, msgspec.json.format(msgspec.json.encode(state), indent=2))

    def create(self) -> None:
        """Create the folder, ignored by Git."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / ".gitignore").write_text("*\n")

    def clear(self, *, keep_runs: bool = False) -> None:
        """Remove the search with its worktrees and, unless they still apply, the answers of its commits."""
        for worktree in self.path.glob("worktrees/*"):
            self._repository.remove_worktree(worktree)
        self._file.unlink(missing_ok=True)
        if not keep_runs:
            shutil.rmtree(self.path / "runs", ignore_errors=True)


def shares_answers(state: SearchState, request: SearchRequest, measure: str) -> bool:
    """Whether the answers of a finished search can be used in another one."""
    previous = state.request
    unchanged = ("kept", "setup", "own_dataset")
    return (
        state.measure == measure
        and _drawn_from(previous.options) == _drawn_from(request.options)
        and all(getattr(previous, name) == getattr(request, name) for name in unchanged)
    )


def _drawn_from(options: EvalOptions) -> EvalOptions:
    return msgspec.structs.replace(options.for_all_cases(), seed=None)


def refuse_other(state: SearchState, request: SearchRequest) -> None:
    """Raise UsageError if the stored search is another one."""
    if (previous := state.request) == request:
        return
    labels = {"options": "datasets or options", "own_dataset": "--own-datasets", "kept": "--keep"}
    names = [name for name in SearchRequest.__struct_fields__ if getattr(previous, name) != getattr(request, name)]
    differences = ", ".join(labels.get(name, name) for name in names)
    raise UsageError(
        f"Another search is in progress: {previous.good[:10]} to {previous.bad[:10]}",
        f"It differs in: {differences}",
        "Continue it with `agentv bisect --resume`, or discard it with `agentv bisect --reset`",
    )
