"""OpenAI's chat completions as the model server speaks them, plain and streaming."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from agentv.model.message import ToolCall
from agentv.testing.parts import (
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
from agentv.testing.script import Answer
from agentv.testing.wire import Asked, NotUnderstood, json_object

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
_WRONG_USAGE = {"prompt_tokens": "many", "completion_tokens": -1, "total_tokens": None}


class ChatCompletions:
    """`…/chat/completions`, under whatever address."""

    def serves(self, path: str) -> bool:
        """Whether the path is that of chat completions."""
        return path.endswith("/chat/completions")

    def read(self, asked: Asked) -> Asked:
        """Last message of the user, answers since, model; refuses what OpenAI would refuse."""
        body = json_object(asked.raw)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise NotUnderstood("'messages' must be a list with at least one message")
        _check(messages)
        texts = [text_of(message.get("content")) for message in messages]
        prompt, since = last_asked(texts, [message["role"] == "user" for message in messages])
        return replace(
            asked,
            body=body,
            prompt=prompt,
            turn=sum(message["role"] == "assistant" for message in messages[since:]),
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            words=words_in(texts),
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        """One completion with one choice."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
        if answer.tool_calls:
            message["tool_calls"] = [_call(call, asked, index) for index, call in enumerate(answer.tool_calls)]
        if answer.thinking is not None:
            message["reasoning_content"] = answer.thinking
        reason = stop_reason_of(answer, {})
        choice = {"index": 0, "message": message, "logprobs": _logprobs(asked, answer), "finish_reason": reason}
        return {**_head(asked, answer, "chat.completion"), "choices": [choice], "usage": _usage(asked, answer)}

    def pieces(self, asked: Asked, answer: Answer) -> Iterable[bytes]:
        """Server-sent events: a delta each, usage where it is asked for, and the mark of the end."""
        head = _head(asked, answer, "chat.completion.chunk")
        for delta in _deltas(asked, answer):
            yield event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        yield event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": stop_reason_of(answer, {})}]})
        if (asked.body.get("stream_options") or {}).get("include_usage"):
            yield event({**head, "choices": [], "usage": _usage(asked, answer)})
        yield b"data: [DONE]\n\n"

    def error(self, status: int, message: str) -> dict[str, Any]:
        """An error in OpenAI's form."""
        return {"error": {"message": message, "type": _TYPES.get(status, "server_error"), "param": None, "code": None}}


def _check(messages: list[Any]) -> None:
    """The order that OpenAI insists on: every tool call is followed by its result, every result follows its call."""
    waiting: set[str] = set()
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role not in _ROLES:
            raise NotUnderstood(f"A message has the role {role!r}")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                raise NotUnderstood("A message of role 'tool' must follow the call that it answers")
            waiting.remove(message["tool_call_id"])
        elif waiting:
            raise NotUnderstood(f"No result follows the tool calls {', '.join(sorted(waiting))}")
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    if waiting:
        raise NotUnderstood(f"No result follows the tool calls {', '.join(sorted(waiting))}")


def _head(asked: Asked, answer: Answer, kind: str) -> dict[str, Any]:
    model = answer.model or asked.model
    return {"id": f"chatcmpl-{asked.number}", "object": kind, "created": int(time.time()), "model": model}


def _call(call: ToolCall, asked: Asked, index: int) -> dict[str, Any]:
    function = {"name": call.tool, "arguments": arguments_of(call)}
    return {"id": id_of(call, asked, index), "type": "function", "function": function}


def _deltas(asked: Asked, answer: Answer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if answer.text is None else ""}
    for piece in pieces_of(answer.thinking or ""):
        yield {"reasoning_content": piece}
    if answer.refusal is not None:
        yield {"refusal": answer.refusal}
    for word in pieces_of(answer.text or ""):
        yield {"content": word}
    for index, call in enumerate(answer.tool_calls):
        wire = _call(call, asked, index)
        arguments = wire["function"]["arguments"]
        yield {"tool_calls": [{"index": index, **wire, "function": {"name": call.tool, "arguments": ""}}]}
        for piece in halves_of(arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _logprobs(asked: Asked, answer: Answer) -> dict[str, Any] | None:
    """Every word as likely as the others, where the request asks for logarithms."""
    if not asked.body.get("logprobs"):
        return None
    tokens = [
        {"token": piece, "logprob": -0.5, "bytes": list(piece.encode())} for piece in pieces_of(answer.text or "")
    ]
    alternatives = int(asked.body.get("top_logprobs") or 0)
    return {"content": [{**token, "top_logprobs": [token][:alternatives]} for token in tokens], "refusal": None}


def _usage(asked: Asked, answer: Answer) -> dict[str, Any]:
    if answer.wrong_usage:
        return _WRONG_USAGE
    tokens = tokens_of(asked, answer)
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
