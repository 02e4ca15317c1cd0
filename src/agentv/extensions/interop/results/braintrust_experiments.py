"""Read experiments of Braintrust: their rows as its API, its export and its SDK write them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import read_rows, row_keys
from agentv.extensions.interop.imports.foreign_values import (
    dict_of,
    error_info,
    grade_value,
    list_of,
    number_or_none,
    text_of,
    token_usage,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun

_MARKS = ("experiment_id", "span_attributes", "root_span_id", "_xact_id", "expected")
_TARGET = "task"
"""An experiment runs one task. The models in the metadata of its rows are those of their records."""

_INNER = "Spans inside a trace are left out: only the root of a trace is a result"


class BraintrustExperiment(ForeignResults):
    """The rows of one experiment. Rows with the same input are trials, as they are there."""

    title = "an experiment of Braintrust"
    unit = "row"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = row_keys(head, "events", "data")
        return {"input", "output", "scores"} <= keys.keys() and any(mark in keys for mark in _MARKS)

    def jobs(self, path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
        run.targets[_TARGET] = {"provider": "braintrust"}
        return _jobs(path, run)


def _jobs(path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
    for number, row in read_rows(path, "events", "data"):
        if row.get("is_root") is False or list_of(row.get("span_parents")):
            run.notes += [_INNER] if _INNER not in run.notes else []
            continue
        metadata, metrics = dict_of(row.get("metadata")), dict_of(row.get("metrics"))
        start, end = number_or_none(metrics.get("start")), number_or_none(metrics.get("end"))
        question = row.get("input")
        digest = sha256(text_of(question).encode()).hexdigest()[:12]
        error = row.get("error")
        yield ForeignJob(
            case=ForeignCase(
                id=text_of(dict_of(row.get("origin")).get("id")) or digest,
                dataset="braintrust",
                input=text_of(question),
                expected=row.get("expected"),
                metadata=metadata,
                tags=tuple(map(text_of, list_of(row.get("tags")))),
            ),
            target=_TARGET,
            answer=None if row.get("output") is None else text_of(row["output"]),
            grades=tuple(_grades(row)) if error is None else (),
            error=error_info(error) if error is not None else None,
            usage=token_usage(metrics.get("prompt_tokens"), metrics.get("completion_tokens")),
            cost_usd=number_or_none(metrics.get("estimated_cost")),
            duration_ms=(end - start) * 1000 if start is not None and end is not None else None,
            place=f"row {number}",
        )


def _grades(row: dict[str, Any]) -> Iterator[ForeignGrade]:
    """Yield the scores. A scorer that returns null has skipped the row."""
    for name, value in dict_of(row.get("scores")).items():
        if value is not None:
            settings = {"tool": "braintrust", "name": name}
            yield ForeignGrade(name=name, type=f"braintrust:{name}", value=grade_value(value), settings=settings)
