"""Sessions of Codex: `~/.codex/sessions/**/rollout-*.jsonl`, and the two older forms of these files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from agentv.model.token_counts import CODEX_USAGE, usage
from agentv.sessions.session import (
    ReadLog,
    Session,
    SessionBuilder,
    SessionFormat,
    attachments_in,
    decoded,
    kind_of,
    object_in,
    objects_in,
)
from agentv.sessions.session_file import SessionFile
from agentv.sessions.turns import text_of
from agentv.support.json_values import json_or

_CALLS = frozenset(("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"))
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output", "tool_search_output"))
_IGNORED = frozenset((
    "reasoning", "ghost_snapshot", "compaction", "compaction_summary", "context_compaction", "image_generation_call",
    "other",
))  # fmt: skip
_ENVELOPES = frozenset((
    "session_meta", "turn_context", "event_msg", "response_item", "compacted", "world_state", "token_usage_record",
    "inter_agent_communication", "inter_agent_communication_metadata",
))  # fmt: skip
_ENDS = {
    "exec_command_end": ("shell", "command", "aggregated_output"),
    "mcp_tool_call_end": ("mcp_tool_call", "", ""),
    "patch_apply_end": ("apply_patch", "changes", "stdout"),
    "web_search_end": ("web_search", "query", ""),
}
"""Events of calls that ended: the name of the tool, and the keys of its input and output."""

_INJECTED = re.compile(r"\s*(?:<([a-z_]++)[^>]*+>.*</\1>\s*$|# AGENTS\.md instructions\b|<user_action>)", re.DOTALL)
"""Parts of messages of the role `user` that Codex writes itself: a text in a tag, or instructions from a file."""

_REQUEST = "## My request for Codex:"
"""Separates what an editor adds from what the user wrote."""

_EXIT = re.compile(r"(?:Process exited with code|Exit code:) (\d+)")


class _Codex(SessionFormat):
    agent = "codex"
    title = "a session of Codex"
    marks = (b'"session_meta"', b'"response_item"', b'"event_msg"', b'"record_type"', b'"instructions"', b'"items"')

    def fits(self, file: SessionFile) -> bool:
        if file.is_lines:
            kinds = {str(record.get("type")) for record in file.first}
            return not kinds.isdisjoint(("session_meta", "response_item", "event_msg")) or _is_old(file.first)
        document = file.document
        return (
            isinstance(document, dict)
            and isinstance(document.get("items"), list)
            and "id" in object_in(document, "session")
        )

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        builder = SessionBuilder(self.agent)
        for record in file.records(log) if file.is_lines else _as_records(file.document):
            if _take(builder, record, log):
                log.skip("the work of a sub-agent, which is part of another session", file.path)
                return
        if file.is_lines and not builder.has_request:
            builder = _read_events(file)
        builder.learn(id=file.stem)
        yield from builder.finish(file.path, log)


CODEX = _Codex()


def _is_old(first: list[dict[str, Any]]) -> bool:
    """Whether a file has items without envelopes, after a line with an id and instructions."""
    return {"id", "instructions"} <= first[0].keys() or any("record_type" in record for record in first)


def _as_records(document: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Return the records of the oldest form: one document with a session and items."""
    yield object_in(document, "session")
    yield from objects_in(document.get("items"))


def _read_events(file: SessionFile) -> SessionBuilder:
    """Read a file that has no items of the user: its events have the messages and the calls that ended."""
    builder, log = SessionBuilder("codex"), ReadLog()  # the first pass counted what could not be read
    for record in file.records(log):
        event, at_ms = object_in(record, "payload"), builder.see_time(record.get("timestamp"))
        kind = kind_of(event) if record.get("type") == "event_msg" else ""
        if record.get("type") != "response_item":
            _take(builder, record, log)
        if kind == "user_message":
            builder.add_request(_typed(event.get("message")), len(event.get("images") or ()))
        elif kind == "agent_message":
            builder.start_turn()
            builder.add_text(text_of(event.get("message")))
        elif kind in _ENDS:
            tool, input, output = _ENDS[kind]
            id, call = _call_id(event), object_in(event, "invocation")
            builder.add_call(id, str(call.get("tool") or tool), call.get("arguments") or event.get(input), at_ms)
            result = object_in(event, "result")
            failed = bool(event.get("exit_code")) or event.get("success") is False or "Err" in result
            text = text_of(object_in(result, "Ok").get("content")) or result.get("Err")
            builder.add_result(id, text or event.get(output), at_ms, failed=failed)
    return builder


def _take(builder: SessionBuilder, record: dict[str, Any], log: ReadLog) -> bool:
    """Add a record. Return True if the session is that of a sub-agent."""
    kind, payload = kind_of(record), object_in(record, "payload")
    at_ms = builder.see_time(record.get("timestamp"))
    if kind == "session_meta" or (not kind and "id" in record):
        about = payload or record
        builder.learn(id=about.get("id"), cwd=about.get("cwd"), started=about.get("timestamp"))
        return isinstance(about.get("source"), dict) and "subagent" in about["source"]
    if kind == "turn_context":
        builder.learn(model=payload.get("model"), cwd=payload.get("cwd"))
    elif kind == "event_msg":
        _take_event(builder, payload)
    elif kind == "response_item":
        _take_item(builder, payload, at_ms, log)
    elif kind in ("message", *_CALLS, *_OUTPUTS, *_IGNORED):
        _take_item(builder, record, at_ms, log)
    elif kind not in _ENVELOPES and "record_type" not in record:
        log.meet_unknown(builder.agent, kind)
    return False


def _take_event(builder: SessionBuilder, event: dict[str, Any]) -> None:
    """Take the total usage, and drop turns that were rolled back. Other events repeat items."""
    if event.get("type") == "token_count":
        builder.see_total(usage(object_in(event, "info").get("total_token_usage"), CODEX_USAGE))
    elif event.get("type") == "thread_rolled_back":
        count = event.get("num_turns")
        builder.drop_requests(count if isinstance(count, int) else 0)


def _take_item(builder: SessionBuilder, item: dict[str, Any], at_ms: float | None, log: ReadLog) -> None:
    kind, content = kind_of(item), item.get("content")
    if kind == "message" and item.get("role") == "assistant":
        builder.add_text(text_of(content))
    elif kind == "message" and item.get("role") == "user":
        text = _typed(content)
        builder.add_request(text, attachments_in(content) if text or not text_of(content).strip() else 0)
    elif kind in _CALLS:
        builder.add_call(_call_id(item), _tool(item), _input(item), at_ms)
        if kind == "web_search_call":
            builder.add_result(_call_id(item), None, at_ms)
    elif kind in _OUTPUTS:
        output, failed = _output(item.get("output", item.get("tools")))
        builder.add_result(_call_id(item), output, at_ms, failed=failed)
    elif kind != "message" and kind not in _IGNORED:
        log.meet_unknown(builder.agent, kind)


def _typed(content: Any) -> str:
    """Return what the user wrote: a message may also have parts that Codex adds."""
    texts = [content] if isinstance(content, str) else [text_of([part]) for part in objects_in(content)]
    return "\n".join(text for text in texts if text and not _INJECTED.match(text)).rpartition(_REQUEST)[2].strip()


def _call_id(item: dict[str, Any]) -> str:
    return str(item.get("call_id") or item.get("id") or id(item))


def _tool(item: dict[str, Any]) -> str:
    return str(item.get("name") or str(item["type"]).removesuffix("_call"))


def _input(item: dict[str, Any]) -> Any:
    value = next((item[key] for key in ("arguments", "input", "action") if item.get(key) is not None), None)
    return decoded(value)


def _output(output: Any) -> tuple[Any, bool]:
    """Return the output of a call and whether the call failed. Older versions wrap it in JSON with an exit code."""
    wrapped = json_or(output, None) if isinstance(output, str) and output.startswith("{") else output
    if isinstance(wrapped, dict) and "output" in wrapped:
        return wrapped["output"], bool(object_in(wrapped, "metadata").get("exit_code"))
    if isinstance(wrapped, dict) and "content" in wrapped:
        return wrapped["content"], wrapped.get("success") is False
    text = text_of(output) if isinstance(output, list) else output
    match = _EXIT.search(text[:500]) if isinstance(text, str) else None
    return text, bool(match and int(match[1]))
