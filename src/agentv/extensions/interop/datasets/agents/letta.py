"""Rows of letta-evals: an input, or several, with a ground truth."""

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
    text_of,
    texts_of,
    with_outcome,
)

_OWN = ("ground_truth", "agent_args", "rubric_vars", "rubric_path")
_USED = ("id", "input", "ground_truth", "metadata", "agent_args", "rubric_vars", "tags", "rubric", "rubric_path")


class _Letta(ForeignFormat):
    title = "rows of letta-evals"
    strength = 0.66
    fields = "input → input and turns, ground_truth → expected_output"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "input") and any_has(rows, *_OWN) and not any_has(rows, "target")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        questions = texts_of(parsed(data["input"]))
        if not questions:
            raise ValueError("The row has no input")
        if not is_blank(data.get("agent_args")):
            lose("arguments of the agent: they are in the metadata")
        truths = parsed(data.get("ground_truth"))
        answers = texts_of(truths) if isinstance(truths, list) else [text_of(truths)] if not is_blank(truths) else []
        expected = dict(enumerate(answers)) if len(answers) == len(questions) else {}
        if len(questions) > 1 and len(answers) > 1:
            lose("the answer expected in the first of several turns")
        if not is_blank(first_of(data, "rubric", "rubric_path")):
            lose("the prompt of a grader (rubric)")
        kept = {key: data[key] for key in ("agent_args", "rubric_vars") if not is_blank(data.get(key))}
        row = {
            "id": data.get("id"),
            "input": questions[0],
            "turns": [
                filled({"input": text, "expected_output": expected.get(index)})
                for index, text in enumerate(questions[1:], 1)
            ],
            "expected_output": answers[-1] if answers else None,
            "tags": texts_of(parsed(data.get("tags"))),
            "metadata": {**metadata_of(data, _USED, parsed(data.get("metadata"))), **kept},
        }
        return [with_outcome(row)]


LETTA = _Letta()
