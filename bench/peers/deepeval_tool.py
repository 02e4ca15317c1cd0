"""Record the verdicts of DeepEval: its metric `ExactMatchMetric` on goldens whose input is the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peer_tools import python_records

_PROGRAM = """
import json, sys
from importlib.metadata import version
from deepeval.metrics import ExactMatchMetric
from deepeval.test_case import LLMTestCase

for golden in json.load(open(sys.argv[1], encoding="utf-8")):
    answer = golden["input"]
    metric = ExactMatchMetric()
    metric.measure(LLMTestCase(input="x", actual_output=answer, expected_output=golden["expected_output"]), False)
    known = {"version": version("deepeval"), "case": golden["name"], "evaluator": "ExactMatch", "answer": answer}
    print(json.dumps({**known, "passed": bool(metric.is_successful()), "score": float(metric.score)}))
"""


def records() -> Iterator[dict[str, Any]]:
    """Yield a record for each golden."""
    return python_records("deepeval", ".json", ["deepeval"], _PROGRAM)
