"""OpenAI's Chat Completions API for the model server, with and without streaming, and its embeddings."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
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
    """The paths and errors of all OpenAI APIs. Paths that end with `suffix` are served, with any prefix."""

    suffix = ""

    def serves(self, path: str) -> bool:
        """Return whether the path is that of this API."""
        return path.endswith(self.suffix)

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return an error in OpenAI's format."""
        return {"error": {"message": message, "type": _TYPES.get(status, "server_error"), "param": None, "code": None}}


class ChatCompletions(OpenAIFormat):
    """`…/chat/completions`.

    Response formats that are not in `accepts` are rejected with the status `rejects_with`, as llama.cpp and gateways
    do: `FaultyServer(formats=[ChatCompletions(accepts=["json_object"], rejects_with=500)])`. With `names_format` unset,
    the rejection does not say why.
    """

    suffix = "/chat/completions"

    def __init__(
        self,
        accepts: Sequence[str] = ("json_object", "json_schema"),
        *,
        rejects_with: int = 400,
        names_format: bool = True,
    ) -> None:
        self._accepts = ("text", *accepts)
        self._rejects_with = rejects_with
        self._names_format = names_format

    def read(self, received: ReceivedRequest) -> ReceivedRequest:
        """Read the conversation; reject what OpenAI would reject."""
        body = received.json()
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise NotUnderstood("'messages' must be a list with at least one message")
        _check(messages)
        self._check_format(body.get("response_format"))
        return received.understood(body, [(each["role"], text_of(each.get("content"))) for each in messages])

    def _check_format(self, declared: Any) -> None:
        kind = declared.get("type") if isinstance(declared, dict) else "text"
        if kind not in self._accepts:
            known = " or ".join(f'"{name}"' for name in self._accepts)
            why = f"response_format type must be one of {known}, but got: {kind}"
            raise NotUnderstood(why if self._names_format else "Internal Server Error", self._rejects_with)

    def whole(self, received: ReceivedRequest, answer: Answer) -> dict[str, Any]:
        """Return a completion with one choice."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
        if answer.tool_calls:
            message["tool_calls"] = [_call(call, received, index) for index, call in enumerate(answer.tool_calls)]
        if answer.thinking is not None:
            message["reasoning_content"] = answer.thinking
        choice = {"index": 0, "message": message, "finish_reason": answer.stop({}), "logprobs": None}
        if received.body.get("logprobs"):
            choice["logprobs"] = _logprobs(answer, int(received.body.get("top_logprobs") or 0))
        return {**_head(received, answer, "chat.completion"), "choices": [choice], "usage": _usage(received, answer)}

    def pieces(self, received: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """Return an event for each delta, the usage if requested, and the end mark."""
        head = _head(received, answer, "chat.completion.chunk")
        for delta in _deltas(received, answer):
            yield event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        yield event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": answer.stop({})}]})
        if (received.body.get("stream_options") or {}).get("include_usage"):
            yield event({**head, "choices": [], "usage": _usage(received, answer)})
        yield b"data: [DONE]\n\n"


def _check(messages: list[Any]) -> None:
    """Check that every tool call is followed by its result and every result follows its call, as OpenAI requires."""
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


def _head(received: ReceivedRequest, answer: Answer, kind: str) -> dict[str, Any]:
    model = answer.model or received.model
    return {"id": f"chatcmpl-{received.number}", "object": kind, "created": int(time.time()), "model": model}


def _call(call: ToolCall, received: ReceivedRequest, index: int) -> dict[str, Any]:
    function = {"name": call.tool, "arguments": arguments_of(call)}
    return {"id": received.id_of(call, index), "type": "function", "function": function}


def _deltas(received: ReceivedRequest, answer: Answer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if answer.text is None else ""}
    for piece in pieces_of(answer.thinking):
        yield {"reasoning_content": piece}
    if answer.refusal is not None:
        yield {"refusal": answer.refusal}
    for piece in pieces_of(answer.text):
        yield {"content": piece}
    for index, call in enumerate(answer.tool_calls):
        wire = _call(call, received, index)
        yield {"tool_calls": [{"index": index, **wire, "function": {"name": call.tool, "arguments": ""}}]}
        for piece in halves_of(wire["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _logprobs(answer: Answer, alternatives: int) -> dict[str, Any]:
    """Return the same log probability for every word."""
    tokens = [{"token": piece, "logprob": -0.5, "bytes": list(piece.encode())} for piece in pieces_of(answer.text)]
    return {"content": [{**token, "top_logprobs": [token][:alternatives]} for token in tokens], "refusal": None}


def _usage(received: ReceivedRequest, answer: Answer) -> dict[str, Any]:
    if answer.wrong_usage:
        return {"prompt_tokens": "many", "completion_tokens": -1, "total_tokens": None}
    tokens = answer.tokens(received)
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached or 0},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning or 0},
    }


class Embeddings(OpenAIFormat):
    """`…/embeddings`. Vectors are computed from the words, without a script."""

    suffix = "/embeddings"

    def read(self, received: ReceivedRequest) -> ReceivedRequest:
        """Read the texts, joined by newlines; reject what OpenAI would reject."""
        body = received.json()
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise NotUnderstood("'input' must be a text or a list of texts, none of them empty")
        return received.understood({**body, "input": texts}, [("user", "\n".join(texts))], stream=False)

    def whole(self, received: ReceivedRequest, answer: Answer) -> dict[str, Any]:  # noqa: ARG002
        """Return a vector for each text, in order."""
        data = [
            {"object": "embedding", "index": index, "embedding": vector_of(text)}
            for index, text in enumerate(received.body["input"])
        ]
        usage = {"prompt_tokens": received.words, "total_tokens": received.words}
        return {"object": "list", "data": data, "model": received.model, "usage": usage}

    def pieces(self, received: ReceivedRequest, answer: Answer) -> Iterable[bytes]:  # noqa: ARG002
        """Embeddings are not streamed."""
        raise NotUnderstood("Embeddings cannot be streamed")


def vector_of(text: str) -> list[float]:
    """Return a vector of word counts, with words hashed to dimensions."""
    vector = [0.0] * DIMENSIONS
    for word in text.lower().split():
        vector[crc32(word.strip(".,;:!?").encode()) % DIMENSIONS] += 1.0
    return vector
