"""Find earlier runs by path, id, age, tag, experiment, branch or commit, pool them, and find cases by outcome."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from agentv.datasets.selection import CaseName
from agentv.errors import UsageError, plural
from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import did_you_mean
from agentv.runs.baselines.pool import PooledStore, PoolMember, open_pool
from agentv.runs.catalogue import RunEntry, RunJournal, project_runs
from agentv.runs.folder import RESULTS_FOLDER, RunFolder
from agentv.runs.record import ScoreRecord
from agentv.runs.store import RunStore
from agentv.settings.project import project_root
from agentv.support.hashes import relative_path

Ended = Literal["failed", "borderline", "errors"]

_NONE = {"failed": "No case failed", "borderline": "No case is borderline", "errors": "No case errored"}

_RELATIVE = lazy_regex(r"(latest|@[\w.-]+)(?:~(\d{1,9}))?")
_ID_PREFIX = lazy_regex(r"\d[\d-]*[0-9a-f]*")
_COMMIT = lazy_regex(r"[0-9a-f]{7,64}")
_RUN_NAME = lazy_regex(r"\w[\w.-]*")
_RESULT_FILES = (".json", ".jsonl", ".yaml", ".yml", ".csv", ".eval")
_MOST_SHOWN = 5


def run_path(argument: str) -> str:
    """Return the path of a run given by path, id, prefix of an id, `latest`, `latest~N`, `@tag`, `@experiment`,
    `@branch` or `@commit`.

    Returns the given text if no run has this name. Raises UsageError if several have it, or if N is too large.
    """
    exact = _exact_path(argument)
    return exact or _project_run(argument, project_root(".")) or argument


def run_name(path: str) -> str:
    """Return the shortest RUN argument for a run on disk: its id if that is enough, else its path."""
    name = os.path.basename(path)
    candidate = _exact_path(name) or name
    return name if os.path.exists(candidate) and os.path.samefile(candidate, path) else relative_path(path)


def lasting_name(argument: str) -> str:
    """Replace a name that may come to mean another run, such as `latest`, in `RUN`, `RUN:target` or `RUN:prompt`."""
    run, colon, target = argument.partition(":")
    if _exact_path(argument) or _exact_path(run) or not (_RELATIVE.fullmatch(run) or _ID_PREFIX.fullmatch(run)):
        return argument
    path = _project_run(run, project_root("."))
    return argument if path is None else f"{run_name(path)}{colon}{target}"


def check_run_name(name: str, noun: str) -> str:
    """Return the name of a tag or an experiment. Raises UsageError if it cannot be used as `@NAME`."""
    if _RUN_NAME.fullmatch(name):
        return name
    hint = "Use letters, digits, '_', '-' and '.', and begin with a letter or digit"
    raise UsageError(f"Invalid {noun} {name!r}", hint=hint)


def _exact_path(argument: str) -> str | None:
    if os.path.exists(argument) or os.sep in argument or not argument:
        return argument
    path = os.path.join(project_root("."), RESULTS_FOLDER, argument)
    return path if os.path.exists(path) else None


def _project_run(argument: str, root: str) -> str | None:
    """Return the run of a project with this name; None if it is not such a name, or no id begins with it."""
    relative = _RELATIVE.fullmatch(argument)
    if relative is None and not _ID_PREFIX.fullmatch(argument):
        return None
    runs = project_runs(root, figures=False)
    if relative is None:
        return _run_with_prefix(argument, runs)
    name, back = relative[1], int(relative[2] or 0)
    tagged = RunJournal(root).tags.get(name[1:])
    if name != "latest" and tagged is not None and not back:
        if not os.path.exists(tagged):
            raise UsageError(f"The run tagged '{name[1:]}' no longer exists: {tagged}", hint="Tag another run")
        return tagged
    matching = [run for run in runs if name in ("latest", f"@{run.experiment}")]
    matching = matching or [run for run in runs if name == f"@{run.git_branch}"] or _of_commit(name[1:], runs)
    if back < len(matching):
        return matching[back].path
    raise _too_few(argument, name, len(matching), runs)


def _run_with_prefix(argument: str, runs: list[RunEntry]) -> str | None:
    paths = [run.path for run in runs if run.run_id == argument] or [
        run.path for run in runs if run.run_id.startswith(argument)
    ]
    if len(paths) > 1:
        examples = ", ".join(map(run_name, paths[:_MOST_SHOWN])) + (", …" if len(paths) > _MOST_SHOWN else "")
        raise UsageError(
            f"'{argument}' matches {len(paths):,} runs", examples, "Type more of the id, or the path of the run"
        )
    return paths[0] if paths else None


def _too_few(argument: str, name: str, count: int, runs: list[RunEntry]) -> UsageError:
    if name == "latest":
        return no_such_run(argument)
    if count:
        return UsageError(f"No such run: {argument}", f"The experiment has {plural(count, 'run')}")
    names = sorted({name for run in runs for name in (*run.tags, run.experiment, run.git_branch) if name})
    hint = did_you_mean(name[1:], names) or "Tag a run with `agentv runs tag RUN NAME`"
    return UsageError(f"No run has the tag, experiment, branch or commit '{name[1:]}'", hint=hint)


def _of_commit(name: str, runs: Sequence[RunEntry]) -> list[RunEntry]:
    """Return the runs of a commit, given by at least seven digits of its hash."""
    return [run for run in runs if _COMMIT.fullmatch(name) and (run.git_commit or "").startswith(name)]


def no_such_run(argument: str, noun: str = "run") -> UsageError:
    """Return the error for a name that no run has. It names the newest runs."""
    runs = project_runs(project_root("."), figures=False)
    names = ", ".join(run_name(run.path) for run in runs[:_MOST_SHOWN]) + (", …" if len(runs) > _MOST_SHOWN else "")
    detail = f"The project has {plural(len(runs), 'run')}: {names}" if runs else "The project has no runs yet"
    if argument.endswith(_RESULT_FILES):
        detail = f"There is no such file. {detail}"
    hint = "`agentv runs` lists them" if runs else "Run `agentv eval`"
    return UsageError(f"No such {noun}: {argument}", detail, hint)


def existing_run(argument: str) -> str:
    """Return the absolute path of a run. Raises UsageError if it does not exist."""
    path = run_path(argument)
    if not os.path.exists(path):
        raise no_such_run(argument)
    return os.path.abspath(path)


def open_run(argument: str) -> RunFolder:
    """Open the folder of a run. Raises UsageError if it does not exist or contains no run."""
    existing_run(argument)
    return RunFolder.open(run_path(argument))


def named_run(argument: str) -> tuple[str, str | None]:
    """Split `RUN`, `RUN:target` or `RUN:prompt` into the run's path and the suffix. Raises UsageError."""
    for run, suffix in _splits(argument):
        path = run_path(run)
        if os.path.exists(path):
            return path, suffix
    raise no_such_run(argument)


def _splits(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the ways to read `RUN` or `RUN:suffix`. Target names can contain colons, as model names do."""
    yield text, None
    run, suffix = text, ""
    while ":" in run:
        run, _, further = run.rpartition(":")
        suffix = f"{further}:{suffix}" if suffix else further
        if run and suffix:
            yield run, suffix


class Baseline(NamedTuple):
    """The runs to compare with: an open run, or several as one, with its name and the target or prompt to select."""

    store: RunStore
    label: str
    picked: str | None = None


def open_baseline(names: Sequence[str], candidates: Collection[str] = (), datasets: Collection[str] = ()) -> Baseline:
    """Open the runs of `--baseline`: several runs with equal fingerprints are one baseline with several trials.

    An experiment names all its finished runs. `@NAME` is a tag, an experiment, or the Git branch or commit that runs
    recorded; of these, those of the same `datasets` count that equal the newest. The `candidates`, paths of runs to
    compare with the baseline, are never part of it. Raises UsageError for runs that differ.
    """
    members: dict[str, PoolMember] = {}
    suffixes = set()
    for name in names:
        group, suffix = _members(name, datasets)
        suffixes.add(suffix)
        members |= {os.path.realpath(member.path): member for member in reversed(group)}
    if len(suffixes) > 1:
        raise UsageError("The runs of a baseline must select the same target or prompt", ", ".join(names))
    picked = suffixes.pop()
    excluded = set(map(os.path.realpath, candidates)) if picked is None else set()
    if len(members) == 1 and len(names) == 1 and next(iter(members.values())).named_by == "run":
        return Baseline(RunStore.open(next(iter(members.values())).path), names[0], picked)
    pooled = [member for path, member in members.items() if path not in excluded]
    if not pooled:
        raise UsageError("The run to compare is the only run of the baseline", hint="Pass an earlier run")
    store = open_pool(pooled, picked)
    label = names[0] if len(names) == 1 else ""
    count = plural(len(store.runs), "run")
    return Baseline(store, f"{label} ({count})" if label else count, picked)


def baseline_names(text: str) -> tuple[str, ...]:
    """Return the names in `RUN` or `RUN,RUN`. Raises UsageError for one that does not exist."""
    names = (text,) if os.path.exists(text) else tuple(text.split(","))
    for name in names:
        _members(name, ())
    return names


def lasting_baseline(text: str) -> str:
    """Replace the names of experiments and branches in `RUN,RUN` by those of their runs, and `latest` by its run."""
    names = baseline_names(text)
    if all(member.named_by == "run" for name in names for member in _members(name, ())[0]):
        return ",".join(map(lasting_name, names))
    store, _, picked = open_baseline(names)
    labels = store.labels if isinstance(store, PooledStore) else names
    return ",".join(f"{label}:{picked}" if picked else label for label in labels)


def _members(text: str, datasets: Collection[str]) -> tuple[list[PoolMember], str | None]:
    """Return the runs that one `--baseline` names, newest first, and the suffix that selects a target or prompt."""
    for name, suffix in _splits(text):
        if group := _group(name, datasets):
            return group, suffix
        path = run_path(name)
        if os.path.exists(path):
            return [PoolMember(path, lasting_name(name))], suffix
    raise no_such_run(text, "run or experiment")


def _group(name: str, datasets: Collection[str]) -> list[PoolMember]:
    """Return the runs of an experiment or, with `@`, of a branch or commit; none if a run or tag has the name."""
    is_marked, bare = name.startswith("@"), name.removeprefix("@")
    root = project_root(".")
    if os.path.exists(name) or (RunJournal(root).tags.get(bare) if is_marked else os.path.exists(run_path(name))):
        return []
    runs = [run for run in project_runs(root, figures=False) if run.state != "foreign"]
    if group := [run for run in runs if run.experiment == bare]:
        return [PoolMember(run.path, run_name(run.path), "experiment") for run in group]
    group = [run for run in runs if run.git_branch == bare] or _of_commit(bare, runs) if is_marked else []
    related = [run for run in group if not datasets or set(run.datasets) == set(datasets)]
    if group and not related:
        raise UsageError(f"No run of '{bare}' has these datasets: {', '.join(sorted(datasets))}")
    return [PoolMember(run.path, run_name(run.path), "branch") for run in related]


def cases_that_ended(run: str, ended: Ended) -> frozenset[CaseName]:
    """Return the cases that have a job with this outcome. Raises UsageError if there are none."""
    verdicts = {"failed": "fail", "borderline": "borderline"}
    cases = frozenset(
        (record.dataset, record.eval_id)
        for record in RunStore.open(run_path(run)).records(ScoreRecord)
        if (record.status == "error" if ended == "errors" else record.verdict == verdicts[ended])
    )
    if not cases:
        raise UsageError(f"{_NONE[ended]} in {run}", hint="--only takes failed, borderline or errors")
    return cases
