"""Read reports of pydantic-evals that were saved as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import Keys, read_header, read_items
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    dict_of,
    error_info,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.support.json_keys import top_level

_LISTS: set[Keys] = {("cases",), ("failures",)}
_OPENED = {(), *_LISTS}


class PydanticReport(ForeignResults):
    """A report of pydantic-evals. Assertions and scores are evaluators; labels are kept with the result."""

    title = "a report of pydantic-evals"
    unit = "case"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = top_level(head)
        if not keys.get("cases", b"").startswith(b"["):
            return False
        has_report = "failures" in keys or b'"task_duration"' in head
        return has_report and (b'"assertions"' in head or b'"scores"' in head or b'"error_message"' in head)

    def open(self, path: Path) -> ForeignRun:
        header = read_header(path, _OPENED, _LISTS)
        metadata = header.object("experiment_metadata")
        target = metadata.text("model", "task_name") or "task"
        failed = [entry.text("name") for entry in header.objects("report_evaluator_failures")]
        run = ForeignRun(
            jobs=(),
            id=header.text("name") or "pydantic-evals",
            targets={target: {"provider": "pydantic-evals", **metadata}},
            notes=[f"The report evaluator '{name}' failed" for name in failed],
        )
        dataset = metadata.text("dataset_name", "dataset") or "pydantic-evals"
        run.jobs = _jobs(path, target, dataset, run.notes)
        return run


def _jobs(path: Path, target: str, dataset: str, notes: list[str]) -> Iterator[ForeignJob]:
    """Yield the jobs of a report. An evaluator that failed next to others does not count; `notes` name it."""
    for keys, row in read_items(path, _OPENED, _LISTS, "Case"):
        job = _job(row, target, dataset, is_failure=keys == ("failures",))
        failed = [grade.name for grade in job.grades if grade.error is not None and not grade.weight]
        notes += (
            f"The evaluator '{name}' failed for some cases: they have the scores of the others" for name in failed
        )
        yield job


def _job(row: Fields, target: str, dataset: str, is_failure: bool) -> ForeignJob:
    metrics = row.object("metrics")
    labels = {name: dict_of(label).get("value") for name, label in row.object("labels").items()}
    parts = ("metrics", metrics), ("attributes", row.object("attributes")), ("labels", labels)
    return ForeignJob(
        case=ForeignCase(
            # Several runs of a case have their own names, such as `greeting [2/3]`.
            id=row.text("source_case_name", "name") or "case",
            dataset=dataset,
            input=row.text("inputs"),
            expected=row.get("expected_output"),
            metadata=row.object("metadata"),
        ),
        target=target,
        answer=None if is_failure else row.optional_text("output"),
        grades=() if is_failure else tuple(_grades(row)),
        # The tool has no verdict on a case, but shows each assertion: one that failed is not outweighed by others.
        passed=False
        if any(dict_of(item).get("value") is False for item in row.object("assertions").values())
        else None,
        error=error_info(row.get("error_message")) if is_failure else None,
        usage=metrics.usage("input_tokens", "output_tokens"),
        cost_usd=metrics.number("cost"),
        duration_ms=row.milliseconds("task_duration"),
        metadata={name: value for name, value in parts if value},
        place=f"case {row.text('name')}",
    )


def _grades(row: Fields) -> Iterator[ForeignGrade]:
    for kind in ("assertions", "scores"):
        for name, result in ((name, dict_of(value)) for name, value in row.object(kind).items()):
            value, passed, reason = result.grade("value"), result.truth("value"), result.text("reason") or None
            yield ForeignGrade(value=value, passed=passed, reasoning=reason, **_source(name, result.object("source")))
    others = any(row.object(kind) for kind in ("assertions", "scores"))
    for failure in row.objects("evaluator_failures"):
        message = failure.text("error_message") or "The evaluator failed"
        yield ForeignGrade(
            error=message,
            weight=0.0 if others else 1.0,
            **_source(failure.text("name") or "evaluator", failure.object("source")),
        )


def _source(name: str, source: Fields) -> dict[str, Any]:
    """Return the name, type, settings and judge of an evaluator."""
    model = source.object("arguments").get("model")
    return {
        "name": name,
        "type": f"pydantic-evals:{source.text('name') or name}",
        "settings": {"tool": "pydantic-evals", "arguments": source.get("arguments")},
        "judge": model if isinstance(model, str) else None,
    }
