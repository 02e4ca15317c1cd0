"""Rows of letta-evals: an input, or several, with a ground truth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import is_blank, metadata_of, parsed, text_of, texts_of, with_outcome

_USED = ("id", "input", "ground_truth", "metadata", "agent_args", "rubric_vars", "tags")


class _Letta(ForeignFormat):
    title = "rows of letta-evals"
    fields = "input → input and turns, ground_truth → expected_output"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "input") and any_has(rows, "ground_truth", "agent_args") and not any_has(rows, "target")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        questions = texts_of(parsed(data["input"]))
        if not questions:
            raise ValueError("The row has no input")
        if not is_blank(data.get("agent_args")):
            lose("arguments of the agent: they are in the metadata")
        truths = parsed(data.get("ground_truth"))
        answers = texts_of(truths) if isinstance(truths, list) else [text_of(truths)] if not is_blank(truths) else []
        kept = {key: data[key] for key in ("agent_args", "rubric_vars") if not is_blank(data.get(key))}
        row = {
            "id": data.get("id"),
            "input": questions[0],
            "turns": [{"input": text} for text in questions[1:]],
            "expected_output": answers[-1] if answers else None,
            "tags": texts_of(parsed(data.get("tags"))),
            "metadata": {**metadata_of(data, _USED, parsed(data.get("metadata"))), **kept},
        }
        return [with_outcome(row)]


LETTA = _Letta()
