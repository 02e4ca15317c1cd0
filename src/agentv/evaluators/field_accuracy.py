"""Field accuracy: the fields of a JSON answer against those of the expected output."""

from __future__ import annotations

from typing import Literal

import msgspec

from agentv.evaluators.base import Evaluator, Limit, Weight


class FieldRule(msgspec.Struct, frozen=True, kw_only=True):
    """One field. `tolerance` is absolute, with `relative` a share of the expected number; `formats` are for dates."""

    path: str
    match: Literal["exact", "numeric_tolerance", "date", "fuzzy"] = "exact"
    required: bool = True
    weight: Weight = 1.0
    tolerance: Limit = 0.0
    relative: bool = False
    formats: list[str] = []


class FieldAccuracy(Evaluator, frozen=True, kw_only=True):
    """The fields to compare and how their scores become one."""

    fields: list[FieldRule]
    aggregation: Literal["weighted_average", "all_or_nothing"] = "weighted_average"

    def complaints(self) -> list[str]:
        """No fields, blank paths, or nothing that weighs."""
        if not self.fields:
            return ["'fields' is an empty list"]
        complaints = [
            f"'fields[{index}].path' is blank" for index, rule in enumerate(self.fields) if not rule.path.strip()
        ]
        if not any(rule.weight for rule in self.fields):
            complaints.append("Every entry of 'fields' has weight 0, so there is nothing to score")
        return complaints

    @property
    def needs_reference(self) -> bool:
        """The expected output is what the fields are held against."""
        return True
