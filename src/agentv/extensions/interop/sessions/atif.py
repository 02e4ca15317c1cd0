"""Trajectories in the Agent Trajectory Interchange Format (ATIF), which Harbor writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentv.model.message import Message
from agentv.model.token_counts import UsageFields, usage
from agentv.sessions.session import (
    ReadLog,
    Session,
    SessionBuilder,
    SessionFormat,
    attachments_in,
    object_in,
    objects_in,
)
from agentv.sessions.session_file import SessionFile
from agentv.sessions.turns import text_of

_STEP_USAGE = UsageFields(("prompt_tokens",), ("completion_tokens",), "cached_tokens")
_FINAL_USAGE = UsageFields(("total_prompt_tokens",), ("total_completion_tokens",), "total_cached_tokens")


class _Atif(SessionFormat):
    agent = "atif"
    title = "a trajectory (ATIF)"
    marks = (b'"schema_version"', b'"steps"')

    def fits(self, file: SessionFile) -> bool:
        return any(map(_is_trajectory, file.first if file.is_lines else [file.document]))

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        for document in file.records(log) if file.is_lines else [file.document]:
            if _is_trajectory(document):
                yield from self._session(document, file, log)
            else:
                log.meet_unknown(self.agent, document.get("schema_version"))

    def _session(self, document: dict[str, Any], file: SessionFile, log: ReadLog) -> Iterator[Session]:
        about = object_in(document, "agent")
        builder = SessionBuilder(str(about.get("name") or self.agent))
        builder.learn(id=document.get("session_id") or document.get("trajectory_id"), model=about.get("model_name"))
        for number, step in enumerate(objects_in(document.get("steps"))):
            _take(builder, step, number, log)
        final = object_in(document, "final_metrics")
        builder.total_usage, builder.total_cost = usage(final, _FINAL_USAGE), final.get("total_cost_usd")
        builder.learn(id=file.stem)
        yield from builder.finish(file.path, log)


ATIF = _Atif()


def _is_trajectory(document: Any) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
        return False
    steps = objects_in(document["steps"])
    return str(document.get("schema_version", "")).startswith("ATIF") or any("step_id" in step for step in steps)


def _take(builder: SessionBuilder, step: dict[str, Any], number: int, log: ReadLog) -> None:
    source, message = step.get("source"), step.get("message")
    at_ms = builder.see_time(step.get("timestamp"))
    if source == "user":
        builder.add_request(text_of(message), attachments_in(message))
    elif source == "system":
        builder.add_message(Message("system", text_of(message)))
    elif source == "agent":
        builder.learn(model=step.get("model_name"))
        builder.start_turn(number)
        builder.add_text(text_of(message))
        metrics = object_in(step, "metrics")
        builder.usages[number], builder.costs[number] = usage(metrics, _STEP_USAGE), metrics.get("cost_usd")
        _take_calls(builder, step, (number, at_ms))
    else:
        log.meet_unknown(builder.agent, f"step of {source}")


def _take_calls(builder: SessionBuilder, step: dict[str, Any], when: tuple[int, float | None]) -> None:
    """Add the calls of a step, and their results. A result without an id belongs to the only call."""
    number, at_ms = when
    calls = objects_in(step.get("tool_calls"))
    for place, call in enumerate(calls):
        id = str(call.get("tool_call_id") or f"{number}.{place}")
        builder.add_call(id, str(call.get("function_name", "")), call.get("arguments"), at_ms, step.get("timestamp"))
    for place, result in enumerate(objects_in(object_in(step, "observation").get("results"))):
        own = calls[place] if place < len(calls) else {}
        id = str(result.get("source_call_id") or own.get("tool_call_id") or f"{number}.{place}")
        failed = bool(result.get("is_error") or object_in(result, "extra").get("is_error"))
        builder.add_result(id, text_of(result.get("content")), None, failed=failed)
