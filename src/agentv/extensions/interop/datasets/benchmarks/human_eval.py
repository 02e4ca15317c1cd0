"""Problems of HumanEval: a function to complete. Its tests are a loss, because they run the code of the answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import metadata_of, text_of, with_outcome

_USED = ("task_id", "prompt", "canonical_solution")


class _HumanEval(ForeignFormat):
    title = "problems of HumanEval"
    strength = 0.57
    fields = "prompt → input, canonical_solution → expected_output"

    def fits(self, file: RecordFile) -> bool:
        return all_have(objects(file), "task_id", "prompt", "test", "entry_point")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        lose("the tests of a problem, which are in the metadata: run them with a `command` or `python` evaluator")
        row = {
            "id": text_of(data["task_id"]),
            "input": text_of(data["prompt"]),
            "expected_output": data.get("canonical_solution"),
            "metadata": metadata_of(data, _USED),
        }
        return [with_outcome(row)]


HUMAN_EVAL = _HumanEval()
