"""Read logs of OpenAI Evals (`oaieval`): JSON Lines with a spec, the events of each sample, and a final report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.extensions.interop.imports.foreign_files import grouped_lines, problem, read_lines
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_messages,
    dict_of,
    error_info,
    grade_value,
    text_of,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.result import TokenUsage
from agentv.support.json_keys import top_level

_GRADERS = ("match", "metrics")
_ERROR = ("type", "message")


class OpenAiLog(ForeignResults):
    """A log of OpenAI Evals. The events of a sample may be anywhere in the file."""

    title = "a log of OpenAI Evals"
    unit = "event"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = top_level(head)
        is_event = {"event_id", "sample_id", "type", "data"} <= keys.keys()
        return is_event or (keys.keys() == {"spec"} and b"completion_fns" in head)

    def open(self, path: Path) -> ForeignRun:
        spec, report = Fields(), None
        for row in (dict_of(row) for _, row in read_lines(path)):
            spec = row.object("spec") or spec
            report = row.object("final_report") if "final_report" in row else report
        names = list(spec.texts("completion_fns")) or [spec.text("model_name")]
        target = ", ".join(filter(None, names)) or "model"
        name = spec.text("eval_name", "base_eval") or "openai-evals"
        settings = spec.object("run_config").object("eval_spec")
        run = ForeignRun(
            jobs=(),
            id=spec.text("run_id") or "openai-evals",
            started_at=spec.text("created_at").replace(" ", "T"),
            is_unfinished=report is None,
            targets={target: {"provider": "openai-evals", "completion_fns": names}},
            options={"final_report": report} if report else {},
            notes=[] if report is not None else ["The log has no final report: the run did not finish"],
        )
        # The names of its data do not affect the grades.
        arguments = {key: value for key, value in settings.object("args").items() if not key.endswith("_jsonl")}
        grader = {"tool": "openai-evals", "class": settings.get("cls"), "args": arguments}
        run.jobs = _jobs(path, target, name, grader)
        return run


def _sample_of(row: Any) -> Any:
    has_sample = isinstance(row, dict) and row.get("type") and row.get("sample_id") is not None
    return text_of(row["sample_id"]) if has_sample else None


def _jobs(path: Path, target: str, dataset: str, grader: dict[str, Any]) -> Iterator[ForeignJob]:
    for sample, events in grouped_lines(path, _sample_of):
        by_type: dict[str, list[Fields]] = {}
        for event in events:
            if not isinstance(event.get("data"), dict | str | list | None):
                raise problem(path, f"An event of sample {sample} has no data")
            by_type.setdefault(text_of(event["type"]), []).append(dict_of(event.get("data")))
        errors, calls = by_type.get("error", []), by_type.get("sampling", [])
        yield ForeignJob(
            case=_case(text_of(sample), dataset, by_type),
            target=target,
            answer=_answer(calls, by_type.get("match", [])),
            grades=() if errors else tuple(_grades(by_type, grader)),
            error=error_info(": ".join(filter(None, (errors[-1].text(key) for key in _ERROR)))) if errors else None,
            usage=_usage(calls),
            timestamp=text_of(events[-1].get("created_at")).replace(" ", "T"),
            place=f"sample {sample}",
        )


def _case(id: str, dataset: str, by_type: dict[str, list[Fields]]) -> ForeignCase:
    calls, raw = by_type.get("sampling", []), by_type.get("raw_sample", [])
    prompt: Any = next((call["prompt"] for call in calls if call.get("prompt")), None)
    if prompt is None:
        prompt = next((sample.get("input") for sample in raw), None)
    expected = next(
        (match["expected"] for match in by_type.get("match", []) if match.get("expected") is not None), None
    )
    if expected is None:
        expected = next((sample.get("ideal") for sample in raw), None)
    question = chat_messages(prompt) if isinstance(prompt, list) else text_of(prompt)
    return ForeignCase(id=id, dataset=dataset, input=question, expected=expected)


def _answer(calls: list[Fields], matches: list[Fields]) -> str | None:
    """Return the answer of the first call; later calls of a sample are usually those of a grading model."""
    for event in (*calls[:1], *matches):
        sampled = event.get("sampled")
        if sampled is not None:
            return text_of(sampled[0] if isinstance(sampled, list) and len(sampled) == 1 else sampled)
    return None


def _grades(by_type: dict[str, list[Fields]], grader: dict[str, Any]) -> Iterator[ForeignGrade]:
    for kind in _GRADERS:
        for data in by_type.get(kind, [])[-1:]:
            keys = ("correct",) if kind == "match" else ("score", "accuracy", "correct")
            key = next((key for key in keys if data.grade(key) is not None), None)
            if key is None and kind == "metrics":
                key = next((name for name, value in data.items() if grade_value(value) is not None), None)
            if key is None:
                continue
            details = {name: data[name] for name in ("picked", "choice") if data.get(name) is not None}
            yield ForeignGrade(
                name=kind if kind == "match" else key,
                type=f"openai-evals:{kind}",
                value=data.grade(key),
                details=details or None,
                settings=grader,
            )


def _usage(calls: list[Fields]) -> TokenUsage | None:
    usage = dict_of(next((call["usage"] for call in calls if call.get("usage")), None))
    return usage.usage("prompt_tokens", "completion_tokens")
