"""Rows of Azure AI evaluation: query, response, ground_truth, context, or a conversation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import (
    is_blank,
    messages_of,
    metadata_of,
    parsed,
    question_of,
    split_conversation,
    texts_of,
    with_outcome,
)

_USED = ("id", "query", "response", "ground_truth", "context", "conversation", "metadata")
_MARKS = ("ground_truth", "response", "context", "tool_definitions")


class _Azure(ForeignFormat):
    title = "a dataset of Azure AI evaluation"
    strength = 0.62
    fields = "query → input, ground_truth → expected_output, context → context"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        if all_have(rows, "conversation"):
            return all(isinstance(row["conversation"], dict) and "messages" in row["conversation"] for row in rows)
        return all_have(rows, "query") and any_has(rows, *_MARKS) and not any_has(rows, "should_trigger", "input")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        row: dict[str, Any] = {
            "id": data.get("id"),
            "expected_output": data.get("ground_truth"),
            "context": texts_of(parsed(data.get("context"))),
            "metadata": metadata_of(data, _USED, parsed(data.get("metadata"))),
        }
        if isinstance(data.get("conversation"), dict):
            row |= split_conversation(messages_of(data["conversation"].get("messages"), lose), lose)
        else:
            row["input"] = question_of(parsed(data.get("query")), lose)
        if not is_blank(data.get("response")):
            row["metadata"]["recorded_response"] = data["response"]
        return [with_outcome(row)]


AZURE = _Azure()
