"""Tasks of SWE-bench: the problem statement is the input; repository, commit and tests are kept as metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import cell_list, filled, metadata_of, text_of, texts_of

_USED = ("instance_id", "problem_statement", "patch", "difficulty", "FAIL_TO_PASS", "PASS_TO_PASS")


class _SWEBench(ForeignFormat):
    title = "tasks of SWE-bench"
    strength = 0.58
    fields = "problem_statement → input, patch → expected_output"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "instance_id", "problem_statement") and not any_has(rows, "model_patch")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        tests = {key: cell_list(data[key]) for key in ("FAIL_TO_PASS", "PASS_TO_PASS") if data.get(key)}
        if tests:
            lose("the tests of a task, which run in its container: they are in the metadata")
        row = {
            "id": data["instance_id"],
            "input": text_of(data["problem_statement"]),
            "expected_outcome": "Fixes the problem, as the reference patch does",
            "expected_output": data.get("patch"),
            "tags": texts_of(data.get("difficulty")),
            "metadata": {**metadata_of(data, _USED), **tests},
        }
        return [filled(row)]


SWE_BENCH = _SWEBench()
