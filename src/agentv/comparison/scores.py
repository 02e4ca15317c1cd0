"""The scores of one run as columns, read in one pass, before trials are averaged."""

from __future__ import annotations

import ctypes
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.case_table import CaseName, CaseTable, first_places, number_codes
from agentv.comparison.changes.run_change import CaseId
from agentv.errors import AgentvError, UsageError
from agentv.model.diagnostics import did_you_mean
from agentv.model.values import cluster_of
from agentv.runs.baselines.pool import PooledStore
from agentv.runs.record import EvaluatorCalls, EvaluatorScore, ScoreRecord
from agentv.runs.store import RunStore

if TYPE_CHECKING:
    from agentv.model.manifest import RunManifest
    from agentv.model.result import EvaluatorResult, Result


T = TypeVar("T")
JudgeUse = tuple[str, str, str | None]
"""An evaluator, a target it called, and the model that responded."""

Watch = Callable[[int], None]
"""Called while a run is read, with the number of records read since the last call. It may raise an error to stop."""

_MOST_LEVELS = 256
_WATCHED_TOGETHER = 4096
_MANY_CASES = 100_000
_NO_JUDGES: frozenset[JudgeUse] = frozenset()


class Column:
    """Numbers with the cases that they belong to, often in one byte each: most scores are 0, 1, or one of a few others.

    While each case has one number, in order, no cases are stored.
    """

    __slots__ = ("_cases", "_levels", "_numbers")

    def __init__(self) -> None:
        self._cases: array[int] | None = None
        self._levels: dict[float, int] = {}
        self._numbers: bytearray | array[float] = bytearray()
        """Indexes of levels; if there are too many, the numbers themselves, and there are no levels."""

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, case: int, value: float) -> None:
        numbers = self._numbers
        if self._cases is not None:
            self._cases.append(case)
        elif case != len(numbers):
            self._cases = array("i", (*range(len(numbers)), case))
        if isinstance(numbers, bytearray):
            level = self._levels.setdefault(value, len(self._levels))
            if level < _MOST_LEVELS:
                numbers.append(level)
                return
            levels = list(self._levels)
            numbers = self._numbers = array("d", (levels[level] for level in numbers))
            self._levels = {}
        numbers.append(value)

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the cases and their numbers as arrays."""
        cases = np.arange(len(self), dtype=np.int32) if self._cases is None else np.asarray(self._cases)
        if isinstance(self._numbers, array):
            return cases, np.asarray(self._numbers)
        levels = np.array([*self._levels], dtype=float)
        return cases, levels[np.frombuffer(self._numbers, dtype=np.uint8)]

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

    `tags`, `judges` and `paths` are indexes into `tag_sets`, `judge_sets` and `path_names`. `fingerprints` are hashes
    of the input and the references of a case; 0 if they are not stored. `starts` holds the offset of each case's first
    scored record, or -1. With `picked`, only the records of that target are read, or of that prompt if there is no
    such target. `source` is a path or an open run, such as a pool of several runs.
    """

    def __init__(
        self, source: Path | str | RunStore, label: str, picked: str | None = None, watch: Watch | None = None
    ) -> None:
        self.run = source if isinstance(source, RunStore) else RunStore.open(source)
        self.path = source.path if isinstance(source, RunStore) else source
        self.label = label
        self.picked = picked
        self.cases = CaseTable()
        self._conversations = array("q")
        self._probabilities = array("d")
        self.paths = array("i")
        self.path_names: dict[str, int] = {}
        self.tags = array("i")
        self.tag_sets: dict[tuple[str, ...], int] = {}
        self.judges = array("i")
        self.judge_sets: list[frozenset[JudgeUse]] = [_NO_JUDGES]
        self._judge_numbers = {_NO_JUDGES: 0}
        self.fingerprints = array("q")
        self.starts = array("q")
        self.scores, self.passes, self.failures = Column(), Column(), Column()
        self.cost, self.duration = Column(), Column()
        self.evaluators: defaultdict[str, Column] = defaultdict(Column)
        self.records = self.errors = self.unscored = 0
        self.error_classes: Counter[str] = Counter()
        self._targets: dict[str, None] = {}
        self._prompts: dict[str | None, None] = {}
        self._watch = watch
        if picked is None:
            for start, record in self._entries():
                self._add(start, record)
        else:
            self._pick(picked)
        self.cases.finish()
        if len(self.cases) >= _MANY_CASES:
            _return_memory()

    def _entries(self) -> Iterator[tuple[int, ScoreRecord | Result]]:
        entries = self.run.entries(ScoreRecord)
        return entries if self._watch is None else _watched(entries, self._watch)

    def _pick(self, name: str) -> None:
        targets, prompts = set(), set()
        for start, record in self._entries():
            targets.add(record.target)
            prompts.add(record.prompt)
            if record.target == name:
                self._add(start, record)
        if name in targets:
            return
        prompt_names = {prompt for prompt in prompts if prompt is not None}
        if name not in prompt_names:
            choices = f"Targets: {', '.join(sorted(targets)) or 'none'}"
            choices += f"; prompts: {', '.join(sorted(prompt_names))}" if prompt_names else ""
            hint = did_you_mean(name, {*targets, *prompt_names}) or choices
            what = "target or prompt" if prompt_names else "target"
            raise UsageError(f"No results for {what} '{name}' in {self.path}", hint=hint)
        for start, record in self._entries():
            if record.prompt == name:
                self._add(start, record)

    @cached_property
    def manifest(self) -> RunManifest | None:
        """The manifest; None if there is none that this version can read. The records may be readable without it."""
        with suppress(AgentvError):
            return self.run.manifest
        return None

    @property
    def pooled(self) -> tuple[RunStore, ...]:
        """The runs that were pooled; the run itself if it is a single one."""
        return self.run.runs if isinstance(self.run, PooledStore) else (self.run,)

    @property
    def import_notes(self) -> tuple[str, ...]:
        """What a reader of another tool's results or of a pool should know; empty for a single run of ours."""
        return () if self.manifest is None else self.run.notes

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
            if (cluster := cluster_of(record)) is not None:
                self._conversations.extend(repeat(0, case - len(self._conversations)))
                self._conversations.append(hash((record.dataset, cluster)))
            if record.probability is not None:
                self._probabilities.extend(repeat(1.0, case - len(self._probabilities)))
                self._probabilities.append(record.probability)
            self.paths.append(self.path_names.setdefault(record.dataset_path, len(self.path_names)))
            self.tags.append(self.tag_sets.setdefault(record.tags, len(self.tag_sets)))
            self.judges.append(0)
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
        for evaluation in record.evaluator_results:
            if evaluation.evaluator_provider_request is not None or evaluation.evaluator_results:
                self._add_judges(case, evaluation)
            if evaluation.score is not None:
                self.evaluators[evaluation.name].add(case, evaluation.score)

    def _add_judges(self, case: int, evaluation: EvaluatorScore | EvaluatorResult) -> None:
        judge_set = self.judge_sets[self.judges[case]]
        used = judge_set.union(_judges_of(evaluation, evaluation.name))
        if used != judge_set:
            self.judges[case] = number = self._judge_numbers.setdefault(used, len(self.judge_sets))
            if number == len(self.judge_sets):
                self.judge_sets.append(used)

    @property
    def has_conversations(self) -> bool:
        """Whether cases belong to conversations."""
        return len(self._conversations) > 0

    def conversations(self) -> NDArray[Any]:
        """Return a hash of the conversation of each case, and of its dataset; 0 for a case without one."""
        hashes = np.zeros(len(self.cases), dtype=np.int64)
        hashes[: len(self._conversations)] = self._conversations
        return hashes

    @property
    def has_draw(self) -> bool:
        """Whether the cases were drawn with probabilities of their own."""
        return len(self._probabilities) > 0

    def weights(self) -> NDArray[Any]:
        """Return the weight of each case, the inverse of the probability with which it was drawn."""
        weights = np.ones(len(self.cases))
        weights[: len(self._probabilities)] = 1 / np.asarray(self._probabilities)
        return weights

    def judges_of(self, cases: NDArray[Any]) -> frozenset[JudgeUse]:
        """Return the judges that scored some cases."""
        numbers = np.unique(np.asarray(self.judges)[cases]).tolist()
        return _NO_JUDGES.union(*(self.judge_sets[number] for number in numbers))

    def _add_usage(self, case: int, record: ScoreRecord | Result) -> None:
        metrics = record.execution_metrics
        # Cached answers do not reflect the cost and time of the target. Failed calls do.
        if metrics is None or record.cached:
            return
        if metrics.cost_usd is not None:
            self.cost.add(case, metrics.cost_usd)
        if metrics.duration_ms is not None:
            self.duration.add(case, metrics.duration_ms)


def _return_memory() -> None:
    """Return the gaps that growing columns left behind: half of the memory of a large run, which the next one needs."""
    with suppress(OSError, AttributeError, TypeError):  # only the C library of GNU has gaps, and this function
        ctypes.CDLL(None).malloc_trim(0)


def _watched(entries: Iterator[T], watch: Watch) -> Iterator[T]:
    while part := list(islice(entries, _WATCHED_TOGETHER)):
        yield from part
        watch(len(part))


def _judges_of(evaluation: EvaluatorScore | EvaluatorResult, name: str) -> Iterator[JudgeUse]:
    """Yield the successful calls of an evaluator and its members, as calls of the evaluator `name`."""
    request = evaluation.evaluator_provider_request
    for member in evaluation.evaluator_results:
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
    """The cases of a run, grouped by names that several runs share: the fields of their keys at `parts`.

    `first` is the first case of each group, `groups` the group of each case, and `codes` a hash of each group's name.
    """

    def __init__(self, run: RunScores, parts: Sequence[int]) -> None:
        self.run = run
        self.parts = tuple(parts)
        self.codes = run.cases.codes(parts)
        if len(run.targets) < 2 and len(run.prompts) < 2 and self.parts == (0, 1):
            # Shortcut for most runs: every case already has a unique name.
            self.first = self.groups = np.arange(len(run.cases), dtype=np.int32)
        else:
            self.first, self.groups = number_codes(self.codes)
            self.codes = self.codes[self.first]

    def __len__(self) -> int:
        return len(self.first)

    def name(self, row: int) -> CaseName:
        """Return the name of a group."""
        key = self.run.cases.key(int(self.first[row]))
        return tuple(key[part] for part in self.parts)

    def rows_of(self, other: GroupedCases) -> NDArray[Any]:
        """Return the row here of each case of another run; -1 for a case that this run does not have."""
        return first_places(self.codes, other.codes)

    def only_here(self, other: GroupedCases) -> Iterator[CaseId]:
        """Yield the cases that another run does not have."""
        return map(self.case_id, np.flatnonzero(other.rows_of(self) < 0).tolist())

    def case_id(self, row: int) -> CaseId:
        """Return the dataset and id of a case."""
        dataset, id, _, _ = self.run.cases.key(int(self.first[row]))
        return CaseId(dataset, id)

    def means(self, column: Column) -> NDArray[Any]:
        """Return the mean of each case."""
        return column.means(self.groups, len(self))

    def starts(self) -> NDArray[Any]:
        """Return the offset of a scored record of each case; -1 for a case without one."""
        starts = np.asarray(self.run.starts)
        scored = np.flatnonzero(starts >= 0)[::-1]
        offsets = np.full(len(self), -1)
        offsets[self.groups[scored]] = starts[scored]
        return offsets


def clusters_of(sides: Sequence[GroupedCases], rows: NDArray[Any]) -> NDArray[Any] | None:
    """Return the cluster of each case, given its row in each run; None if there are no clusters.

    A cluster is a conversation, named in any of the runs, or a case with several targets or prompts.
    """
    conversational = [(side, column) for side, column in zip(sides, rows.T, strict=True) if side.run.has_conversations]
    several = len(sides[0].parts) > 2
    if not conversational and not several:
        return None
    own = sides[0].run.cases.codes((0, 1))[sides[0].first] if several else sides[0].codes
    codes = own[rows[:, 0]]
    for side, column in reversed(conversational):
        conversations = side.run.conversations()[side.first[column]]
        codes = np.where(conversations == 0, codes, conversations)
    return number_codes(codes)[1]
