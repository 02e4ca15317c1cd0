"""The cases that a run stored: hashes of how each was asked and scored, and how a case differs between two runs."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentv.comparison.case_table import first_places
from agentv.comparison.changes.run_change import ValueChange, changed_values
from agentv.comparison.scores import RunScores
from agentv.model.evaluator import Verdicts
from agentv.model.values import digest
from agentv.runs.store import StoredCase

Fields = dict[str, Any]
"""A case as stored in `cases.jsonl`."""

_REFERENCES = ("expected_output", "expected_outcome", "context")
_HASHES = ("wholes", "questions", "references", "evaluators", "limits")
_NOT_STORED = -1
_ALL = slice(None)


class CaseIndex:
    """Hashes of the cases that a run stored.

    `wholes` are those of the records: input and references. `questions` identify the input, or the variables of a
    prompt template, `references` these and the references, `evaluators` the scoring, `limits` the verdict limits.
    """

    def __init__(self, run: RunScores) -> None:
        self._run = run
        self._default = _default_limits(run)
        self._known_evaluators: dict[str, int] = {}
        start, starts, names = 0, array("q"), array("q")
        self._columns = {name: array("q") for name in _HASHES}
        for case in run.run.cases():
            names.append(hash(case.id) ^ hash(case.dataset_path))
            starts.append(start)
            start += len(case.data)
            for column, value in zip(self._columns.values(), self._hashes(case), strict=True):
                column.append(value)
        paths = np.array([hash(path) for path in run.path_names], dtype=np.int64)[run.paths]
        # The last line is that of cases that were not stored.
        self._lines = first_places(np.asarray(names), run.cases.codes_with(paths)).astype(np.int32)
        self._starts = starts
        starts.append(_NOT_STORED)
        for column in self._columns.values():
            column.append(0)

    def hashes(self, name: str, cases: NDArray[Any] | slice = _ALL) -> NDArray[Any]:
        """Return a hash of each case, or of those with some numbers in the run; 0 for a case that was not stored."""
        return self._at(self._columns[name], cases)

    def fields(self, cases: NDArray[Any]) -> Iterator[Fields | None]:
        """Yield the stored fields of some cases; None for a case that the run did not store."""
        starts = self._at(self._starts, cases).tolist()
        if max(starts, default=_NOT_STORED) < 0:
            return repeat(None, len(starts))
        return (None if case is None else case.fields for case in self._run.run.cases_at(starts))

    def _at(self, column: array[int], cases: NDArray[Any] | slice) -> NDArray[Any]:
        values: NDArray[Any] = np.asarray(column)[self._lines[cases]]
        return values

    def verdicts(self, fields: Fields) -> dict[str, Any]:
        """Return the verdict limits of a case, given its fields."""
        own = fields.get("execution", {}).get("verdicts")
        limits: dict[str, Any] = msgspec.to_builtins(self._default if own is None else own)
        return limits

    def _hashes(self, case: StoredCase) -> tuple[int, ...]:
        whole, question, references = hash(case.fingerprint), hash(case.input_fingerprint), hash(case.fingerprint)
        if b'"variables":' in case.data and (variables := _variables(case.fields)) is not None:
            question = hash(digest(variables))
            references = hash(digest([variables, _references(case.fields)]))
        return whole, question, references, self._evaluators(case), hash(case.verdicts or self._default)

    def _evaluators(self, case: StoredCase) -> int:
        """Return a hash of the evaluators and their weights, independent of their order."""
        code = self._known_evaluators.get(case.evaluators_fingerprint)
        if code is None:
            specs = _evaluators(case.fields)
            prints = case.evaluator_fingerprints.items()
            weights = ((name, fingerprint, specs.get(name, {}).get("weight", 1)) for name, fingerprint in prints)
            code = hash(frozenset(weights)) if case.evaluators_fingerprint else 0
            self._known_evaluators[case.evaluators_fingerprint] = code
        return code


def _default_limits(run: RunScores) -> Verdicts:
    """Return the verdict limits of cases that set none."""
    limits = run.manifest.defaults.get("verdicts") if run.manifest is not None else None
    return Verdicts() if limits is None else msgspec.convert(limits, Verdicts)


def _variables(fields: Fields) -> list[Any] | None:
    """Return the variables and further turns of a case with a prompt template; None for other cases.

    The contents of a workspace are not stored, so a case with one is identified by its whole input.
    """
    if "variables" not in fields or "workspace" in fields:
        return None
    return [fields["variables"], _turns(fields, "input"), fields.get("user")]


def _references(fields: Fields) -> list[Any]:
    return [*(fields.get(field) for field in _REFERENCES), _turns(fields, "expected_output")]


def changed_references(before: Fields, after: Fields) -> list[str]:
    """Return the references that differ. If none of those stored does, it is a rubric or a file."""
    names = (*_REFERENCES, "expected_output of turns")
    both = zip(names, _references(before), _references(after), strict=True)
    return [name for name, old, new in both if old != new] or ["rubrics or files"]


def reference_text(value: Any) -> Any:
    """Return the text of a reference that is one message; other values unchanged."""
    is_message = isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)
    content = value[0].get("content") if is_message else None
    return content if isinstance(content, str) else value


def changed_evaluators(before: Fields, after: Fields) -> Iterator[tuple[str, list[ValueChange]]]:
    """Yield the evaluators of a case that differ, with their settings that differ."""
    first, second = (fields.get("evaluator_fingerprints", {}) for fields in (before, after))
    old, new = _evaluators(before), _evaluators(after)
    for name in dict.fromkeys((*first, *second)):
        if name not in first or name not in second:
            types = (
                specs.get(name, {}).get("type") if name in fingerprints else None
                for specs, fingerprints in ((old, first), (new, second))
            )
            yield name, [ValueChange("", *types)]
            continue
        values = list(changed_values(old.get(name, {}), new.get(name, {})))
        if first[name] != second[name]:
            files = (fields.get("evaluator_files", {}).get(name, {}) for fields in (before, after))
            values += changed_values(*files)
        if values or first[name] != second[name]:
            yield name, values or [ValueChange("built-in prompt")]


def _evaluators(fields: Fields) -> dict[str, Fields]:
    """Return the evaluators of a case and of its turns as written, by their names in results."""
    turns = enumerate(fields.get("turns", ()), 1)
    of_turns = {f"turn-{number}.{spec['name']}": spec for number, turn in turns for spec in turn.get("evaluators", ())}
    return {**of_turns, **{spec["name"]: spec for spec in fields.get("evaluators", ())}}


def rendered_messages(fields: Fields, prompt: str | None) -> dict[str, list[Any]]:
    """Return the messages of a case as rendered by one of its prompts; with None, by each of them."""
    messages: list[Any] = fields.get("input") or []
    rendered: dict[str, list[Any]] = {entry["id"]: entry["input"] for entry in fields.get("prompts", ())}
    return rendered or {"": messages} if prompt is None else {"": rendered.get(prompt, messages)}


def _turns(fields: Fields, key: str) -> list[Any]:
    return [turn.get(key) for turn in fields.get("turns", ())]
