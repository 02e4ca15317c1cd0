"""Sessions of the pi coding agent: `~/.pi/agent/sessions/*/*.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentv.extensions.interop.sessions.branches import branch_of
from agentv.model.token_counts import PI_USAGE, usage
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
from agentv.sessions.turns import text_of, text_or_none

_IGNORED = frozenset((
    "session", "model_change", "thinking_level_change", "compaction", "branch_summary", "custom", "custom_message",
    "label", "session_info",
))  # fmt: skip
_OTHER_ROLES = ("bashExecution", "branchSummary", "compactionSummary", "custom", "hookMessage", "system")


class _Pi(SessionFormat):
    agent = "pi-coding-agent"
    title = "a session of the pi coding agent"
    marks = (b'"type":"session"', b'"type": "session"')

    def fits(self, file: SessionFile) -> bool:
        return file.is_lines and file.first[0].get("type") == "session" and "cwd" in file.first[0]

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        builder = SessionBuilder(self.agent)
        about = file.first[0]
        builder.learn(id=about.get("id"), cwd=about.get("cwd"), started=about.get("timestamp"))
        for entry in branch_of(file.records(log), "id", "parentId"):
            if kind_of(entry) == "message":
                _take(builder, object_in(entry, "message"), entry, log)
            elif kind_of(entry) == "model_change":
                builder.learn(model=entry.get("modelId"))
            elif kind_of(entry) not in _IGNORED:
                log.meet_unknown(self.agent, entry.get("type"))
        yield from builder.finish(file.path, log)


PI = _Pi()


def _take(builder: SessionBuilder, message: dict[str, Any], entry: dict[str, Any], log: ReadLog) -> None:
    role, content = message.get("role"), message.get("content")
    at_ms = builder.see_time(entry.get("timestamp"))
    if role == "user":
        builder.add_request(text_of(content), attachments_in(content))
    elif role == "assistant":
        builder.learn(model=message.get("model"))
        key = text_or_none(entry.get("id")) or len(builder.usages)
        builder.start_turn(key)
        builder.add_parts(content if isinstance(content, str) else objects_in(content), at_ms)
        builder.usages[key] = usage(message.get("usage"), PI_USAGE)
        builder.costs[key] = object_in(object_in(message, "usage"), "cost").get("total") or None
    elif role == "toolResult":
        id, failed = str(message.get("toolCallId", "")), bool(message.get("isError"))
        builder.add_result(id, text_of(content), at_ms, failed=failed)
    elif role not in _OTHER_ROLES:
        log.meet_unknown(builder.agent, f"message of {role}")
