"""Record the verdicts of pydantic-evals: a task that returns its input answers the cases of each dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peer_tools import python_records

_PROGRAM = """
import json, sys
from importlib.metadata import version
from pydantic_evals import Dataset

dataset = Dataset[str, str, dict].from_file(sys.argv[1])
report = dataset.evaluate_sync(lambda inputs: inputs, progress=False)
for case in report.cases:
    common = {"version": version("pydantic-evals"), "case": case.name, "answer": case.inputs}
    for name, result in case.assertions.items():
        print(json.dumps({**common, "evaluator": name, "passed": result.value, "score": float(result.value)}))
    for failure in case.evaluator_failures:
        no = {"passed": None, "score": None, "error": failure.error_message}
        print(json.dumps({**common, "evaluator": failure.name, **no}))
"""
"""Prints one record per line. It runs in an environment with the package."""


def records() -> Iterator[dict[str, Any]]:
    """Yield a record for each evaluator and answer."""
    return python_records("pydantic-evals", ".yaml", ["pydantic-evals", "pyyaml"], _PROGRAM)
