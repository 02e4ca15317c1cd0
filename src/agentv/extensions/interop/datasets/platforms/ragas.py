"""Test sets of Ragas, in its two generations of names: single questions and conversations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import (
    call_of,
    cell_list,
    expected_calls,
    filled,
    first_of,
    messages_of,
    metadata_of,
    parsed,
    split_conversation,
    text_of,
    with_outcome,
)

_OLD = ("ground_truth", "ground_truths", "contexts", "answer")
_USED = (
    *("user_input", "question", "reference", "ground_truth", "ground_truths", "contexts", "retrieved_contexts", "id"),
    *("reference_contexts", "reference_tool_calls", "rubrics", "metadata"),
)


class _Ragas(ForeignFormat):
    title = "a test set of Ragas"
    strength = 0.64
    fields = "user_input → input, reference → expected_output, contexts → context"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        if all_have(rows, "user_input"):
            return True
        return all_have(rows, "question") and any_has(rows, "ground_truth", "ground_truths") and any_has(rows, *_OLD)

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        question = parsed(first_of(data, "user_input", "question"))
        passages = cell_list(first_of(data, "reference_contexts", "retrieved_contexts", "contexts"), "\n")
        calls = parsed(data.get("reference_tool_calls"))
        rubrics = parsed(data.get("rubrics"))
        truths = cell_list(first_of(data, "ground_truths"), "\n")
        row: dict[str, Any] = {
            "id": data.get("id"),
            "expected_output": first_of(data, "reference", "ground_truth") or (truths[0] if truths else None),
            "context": passages,
            "metadata": metadata_of(data, _USED, parsed(data.get("metadata"))),
        }
        if isinstance(calls, list) and calls:
            row["assertions"] = [expected_calls([call_of(call) for call in calls], "in_order")]
        if isinstance(rubrics, dict) and rubrics:
            row["metadata"]["rubrics"] = rubrics
            lose("rubrics with a description per score: they are in the metadata")
        if isinstance(question, list):
            row |= split_conversation(messages_of(question, lose), lose)
        else:
            row["input"] = text_of(question)
        return [with_outcome(filled(row))]


RAGAS = _Ragas()
