"""Read results of waza: every run of every task, and those without the skill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentv.extensions.interop.imports.foreign_files import read_document
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    dict_of,
    error_info,
    text_of,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message, ToolCall
from agentv.support.json_keys import top_level

_MOST_BYTES = 512 * 1024 * 1024
_KEYS = {"eval_id", "skill", "config", "summary"}


class WazaRun(ForeignResults):
    """The outcome of `waza run`. A run of a task passes if all its graders pass."""

    title = "results of waza"
    unit = "run of a task"

    strength = 0.6  # its keys include one of a record of AgentV (TypeScript)

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        return top_level(head).keys() >= _KEYS

    def open(self, path: Path) -> ForeignRun:
        document = dict_of(read_document(path, _MOST_BYTES))
        name, started = document.text("eval_id") or path.stem, document.text("timestamp")
        run = ForeignRun(jobs=(), id=name, started_at=started)
        run.jobs = _jobs(document, run, "")
        return run


def _jobs(document: Fields, run: ForeignRun, suffix: str) -> Iterator[ForeignJob]:
    config = document.object("config")
    target = (config.text("model_id") or "model") + suffix
    run.targets[target] = {"provider": "waza", "model": config.text("model_id")}
    dataset, judge = document.text("eval_name") or "waza", config.text("judge_model") or None
    for task in document.objects("tasks"):
        id = task.text("test_id") or task.text("display_name") or "task"
        case = ForeignCase(id=id, dataset=dataset, metadata={"display_name": task.text("display_name")})
        for number, entry in enumerate(task.objects("runs"), 1):
            if entry.get("status") == "skipped":
                run.notes.append(f"The task '{id}' was skipped")
                continue
            yield _job(entry, case, (target, number), judge)
    baseline = document.object("baseline_outcome")
    if baseline and not suffix:
        yield from _jobs(baseline, run, " without the skill")


def _job(entry: Fields, case: ForeignCase, place: tuple[str, int], judge: str | None) -> ForeignJob:
    target, number = place
    is_error = entry.get("status") == "error"
    usage = entry.object("usage") or entry.object("session_digest").object("usage")
    grades = [_grade(name, dict_of(value), judge) for name, value in entry.object("validations").items()]
    events = sorted(entry.objects("tool_events"), key=lambda event: event.get("sequence") or 0)
    calls = tuple(
        ToolCall(text_of(event["tool_name"]), event.get("args"), event.get("result"))
        for event in events
        if event.get("tool_name")
    )
    return ForeignJob(
        case=case,
        target=target,
        trial=number,
        answer=None if is_error else entry.text("final_output"),
        messages=(Message("assistant", entry.text("final_output"), calls),) if calls else (),
        grades=() if is_error else tuple(grades),
        passed=entry.get("status") == "passed",
        error=error_info(entry.get("error_msg")) if is_error else None,
        usage=usage.usage("input_tokens", "output_tokens"),
        duration_ms=entry.number("duration_ms"),
        place=f"run {number} of {case.id}",
    )


def _grade(name: str, value: Fields, judge: str | None) -> ForeignGrade:
    kind, weight = value.text("type"), value.number("weight")
    return ForeignGrade(
        name=value.text("identifier") or name,
        type=f"waza:{kind or 'grader'}",
        value=value.grade("score"),
        passed=value.truth("passed"),
        weight=weight if weight and weight > 0 else 1.0,
        reasoning=value.text("feedback") or None,
        settings={"tool": "waza", "name": name},
        judge=judge if kind == "prompt" else None,
    )
