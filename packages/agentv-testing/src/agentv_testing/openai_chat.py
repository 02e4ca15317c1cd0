"""OpenAI's chat completions as the model server speaks them, plain and streaming, and its embeddings."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

from agentv.model.message import ToolCall
from agentv_testing.wire import (
    Answer,
    NotUnderstood,
    ReceivedRequest,
    arguments_of,
    event,
    halves_of,
    pieces_of,
    text_of,
)

DIMENSIONS = 64

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}


class OpenAIFormat:
    """Errors as all of OpenAI's APIs write them."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """An error in OpenAI's form."""
        return {"error": {"message": message, "type": _TYPES.get(status, "server_error"), "param": None, "code": None}}


class ChatCompletions(OpenAIFormat):
    """`…/chat/completions`, under any address."""

    def serves(self, path: str) -> bool:
        """Whether the path is that of chat completions."""
        return path.endswith("/chat/completions")

    def read(self, asked: ReceivedRequest) -> ReceivedRequest:
        """Read the conversation; refuse what OpenAI would refuse."""
        body = asked.json()
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise NotUnderstood("'messages' must be a list with at least one message")
        _check(messages)
        return asked.understood(body, [(each["role"], text_of(each.get("content"))) for each in messages])

    def whole(self, asked: ReceivedRequest, answer: Answer) -> dict[str, Any]:
        """One completion with one choice."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
        if answer.tool_calls:
            message["tool_calls"] = [_call(call, asked, index) for index, call in enumerate(answer.tool_calls)]
        if answer.thinking is not None:
            message["reasoning_content"] = answer.thinking
        choice = {"index": 0, "message": message, "finish_reason": answer.stop({}), "logprobs": None}
        if asked.body.get("logprobs"):
            choice["logprobs"] = _logprobs(answer, int(asked.body.get("top_logprobs") or 0))
        return {**_head(asked, answer, "chat.completion"), "choices": [choice], "usage": _usage(asked, answer)}

    def pieces(self, asked: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """One event for each delta, usage on request, and the end mark."""
        head = _head(asked, answer, "chat.completion.chunk")
        for delta in _deltas(asked, answer):
            yield event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        yield event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": answer.stop({})}]})
        if (asked.body.get("stream_options") or {}).get("include_usage"):
            yield event({**head, "choices": [], "usage": _usage(asked, answer)})
        yield b"data: [DONE]\n\n"


def _check(messages: list[Any]) -> None:
    """The order that OpenAI insists on: every tool call is followed by its result, every result follows its call."""
    waiting: set[str] = set()
    for message in (*messages, {"role": "user"}):
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


def _head(asked: ReceivedRequest, answer: Answer, kind: str) -> dict[str, Any]:
    model = answer.model or asked.model
    return {"id": f"chatcmpl-{asked.number}", "object": kind, "created": int(time.time()), "model": model}


def _call(call: ToolCall, asked: ReceivedRequest, index: int) -> dict[str, Any]:
    function = {"name": call.tool, "arguments": arguments_of(call)}
    return {"id": asked.id_of(call, index), "type": "function", "function": function}


def _deltas(asked: ReceivedRequest, answer: Answer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if answer.text is None else ""}
    for piece in pieces_of(answer.thinking):
        yield {"reasoning_content": piece}
    if answer.refusal is not None:
        yield {"refusal": answer.refusal}
    for piece in pieces_of(answer.text):
        yield {"content": piece}
    for index, call in enumerate(answer.tool_calls):
        wire = _call(call, asked, index)
        yield {"tool_calls": [{"index": index, **wire, "function": {"name": call.tool, "arguments": ""}}]}
        for piece in halves_of(wire["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _logprobs(answer: Answer, alternatives: int) -> dict[str, Any]:
    """Every word as likely as the others."""
    tokens = [{"token": piece, "logprob": -0.5, "bytes": list(piece.encode())} for piece in pieces_of(answer.text)]
    return {"content": [{**token, "top_logprobs": [token][:alternatives]} for token in tokens], "refusal": None}


def _usage(asked: ReceivedRequest, answer: Answer) -> dict[str, Any]:
    if answer.wrong_usage:
        return {"prompt_tokens": "many", "completion_tokens": -1, "total_tokens": None}
    tokens = answer.tokens(asked)
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached or 0},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning or 0},
    }


class Embeddings(OpenAIFormat):
    """`…/embeddings`, under any address. No script is used: the vectors follow from the words."""

    def serves(self, path: str) -> bool:
        """Whether the path is that of embeddings."""
        return path.endswith("/embeddings")

    def read(self, asked: ReceivedRequest) -> ReceivedRequest:
        """The texts, joined by newlines; refuse what OpenAI would refuse."""
        body = asked.json()
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise NotUnderstood("'input' must be a text or a list of texts, none of them empty")
        return asked.understood({**body, "input": texts}, [("user", "\n".join(texts))], stream=False)

    def whole(self, asked: ReceivedRequest, answer: Answer) -> dict[str, Any]:  # noqa: ARG002
        """A vector for each text, in their order."""
        data = [
            {"object": "embedding", "index": index, "embedding": vector_of(text)}
            for index, text in enumerate(asked.body["input"])
        ]
        usage = {"prompt_tokens": asked.words, "total_tokens": asked.words}
        return {"object": "list", "data": data, "model": asked.model, "usage": usage}

    def pieces(self, asked: ReceivedRequest, answer: Answer) -> Iterable[bytes]:  # noqa: ARG002
        """Embeddings are not streamed."""
        raise NotUnderstood("Embeddings cannot be streamed")


def vector_of(text: str) -> list[float]:
    """How often each word occurs; words are told apart by a checksum."""
    vector = [0.0] * DIMENSIONS
    for word in text.lower().split():
        vector[crc32(word.strip(".,;:!?").encode()) % DIMENSIONS] += 1.0
    return vector
