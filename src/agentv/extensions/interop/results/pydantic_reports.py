"""Read reports of pydantic-evals that were saved as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import decoded, problem, read_parts
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
from agentv.support.json_stream import top_level

_LISTS = {("cases",), ("failures",)}


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
        header: dict[str, Any] = {}
        for keys, data in read_parts(path, {(), *_LISTS}):
            if len(keys) == 1 and keys not in _LISTS:
                header[keys[0]] = decoded(path, data, keys[0])
        metadata = dict_of(header.get("experiment_metadata"))
        target = text_of(metadata.get("model") or metadata.get("task_name")) or "task"
        failed = [text_of(dict_of(entry).get("name")) for entry in list_of(header.get("report_evaluator_failures"))]
        run = ForeignRun(
            jobs=(),
            id=text_of(header.get("name")) or "pydantic-evals",
            targets={target: {"provider": "pydantic-evals", **metadata}},
            notes=[f"The report evaluator '{name}' failed" for name in failed],
        )
        dataset = text_of(metadata.get("dataset_name") or metadata.get("dataset")) or "pydantic-evals"
        run.jobs = _jobs(path, target, dataset, run.notes)
        return run


def _jobs(path: Path, target: str, dataset: str, notes: list[str]) -> Iterator[ForeignJob]:
    """Yield the jobs of a report. An evaluator that failed next to others does not count; `notes` name it."""
    number = 0
    for keys, data in read_parts(path, {(), *_LISTS}):
        if keys in _LISTS and data != b"null":
            number += 1
            row = decoded(path, data, f"case {number}")
            if not isinstance(row, dict):
                raise problem(path, f"Case {number} is not an object")
            job = _job(row, target, dataset, is_failure=keys == ("failures",))
            failed = [grade.name for grade in job.grades if grade.error is not None and not grade.weight]
            notes += (
                f"The evaluator '{name}' failed for some cases: they have the scores of the others" for name in failed
            )
            yield job


def _job(row: dict[str, Any], target: str, dataset: str, is_failure: bool) -> ForeignJob:
    seconds = number_or_none(row.get("task_duration"))
    metrics = dict_of(row.get("metrics"))
    labels = {name: dict_of(label).get("value") for name, label in dict_of(row.get("labels")).items()}
    parts = ("metrics", metrics), ("attributes", dict_of(row.get("attributes"))), ("labels", labels)
    return ForeignJob(
        case=ForeignCase(
            # Several runs of a case have their own names, such as `greeting [2/3]`.
            id=text_of(row.get("source_case_name") or row.get("name")) or "case",
            dataset=dataset,
            input=text_of(row.get("inputs")),
            expected=row.get("expected_output"),
            metadata=dict_of(row.get("metadata")),
        ),
        target=target,
        answer=None if is_failure or row.get("output") is None else text_of(row["output"]),
        grades=() if is_failure else tuple(_grades(row)),
        # The tool has no verdict on a case, but shows each assertion: one that failed is not outweighed by others.
        passed=False
        if any(dict_of(item).get("value") is False for item in dict_of(row.get("assertions")).values())
        else None,
        error=error_info(row.get("error_message")) if is_failure else None,
        usage=token_usage(metrics.get("input_tokens"), metrics.get("output_tokens")),
        cost_usd=number_or_none(metrics.get("cost")),
        duration_ms=None if seconds is None else seconds * 1000,
        metadata={name: value for name, value in parts if value},
        place=f"case {text_of(row.get('name'))}",
    )


def _grades(row: dict[str, Any]) -> Iterator[ForeignGrade]:
    for kind in ("assertions", "scores"):
        for name, result in dict_of(row.get(kind)).items():
            value = grade_value(dict_of(result).get("value"))
            passed = value if isinstance(value, bool) else None
            reason = text_of(dict_of(result).get("reason")) or None
            yield ForeignGrade(
                value=value, passed=passed, reasoning=reason, **_source(name, dict_of(result).get("source"))
            )
    others = any(dict_of(row.get(kind)) for kind in ("assertions", "scores"))
    for failure in map(dict_of, list_of(row.get("evaluator_failures"))):
        message = text_of(failure.get("error_message")) or "The evaluator failed"
        yield ForeignGrade(
            error=message,
            weight=0.0 if others else 1.0,
            **_source(text_of(failure.get("name")) or "evaluator", failure.get("source")),
        )


def _source(name: str, source: Any) -> dict[str, Any]:
    """Return the name, type, settings and judge of an evaluator."""
    kind = text_of(dict_of(source).get("name")) or name
    arguments = dict_of(source).get("arguments")
    model = dict_of(arguments).get("model")
    return {
        "name": name,
        "type": f"pydantic-evals:{kind}",
        "settings": {"tool": "pydantic-evals", "arguments": arguments},
        "judge": model if isinstance(model, str) else None,
    }
