"""Conversations in the format of ShareGPT: `conversations` of `from` and `value`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import messages_of, metadata_of, text_of, with_outcome

_USED = ("id", "conversations", "system")


class _ShareGPT(ForeignFormat):
    title = "conversations in the format of ShareGPT"
    strength = 0.4
    fields = "the last reply → expected_output, earlier messages → input"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "conversations") and all(isinstance(row["conversations"], list) for row in rows)

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        messages = messages_of(data["conversations"], lose)
        if data.get("system"):
            messages.insert(0, {"role": "system", "content": text_of(data["system"])})
        last = messages.pop() if messages and messages[-1]["role"] == "assistant" else None
        if not messages:
            raise ValueError("The record has no message before the reply")
        row = {
            "id": data.get("id"),
            "input": messages,
            "expected_output": None if last is None else last.get("content"),
            "metadata": metadata_of(data, _USED),
        }
        return [with_outcome(row)]


SHAREGPT = _ShareGPT()
