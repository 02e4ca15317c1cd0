"""Sessions of the Gemini CLI: `~/.gemini/tmp/*/chats/session-*.jsonl` or `.json`, and its checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

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
from agentv.sessions.turns import text_of, text_or_none

_USAGE = UsageFields(("input",), ("output", "thoughts"), "cached", "thoughts")
_CONTEXT = re.compile(r"\s*(?:<session_context>|This is the Gemini CLI\.|<state_snapshot>)")
"""Starts of messages that the Gemini CLI writes itself at the start of a chat and after compression."""

_CONTEXT_REPLY = re.compile(r"\s*Got it\. Thanks for the (?:additional )?context!\s*")
_NOTICES = ("info", "warning", "error", "system")


class _GeminiCli(SessionFormat):
    agent = "gemini-cli"
    title = "a session of the Gemini CLI"
    marks = (b'"projectHash"', b'"sessionId"', b'"clientHistory"', b'"parts"', b'"history"')

    def fits(self, file: SessionFile) -> bool:
        if file.is_lines:
            return "sessionId" in file.first[0] and not file.first[0].keys().isdisjoint(("projectHash", "startTime"))
        document = file.document
        if isinstance(document, dict) and "sessionId" in document and isinstance(document.get("messages"), list):
            return True
        return _is_content(_history(document))

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        builder = SessionBuilder(self.agent)
        if file.is_lines:
            about, messages = _folded(file.records(log))
        elif isinstance(file.document, dict) and "messages" in file.document:
            about, messages = file.document, objects_in(file.document["messages"])
        else:
            about, messages = {}, []
            _take_contents(builder, _history(file.document))
        if about.get("kind") == "subagent":
            log.skip("the work of a sub-agent, which is part of another session", file.path)
            return
        builder.learn(id=about.get("sessionId"), started=about.get("startTime"))
        folders = about.get("directories")
        builder.learn(cwd=folders[0] if isinstance(folders, list) and folders else None)
        for message in messages:
            _take(builder, message, log)
        builder.learn(id=file.stem)
        yield from builder.finish(file.path, log)


GEMINI_CLI = _GeminiCli()


def _folded(records: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the metadata and messages of a log: a message is written again when it changes.

    `$set` may also replace the messages that the model sees, after compression; the earlier ones are kept.
    """
    about: dict[str, Any] = {}
    messages: dict[str, dict[str, Any]] = {}
    for record in records:
        if "$rewindTo" in record:
            ids = list(messages)
            start = ids.index(record["$rewindTo"]) if record["$rewindTo"] in messages else 0
            for id in ids[start:]:
                del messages[id]
        elif "id" in record:
            messages[str(record["id"])] = record
        else:
            values = object_in(record, "$set") or record
            messages |= {str(message.get("id")): message for message in objects_in(values.get("messages"))}
            about |= {key: value for key, value in values.items() if key != "messages"}
    return about, list(messages.values())


def _take(builder: SessionBuilder, message: dict[str, Any], log: ReadLog) -> None:
    kind, content = kind_of(message), message.get("content")
    at_ms = builder.see_time(message.get("timestamp"))
    if kind == "user":
        _take_results(builder, objects_in(content), at_ms)
        text = text_of(content)
        if not _CONTEXT.match(text):
            builder.add_request(text, attachments_in(content))
    elif kind in ("gemini", "qwen"):  # an early Qwen Code wrote the same files
        builder.learn(model=message.get("model"))
        builder.start_turn(message.get("id"))
        builder.add_text(text_of(content))
        builder.usages[text_or_none(message.get("id")) or len(builder.usages)] = usage(message.get("tokens"), _USAGE)
        for call in objects_in(message.get("toolCalls")):
            _take_call(builder, call, at_ms)
    elif kind not in _NOTICES:
        log.meet_unknown(builder.agent, kind)


def _take_call(builder: SessionBuilder, call: dict[str, Any], at_ms: float | None) -> None:
    id, ended = str(call.get("id", "")), call.get("timestamp")
    builder.add_call(id, str(call.get("name", "")), call.get("args"), at_ms, ended)
    result = call.get("result")
    if result is not None or call.get("status") in ("error", "cancelled"):
        failed = call.get("status") in ("error", "cancelled")
        responses = objects_in(result if isinstance(result, list) else [result])
        output = [object_in(response, "functionResponse").get("response") for response in responses]
        content = _response(output[0]) if output else call.get("resultDisplay")
        builder.add_result(id, content, builder.see_time(ended), failed=failed)


def _response(response: Any) -> Any:
    return response.get("output", response.get("error", response)) if isinstance(response, dict) else response


def _has_failed(result: dict[str, Any]) -> bool:
    """Whether a response of a tool has an error instead of an output."""
    response = object_in(result, "response")
    return bool(response.get("error")) and "output" not in response


def _history(document: Any) -> list[dict[str, Any]]:
    """Return the contents of a checkpoint: a list, or a document with a history."""
    if isinstance(document, dict):
        document = document.get("clientHistory") or document.get("history")
    return objects_in(document)


def _is_content(contents: list[dict[str, Any]]) -> bool:
    return bool(contents) and all(
        content.get("role") in ("user", "model") and isinstance(content.get("parts"), list) for content in contents
    )


def _take_contents(builder: SessionBuilder, contents: list[dict[str, Any]]) -> None:
    """Add the contents of Google's API. Calls have no ids; a result belongs to the next open call of its tool."""
    waiting: list[tuple[str, str]] = []
    for place, content in enumerate(contents):
        parts = objects_in(content.get("parts"))
        text = text_of([part for part in parts if not part.get("thought")])
        if content.get("role") == "model":
            if _CONTEXT_REPLY.fullmatch(text):
                continue
            builder.start_turn(place)
            builder.add_text(text)
            for number, part in enumerate(parts):
                if call := object_in(part, "functionCall"):
                    id = str(call.get("id") or f"{place}.{number}")
                    waiting.append((id, str(call.get("name"))))
                    builder.add_call(id, waiting[-1][1], call.get("args"), None)
            continue
        for part in parts:
            if result := object_in(part, "functionResponse"):
                names = [id for id, name in waiting if id == result.get("id") or name == result.get("name")]
                output, failed = _response(result.get("response")), _has_failed(result)
                builder.add_result(next(iter(names), ""), output, None, failed=failed)
                waiting = [entry for entry in waiting if entry[0] not in names[:1]]
        if not _CONTEXT.match(text):
            builder.add_request(text, attachments_in(parts))


def _take_results(builder: SessionBuilder, parts: list[dict[str, Any]], at_ms: float | None) -> None:
    for part in parts:
        if result := object_in(part, "functionResponse"):
            output, failed = _response(result.get("response")), _has_failed(result)
            builder.add_result(str(result.get("id", "")), output, at_ms, failed=failed)
