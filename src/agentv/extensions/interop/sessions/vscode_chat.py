"""Chats of Copilot in VS Code: `workspaceStorage/*/chatSessions/*.json` and `*.jsonl`, and exported chats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentv.model.token_counts import UsageFields, usage
from agentv.sessions.session import (
    ReadLog,
    Session,
    SessionBuilder,
    SessionFormat,
    decoded,
    iso_time,
    kind_of,
    object_in,
    objects_in,
)
from agentv.sessions.session_file import SessionFile
from agentv.sessions.turns import text_of

_INITIAL, _SET, _PUSH, _DELETE = range(4)
_USAGE = UsageFields(("promptTokens",), ("completionTokens",))
_TEXT_KINDS = ("", "markdownContent", "markdownVuln")
_IGNORED = frozenset((
    "autoModeResolution", "clearToPreviousToolInvocation", "codeblockUri", "command", "confirmation",
    "disabledClaudeHooks", "elicitation", "elicitation2", "elicitationSerialized", "extensions", "externalEdit", "hook",
    "inlineReference", "mcpServersStarting", "mcpServersStartingSerialized", "multiDiffData", "notebookEdit",
    "notebookEditGroup", "prepareToolInvocation", "progressMessage", "progressMessageSerialized", "progressTask",
    "progressTaskSerialized", "pullRequest", "questionCarousel", "reference", "textEdit", "textEditGroup", "thinking",
    "toolInvocation", "treeData", "undoStop", "warning", "workspaceEdit",
))  # fmt: skip


class _VsCodeChat(SessionFormat):
    agent = "vscode-copilot"
    title = "a chat of Copilot in VS Code"
    marks = (b'"requesterUsername"', b'"responderUsername"', b'"requests"', b'"kind":0')

    def fits(self, file: SessionFile) -> bool:
        if file.is_lines:
            first = file.first[0]
            return first.get("kind") == _INITIAL and "requests" in object_in(first, "v")
        return isinstance(file.document, dict) and any(
            "requestId" in request or ("response" in request and "message" in request)
            for request in objects_in(file.document.get("requests"))
        )

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        chat = _restored(file, log) if file.is_lines else file.document
        builder = SessionBuilder(self.agent)
        builder.learn(id=chat.get("sessionId"), started=_time(chat.get("creationDate")))
        for place, request in enumerate(objects_in(chat.get("requests"))):
            _take(builder, request, place, log)
        builder.learn(id=file.stem)
        yield from builder.finish(file.path, log)


VSCODE_CHAT = _VsCodeChat()


def _restored(file: SessionFile, log: ReadLog) -> dict[str, Any]:
    """Return the chat of a log of changes: an initial state, and values that are set, appended or deleted."""
    state: dict[str, Any] = {}
    for entry in file.records(log):
        kind, path = entry.get("kind"), entry.get("k")
        if kind == _INITIAL:
            state = object_in(entry, "v")
        elif isinstance(path, list) and path and kind in (_SET, _PUSH, _DELETE):
            try:
                _change(state, path, entry)
            except (LookupError, TypeError):
                log.skip("a change of a chat that does not fit its state", file.path)
        else:
            log.meet_unknown("vscode-copilot", kind)
    return state


def _change(state: Any, path: list[Any], entry: dict[str, Any]) -> None:
    *parents, last = path
    for step in parents:
        state = state[step]
    if entry["kind"] == _SET:
        if isinstance(state, list) and last == len(state):
            state.append(entry.get("v"))
        else:
            state[last] = entry.get("v")
    elif entry["kind"] == _DELETE:
        del state[last]
    else:
        items = state.setdefault(last, []) if isinstance(state, dict) else state[last]
        if isinstance(entry.get("i"), int):
            del items[entry["i"] :]
        items += entry.get("v") or []


def _take(builder: SessionBuilder, request: dict[str, Any], place: int, log: ReadLog) -> None:
    """Add a request and its response. Tool calls come from the model's rounds, or else from what was shown."""
    at_ms = builder.see_time(request.get("timestamp"))
    builder.learn(model=str(request.get("modelId") or "").removeprefix("copilot/"))
    message = request.get("message")
    files = objects_in(object_in(request, "variableData").get("variables"))
    images = sum(entry.get("kind") == "image" or bool(entry.get("isImage")) for entry in files)
    builder.add_request(message if isinstance(message, str) else text_of([message]), images)
    result = object_in(request, "result")
    timings = object_in(result, "timings").get("totalElapsed")
    if isinstance(timings, int | float) and at_ms is not None:
        builder.see_time(at_ms + timings)
    builder.usages[place] = usage(object_in(result, "usage"), _USAGE)
    metadata = object_in(result, "metadata")
    rounds = objects_in(metadata.get("toolCallRounds"))
    if rounds and any(objects_in(entry.get("toolCalls")) for entry in rounds):
        _take_rounds(builder, rounds, object_in(metadata, "toolCallResults"), place)
    else:
        _take_shown(builder, objects_in(request.get("response")), place, log)


def _take_rounds(builder: SessionBuilder, rounds: list[dict[str, Any]], results: dict[str, Any], place: int) -> None:
    for number, entry in enumerate(rounds):
        builder.start_turn((place, number))
        builder.add_text(text_of(entry.get("response")))
        for call in objects_in(entry.get("toolCalls")):
            id, arguments = str(call.get("id", "")), call.get("arguments")
            input = decoded(arguments)
            builder.add_call(id, str(call.get("name", "")), input, None)
            if id in results:
                builder.add_result(id, _result(results[id]), None)


def _result(result: Any) -> Any:
    """Return the text of a tool result: its parts are texts, or trees with texts."""
    parts = objects_in(object_in({"result": result}, "result").get("content"))
    texts = [text for part in parts if (text := _tree_text(part.get("value")))]
    return "\n".join(texts) if texts else None


def _tree_text(value: Any) -> str:
    """Return a text, or the texts in the nodes of a tree."""
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    nodes = [object_in(value, "node"), *objects_in(value.get("children"))]
    return str(value.get("text") or "") + "".join(map(_tree_text, filter(None, nodes)))


def _take_shown(builder: SessionBuilder, parts: list[dict[str, Any]], place: int, log: ReadLog) -> None:
    builder.start_turn()
    for number, part in enumerate(parts):
        kind = kind_of(part, "kind")
        if kind in _TEXT_KINDS:
            value = part.get("value", part.get("content"))
            builder.add_text(value if isinstance(value, str) else str(object_in({"v": value}, "v").get("value") or ""))
        elif kind == "toolInvocationSerialized":
            id = str(part.get("toolCallId") or f"{place}.{number}")
            details, data = object_in(part, "resultDetails"), object_in(part, "toolSpecificData")
            builder.add_call(id, str(part.get("toolId", "")), decoded(details.get("input") or data or None), None)
            texts = [item["value"] for item in objects_in(details.get("output")) if item.get("isText")]
            output = "\n".join(map(str, texts)) or object_in(data, "terminalCommandOutput").get("text")
            failed = details.get("isError") or object_in(data, "terminalCommandState").get("exitCode")
            builder.add_result(id, output, None, failed=bool(failed))
        elif kind == "inlineReference":
            builder.add_text(str(part.get("name") or object_in(part, "inlineReference").get("path") or ""))
        elif kind not in _IGNORED:
            log.meet_unknown(builder.agent, kind)


def _time(value: Any) -> str | None:
    return iso_time(float(value)) if isinstance(value, int | float) else None
