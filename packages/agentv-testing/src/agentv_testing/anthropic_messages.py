"""Anthropic's Messages API for the model server, with and without streaming, and its token counting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from agentv.model.message import ToolCall
from agentv_testing.wire import (
    Answer,
    NotUnderstood,
    ReceivedRequest,
    arguments_of,
    arguments_value,
    event,
    halves_of,
    pieces_of,
    text_of,
)

_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_SIGNATURE = "c2lnbmF0dXJl"
_WITHOUT_SAMPLING = "2026-10-21"
"""The first version that rejects sampling parameters."""


class AnthropicMessages:
    """`…/messages` and `…/messages/count_tokens`, with any prefix."""

    def serves(self, path: str) -> bool:
        """Return whether the path is that of messages."""
        return path.endswith(("/messages", "/messages/count_tokens"))

    def read(self, received: ReceivedRequest) -> ReceivedRequest:
        """Read the conversation; reject what Anthropic would reject."""
        body = received.json()
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise NotUnderstood("messages: Field required")
        _check(messages)
        if received.headers.get("anthropic-version", "") >= _WITHOUT_SAMPLING:
            for name in ("temperature", "top_p", "top_k"):
                if name in body:
                    raise NotUnderstood(f"{name}: Extra inputs are not permitted")
        counts = received.path.endswith("/count_tokens")
        if not counts:
            _check_limits(body)
        turns = [
            ("system", text_of(body.get("system"))),
            *((_role(each), text_of(each["content"])) for each in messages),
        ]
        read = received.understood(body, turns)
        return replace(read, reply={"input_tokens": read.words}) if counts else read

    def whole(self, received: ReceivedRequest, answer: Answer) -> dict[str, Any]:
        """Return one message."""
        blocks = list(_blocks(received, answer))
        return {**_head(received, answer), "content": blocks, **_end(answer), "usage": _usage(received, answer)}

    def pieces(self, received: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """Return the events of a stream: the message, each block from start to stop, and the stop reason."""
        usage = _usage(received, answer)
        start = {**_head(received, answer), "content": [], "stop_reason": None, "stop_sequence": None}
        yield _event("message_start", message={**start, "usage": {**usage, "output_tokens": 1}})
        yield _event("ping")
        for index, block in enumerate(_blocks(received, answer)):
            yield _event("content_block_start", index=index, content_block={**block, **_EMPTY[block["type"]]})
            for delta in _deltas(block):
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta=_end(answer), usage=usage)
        yield _event("message_stop")

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return an error in Anthropic's format."""
        return {"type": "error", "error": {"type": _TYPES.get(status, "api_error"), "message": message}}


def _check(messages: list[Any]) -> None:
    """Check that the message after a tool use has its result and no other results, as Anthropic requires."""
    waiting: set[str] = set()
    for index, message in enumerate((*messages, {"role": "user", "content": []})):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
            raise NotUnderstood(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        blocks = _typed_blocks(message, index)
        results = {str(block.get("tool_use_id")) for block in blocks if block["type"] == "tool_result"}
        if unknown := ", ".join(sorted(results - waiting)):
            raise NotUnderstood(f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {unknown}")
        if missing := ", ".join(sorted(waiting - results)):
            raise NotUnderstood(f"messages.{index}: `tool_use` ids were found without `tool_result` blocks: {missing}")
        waiting = {str(block.get("id")) for block in blocks if block["type"] == "tool_use"}


def _typed_blocks(message: dict[str, Any], index: int) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) and "type" in block for block in content):
        raise NotUnderstood(f"messages.{index}.content: Input should be a valid list")
    if any(block["type"] == "text" and not block.get("text") for block in content):
        raise NotUnderstood(f"messages.{index}: text content blocks must be non-empty")
    return content


def _check_limits(body: dict[str, Any]) -> None:
    limit = body.get("max_tokens")
    if not isinstance(limit, int):
        raise NotUnderstood("max_tokens: Field required")
    thinking = body.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if isinstance(budget, int) and budget >= limit:
        raise NotUnderstood("`max_tokens` must be greater than `thinking.budget_tokens`")


def _role(message: dict[str, Any]) -> str:
    """Return the role of a message; tool results are in user messages."""
    content = message["content"]
    has_results = isinstance(content, list) and any(block["type"] == "tool_result" for block in content)
    return "tool" if has_results else str(message["role"])


def _head(received: ReceivedRequest, answer: Answer) -> dict[str, Any]:
    return {
        "id": f"msg_{received.number}",
        "type": "message",
        "role": "assistant",
        "model": answer.model or received.model,
    }


def _blocks(received: ReceivedRequest, answer: Answer) -> Iterator[dict[str, Any]]:
    if answer.thinking is not None:
        yield {"type": "thinking", "thinking": answer.thinking, "signature": _SIGNATURE}
    text = answer.text if answer.refusal is None else answer.refusal
    if text:
        yield {"type": "text", "text": text}
    for index, call in enumerate(answer.tool_calls):
        id = received.id_of(call, index, "toolu")
        yield {"type": "tool_use", "id": id, "name": call.tool, "input": arguments_value(call)}


_EMPTY: dict[str, dict[str, Any]] = {
    "thinking": {"thinking": "", "signature": ""},
    "text": {"text": ""},
    "tool_use": {"input": {}},
}
"""The fields of blocks that are empty in their start event."""


def _deltas(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if block["type"] == "text":
        yield from ({"type": "text_delta", "text": piece} for piece in pieces_of(block["text"]))
    elif block["type"] == "thinking":
        yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces_of(block["thinking"]))
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        written = arguments_of(ToolCall("", block["input"]))
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *halves_of(written)))


def _end(answer: Answer) -> dict[str, Any]:
    reason = "refusal" if answer.refusal is not None else answer.stop(_STOP_REASONS)
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(received: ReceivedRequest, answer: Answer) -> dict[str, Any]:
    if answer.wrong_usage:
        return {"input_tokens": "many", "output_tokens": -1}
    tokens = answer.tokens(received)
    cached, written = tokens.cached or 0, tokens.cache_write or 0
    return {
        # Anthropic counts cache reads and writes separately.
        "input_tokens": tokens.input - cached - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": tokens.output,
    }


def _event(kind: str, **data: Any) -> bytes:
    return event({"type": kind, **data}, kind)
