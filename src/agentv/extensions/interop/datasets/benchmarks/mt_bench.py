"""Questions of MT-bench: turns of one conversation, with an optional reference per turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import OUTCOME, filled, metadata_of, texts_of

_USED = ("question_id", "turns", "category", "reference")


class _MTBench(ForeignFormat):
    title = "questions of MT-bench"
    strength = 0.56
    fields = "turns → input and turns, category → tags, reference → expected_output"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "question_id", "turns") and not any_has(rows, "choices", "judge", "model_id")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:  # noqa: ARG002
        data = record.data
        questions, references = texts_of(data["turns"]), texts_of(data.get("reference"))
        if not questions:
            raise ValueError("The question has no turns")
        later = [filled({"input": text, "expected_output": each}) for text, each in _pairs(questions, references)[1:]]
        row = {
            "id": data["question_id"],
            "input": questions[0],
            "turns": later,
            "expected_output": references[-1] if references else None,
            "expected_outcome": OUTCOME,
            "tags": texts_of(data.get("category")),
            "metadata": metadata_of(data, _USED),
        }
        return [filled(row)]


MT_BENCH = _MTBench()


def _pairs(questions: list[str], references: list[str]) -> list[tuple[str, str | None]]:
    return [(text, references[index] if index < len(references) else None) for index, text in enumerate(questions)]
