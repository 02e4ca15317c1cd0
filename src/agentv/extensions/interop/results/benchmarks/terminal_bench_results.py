"""Read results of Terminal-Bench: one trial, or all trials of a run, with the tests of each task."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import read_document, read_rows, row_keys
from agentv.extensions.interop.imports.foreign_values import Fields, dict_of, error_info
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun

_MOST_BYTES = 64 * 1024 * 1024
_TOOL = "terminal-bench"
_RUN = "run_metadata.json"
_NO_FAILURE = ("", "unset", "none")


class TerminalBenchResults(ForeignResults):
    """Trials of an agent. A task is resolved if all of its tests pass."""

    title = "results of Terminal-Bench"
    unit = "trial"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        return {"task_id", "is_resolved"} <= row_keys(head, "results").keys()

    def files(self, path: Path) -> list[Path]:
        run = path.with_name(_RUN)
        return [path, run] if run.is_file() else [path]

    def jobs(self, path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
        header = dict_of(read_document(path.with_name(_RUN), _MOST_BYTES)) if len(self.files(path)) > 1 else Fields()
        names = header.text("agent_name"), header.text("model_name")
        target = run.target(" ".join(filter(None, names)) or "agent", _TOOL)
        for number, row in read_rows(path, "results"):
            yield _job(row, target, f"trial {number}")


def _job(row: Fields, target: str, place: str) -> ForeignJob:
    failure = row.text("failure_mode")
    resolved = row.get("is_resolved")
    tests = row.object("parser_results")
    settings = {"tool": _TOOL}
    grade = ForeignGrade(name="resolved", type="terminal-bench:resolved", value=resolved is True, settings=settings)
    others = (
        ForeignGrade(name=name, type="terminal-bench:test", value=result == "passed", weight=0.0, settings=settings)
        for name, result in tests.items()
    )
    return ForeignJob(
        case=ForeignCase(id=row.text("task_id") or place, dataset=_TOOL, input=row.text("instruction")),
        target=target,
        grades=() if resolved is None else (grade, *others),
        reasoning=failure if failure not in _NO_FAILURE else None,
        error=error_info(failure or "The trial has no result") if resolved is None else None,
        usage=row.usage("total_input_tokens", "total_output_tokens"),
        duration_ms=_milliseconds(row.get("agent_started_at"), row.get("agent_ended_at")),
        place=place,
    )


def _milliseconds(start: Any, end: Any) -> float | None:
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() * 1000
    except (TypeError, ValueError):
        return None
