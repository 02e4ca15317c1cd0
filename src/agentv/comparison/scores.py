"""The scores of one run as columns, read in one pass, before trials are averaged."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from agentv.comparison.case_table import CaseName, CaseNames, CaseTable
from agentv.comparison.run_change import CaseId
from agentv.errors import AgentvError, UsageError
from agentv.runs.record import EvaluatorCalls, EvaluatorScore, ScoreRecord
from agentv.runs.store import RunStore
from agentv.settings.diagnostics import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentv.model.manifest import RunManifest
    from agentv.model.result import EvaluatorResult, Result


JudgeUse = tuple[str, str, str | None]
"""An evaluator, a target it called, and the model that responded."""

_NO_JUDGES: frozenset[JudgeUse] = frozenset()


class Column:
    """Numbers with the cases that they belong to."""

    __slots__ = ("cases", "values")

    def __init__(self, kind: Literal["d", "b"] = "d") -> None:
        """`kind` is "d" for any numbers, and "b" for 0 and 1, in an eighth of the memory."""
        self.cases = array("i")
        self.values: array[Any] = array(kind)

    def add(self, case: int, value: float) -> None:
        self.cases.append(case)
        self.values.append(value)

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the cases and their numbers as arrays."""
        return np.array(self.cases, dtype=np.intp), np.array(self.values, dtype=float)

    def means(self, groups: NDArray[Any], count: int) -> NDArray[Any]:
        """Return the mean of each group of cases; NaN for a group without numbers."""
        cases, values = self.arrays()
        index = groups[cases]
        sums = np.bincount(index, values, minlength=count)
        with np.errstate(invalid="ignore"):
            means: NDArray[Any] = sums / np.bincount(index, minlength=count)
        return means


class RunScores:
    """The scores of a run. `cases` are in order of appearance; everything else refers to them by number.

    `tags` are indexes into `tag_sets`. `fingerprints` are hashes of the input and the references of a case; 0 if they
    are not stored. `starts` holds the offset of each case's first scored record, or -1. With `picked`, only the
    records of that target are read, or of that prompt if there is no such target.
    """

    def __init__(self, path: Path | str, label: str, picked: str | None = None) -> None:
        self.run = RunStore.open(path)
        self.path = path
        self.label = label
        self.picked = picked
        self.cases = CaseTable()
        self.conversations: list[str | None] = []
        self.datasets: list[str] = []
        self.paths: list[str] = []
        self.tags = array("l")
        self.tag_sets: dict[tuple[str, ...], int] = {}
        self.judges: list[frozenset[JudgeUse]] = []
        self.fingerprints = array("q")
        self.starts = array("q")
        self.scores, self.passes, self.failures = Column(), Column("b"), Column("b")
        self.cost, self.duration = Column(), Column()
        self.evaluators: dict[str, Column] = {}
        self.records = self.errors = self.unscored = 0
        self.error_classes: Counter[str] = Counter()
        self._paths: dict[str, str] = {}
        self._judge_sets: dict[frozenset[JudgeUse], frozenset[JudgeUse]] = {}
        self.has_conversations = False
        self._targets: dict[str, None] = {}
        self._prompts: dict[str | None, None] = {}
        if picked is None:
            for start, record in self.run.entries(ScoreRecord):
                self._add(start, record)
        else:
            self._pick(picked)

    def _pick(self, name: str) -> None:
        targets, prompts = set(), set()
        for start, record in self.run.entries(ScoreRecord):
            targets.add(record.target)
            prompts.add(record.prompt)
            if record.target == name:
                self._add(start, record)
        if name in targets:
            return
        named = {prompt for prompt in prompts if prompt is not None}
        if name not in named:
            known = f"Targets: {', '.join(sorted(targets)) or 'none'}"
            known += f"; prompts: {', '.join(sorted(named))}" if named else ""
            hint = did_you_mean(name, {*targets, *named}) or known
            what = "target or prompt" if named else "target"
            raise UsageError(f"No results for {what} '{name}' in {self.path}", hint=hint)
        for start, record in self.run.entries(ScoreRecord):
            if record.prompt == name:
                self._add(start, record)

    @cached_property
    def manifest(self) -> RunManifest | None:
        """The manifest; None if there is none that this version can read. The records may be readable without it."""
        with suppress(AgentvError):
            return self.run.manifest
        return None

    @property
    def targets(self) -> list[str]:
        """The targets, in the order of the command; those of a results file in order of appearance."""
        order = [entry.name for entry in self.manifest.targets] if self.manifest is not None else []
        return sorted(self._targets, key=lambda name: order.index(name) if name in order else len(order))

    @property
    def prompts(self) -> list[str | None]:
        """The prompts, in order of appearance; a single None if cases have none."""
        return list(self._prompts)

    def _add(self, start: int, record: ScoreRecord | Result) -> None:
        self.records += 1
        case = self.cases.add((record.dataset, record.eval_id, record.target, record.prompt))
        if case == len(self.starts):
            self.starts.append(-1)
            self.conversations.append(record.conversation_id)
            self.datasets.append(self._paths.setdefault(record.dataset, record.dataset))
            self.paths.append(self._paths.setdefault(record.dataset_path, record.dataset_path))
            self.has_conversations = self.has_conversations or record.conversation_id is not None
            self.tags.append(self.tag_sets.setdefault(record.tags, len(self.tag_sets)))
            self.judges.append(_NO_JUDGES)
            self.fingerprints.append(hash(record.fingerprint) if record.fingerprint else 0)
            self._targets[record.target] = self._prompts[record.prompt] = None
        self._add_usage(case, record)
        self.failures.add(case, record.status == "error")
        if record.status == "error":
            self.errors += 1
            self.error_classes[record.error.error_class if record.error else "unknown"] += 1
            return
        if record.score is None:
            self.unscored += 1
        else:
            self.scores.add(case, record.score)
            self.passes.add(case, record.verdict == "pass")
            if self.starts[case] < 0:
                self.starts[case] = start
        for found in record.evaluator_results:
            if found.evaluator_provider_request is not None or found.evaluator_results:
                self._add_judges(case, found)
            if found.score is not None:
                column = self.evaluators.get(found.name)
                if column is None:
                    column = self.evaluators[found.name] = Column()
                column.add(case, found.score)

    def _add_judges(self, case: int, found: EvaluatorScore | EvaluatorResult) -> None:
        used = frozenset(_judges_of(found, found.name))
        if not used <= self.judges[case]:
            used |= self.judges[case]
            self.judges[case] = self._judge_sets.setdefault(used, used)

    def _add_usage(self, case: int, record: ScoreRecord | Result) -> None:
        metrics = record.execution_metrics
        # Cached answers do not reflect the cost and time of the target. Failed calls do.
        if metrics is None or record.cached:
            return
        if metrics.cost_usd is not None:
            self.cost.add(case, metrics.cost_usd)
        if metrics.duration_ms is not None:
            self.duration.add(case, metrics.duration_ms)


def _judges_of(found: EvaluatorScore | EvaluatorResult, name: str) -> Iterator[JudgeUse]:
    """Yield the successful calls of an evaluator and its members, as calls of the evaluator `name`."""
    request = found.evaluator_provider_request
    for member in found.evaluator_results:
        yield from _judges_of(member, name)
    if request is None:
        return
    try:
        calls = request if isinstance(request, EvaluatorCalls) else msgspec.convert(request, EvaluatorCalls)
    except msgspec.ValidationError:
        return  # another tool's description of a request
    for call in calls.calls:
        if call.target is not None and call.error is None:
            yield name, call.target, call.model


class GroupedCases:
    """The cases of a run, grouped by names that several runs share."""

    def __init__(self, run: RunScores, parts: Sequence[int]) -> None:
        """Group the cases by name: the fields of their keys at the positions `parts`."""
        self.run = run
        self.parts = tuple(parts)
        if len(run.targets) < 2 and len(run.prompts) < 2 and tuple(parts) == (0, 1):
            # Shortcut for most runs: every case already has a unique name.
            self.names: Mapping[CaseName, int] = CaseNames(run.cases)
            self.first: Sequence[int] = range(len(self.names))
            self.groups = np.arange(len(self.names))
            return
        names: dict[CaseName, int] = {}
        groups, first = array("l"), array("l")
        for case, key in enumerate(run.cases):
            number = names.setdefault(tuple(key[part] for part in parts), len(names))
            if number == len(first):
                first.append(case)
            groups.append(number)
        self.names = names
        self.first = first
        self.groups = np.array(groups, dtype=np.intp)

    def only_here(self, other: GroupedCases) -> Iterator[CaseId]:
        """Yield the cases that another run does not have."""
        return (self.case_id(name, row) for name, row in self.names.items() if name not in other.names)

    def case_id(self, name: tuple[str | None, ...], row: int) -> CaseId:
        """Return the dataset and id of a case, given its name and row."""
        return CaseId(self.run.datasets[self.first[row]], str(name[self.parts.index(1)]))

    def means(self, column: Column) -> NDArray[Any]:
        """Return the mean of each case."""
        return column.means(self.groups, len(self.names))

    def record(self, row: int) -> Result | None:
        """Return the first scored record of a case."""
        start = self.run.starts[self.first[row]]
        return None if start < 0 else self.run.run.read(start)

    def conversation(self, row: int) -> tuple[str, str, str] | None:
        """Return what identifies the conversation of a case: the same id in another dataset is another one."""
        case = self.first[row]
        found = self.run.conversations[case]
        return None if found is None else ("conversation", self.run.datasets[case], found)


def clusters_of(sides: Sequence[GroupedCases], rows: NDArray[Any]) -> NDArray[Any] | None:
    """Return the cluster of each case, given its row in each run; None if there are no clusters.

    A cluster is a conversation, named in any of the runs, or a case with several targets or prompts.
    """
    conversational = [
        (side, column) for side, column in zip(sides, rows.T.tolist(), strict=True) if side.run.has_conversations
    ]
    several = len(sides[0].parts) > 2
    if not conversational and not several:
        return None
    keys = [name[:2] for name in sides[0].names] if several else []
    numbers: dict[object, int] = {}
    found = array("l")
    for place, row in enumerate(rows[:, 0].tolist()):
        conversations = (side.conversation(column[place]) for side, column in conversational)
        own = keys[row] if several else place
        name = next((each for each in conversations if each is not None), own)
        found.append(numbers.setdefault(name, len(numbers)))
    return np.array(found, dtype=np.intp)
