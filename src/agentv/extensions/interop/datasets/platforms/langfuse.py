"""Dataset items of Langfuse, as exported in JSON, JSON Lines or CSV. Archived items are left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import first_of, metadata_of, parsed, question_of, reference_of, with_outcome

_USED = ("id", "input", "expectedOutput", "expected_output", "metadata", "status")
_MARKS = ("expectedOutput", "datasetName", "sourceTraceId", "sourceObservationId", "validFrom")


class _Langfuse(ForeignFormat):
    title = "dataset items of Langfuse"
    strength = 0.74
    fields = "input → input, expectedOutput → expected_output"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "input") and any_has(rows, *_MARKS) and not any_has(rows, "retrievalContext")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        if data.get("status") == "ARCHIVED":
            lose("archived items")
            return []
        row = {
            "id": data.get("id"),
            "input": question_of(parsed(data["input"]), lose),
            "expected_output": reference_of(parsed(first_of(data, "expectedOutput", "expected_output")), lose),
            "metadata": metadata_of(data, _USED, parsed(data.get("metadata"))),
        }
        return [with_outcome(row)]


LANGFUSE = _Langfuse()
