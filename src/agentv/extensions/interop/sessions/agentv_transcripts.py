"""Transcripts of AgentV (TypeScript): one message on each line, of imported sessions or of the tests of a run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from msgspec.structs import replace

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

_KEYS = frozenset({"test_id", "target", "message_index", "role"})
_USAGE = UsageFields(("input",), ("output",), "cached")


class _AgentvTranscript(SessionFormat):
    agent = "agentv"
    title = "a transcript of AgentV (TypeScript)"
    marks = (b'"message_index"',)

    def fits(self, file: SessionFile) -> bool:
        return any(record.keys() >= _KEYS for record in file.first)

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        for (test, target), rows in groupby(file.records(log), lambda row: (row.get("test_id"), row.get("target"))):
            builder, duration_ms = SessionBuilder(str(target or self.agent)), None
            builder.learn(id=str(test))
            for number, row in enumerate(rows):
                _take(builder, row, number)
                duration_ms = row.get("transcript_duration_ms", duration_ms)
            for session in builder.finish(file.path, log):
                yield replace(session, duration_ms=duration_ms)


AGENTV_TRANSCRIPT = _AgentvTranscript()


def _take(builder: SessionBuilder, row: dict[str, Any], number: int) -> None:
    source, content = object_in(row, "source"), row.get("content")
    builder.learn(model=source.get("model"), started=source.get("timestamp"), cwd=source.get("cwd"))
    builder.total_usage = usage(object_in(row, "transcript_token_usage"), _USAGE) or builder.total_usage
    builder.total_cost = row.get("transcript_cost_usd", builder.total_cost)
    if row.get("role") == "user":
        builder.add_request(text_of(content), attachments_in(content))
    elif row.get("role") == "assistant":
        builder.start_turn(number)
        builder.add_text(text_of(content))
        for place, call in enumerate(objects_in(row.get("tool_calls"))):
            id = str(call.get("id") or f"{number}.{place}")
            builder.add_call(id, str(call.get("tool", "")), call.get("input"), None, call.get("start_time"))
            has_failed = call.get("status") in ("error", "timeout", "cancelled")
            builder.add_result(id, call.get("output"), None, failed=has_failed, duration_ms=call.get("duration_ms"))
    else:
        builder.add_message(Message("system" if row.get("role") == "system" else "tool", text_of(content)))
