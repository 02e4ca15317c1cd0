"""Decide whether two runs measured the same: the same inputs, references, evaluators, judges and verdict limits.

Cases are paired only if their input is the same in both runs. A prompt template belongs to what is tested: cases with
the same variables have the same input. If references, evaluators, judges or verdict limits differ, the measure changed,
and a difference of scores may not come from the targets.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentv.comparison.case_table import mixed_codes, number_codes
from agentv.comparison.changes.case_index import (
    CaseIndex,
    Fields,
    changed_evaluators,
    changed_references,
    reference_text,
    rendered_messages,
)
from agentv.comparison.changes.run_change import (
    CaseId,
    ChangeKind,
    RunChange,
    ValueChange,
    changed_entries,
    changed_values,
)
from agentv.comparison.scores import GroupedCases, JudgeUse, RunScores
from agentv.errors import plural

if TYPE_CHECKING:
    from agentv.model.manifest import TargetEntry

_PROMPT = 3
"""The position of the prompt in the key of a case."""


class _Affected(NamedTuple):
    """The number of cases with a change, and the row of the first of them."""

    cases: int
    row: int

    def more(self, cases: int) -> _Affected:
        return self._replace(cases=self.cases + cases)


class SharedCases:
    """The cases that two runs have in common, given their rows in each run: which have the same input, and how
    their scoring differs.

    `same_input` marks the cases that can be paired. `unchecked` is the number of cases without a stored fingerprint in
    one of the runs; they count as the same. `other_inputs` are the cases that cannot be paired, `other_prompts` the
    rows whose prompt template changed. `pairs_prompts` is whether each row belongs to one prompt of both runs.
    """

    def __init__(self, sides: tuple[GroupedCases, GroupedCases], rows: NDArray[Any]) -> None:
        self.sides = sides
        self._runs = sides[0].run, sides[1].run
        self.pairs_prompts = _PROMPT in sides[0].parts
        self._cases = [side.first[rows[:, place]] for place, side in enumerate(sides)]
        first, second = self._fingerprints()
        is_known = (first != 0) & (second != 0)
        self.unchecked = int((~is_known).sum())
        self.same_input = np.ones(len(rows), dtype=bool)
        self.other_prompts: list[int] = []
        self._references: dict[str, _Affected] = {}
        self._examine(np.flatnonzero(is_known & (first != second)).tolist())
        self.other_inputs = self._case_ids(rows[~self.same_input][:, 0].tolist())

    @cached_property
    def measure_changes(self) -> tuple[RunChange, ...]:
        """How the scoring of the paired cases differs between the runs; empty if it is the same."""
        if self._has_same_cases():
            return (*self._tool_changes(), *self._judge_changes())
        scoring = self._reference_changes(), self._evaluator_changes(), self._judge_changes()
        return (*self._tool_changes(), *chain.from_iterable(scoring))

    def _has_same_cases(self) -> bool:
        """Return whether both runs stored the same cases and evaluators: usual, and faster to check than each case."""
        first, second = (run.run.folder.cases_path for run in self._runs)
        limits = [run.manifest.defaults.get("verdicts") for run in self._runs if run.manifest is not None]
        if self._references or len(limits) < 2 or limits[0] != limits[1]:
            return False
        return first.is_file() and second.is_file() and filecmp.cmp(first, second, shallow=False)

    @property
    def notes(self) -> Iterator[str]:
        """Yield what could not be checked, and the cases that cannot be paired."""
        if self.unchecked:
            cases = "Cases" if self.unchecked == len(self.same_input) else plural(self.unchecked, "case")
            labels = [run.label for run in self._runs if not all(run.fingerprints)]
            stores = "store" if len(labels) > 1 else "stores"
            reason = f"{' and '.join(labels)} {stores} no fingerprints to check inputs, references and evaluators"
            yield f"{cases} matched by id only: {reason}"
        if has_same_answers(*self._runs):
            yield "Both runs have the same answers, which were scored again"
        if count := len(self.other_inputs):
            have = "has" if count == 1 else "have"
            yield f"{plural(count, 'case')} {have} the same id but another input; not paired"

    def name(self, row: int) -> str:
        """Return the id of the case in a row."""
        return self._runs[0].cases.id(int(self._cases[0][row]))

    def prompts_of(self, row: int) -> tuple[str | None, str | None]:
        """Return the prompt of a row in each run; None if there is none, or if several are averaged."""
        if not self.pairs_prompts and any(len(run.prompts) > 1 for run in self._runs):
            return None, None
        first, second = (run.cases.key(int(cases[row])) for run, cases in zip(self._runs, self._cases, strict=True))
        return first[_PROMPT], second[_PROMPT]

    def fields(self, rows: Sequence[int]) -> Iterator[tuple[int, Fields | None, Fields | None]]:
        """Yield rows with the case as stored in each run; None if a run did not store it."""
        first, second = (index.fields(cases[rows]) for index, cases in zip(self._indexes, self._cases, strict=True))
        return zip(rows, first, second, strict=True)

    def _case_ids(self, rows: list[int]) -> tuple[CaseId, ...]:
        """Return the cases in some rows of the first run, sorted; one with several targets or prompts counts once."""
        side = self.sides[0]
        cases = set(map(side.case_id, rows))
        return tuple(sorted(cases, key=lambda case: (case.dataset, case.eval_id)))

    @cached_property
    def _indexes(self) -> tuple[CaseIndex, CaseIndex]:
        return CaseIndex(self._runs[0]), CaseIndex(self._runs[1])

    def _fingerprints(self) -> list[NDArray[Any]]:
        """Return the fingerprints of the shared cases in both runs."""
        return [np.asarray(run.fingerprints)[cases] for run, cases in zip(self._runs, self._cases, strict=True)]

    def _columns(self, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return a hash of the shared cases in both runs."""
        first, second = self._indexes
        return first.hashes(name, self._cases[0]), second.hashes(name, self._cases[1])

    def _examine(self, rows: list[int]) -> None:
        """Find out why fingerprints differ: another input, another prompt template, or other references."""
        if not rows:
            return
        questions, references = self._columns("questions"), self._columns("references")
        for row, before, after in self.fields(rows):
            if before is None or after is None or not self._is_stored[row]:
                self._add_reference("input or references", row)
                continue
            is_same_text = before.get("input_fingerprint") == after.get("input_fingerprint")
            if not is_same_text and questions[0][row] != questions[1][row]:
                self.same_input[row] = False
            else:
                if not is_same_text and self._has_other_prompt(row, before, after):
                    self.other_prompts.append(row)
                if references[0][row] != references[1][row]:
                    for field in changed_references(before, after):
                        self._add_reference(field, row)

    def _has_other_prompt(self, row: int, before: Fields, after: Fields) -> bool:
        """Return whether the messages of a row differ, and not only those of other prompts of its case."""
        first, second = self.prompts_of(row)
        if rendered_messages(before, first) != rendered_messages(after, second):
            return True
        # Without any difference in the texts, it is in a file, which may belong to any prompt.
        return rendered_messages(before, None) == rendered_messages(after, None)

    def _add_reference(self, field: str, row: int) -> None:
        effect = self._references.get(field, _Affected(0, row))
        self._references[field] = effect.more(1)

    @cached_property
    def _is_stored(self) -> NDArray[Any]:
        """Whether the stored cases are those of the records; records that were carried over may be older."""
        columns = zip(self._columns("wholes"), self._fingerprints(), strict=True)
        is_same: NDArray[Any] = np.all([case_print == record_print for case_print, record_print in columns], axis=0)
        return is_same

    def _change(self, kind: ChangeKind, name: str, effect: _Affected, value: ValueChange) -> RunChange:
        total, example = int(self.same_input.sum()), self.name(effect.row)
        return value.to_change(kind, name=name, cases=effect.cases, of=total, example=example, is_measure=True)

    def _tool_changes(self) -> Iterator[RunChange]:
        """Yield another tool: its scores are another measure, also if it does not store how it scored."""
        first, second = map(_origin, self._runs)
        if first != second:
            yield RunChange(kind="tool", before=first, after=second, is_measure=True)

    def _reference_changes(self) -> Iterator[RunChange]:
        for field, effect in self._references.items():
            _, before, after = next(self.fields([effect.row]))
            old, new = (reference_text((fields or {}).get(field)) for fields in (before, after))
            yield self._change("references", "", effect, ValueChange(field, old, new))

    def _evaluator_changes(self) -> Iterator[RunChange]:
        """Yield evaluators and verdict limits that differ. Cases with equal pairs of them are examined once."""
        columns = (*self._columns("evaluators"), *self._columns("limits"))
        is_known = (columns[0] != 0) & (columns[1] != 0) & self.same_input
        rows = np.flatnonzero(is_known & ((columns[0] != columns[1]) | (columns[2] != columns[3])))
        first, groups = number_codes(mixed_codes([column[rows] for column in columns]))
        cases_of = dict(zip(rows[first].tolist(), np.bincount(groups).tolist(), strict=True))
        affected: dict[tuple[ChangeKind, str], _Affected] = {}
        values: dict[tuple[ChangeKind, str], list[ValueChange]] = {}
        for row, before, after in self.fields(list(cases_of)):
            for key, changes in self._scoring_changes(before or {}, after or {}):
                affected[key] = affected.get(key, _Affected(0, row)).more(cases_of[row])
                values.setdefault(key, changes)
        for (kind, name), changes in values.items():
            yield from (self._change(kind, name, affected[kind, name], value) for value in changes)

    def _scoring_changes(
        self, before: Fields, after: Fields
    ) -> Iterator[tuple[tuple[ChangeKind, str], list[ValueChange]]]:
        for name, values in changed_evaluators(before, after):
            yield ("evaluator", name), values
        first, second = (index.verdicts(fields) for index, fields in zip(self._indexes, (before, after), strict=True))
        if limits := list(changed_values(first, second)):
            yield ("verdict limits", ""), limits

    def _judge_changes(self) -> Iterator[RunChange]:
        """Yield evaluators that called other judges, and judges whose settings or models differ."""
        uses = [run.judges_of(cases[self.same_input]) for run, cases in zip(self._runs, self._cases, strict=True)]
        yield from _changed_judges(*uses)
        first, second = (_grouped((target, model) for _, target, model in side) for side in uses)
        entries = [_entries(run) for run in self._runs]
        for name in sorted(first.keys() & second.keys()):
            before, after = (side.get(name) for side in entries)
            changes = _changed_settings(before, after)
            if not changes and first[name] and second[name] and not first[name] & second[name]:
                changes = [ValueChange("model", _listed(first[name]), _listed(second[name]))]
            yield from (value.to_change("judge", name=name, is_measure=True) for value in changes)


def measure_keys(run: RunScores) -> NDArray[Any]:
    """Return a number for each case, which is the same in another run if the case was asked and scored in the same way.

    It covers the tool, input, references, evaluators, judges and verdict limits. It is 0 if they are unknown.
    """
    index = CaseIndex(run)
    entries = {name: "" if entry.provider == "replay" else entry.fingerprint for name, entry in _entries(run).items()}
    judges = [
        hash(frozenset((evaluator, name, entries.get(name)) for evaluator, name, _ in used)) for used in run.judge_sets
    ]
    wholes, references, evaluators, limits = map(index.hashes, ("wholes", "references", "evaluators", "limits"))
    is_stored = wholes == np.asarray(run.fingerprints)
    used = np.array(judges, dtype=np.int64)[run.judges]
    tool = np.full(len(used), hash(_origin(run)), dtype=np.int64)
    keys = mixed_codes((references, evaluators, limits, is_stored, used, tool))
    return np.where(references == 0, 0, keys)


def is_same_run(before: RunScores, after: RunScores) -> bool:
    """Return whether both sides are parts of one run."""
    return os.path.samefile(before.path, after.path)


def has_same_answers(before: RunScores, after: RunScores) -> bool:
    """Return whether a run has the rescored answers of the other one, or both those of a third run."""
    first, second = before.manifest, after.manifest
    if first is None or second is None or is_same_run(before, after):
        return False
    ids = [run.run_id if run.rescored_from is None else run.rescored_from.run_id for run in (first, second)]
    return ids[0] == ids[1]


def _changed_judges(before: frozenset[JudgeUse], after: frozenset[JudgeUse]) -> Iterator[RunChange]:
    """Yield the evaluators whose judges differ. A run that called none does not count."""
    first, second = (_grouped((evaluator, target) for evaluator, target, _ in uses) for uses in (before, after))
    for name in sorted(first.keys() & second.keys()):
        if first[name] != second[name]:
            value = ValueChange("judge", _listed(first[name]), _listed(second[name]))
            yield value.to_change("evaluator", name=name, is_measure=True)


def _grouped(pairs: Iterable[tuple[str, str | None]]) -> dict[str, set[str]]:
    """Return the known second parts of pairs by the first."""
    groups: dict[str, set[str]] = {}
    for name, value in pairs:
        groups.setdefault(name, set()).update(() if value is None else (value,))
    return groups


def _origin(run: RunScores) -> str:
    """Return what the results of a run are: a run of agentv, or a file of another tool."""
    if run.manifest is not None:
        imported = run.manifest.imported_from
        return "a run of agentv" if imported is None else imported.format
    if any(run.fingerprints):
        return "a run of agentv"
    return "a results file without fingerprints" if run.run.is_ours else "a results file of AgentV (TypeScript)"


def _entries(run: RunScores) -> dict[str, TargetEntry]:
    manifest = run.manifest
    return {} if manifest is None else {entry.name: entry for entry in (*manifest.targets, *manifest.judges)}


def _changed_settings(before: TargetEntry | None, after: TargetEntry | None) -> list[ValueChange]:
    """Return how a judge changed; a replay only repeats its responses, and does not have its settings."""
    if "replay" in (before and before.provider, after and after.provider):
        return []
    return changed_entries(before, after, answers_only=True)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
