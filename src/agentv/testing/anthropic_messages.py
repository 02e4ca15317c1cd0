"""Anthropic's messages as the model server speaks them, plain and streaming, and its counting of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from agentv.model.message import ToolCall
from agentv.testing.chat import (
    arguments_of,
    event,
    halves_of,
    id_of,
    last_asked,
    pieces_of,
    stop_reason_of,
    text_of,
    tokens_of,
    words_in,
)
from agentv.testing.wire import Answer, Asked, NotUnderstood, json_object, json_or_text

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
"""The version from which on the API refuses to be told how to sample."""


class AnthropicMessages:
    """`…/messages` and `…/messages/count_tokens`, under whatever address."""

    def serves(self, path: str) -> bool:
        """Whether the path is that of messages."""
        return path.endswith(("/messages", "/messages/count_tokens"))

    def read(self, asked: Asked) -> Asked:
        """Last question of the user, answers since, model; refuses what Anthropic would refuse."""
        body = json_object(asked.raw)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise NotUnderstood("messages: Field required")
        _check(messages)
        if asked.headers.get("anthropic-version", "") >= _WITHOUT_SAMPLING:
            for name in ("temperature", "top_p", "top_k"):
                if name in body:
                    raise NotUnderstood(f"{name}: Extra inputs are not permitted")
        counts = asked.path.endswith("/count_tokens")
        if not counts:
            _check_limits(body)
        texts = [text_of(message.get("content")) for message in messages]
        words = words_in([text_of(body.get("system")), *texts])
        prompt, since = last_asked(texts, [_asks(message) for message in messages])
        return replace(
            asked,
            body=body,
            prompt=prompt,
            turn=sum(message["role"] == "assistant" for message in messages[since:]),
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            words=words,
            reply={"input_tokens": words} if counts else None,
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        """One message."""
        blocks = list(_blocks(asked, answer))
        return {**_head(asked, answer), "content": blocks, **_end(answer), "usage": _usage(asked, answer)}

    def pieces(self, asked: Asked, answer: Answer) -> Iterable[bytes]:
        """The events of a stream: the message, each block from start to stop, the reason of the end."""
        usage = _usage(asked, answer)
        start = {**_head(asked, answer), "content": [], "stop_reason": None, "stop_sequence": None}
        yield _event("message_start", message={**start, "usage": {**usage, "output_tokens": 1}})
        yield _event("ping")
        for index, block in enumerate(_blocks(asked, answer)):
            yield _event("content_block_start", index=index, content_block=_empty(block))
            for delta in _deltas(block):
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta=_end(answer), usage=usage)
        yield _event("message_stop")

    def error(self, status: int, message: str) -> dict[str, Any]:
        """An error in Anthropic's form."""
        return {"type": "error", "error": {"type": _TYPES.get(status, "api_error"), "message": message}}


def _check(messages: list[Any]) -> None:
    """The order that Anthropic insists on: the message after a tool use has its result, and no other results."""
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
            raise NotUnderstood(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        blocks = _typed_blocks(message, index)
        results = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        unknown = [id for id in results if id not in waiting]
        if unknown:
            raise NotUnderstood(
                f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {unknown[0]}"
            )
        missing = waiting - set(results)
        if missing:
            found = ", ".join(sorted(missing))
            raise NotUnderstood(f"messages.{index}: `tool_use` ids were found without `tool_result` blocks: {found}")
        waiting = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
    if waiting:
        raise NotUnderstood(f"`tool_use` ids were found without `tool_result` blocks: {', '.join(sorted(waiting))}")


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


def _asks(message: dict[str, Any]) -> bool:
    """Whether a message is the user's own: results of tools come as messages of the user as well."""
    content = message.get("content")
    results = isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)
    return message["role"] == "user" and not results


def _head(asked: Asked, answer: Answer) -> dict[str, Any]:
    return {"id": f"msg_{asked.number}", "type": "message", "role": "assistant", "model": answer.model or asked.model}


def _blocks(asked: Asked, answer: Answer) -> Iterator[dict[str, Any]]:
    if answer.thinking is not None:
        yield {"type": "thinking", "thinking": answer.thinking, "signature": _SIGNATURE}
    text = answer.text if answer.refusal is None else answer.refusal
    if text:
        yield {"type": "text", "text": text}
    for index, call in enumerate(answer.tool_calls):
        yield {"type": "tool_use", "id": id_of(call, asked, index, "toolu"), "name": call.tool, "input": _input(call)}


def _input(call: ToolCall) -> Any:
    return json_or_text(arguments_of(call))


def _empty(block: dict[str, Any]) -> dict[str, Any]:
    """A block as it starts: what it holds comes after it."""
    nothing: dict[str, dict[str, Any]] = {
        "thinking": {"thinking": "", "signature": ""},
        "text": {"text": ""},
        "tool_use": {"input": {}},
    }
    return {**block, **nothing[block["type"]]}


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
    reason = "refusal" if answer.refusal is not None else stop_reason_of(answer, _STOP_REASONS)
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(asked: Asked, answer: Answer) -> dict[str, Any]:
    if answer.wrong_usage:
        return {"input_tokens": "many", "output_tokens": -1}
    tokens = tokens_of(asked, answer)
    return {
        # Anthropic counts apart what it reads from its cache and what it writes there.
        "input_tokens": tokens.input - tokens.cached - tokens.cache_write,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.output,
    }


def _event(kind: str, **data: Any) -> bytes:
    return event({"type": kind, **data}, kind)
