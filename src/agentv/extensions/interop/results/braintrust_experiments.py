"""Read experiments of Braintrust: their rows as its API, its export and its SDK write them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from agentv.extensions.interop.imports.foreign_files import read_rows, row_keys
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_messages,
    error_info,
    grade_value,
    text_of,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.support.json_values import json_or

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
        for number, row in read_rows(path, "events", "data"):
            if row.get("is_root") is False or row.items_of("span_parents"):
                run.notes += [_INNER] if _INNER not in run.notes else []
                continue
            metadata, metrics = row.object("metadata"), _plain(row.object("metrics"))
            start, end = metrics.number("start"), metrics.number("end")
            question = row.get("input")
            digest = sha256(text_of(question).encode()).hexdigest()[:12]
            error = row.get("error")
            yield ForeignJob(
                case=ForeignCase(
                    id=row.object("origin").text("id") or digest,
                    dataset="braintrust",
                    input=chat_messages(row.object("input").items_of("messages")) or text_of(question),
                    expected=row.get("expected"),
                    metadata=metadata,
                    tags=row.texts("tags"),
                ),
                target=_TARGET,
                answer=row.optional_text("output"),
                grades=tuple(_grades(row)) if error is None else (),
                error=error_info(error) if error is not None else None,
                usage=metrics.usage("prompt_tokens", "completion_tokens"),
                cost_usd=metrics.number("estimated_cost"),
                duration_ms=(end - start) * 1000 if start is not None and end is not None else None,
                place=f"row {number}",
            )


def _plain(metrics: Fields) -> Fields:
    """Return metrics without the quotes that an export of the playground puts around numbers."""
    return Fields(
        {key: json_or(value.strip('"'), value) if isinstance(value, str) else value for key, value in metrics.items()}
    )


def _grades(row: Fields) -> Iterator[ForeignGrade]:
    """Yield the scores. A scorer that returns null has skipped the row."""
    for name, value in row.object("scores").items():
        if value is not None:
            settings = {"tool": "braintrust", "name": name}
            yield ForeignGrade(name=name, type=f"braintrust:{name}", value=grade_value(value), settings=settings)
