"""Record the verdicts of Inspect: its scorer `includes` on samples whose input is the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peer_tools import python_records

_PROGRAM = """
import asyncio, json, sys
from importlib.metadata import version
from inspect_ai.dataset import json_dataset
from inspect_ai.model import ModelName, ModelOutput
from inspect_ai.scorer import Target, includes
from inspect_ai.solver import TaskState

score = includes()
for sample in json_dataset(sys.argv[1]):
    output = ModelOutput.from_content("mockllm/model", sample.input)
    state = TaskState(
        model=ModelName("mockllm/model"), sample_id=sample.id, epoch=1, input=sample.input, messages=[], output=output
    )
    value = asyncio.run(score(state, Target(sample.target))).value
    known = {"version": version("inspect-ai"), "case": str(sample.id), "evaluator": "includes", "answer": sample.input}
    print(json.dumps({**known, "passed": value == "C", "score": float(value == "C")}))
"""


def records() -> Iterator[dict[str, Any]]:
    """Yield a record for each sample."""
    return python_records("inspect", ".jsonl", ["inspect-ai"], _PROGRAM)
