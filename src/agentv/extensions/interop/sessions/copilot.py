"""Sessions of the Copilot CLI: `~/.copilot/session-state/**/*.jsonl`, and the older `session_*.json`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentv.model.result import sum_usage
from agentv.model.token_counts import COPILOT_USAGE, usage
from agentv.sessions.session import ReadLog, Session, SessionBuilder, SessionFormat, decoded, object_in, objects_in
from agentv.sessions.session_file import SessionFile
from agentv.sessions.turns import number, text_of

_FAMILIES = (
    *("session.", "assistant.", "tool.", "user.", "system.", "hook.", "abort", "skill.", "subagent.", "permission."),
    *("command.", "external_tool.", "elicitation.", "pending_messages.", "sampling.", "mcp.", "model."),
)
_EXIT = re.compile(r"<(?:exited|shellId: \S+ completed) with exit code (\d+)>\s*$")
_INJECTED = ("skill-", "agent-", "system")
"""Starts of the sources of messages that the user did not write."""


class _Copilot(SessionFormat):
    agent = "copilot-cli"
    title = "a session of the Copilot CLI"
    marks = (b'"session.start"', b'"user.message"', b'"chatMessages"')

    def fits(self, file: SessionFile) -> bool:
        if file.is_lines:
            return any(record.get("type") in ("session.start", "user.message") for record in file.first)
        return isinstance(file.document, dict) and isinstance(file.document.get("chatMessages"), list)

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        builder = SessionBuilder(self.agent)
        if file.is_lines:
            for record in file.records(log):
                _take(builder, record, log)
        else:
            _take_chat(builder, file.document)
        builder.learn(id=file.stem)
        yield from builder.finish(file.path, log)


COPILOT = _Copilot()


def _take(builder: SessionBuilder, record: dict[str, Any], log: ReadLog) -> None:
    kind, data = str(record.get("type")), object_in(record, "data")
    at_ms = builder.see_time(record.get("timestamp"))
    if data.get("parentToolCallId") or record.get("agentId"):
        return  # work of a sub-agent, whose result is a tool result
    if kind == "session.start":
        builder.learn(id=data.get("sessionId"), started=data.get("startTime"), model=data.get("selectedModel"))
        builder.learn(cwd=object_in(data, "context").get("cwd"))
    elif kind == "session.model_change":
        builder.learn(model=data.get("newModel"))
    elif kind == "user.message" and not _is_injected(data):
        builder.add_request(text_of(data.get("content")), len(objects_in(data.get("attachments"))))
    elif kind == "assistant.message":
        _take_turn(builder, data, at_ms, record.get("timestamp"))
    elif kind == "tool.execution_start":
        builder.add_call(str(data.get("toolCallId", "")), str(data.get("toolName", "")), data.get("arguments"), at_ms)
    elif kind == "skill.invoked" and not builder.has_called("skill", data.get("name")):
        builder.add_call(f"skill {data.get('name')}", "skill", {"skill": data.get("name")}, at_ms)
    elif kind == "tool.execution_complete":
        result = data.get("result")
        text = object_in(data, "result").get("content") if isinstance(result, dict) else result
        output = text or object_in(data, "error").get("message")
        code = _EXIT.search(output) if isinstance(output, str) else None
        failed = not data.get("success", True) or number(data.get("shellExecution"), "exitCode") > 0
        failed = failed or bool(code and int(code[1]))
        builder.add_result(str(data.get("toolCallId", "")), output, at_ms, failed=failed)
    elif kind in ("session.usage_record", "assistant.usage"):
        builder.usages[len(builder.usages)] = usage(data.get("usage") or data, COPILOT_USAGE)
    elif kind == "session.shutdown" and not any(builder.usages.values()):
        models = object_in(object_in(data, "accountingSnapshot") or data, "modelMetrics")
        builder.total_usage = sum_usage(usage(object_in(model, "usage"), COPILOT_USAGE) for model in models.values())
    elif not kind.startswith(_FAMILIES):
        log.meet_unknown(builder.agent, kind)


def _is_injected(message: dict[str, Any]) -> bool:
    """Whether a message of the user comes from a skill, another agent, or autopilot, which lets the agent continue."""
    source = str(message.get("source") or "")
    return bool(message.get("isAutopilotContinuation")) or source.startswith(_INJECTED) or source == "autopilot"


def _take_turn(builder: SessionBuilder, data: dict[str, Any], at_ms: float | None, timestamp: Any) -> None:
    builder.learn(model=data.get("model"))
    builder.start_turn(data.get("messageId"))
    builder.add_text(text_of(data.get("content")))
    for index, call in enumerate(objects_in(data.get("toolRequests"))):
        id, tool = call.get("toolCallId") or (builder.position, index), call.get("name") or call.get("toolName") or ""
        builder.add_call(str(id), str(tool), call.get("arguments"), at_ms, timestamp)


def _take_chat(builder: SessionBuilder, document: dict[str, Any]) -> None:
    """Add the messages of the older form, which are those of OpenAI's chat API."""
    builder.learn(id=document.get("sessionId"), started=document.get("startTime"))
    builder.learn(model=document.get("selectedModel") or document.get("model"))
    add_chat_messages(builder, objects_in(document.get("chatMessages")))


def add_chat_messages(builder: SessionBuilder, messages: list[dict[str, Any]]) -> None:
    """Add messages of OpenAI's chat API, with their tool calls and results."""
    for place, message in enumerate(messages):
        role, text = message.get("role"), text_of(message.get("content"))
        if role == "user":
            builder.add_request(text)
        elif role == "assistant":
            builder.start_turn(place)
            builder.add_text(text)
            for call in objects_in(message.get("tool_calls")):
                function = object_in(call, "function") or call
                arguments = function.get("arguments")
                input = decoded(arguments)
                builder.add_call(str(call.get("id", "")), str(function.get("name", "")), input, None)
        elif role == "tool":
            builder.add_result(str(message.get("tool_call_id", "")), text, None)
