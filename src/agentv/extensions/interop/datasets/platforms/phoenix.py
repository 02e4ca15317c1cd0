"""Examples of Arize Phoenix: input, output and metadata objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import metadata_of, parsed, question_of, reference_of, texts_of, with_outcome

_USED = ("id", "node_id", "input", "output", "metadata", "splits", "span_id", "example_id")
_MARKS = ("output",)


class _Phoenix(ForeignFormat):
    title = "examples of Phoenix"
    strength = 0.6
    fields = "input → input, output → expected_output, splits → tags"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "input", *_MARKS) and all(isinstance(parsed(row["input"]), dict) for row in rows)

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        row = {
            "id": data.get("id") or data.get("example_id"),
            "input": question_of(parsed(data["input"]), lose),
            "expected_output": reference_of(parsed(data["output"]), lose),
            "tags": texts_of(parsed(data.get("splits"))),
            "metadata": metadata_of(data, _USED, parsed(data.get("metadata"))),
        }
        return [with_outcome(row)]


PHOENIX = _Phoenix()
