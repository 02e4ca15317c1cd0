"""Chat fine-tuning data: the last reply is the reference, the messages before it are the input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import is_blank, messages_of, metadata_of, parsed, with_outcome

_USED = ("id", "messages", "metadata", "weight", "parallel_tool_calls")


class _Chat(ForeignFormat):
    title = "chat training data"
    strength = 0.2
    fields = "the last reply → expected_output, earlier messages → input"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "messages") and not any_has(rows, "ideal", "testData", "input", "preferred_output")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        messages = messages_of(parsed(data["messages"]), lose)
        last = messages.pop() if messages and messages[-1]["role"] == "assistant" else None
        if not messages:
            raise ValueError("The record has no message before the reply")
        if not is_blank(data.get("tools")):
            lose("tools that the model could call: they are in the metadata")
        row = {
            "id": data.get("id"),
            "input": messages,
            "expected_output": None if last is None else last.get("content") if "tool_calls" not in last else [last],
            "metadata": metadata_of(data, _USED, data.get("metadata")),
        }
        return [with_outcome(row)]


CHAT = _Chat()
