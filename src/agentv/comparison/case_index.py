"""The cases that a run stored: hashes of how each was asked and scored, and how a case differs between two runs."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

from agentv.comparison.run_change import ValueChange, changed_values
from agentv.comparison.scores import RunScores
from agentv.model.evaluator import Verdicts
from agentv.model.values import digest

Fields = dict[str, Any]
"""A case as stored in `cases.jsonl`."""

_REFERENCES = ("expected_output", "expected_outcome", "context")


class CaseIndex:
    """Hashes of each case of a run, in the order of `RunScores.cases`; 0 for a case that the run did not store.

    `inputs` identify what is sent to the target, `evaluators` how answers are scored, `limits` the verdict limits.
    """

    def __init__(self, run: RunScores) -> None:
        self._run = run
        lines: dict[int, int] = {}
        hashes = array("q"), array("q"), array("q")
        default = _limits(run)
        for case in run.run.cases():
            lines.setdefault(hash((case.dataset_path, case.id)), len(lines))
            hashes[0].append(hash(case.input_fingerprint))
            hashes[1].append(hash(case.evaluators_fingerprint))
            hashes[2].append(hash(case.verdicts or default))
        ids = (key[1] for key in run.cases)
        known = (lines.get(hash(key), -1) for key in zip(run.paths, ids, strict=True))
        self._lines = np.fromiter(known, dtype=np.intp, count=len(run.cases))
        # The last hash belongs to the line -1: cases that were not stored.
        self.inputs, self.evaluators, self.limits = (np.array([*each, 0])[self._lines] for each in hashes)

    def fields(self, cases: Iterable[int]) -> dict[int, Fields]:
        """Return the stored fields of some cases, by their numbers."""
        wanted: dict[int, list[int]] = {}
        for case in cases:
            wanted.setdefault(int(self._lines[case]), []).append(case)
        found: dict[int, Fields] = {}
        for line, stored in enumerate(self._run.run.cases() if wanted else ()):
            for case in wanted.get(line, ()):
                found[case] = stored.fields
        return found

    def verdicts(self, fields: Fields) -> dict[str, Any]:
        """Return the verdict limits of a case, given its fields."""
        own = fields.get("execution", {}).get("verdicts")
        limits: dict[str, Any] = msgspec.to_builtins(_limits(self._run) if own is None else own)
        return limits


def _limits(run: RunScores) -> Verdicts:
    """Return the verdict limits of cases that set none."""
    given = run.manifest.defaults.get("verdicts") if run.manifest is not None else None
    return Verdicts() if given is None else msgspec.convert(given, Verdicts)


def has_same_variables(before: Fields, after: Fields) -> bool:
    """Return whether two templated cases have the same variables and turns, so that only the prompt differs.

    The contents of a workspace are not stored, so cases with one are not known to be the same.
    """
    if "variables" not in before or "workspace" in before or "workspace" in after:
        return False
    first, second = ([each.get("variables"), _turns(each, "input"), each.get("user")] for each in (before, after))
    return digest(first) == digest(second)


def changed_references(before: Fields, after: Fields, *, is_certain: bool) -> list[str]:
    """Return the references that differ. If one certainly does, but none of those stored, it is a rubric or a file."""
    found = [field for field in _REFERENCES if before.get(field) != after.get(field)]
    if _turns(before, "expected_output") != _turns(after, "expected_output"):
        found.append("expected_output of turns")
    return found or (["rubrics or files"] if is_certain else [])


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
                each.get(name, {}).get("type") if name in known else None
                for each, known in ((old, first), (new, second))
            )
            yield name, [ValueChange("", *types)]
            continue
        values = list(changed_values(old.get(name, {}), new.get(name, {})))
        if not values and first[name] != second[name]:
            values = [ValueChange("code, prompt or files")]
        if values:
            yield name, values


def _evaluators(fields: Fields) -> dict[str, Fields]:
    """Return the evaluators of a case and of its turns as written, by their names in results."""
    turns = enumerate(fields.get("turns", ()), 1)
    of_turns = {f"turn-{number}.{spec['name']}": spec for number, turn in turns for spec in turn.get("evaluators", ())}
    return {**of_turns, **{spec["name"]: spec for spec in fields.get("evaluators", ())}}


def _turns(fields: Fields, key: str) -> list[Any]:
    return [turn.get(key) for turn in fields.get("turns", ())]
