"""Rows of Braintrust datasets: input and expected of any type, metadata and tags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import metadata_of, parsed, question_of, texts_of, with_outcome

_MARKS = ("expected", "_xact_id", "upsert_id")
_USED = ("id", "input", "expected", "metadata", "tags", "_xact_id", "created", "origin", "_pagination_key", "is_root")


class _Braintrust(ForeignFormat):
    title = "a dataset of Braintrust"
    strength = 0.72
    fields = "input → input, expected → expected_output"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "input") and any_has(rows, *_MARKS) and not any_has(rows, "expected_outcome", "target")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        row = {
            "id": data.get("id"),
            "input": question_of(parsed(data["input"]), lose),
            "expected_output": parsed(data.get("expected")),
            "tags": texts_of(parsed(data.get("tags"))),
            "metadata": metadata_of(data, _USED, parsed(data.get("metadata"))),
        }
        return [with_outcome(row)]


BRAINTRUST = _Braintrust()
