"""Read results of waza: every run of every task, and those without the skill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import read_document
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
from agentv.model.message import Message, ToolCall
from agentv.support.json_stream import top_level

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
        name, started = text_of(document.get("eval_id")) or path.stem, text_of(document.get("timestamp"))
        run = ForeignRun(jobs=(), id=name, started_at=started)
        run.jobs = _jobs(document, run, "")
        return run


def _jobs(document: dict[str, Any], run: ForeignRun, suffix: str) -> Iterator[ForeignJob]:
    config = dict_of(document.get("config"))
    target = (text_of(config.get("model_id")) or "model") + suffix
    run.targets[target] = {"provider": "waza", "model": text_of(config.get("model_id"))}
    dataset, judge = text_of(document.get("eval_name")) or "waza", text_of(config.get("judge_model")) or None
    for task in map(dict_of, list_of(document.get("tasks"))):
        id = text_of(task.get("test_id")) or text_of(task.get("display_name")) or "task"
        case = ForeignCase(id=id, dataset=dataset, metadata={"display_name": text_of(task.get("display_name"))})
        for number, entry in enumerate(map(dict_of, list_of(task.get("runs"))), 1):
            if entry.get("status") == "skipped":
                run.notes.append(f"The task '{id}' was skipped")
                continue
            yield _job(entry, case, (target, number), judge)
    baseline = dict_of(document.get("baseline_outcome"))
    if baseline and not suffix:
        yield from _jobs(baseline, run, " without the skill")


def _job(entry: dict[str, Any], case: ForeignCase, place: tuple[str, int], judge: str | None) -> ForeignJob:
    target, number = place
    is_error = entry.get("status") == "error"
    usage = dict_of(entry.get("usage")) or dict_of(dict_of(entry.get("session_digest")).get("usage"))
    grades = [_grade(name, dict_of(value), judge) for name, value in dict_of(entry.get("validations")).items()]
    events = sorted(map(dict_of, list_of(entry.get("tool_events"))), key=lambda event: event.get("sequence") or 0)
    calls = tuple(
        ToolCall(text_of(event["tool_name"]), event.get("args"), event.get("result"))
        for event in events
        if event.get("tool_name")
    )
    return ForeignJob(
        case=case,
        target=target,
        trial=number,
        answer=None if is_error else text_of(entry.get("final_output")),
        messages=(Message("assistant", text_of(entry.get("final_output")), calls),) if calls else (),
        grades=() if is_error else tuple(grades),
        passed=entry.get("status") == "passed",
        error=error_info(entry.get("error_msg")) if is_error else None,
        usage=token_usage(usage.get("input_tokens"), usage.get("output_tokens")),
        duration_ms=number_or_none(entry.get("duration_ms")),
        place=f"run {number} of {case.id}",
    )


def _grade(name: str, value: dict[str, Any], judge: str | None) -> ForeignGrade:
    kind, weight = text_of(value.get("type")), number_or_none(value.get("weight"))
    return ForeignGrade(
        name=text_of(value.get("identifier")) or name,
        type=f"waza:{kind or 'grader'}",
        value=grade_value(value.get("score")),
        passed=value.get("passed") if isinstance(value.get("passed"), bool) else None,
        weight=weight if weight and weight > 0 else 1.0,
        reasoning=text_of(value.get("feedback")) or None,
        settings={"tool": "waza", "name": name},
        judge=judge if kind == "prompt" else None,
    )
