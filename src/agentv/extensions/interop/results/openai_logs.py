"""Read logs of OpenAI Evals (`oaieval`): JSON Lines with a spec, the events of each sample, and a final report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import grouped_lines, problem, read_lines
from agentv.extensions.interop.imports.foreign_values import (
    chat_messages,
    dict_of,
    error_info,
    grade_value,
    list_of,
    text_of,
    token_usage,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message
from agentv.model.result import TokenUsage
from agentv.support.json_stream import top_level

_GRADERS = ("match", "metrics")


class OpenAiLog(ForeignResults):
    """A log of OpenAI Evals. The events of a sample may be anywhere in the file."""

    title = "a log of OpenAI Evals"
    unit = "event"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = top_level(head)
        is_event = {"event_id", "sample_id", "type", "data"} <= keys.keys()
        return is_event or (keys.keys() == {"spec"} and b"completion_fns" in head)

    def open(self, path: Path) -> ForeignRun:
        spec: dict[str, Any] = {}
        report: dict[str, Any] | None = None
        for _, row in read_lines(path):
            spec = dict_of(row.get("spec")) or spec if isinstance(row, dict) else spec
            if isinstance(row, dict) and "final_report" in row:
                report = dict_of(row["final_report"])
        config = dict_of(spec.get("run_config"))
        names = [text_of(entry) for entry in list_of(spec.get("completion_fns"))] or [text_of(spec.get("model_name"))]
        target = ", ".join(filter(None, names)) or "model"
        name = text_of(spec.get("eval_name") or spec.get("base_eval")) or "openai-evals"
        settings = dict_of(config.get("eval_spec"))
        run = ForeignRun(
            jobs=(),
            id=text_of(spec.get("run_id")) or "openai-evals",
            started_at=text_of(spec.get("created_at")).replace(" ", "T"),
            is_unfinished=report is None,
            targets={target: {"provider": "openai-evals", "completion_fns": names}},
            options={"final_report": report} if report else {},
            notes=[] if report is not None else ["The log has no final report: the run did not finish"],
        )
        grader = {"tool": "openai-evals", "class": settings.get("cls"), "args": _grader_args(settings)}
        run.jobs = _jobs(path, target, name, grader)
        return run


def _grader_args(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an eval that affect its grades, not the name of its data."""
    return {key: value for key, value in dict_of(settings.get("args")).items() if not key.endswith("_jsonl")}


def _sample_of(row: Any) -> Any:
    has_sample = isinstance(row, dict) and row.get("type") and row.get("sample_id") is not None
    return text_of(row["sample_id"]) if has_sample else None


def _jobs(path: Path, target: str, dataset: str, grader: dict[str, Any]) -> Iterator[ForeignJob]:
    for sample, events in grouped_lines(path, _sample_of):
        by_type: dict[str, list[dict[str, Any]]] = {}
        for event in events:
            if not isinstance(event.get("data"), dict | str | list | None):
                raise problem(path, f"An event of sample {sample} has no data")
            by_type.setdefault(text_of(event["type"]), []).append(dict_of(event.get("data")))
        errors = by_type.get("error", [])
        calls = by_type.get("sampling", [])
        matches = by_type.get("match", [])
        yield ForeignJob(
            case=_case(text_of(sample), dataset, by_type),
            target=target,
            answer=_answer(calls, matches),
            grades=() if errors else tuple(_grades(by_type, grader)),
            error=error_info(": ".join(filter(None, map(text_of, _message(errors[-1]))))) if errors else None,
            usage=_usage(calls),
            timestamp=text_of(events[-1].get("created_at")).replace(" ", "T"),
            place=f"sample {sample}",
        )


def _message(error: dict[str, Any]) -> tuple[Any, Any]:
    return error.get("type"), error.get("message")


def _case(id: str, dataset: str, by_type: dict[str, list[dict[str, Any]]]) -> ForeignCase:
    calls, raw = by_type.get("sampling", []), by_type.get("raw_sample", [])
    prompt: Any = next((call["prompt"] for call in calls if call.get("prompt")), None)
    if prompt is None:
        prompt = next((sample.get("input") for sample in raw), None)
    expected = next(
        (match["expected"] for match in by_type.get("match", []) if match.get("expected") is not None), None
    )
    if expected is None:
        expected = next((sample.get("ideal") for sample in raw), None)
    return ForeignCase(id=id, dataset=dataset, input=_messages(prompt), expected=expected)


def _messages(prompt: Any) -> str | tuple[Message, ...]:
    return chat_messages(prompt) if isinstance(prompt, list) else text_of(prompt)


def _answer(calls: list[dict[str, Any]], matches: list[dict[str, Any]]) -> str | None:
    """Return the answer of the first call; later calls of a sample are usually those of a grading model."""
    for event in (*calls[:1], *matches):
        sampled = event.get("sampled")
        if sampled is not None:
            return text_of(sampled[0] if isinstance(sampled, list) and len(sampled) == 1 else sampled)
    return None


def _grades(by_type: dict[str, list[dict[str, Any]]], grader: dict[str, Any]) -> Iterator[ForeignGrade]:
    for kind in _GRADERS:
        for data in by_type.get(kind, [])[-1:]:
            keys = ("correct",) if kind == "match" else ("score", "accuracy", "correct")
            key = next((key for key in keys if grade_value(data.get(key)) is not None), None)
            if key is None and kind == "metrics":
                key = next((name for name, value in data.items() if grade_value(value) is not None), None)
            if key is None:
                continue
            details = {name: data[name] for name in ("picked", "choice") if data.get(name) is not None}
            yield ForeignGrade(
                name=kind if kind == "match" else key,
                type=f"openai-evals:{kind}",
                value=grade_value(data[key]),
                details=details or None,
                settings=grader,
            )


def _usage(calls: list[dict[str, Any]]) -> TokenUsage | None:
    usage = dict_of(next((call["usage"] for call in calls if call.get("usage")), None))
    return token_usage(usage.get("prompt_tokens"), usage.get("completion_tokens"))
