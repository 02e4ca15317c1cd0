"""Examples of LangSmith: inputs, outputs, metadata and split. Inputs of one text are the question."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import (
    filled,
    first_of,
    is_blank,
    metadata_of,
    parsed,
    question_of,
    reference_of,
    texts_of,
    with_outcome,
)

_USED = ("id", "inputs", "outputs", "reference_outputs", "metadata", "split", "attachments")


class _LangSmith(ForeignFormat):
    title = "examples of LangSmith"
    strength = 0.68
    fields = "inputs → input, reference_outputs or outputs → expected_output, split → tags"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "inputs") and not any_has(rows, "expectations", "expected_output", "evaluators")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        if not is_blank(data.get("attachments")):
            lose("attachments, which are stored in LangSmith")
        reference = first_of(data, "reference_outputs", "outputs")
        answers = data.get("outputs") if not is_blank(data.get("reference_outputs")) else None
        row = {
            "id": data.get("id"),
            "input": question_of(parsed(data["inputs"]), lose),
            "expected_output": reference_of(parsed(reference), lose),
            "tags": texts_of(data.get("split")),
            "metadata": filled({**metadata_of(data, _USED, parsed(data.get("metadata"))), "outputs": parsed(answers)}),
        }
        return [with_outcome(row)]


LANGSMITH = _LangSmith()
