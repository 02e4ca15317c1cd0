"""Sessions of Claude Code: `~/.claude/projects/*/*.jsonl`, and what it prints as stream-json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentv.model.token_counts import CLAUDE_CODE_USAGE, usage
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

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_NOT_TYPED = re.compile(
    r"\s*(?:<(?:local-command|bash-(?:input|stdout|stderr)|task-notification|teammate-message|cross-session-message|ide_|user-memory-input)"
    r"|Caveat: The messages below|\[Request interrupted by user)"
)
"""Starts of user messages that the user did not write to the model."""

_LOCAL_COMMANDS = frozenset((
    "add-dir", "agents", "bashes", "clear", "compact", "config", "context", "cost", "doctor", "effort", "exit",
    "export", "fast", "feedback", "help", "hooks", "ide", "login", "logout", "mcp", "memory", "model",
    "output-style", "permissions", "plugin", "quit", "release-notes", "resume", "rewind", "settings", "status",
    "statusline", "tasks", "terminal-setup", "theme", "todos", "upgrade", "usage", "vim",
))  # fmt: skip
"""Slash commands that are not sent to the model."""

_IGNORED = frozenset((
    "agent-name", "agent-setting", "ai-title", "attachment", "attribution-snapshot", "content-replacement",
    "custom-title", "file-history-snapshot", "last-prompt", "mode", "permission-mode", "pr-link", "progress",
    "queue-operation", "rate_limit_event", "result", "speculation-accept", "stream_event", "summary", "system", "tag",
    "task-summary", "tool_progress", "worktree-state",
))  # fmt: skip

_TYPED = (None, "human")
_PROBED = 30


class _ClaudeCode(SessionFormat):
    agent = "claude-code"
    title = "a session of Claude Code"
    marks = (b'"sessionId"', b'"leafUuid"', b'"session_id"', b'"messageId"', b'"message"')

    def fits(self, file: SessionFile) -> bool:
        return any(map(_is_record, file.first if file.is_lines else _listed(file)[:_PROBED]))

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        reader = _Reader(self.agent)
        for record in file.records(log) if file.is_lines else _listed(file):
            reader.take(record, log)
        reader.builder.learn(id=file.stem if not reader.ids or file.stem in reader.ids else reader.ids[-1])
        if reader.is_subagent:
            log.skip("the work of a sub-agent, which is part of another session", file.path)
            return
        yield from reader.builder.finish(file.path, log)


CLAUDE_CODE = _ClaudeCode()


def _listed(file: SessionFile) -> list[dict[str, Any]]:
    """Return the records of a JSON document: a list, as `--output-format json --verbose` prints it, or one in it."""
    document = file.document
    lists = [document] if isinstance(document, list) else document.values() if isinstance(document, dict) else []
    return next((objects_in(items) for items in lists if any(map(_is_record, objects_in(items)[:_PROBED]))), [])


def _is_record(data: dict[str, Any]) -> bool:
    kind, message = data.get("type"), data.get("message")
    if kind in ("user", "assistant") and isinstance(message, dict) and "parts" not in message:
        has_id = not data.keys().isdisjoint(("sessionId", "session_id", "parentUuid"))
        return has_id or (message.get("role") == kind and "content" in message)
    return (kind in ("summary", "last-prompt") and "leafUuid" in data) or (kind == "queue-operation")


class _Reader:
    """Reads the records of one file. Going back to an earlier request drops what came after it."""

    def __init__(self, agent: str) -> None:
        self.builder = SessionBuilder(agent)
        self.ids: list[str] = []
        self._seen: set[str] = set()
        self._starts: dict[str, int] = {}
        self._main = self._side = 0

    @property
    def is_subagent(self) -> bool:
        """Whether the file has only the work of a sub-agent."""
        return self._side > 0 and not self._main

    def take(self, data: dict[str, Any], log: ReadLog) -> None:
        kind, message = kind_of(data), data.get("message")
        if queued := _queued(data):
            kind, message = "user", queued
        if kind not in ("user", "assistant"):
            if kind == "result":
                self.builder.total_cost = data.get("total_cost_usd")
            elif kind not in _IGNORED:
                log.meet_unknown(self.builder.agent, kind)
            return
        id = data.get("uuid")
        if isinstance(id, str):
            if id in self._seen:  # resuming a session may copy its records
                return
            self._seen.add(id)
        if data.get("isSidechain") or data.get("parent_tool_use_id"):
            self._side += 1
            return
        if not isinstance(message, dict):
            return
        self._main += 1
        session = data.get("sessionId") or data.get("session_id")
        if isinstance(session, str) and session not in self.ids[-1:]:
            self.ids.append(session)
        at_ms = self.builder.see_time(data.get("timestamp"))
        self.builder.learn(cwd=data.get("cwd"), started=data.get("timestamp"))
        if kind == "assistant":
            self._take_turn(data, message, at_ms)
        else:
            self._take_user(data, message, at_ms)

    def _take_turn(self, data: dict[str, Any], message: dict[str, Any], at_ms: float | None) -> None:
        """Add a part of a turn. Its lines share the message id and repeat the usage, of which the last is complete."""
        if data.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
            return
        builder, id = self.builder, text_or_none(message.get("id"))
        builder.learn(model=message.get("model"))
        builder.start_turn(id)
        content = message.get("content")
        builder.add_parts(content if isinstance(content, str) else objects_in(content), at_ms)
        builder.usages[id or len(builder.usages)] = usage(message.get("usage"), CLAUDE_CODE_USAGE)
        builder.costs[id or len(builder.costs)] = data.get("costUSD")

    def _take_user(self, data: dict[str, Any], message: dict[str, Any], at_ms: float | None) -> None:
        content = message.get("content")
        for block in objects_in(content):
            if block.get("type") == "tool_result":
                output, failed = block.get("content"), bool(block.get("is_error"))
                self.builder.add_result(str(block.get("tool_use_id", "")), text_of(output), at_ms, failed=failed)
        if data.get("isMeta") or data.get("isCompactSummary") or data.get("isVisibleInTranscriptOnly"):
            return
        text, attachments = _typed(text_of(content)), attachments_in(content)
        if not text and not attachments:
            return
        parent = data.get("parentUuid")
        if isinstance(parent, str):
            if parent in self._starts:
                self.builder.rewind(self._starts[parent])
            self._starts[parent] = self.builder.position
        self.builder.add_request(text, attachments)


def _queued(data: dict[str, Any]) -> dict[str, Any] | None:
    """Return a message that the user wrote while the agent worked: it is only recorded as an attachment."""
    about = object_in(data, "attachment")
    is_typed = about.get("commandMode", "prompt") == "prompt" and object_in(about, "origin").get("kind") in _TYPED
    return {"content": about.get("prompt")} if about.get("type") == "queued_command" and is_typed else None


def _typed(text: str) -> str:
    """Return what the user wrote: a slash command as it was typed, and nothing for output of local commands."""
    unclosed = text.find("<system-reminder>", text.rfind("</system-reminder>") + 1)
    end = len(text) if unclosed < 0 else unclosed
    text = (_REMINDER.sub("", text[:end]) + text[end:]).strip()
    command = _content(text, "command-name")
    if command is None:
        return "" if _NOT_TYPED.match(text) else text
    if command.removeprefix("/") in _LOCAL_COMMANDS:
        return ""
    return f"{command} {_content(text, 'command-args') or ''}".strip()


def _content(text: str, tag: str) -> str | None:
    """Return the text of a tag without blanks around it; None if there is no such tag."""
    content, is_closed, _ = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")
    return content.strip() if is_closed else None
