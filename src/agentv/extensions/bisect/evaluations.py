"""The answers of each commit: evaluated in temporary worktrees when needed, and stored in run folders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from agentv.engine.run_options import EvalOptions
from agentv.engine.run_project import CACHE
from agentv.errors import EXIT_ERRORS, EXIT_OK, AgentvError, start_of
from agentv.extensions.bisect.batch import CaseBatch, run_batch
from agentv.extensions.bisect.evidence import CaseTrial, Unit
from agentv.extensions.bisect.fixed_measure import Measure
from agentv.model.values import draw_rank, sampling_unit
from agentv.runs.record import ScoreRecord
from agentv.runs.store import RunStore
from agentv.settings.git_repository import GitRepository, plain_environment
from agentv.support.patterns import upward

_LONGEST_REASON = 200


class CommitFailure(Exception):
    """A commit that cannot be evaluated: its project does not load, or every answer errored."""


class AuthenticationFailure(AgentvError):
    """Every call failed authentication, so the search stops instead of skipping commits."""

    exit_code = EXIT_ERRORS


class AnswerUsage(msgspec.Struct):
    """What the answers of a bisection took."""

    answers: int = 0
    cached: int = 0
    errors: int = 0
    cost_usd: float = 0.0


class CommitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to evaluate a commit.

    `options` are those of the working tree, whose paths inside the repository are mapped to the worktree. `variables`
    are those of a `.env` that Git does not track. `cases` are the cases in random order, those of a conversation
    together, by dataset path and id.
    """

    options: EvalOptions
    measure: Measure
    variables: dict[str, str]
    cases: tuple[tuple[tuple[str, str], ...], ...]
    setup: str | None = None
    own_dataset: bool = False


def draw_order(cases: Iterable[tuple[str, str, str | None]], seed: int) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return cases, given as path, id and conversation, in random order; those of a conversation together."""
    units: dict[str, list[tuple[str, str]]] = {}
    for path, id, conversation in cases:
        units.setdefault(sampling_unit(conversation, path, id), []).append((path, id))
    return tuple(tuple(units[name]) for name in sorted(units, key=lambda name: (draw_rank(seed, name), name)))


class Evaluations:
    """The answers of the commits of a repository, evaluated on demand. Use as a context: it removes its worktrees.

    Position p of the sequence of draws is the case p modulo the number of cases; every pass is one trial.
    """

    def __init__(self, repository: GitRepository, plan: CommitPlan, folder: Path) -> None:
        self._repository = repository
        self._plan = plan
        self._folder = folder
        self._answers: dict[str, dict[CaseTrial, float | None]] = {}
        self._tried: dict[str, set[CaseTrial]] = {}
        self._worktrees: dict[str, Path] = {}
        self.usage = AnswerUsage()

    def __enter__(self) -> Evaluations:
        self._remove_worktrees(self._folder.glob("worktrees/*"))  # of a process that was killed
        return self

    def __exit__(self, *ended: object) -> None:
        self._remove_worktrees(self._worktrees.values())

    @property
    def cases(self) -> int:
        """The number of cases."""
        return sum(map(len, self._plan.cases))

    @property
    def units(self) -> int:
        """The number of draws in one pass over the cases."""
        return len(self._plan.cases)

    @property
    def commits(self) -> int:
        """The number of commits with answers."""
        return sum(map(bool, self._answers.values()))

    @property
    def trials(self) -> int:
        """The largest number of trials of a case so far."""
        return max((key[2] for answers in self._answers.values() for key in answers), default=1)

    def draws(self, count: int) -> list[Unit]:
        """Return the first draws."""
        cases = self._plan.cases
        return [
            [(path, id, place // len(cases) + 1) for path, id in cases[place % len(cases)]] for place in range(count)
        ]

    def known(self, sha: str) -> dict[CaseTrial, float | None]:
        """Return the answers of a commit so far."""
        if sha not in self._answers:
            self._answers[sha] = {}
            for run in sorted(self._runs(sha).glob("*/results.jsonl")):
                self._read(sha, run.parent)
        return self._answers[sha]

    def evaluate(self, sha: str, count: int) -> dict[CaseTrial, float | None]:
        """Return the answers of a commit to at least the first draws. Raises CommitFailure."""
        answers, tried = self.known(sha), self._tried.setdefault(sha, set())
        missing_keys = [key for unit in self.draws(count) for key in unit if key not in answers and key not in tried]
        for trial in sorted({key[2] for key in missing_keys}):
            keys = [key for key in missing_keys if key[2] == trial]
            self._evaluate(sha, trial, keys)
            tried.update(keys)
        if answers and all(score is None for score in answers.values()):
            raise CommitFailure(f"every answer errored, the first: {self._first_error(sha)}")
        if not answers:
            raise CommitFailure("it has none of the cases")
        return answers

    def release(self, sha: str) -> None:
        """Remove the worktree of a commit that is decided."""
        if sha in self._worktrees:
            self._repository.remove_worktree(self._worktrees.pop(sha))

    def _evaluate(self, sha: str, trial: int, keys: Sequence[CaseTrial]) -> None:
        worktree = self._worktree(sha)
        runs = self._runs(sha)
        runs.mkdir(parents=True, exist_ok=True)
        out = runs / f"{len(list(runs.iterdir())) + 1:03d}"
        options, plan = self._options(worktree), self._plan
        ids = tuple(dict.fromkeys(key[1] for key in keys))
        options = msgspec.structs.replace(options, cases=ids)
        batch = CaseBatch(options=options, trial=trial, out=str(out), skip_missing=plan.own_dataset)
        ending = run_batch(batch, self._folder_in(worktree, os.getcwd()), self._variables(worktree))
        classes = self._read(sha, out) if (out / "results.jsonl").is_file() else set()
        if ending.exit_code == EXIT_ERRORS and classes == {"auth"}:
            raise AuthenticationFailure("Every call failed authentication", ending.messages, "Check the API key")
        if ending.exit_code not in (EXIT_OK, EXIT_ERRORS):
            reason = _reason(ending.messages, str(worktree))
            raise CommitFailure(reason or f"its evaluation ended with exit code {ending.exit_code}")

    def _read(self, sha: str, run: Path) -> set[str]:
        """Add the records of a run to the answers; return the classes of its errors."""
        scores_by_trial: dict[CaseTrial, list[float | None]] = {}
        classes: set[str] = set()
        worktree = str(self._worktree_path(sha))
        for record in RunStore.open(run).records(ScoreRecord):
            path = os.path.relpath(record.dataset_path, worktree)
            path = record.dataset_path if path.startswith(os.pardir) else path
            score = None if record.status == "error" else record.score
            scores_by_trial.setdefault((path, record.eval_id, record.trial), []).append(score)
            self.usage.answers += 1
            self.usage.cached += record.cached
            self.usage.errors += record.status == "error"
            self.usage.cost_usd += (record.execution_metrics and record.execution_metrics.cost_usd) or 0.0
            if record.error is not None:
                classes.add(record.error.error_class)
        for key, scores in scores_by_trial.items():
            valid = [score for score in scores if score is not None]
            self._answers[sha][key] = sum(valid) / len(valid) if len(valid) == len(scores) else None
        return classes

    def _first_error(self, sha: str) -> str:
        """Return the first error message of a commit without scores."""
        for run in sorted(self._runs(sha).glob("*/results.jsonl")):
            for result in RunStore.open(run.parent).records():
                if result.error is not None:
                    return _reason(result.error.message, str(self._worktree_path(sha)))
        return "no answer has a score"

    def _worktree(self, sha: str) -> Path:
        if sha not in self._worktrees:
            path = self._worktree_path(sha)
            self._worktrees[sha] = path
            self._repository.add_worktree(path, sha)
            try:
                self._plan.measure.apply(self._repository, path)
            except (AgentvError, OSError) as error:
                raise CommitFailure(_reason(str(error), str(path))) from error
            if self._plan.options.cache:
                self._share_cache(path)
            if self._plan.setup is not None:
                self._set_up(path, self._plan.setup)
        return self._worktrees[sha]

    def _share_cache(self, worktree: Path) -> None:
        """Let the commit use the cache of the project."""
        shared, own = Path(self._repository.root, CACHE), worktree / CACHE
        shared.mkdir(parents=True, exist_ok=True)
        own.parent.mkdir(parents=True, exist_ok=True)
        if not own.exists():
            own.symlink_to(shared, target_is_directory=True)

    def _set_up(self, worktree: Path, command: str) -> None:
        result = subprocess.run(  # noqa: S602 - a command that the user passed for this purpose
            command, shell=True, cwd=worktree, env=plain_environment(), capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise CommitFailure(f"the setup command failed: {_reason(result.stderr or result.stdout, str(worktree))}")

    def _options(self, worktree: Path) -> EvalOptions:
        options, targets = self._plan.options, self._plan.options.targets_file
        return msgspec.structs.replace(
            options,
            paths=tuple(self._mapped(worktree, path) for path in options.paths),
            targets_file=None if targets is None else self._mapped(worktree, targets),
        )

    def _mapped(self, worktree: Path, path: str) -> str:
        """Return the path in a worktree of a path in the repository; another path is returned as it is."""
        below = self._repository.below(path)
        return os.path.abspath(path) if below is None else str(worktree / below)

    def _folder_in(self, worktree: Path, folder: str) -> Path:
        """Return a folder of the worktree; its root if the commit does not have that folder."""
        path = Path(self._mapped(worktree, folder))
        return path if path.is_relative_to(worktree) and path.is_dir() else worktree

    def _variables(self, worktree: Path) -> dict[str, str]:
        """Return the variables of the process: `.env` of the working tree, and where Python finds the commit's code."""
        variables = plain_environment()
        folder = self._folder_in(worktree, os.path.dirname(self._plan.options.paths[0]) or ".")
        if not any(os.path.isfile(os.path.join(parent, ".env")) for parent in upward(str(folder), str(worktree))):
            variables = self._plan.variables | variables
        code_paths = [self._mapped(worktree, path) for path in code_folders(self._repository.root)]
        source = worktree / "src"
        code_paths += [str(source)] if source.is_dir() else []
        inherited = variables.get("PYTHONPATH")
        joined = os.pathsep.join([*dict.fromkeys(code_paths), *([inherited] if inherited else [])])
        return {**variables, "PYTHONPATH": joined} if joined else variables

    def _worktree_path(self, sha: str) -> Path:
        return self._folder / "worktrees" / sha[:12]

    def _runs(self, sha: str) -> Path:
        return self._folder / "runs" / sha[:12]

    def _remove_worktrees(self, paths: Iterable[Path]) -> None:
        for path in list(paths):
            self._repository.remove_worktree(path)
        self._worktrees.clear()


def code_folders(root: str) -> list[str]:
    """Return the folders inside a repository that this Python imports from: editable installs other than agentv."""
    own = str(Path(__file__).resolve().parents[3])
    folders = [os.path.realpath(path) for path in sys.path if path]
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            folders += [os.path.dirname(path) for path in getattr(module, "MAPPING", {}).values()]
    inside = (path for path in folders if path == root or path.startswith(root + os.sep))
    return [path for path in dict.fromkeys(inside) if path != own and not _is_installed(path)]


def _is_installed(path: str) -> bool:
    """Whether a folder belongs to a virtual environment, which every commit shares."""
    return "site-packages" in path.split(os.sep)


def _reason(messages: str, worktree: str) -> str:
    """Return the first two lines of an error, without the path of the worktree."""
    lines = [line.strip() for line in messages.replace(worktree + os.sep, "").splitlines() if line.strip()]
    return start_of(" ".join(lines[:2]), _LONGEST_REASON)
