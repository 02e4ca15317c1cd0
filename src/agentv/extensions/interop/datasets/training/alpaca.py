"""Instruction data in the format of Alpaca: instruction, input and output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import is_blank, metadata_of, text_of, with_outcome

_USED = ("id", "instruction", "input", "output")


class _Alpaca(ForeignFormat):
    title = "instruction data in the format of Alpaca"
    strength = 0.3
    fields = "instruction and input → input, output → expected_output"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "instruction") and any_has(rows, "output")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:  # noqa: ARG002
        data = record.data
        parts = [text_of(data[key]) for key in ("instruction", "input") if not is_blank(data.get(key))]
        row = {
            "id": data.get("id"),
            "input": "\n\n".join(parts),
            "expected_output": data.get("output"),
            "metadata": metadata_of(data, _USED),
        }
        return [with_outcome(row)]


ALPACA = _Alpaca()
