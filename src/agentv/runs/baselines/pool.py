"""Pool runs into one baseline: refuse those that differ, and those between which the level changed."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from agentv.errors import UsageError, plural
from agentv.model.manifest import RunManifest, TargetEntry
from agentv.model.result import Result
from agentv.model.values import cluster_of
from agentv.runs.record import ScoreRecord
from agentv.runs.store import RunStore
from agentv.support.hash_table import NumberTable

if TYPE_CHECKING:
    from agentv.stats.level_changes import RunValues  # its module imports numpy

_MOST_NAMED = 5
_CHANGED_HINT = "`agentv compare {} {}` shows what changed"


class PoolMember(msgspec.Struct, frozen=True):
    """A run to pool, and how it was named: by itself, by its experiment, or by its Git branch.

    An unfinished run of an experiment or a branch is left out with a note, and so is a run of a branch that differs.
    """

    path: str
    label: str
    named_by: Literal["run", "experiment", "branch"] = "run"


def open_pool(members: Sequence[PoolMember], picked: str | None = None) -> PooledStore:
    """Open runs as one baseline, with several trials of each case.

    All must have the target, cases and measure of the newest run. Raises UsageError with the reason for a run that
    differs, and for one at which the level of the runs changed; of a branch, the runs since then count. `picked` is
    the target or prompt that is compared.
    """
    numbers = _CaseNumbers()
    runs = sorted((_PoolRun(member, picked, numbers) for member in members), key=lambda run: run.started_at)
    model = _newest(runs)
    accepted, left_out = list[_PoolRun](), dict[str, list[str]]()
    for run in reversed(runs):
        problem = run.problem
        if problem is None and run is not model:
            problem = next(_differences(model, run), None) or _repeated(accepted, run)
        if problem is None:
            accepted.append(run)
        elif run.member.named_by == "branch" or (run.member.named_by == "experiment" and not run.is_finished):
            left_out.setdefault(problem, []).append(run.label)
        else:
            hint = _CHANGED_HINT.format(run.label, model.label) if run is not model else "Pass another run"
            raise UsageError(f"Cannot pool {run.label} into the baseline", f"Reason: {problem}", hint)
    remarks = [f"Not part of the baseline: {_listed(names)}, because {why}" for why, names in left_out.items()]
    if not accepted:
        raise UsageError("No run can be the baseline", "\n".join(remarks), "`agentv runs` lists the runs")
    accepted.reverse()
    if (change := _last_change(accepted, numbers)) is not None:
        since, why = change
        remarks.append(f"Not part of the baseline: {_listed([run.label for run in accepted[:since]])}, because {why}")
        accepted = accepted[since:]
    if len(accepted) > 1:
        names = _listed([run.label for run in accepted])
        remarks.insert(0, f"The baseline is {len(accepted)} runs of the same target, cases and measure: {names}")
    return PooledStore([run.store for run in accepted], [run.label for run in accepted], remarks)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _newest(runs: Sequence[_PoolRun]) -> _PoolRun:
    """Return the run that the others must be equal to: the newest one, but of a branch only if there is no other."""
    candidates = [run for run in runs if run.problem is None] or list(runs)
    return next((run for run in reversed(candidates) if run.member.named_by != "branch"), candidates[-1])


class _CaseNumbers:
    """Numbers of cases that several runs share, and the cluster of each; without one, the case itself."""

    def __init__(self) -> None:
        self._table = NumberTable()
        self.clusters = array("q")

    def number(self, record: ScoreRecord | Result) -> int:
        number = self._table.number(hash((record.dataset, record.eval_id, record.target, record.prompt)))
        if number == len(self.clusters):
            cluster = cluster_of(record)
            unit = (record.eval_id,) if cluster is None else (cluster, "")
            self.clusters.append(hash((record.dataset, *unit)))
        return number


class _PoolRun:
    """A run that may become part of a pool, read once: its scores, its cases and where its answers are from."""

    def __init__(self, member: PoolMember, picked: str | None, numbers: _CaseNumbers) -> None:
        self.member, self.label = member, member.label
        self.store = RunStore.open(member.path)
        self.manifest = self.store.manifest
        self.cases: set[int] = set()
        self.answers: Counter[str] = Counter()
        self._cached = 0
        self._scored, self._values, self._errors = array("q"), array("d"), array("q")
        targets = set()
        for record in self.store.records(ScoreRecord):
            if picked is None or picked in (record.target, record.prompt):
                targets.add(record.target)
                self._add(record, numbers.number(record))
        entries = () if self.manifest is None else self.manifest.targets
        self.targets = {entry.name: entry for entry in entries if entry.name in targets}

    def _add(self, record: ScoreRecord | Result, case: int) -> None:
        manifest = self.manifest
        origin = manifest and (manifest.rescored_from.run_id if manifest.rescored_from else manifest.run_id)
        self.cases.add(hash((case, record.fingerprint)))
        self.answers[record.carried_from or origin or self.label] += 1
        self._cached += record.cached
        if record.status == "error":
            self._errors.append(case)
        elif record.score is not None:
            self._scored.append(case)
            self._values.append(record.score)

    @property
    def started_at(self) -> str:
        """When the run started, which orders runs."""
        return "" if self.manifest is None else self.manifest.started_at

    @property
    def is_finished(self) -> bool:
        """Whether the run has a result of every job."""
        manifest = self.manifest
        if manifest is None or manifest.finished_at is None:
            return manifest is None
        return not manifest.stopped_early and not (manifest.counts and manifest.counts.skipped)

    @property
    def problem(self) -> str | None:
        """Why the run cannot be pooled with any other; None if it can."""
        if (manifest := self.manifest) is None:
            return "it has no manifest, so its target and measure are unknown"
        if not self.is_finished:
            return "it was stopped early" if manifest.stopped_early else "it is not finished"
        if not self.cases:
            return "it has no results"
        if not all(entry.fingerprint for entry in self.targets.values()) or not self.targets:
            return "it stores no fingerprint of its target"
        if manifest.options.get("replay") or any(entry.provider == "replay" for entry in self.targets.values()):
            return "it repeats recorded answers"
        if self._cached:
            return f"{plural(self._cached, 'answer')} came from the cache, and may repeat those of another run"
        return None

    def scores(self, values: type[RunValues]) -> RunValues:
        """Return the scores and errors, with cases by number."""
        import numpy as np  # late: --help and most evals do not need it

        cases = np.asarray(self._scored)
        return values(cases, np.asarray(self._values), np.setdiff1d(np.asarray(self._errors), cases))

    def scoring(self) -> set[int]:
        """Return a hash for each case of its evaluators, their weights and its verdict limits."""
        weights: dict[str, int] = {}
        hashes = set()
        for case in self.store.cases():
            if (fingerprint := case.evaluators_fingerprint) not in weights:
                specs = case.fields.get("evaluators", ())
                weights[fingerprint] = hash(tuple((spec["name"], spec.get("weight", 1)) for spec in specs))
            hashes.add(hash((case.id, case.fingerprint, fingerprint, weights[fingerprint], case.verdicts)))
        return hashes


def _differences(model: _PoolRun, run: _PoolRun) -> Iterator[str]:
    """Yield how a run differs from the one it is pooled with, in target, cases or measure."""
    first, second = model.manifest, run.manifest
    assert first is not None and second is not None
    yield from _other_settings("target", model.targets, run.targets)
    if count := len(model.cases ^ run.cases):
        yield f"its cases are not those of {model.label}: {count:,} are in one of them only, or have another input"
    judges = ({entry.name: entry for entry in manifest.judges} for manifest in (first, second))
    yield from _other_settings("judge", *judges)
    if _limits(first) != _limits(second) or first.fingerprints != second.fingerprints:
        yield "it was scored by other evaluators, or with other verdict limits"
    if count := len(model.scoring() ^ run.scoring()):
        yield f"evaluators, weights or verdict limits differ from {model.label} ({plural(count, 'case')})"


def _other_settings(noun: str, first: dict[str, TargetEntry], second: dict[str, TargetEntry]) -> Iterator[str]:
    if first.keys() != second.keys():
        yield f"its {noun} is {', '.join(second) or 'none'}, not {', '.join(first) or 'none'}"
    for name in first.keys() & second.keys():
        if first[name].fingerprint != second[name].fingerprint:
            yield f"its {noun} '{name}' has other settings"


def _limits(manifest: RunManifest) -> object:
    return manifest.defaults.get("verdicts")


def _repeated(accepted: Sequence[_PoolRun], run: _PoolRun) -> str | None:
    """Return that a run has answers of another one; None if all its answers are its own."""
    for other in accepted:
        if run.answers.keys() & other.answers.keys():
            return f"{other.label} has the same answers, which would count twice"
    return None


def _last_change(runs: Sequence[_PoolRun], numbers: _CaseNumbers) -> tuple[int, str] | None:
    """Return the run at which the level of a branch last changed, as `agentv runs trend` sees it, and how.

    Raises UsageError if one of the runs before it was not named by its branch.
    """
    if len(runs) < 2:
        return None
    import numpy as np  # late: --help and most evals do not need it

    from agentv.stats.level_changes import RunValues, change_points  # late: as above

    clusters = np.unique(np.asarray(numbers.clusters), return_inverse=True)[1]
    is_clustered = len(clusters) > clusters.max(initial=-1) + 1
    changes = change_points([run.scores(RunValues) for run in runs], clusters if is_clustered else None)
    for change in changes:
        label = runs[change.position].label
        levels = f"its mean was {change.before:.3f} before and is {change.after:.3f} since"
        if any(run.member.named_by != "branch" for run in runs[: change.position]):
            raise UsageError(
                f"The level of the baseline changed at {label}",
                f"{levels}, on {plural(change.cases, 'shared case')}, although target, cases and measure are the same",
                f"Pool only the runs before {label}, or only those since",
            )
    return (changes[-1].position, f"the level changed at {label}: {levels}") if changes else None


class PooledStore(RunStore):
    """Runs that are read as one, oldest first. Their cases and settings are equal, so those of the newest are used.

    `labels` are the names of the runs, `remarks` what a reader of the comparison should know about the pool.
    """

    def __init__(self, runs: Sequence[RunStore], labels: Sequence[str], remarks: Sequence[str] = ()) -> None:
        newest = runs[-1]
        super().__init__(newest.folder, newest.file)
        self.path = newest.path
        self.runs = tuple(runs)
        self.labels = tuple(labels)
        self.remarks = tuple(remarks)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the comparison should know about the pool."""
        return self.remarks

    def entries(self, fields: type[ScoreRecord] | None = None) -> Iterator[tuple[int, Any]]:
        """Yield the records of all runs, each with its offset for `read`."""
        count = len(self.runs)
        for place, run in enumerate(self.runs):
            for offset, record in run.entries() if fields is None else run.entries(fields):
                yield offset * count + place, record

    def read(self, offset: int, fields: type[ScoreRecord] | None = None) -> Any:
        """Return the record at an offset from `entries`."""
        inner, place = divmod(offset, len(self.runs))
        run = self.runs[place]
        return run.read(inner) if fields is None else run.read(inner, fields)

    def close(self) -> None:
        """Close the files of all runs."""
        for run in self.runs:
            run.close()
