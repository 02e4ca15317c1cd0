"""Records of MLflow evaluation datasets: inputs and expectations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, any_has, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import metadata_of, parsed, question_of, texts_of, with_outcome

_USED = ("inputs", "expectations", "tags", "dataset_record_id", "metadata")
_KNOWN = ("expected_response", "expected_facts", "guidelines", "expected_retrieved_context")


class _MLflow(ForeignFormat):
    title = "an evaluation dataset of MLflow"
    strength = 0.7
    fields = "inputs → input, expected_response → expected_output, expected_facts and guidelines → rubrics"

    def fits(self, file: RecordFile) -> bool:
        rows = objects(file)
        return all_have(rows, "inputs") and any_has(rows, "expectations")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        expected = parsed(data.get("expectations")) or {}
        if not isinstance(expected, dict):
            raise ValueError("'expectations' must be an object")
        tags = parsed(data.get("tags"))
        others = {key: value for key, value in expected.items() if key not in _KNOWN}
        row = {
            "id": data.get("dataset_record_id"),
            "input": question_of(parsed(data["inputs"]), lose),
            "expected_output": expected.get("expected_response"),
            "rubrics": [*texts_of(expected.get("expected_facts")), *texts_of(expected.get("guidelines"))],
            "context": _passages(expected.get("expected_retrieved_context")),
            "tags": [f"{key}:{value}" for key, value in tags.items()] if isinstance(tags, dict) else texts_of(tags),
            "metadata": metadata_of(data, _USED, {"expectations": others} if others else None),
        }
        return [with_outcome(row)]


MLFLOW = _MLflow()


def _passages(value: Any) -> list[str]:
    items = value if isinstance(value, list) else []
    return texts_of([item.get("content") if isinstance(item, dict) else item for item in items])
