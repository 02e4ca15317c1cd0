"""Sessions of Qwen Code: `~/.qwen/projects/*/chats/*.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentv.extensions.interop.sessions.branches import branch_of
from agentv.model.token_counts import UsageFields, usage
from agentv.sessions.session import (
    ReadLog,
    Session,
    SessionBuilder,
    SessionFormat,
    attachments_in,
    kind_of,
    object_in,
    objects_in,
)
from agentv.sessions.session_file import SessionFile
from agentv.sessions.turns import text_of

_USAGE = UsageFields(
    ("promptTokenCount",),
    ("candidatesTokenCount", "thoughtsTokenCount"),
    "cachedContentTokenCount",
    "thoughtsTokenCount",
)


class _QwenCode(SessionFormat):
    agent = "qwen-code"
    title = "a session of Qwen Code"
    marks = (b'"parts"', b'"toolCallResult"')
    strength = 0.6  # other agents' records have the same keys, without `parts`

    def fits(self, file: SessionFile) -> bool:
        return file.is_lines and any("uuid" in data and "parts" in object_in(data, "message") for data in file.first)

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        builder = SessionBuilder(self.agent)
        for record in branch_of(file.records(log), "uuid", "parentUuid"):
            builder.learn(id=record.get("sessionId"), cwd=record.get("cwd"), started=record.get("timestamp"))
            _take(builder, record, log)
        builder.learn(id=file.stem)
        yield from builder.finish(file.path, log)


QWEN_CODE = _QwenCode()


def _take(builder: SessionBuilder, record: dict[str, Any], log: ReadLog) -> None:
    kind, id = kind_of(record), record.get("uuid")
    parts = objects_in(object_in(record, "message").get("parts"))
    at_ms = builder.see_time(record.get("timestamp"))
    text = text_of([part for part in parts if not part.get("thought")])
    if kind == "user":
        builder.add_request(text, attachments_in(parts))
    elif kind == "assistant":
        builder.learn(model=record.get("model"))
        builder.start_turn(id)
        builder.add_text(text)
        builder.usages[id] = usage(record.get("usageMetadata"), _USAGE)
        for number, part in enumerate(parts):
            if call := object_in(part, "functionCall"):
                builder.add_call(
                    str(call.get("id") or f"{id}.{number}"), str(call.get("name")), call.get("args"), at_ms
                )
    elif kind == "tool_result":
        _take_result(builder, record, parts, at_ms)
    elif kind != "system":
        log.meet_unknown(builder.agent, kind)


def _take_result(
    builder: SessionBuilder, record: dict[str, Any], parts: list[dict[str, Any]], at_ms: float | None
) -> None:
    outcome = object_in(record, "toolCallResult")
    failed = outcome.get("status") in ("error", "cancelled")
    responses = [object_in(part, "functionResponse") for part in parts if "functionResponse" in part]
    for response in responses or [{"id": outcome.get("callId"), "response": {"output": outcome.get("resultDisplay")}}]:
        value = response.get("response")
        output = value.get("output", value.get("error", value)) if isinstance(value, dict) else value
        builder.add_result(str(response.get("id") or outcome.get("callId")), output, at_ms, failed=failed)
