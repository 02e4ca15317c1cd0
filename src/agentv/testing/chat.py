"""OpenAI's chat completions as the model server speaks them, plain and streaming."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from agentv.model.message import ToolCall
from agentv.testing.wire import Answer, Asked, NotUnderstood, json_object


class Tokens(NamedTuple):
    """Token counts of an answer. `input` holds `cached` and `cache_write`, `output` holds `reasoning`."""

    input: int
    output: int
    cached: int
    cache_write: int
    reasoning: int


def tokens_of(asked: Asked, answer: Answer) -> Tokens:
    """The counts that the script gives; without any, words are counted."""
    given = answer.usage
    if given is not None:
        return Tokens(given.input, given.output, given.cached or 0, given.cache_write or 0, given.reasoning or 0)
    thought = len((answer.thinking or "").split())
    return Tokens(asked.words, len((answer.text or "").split()) + thought, 0, 0, thought)


def text_of(content: Any) -> str:
    """The text of a content that is a string or a list of parts; other parts are passed over."""
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


def last_asked(texts: Sequence[str], are_questions: Sequence[bool]) -> tuple[str, int]:
    """The last text of a conversation that is a question of the user's own, and where what came after it begins."""
    last = max((index for index, is_question in enumerate(are_questions) if is_question), default=-1)
    return texts[last] if last >= 0 else "", last + 1


def words_in(texts: Iterable[str]) -> int:
    """The words of texts, which are counted as tokens."""
    return sum(len(text.split()) for text in texts)


def pieces_of(text: str) -> list[str]:
    """A text cut after its spaces: nothing is lost when the pieces are put together."""
    words = text.split(" ")
    return [f"{word} " for word in words[:-1]] + words[-1:] if text else []


def halves_of(text: str) -> tuple[str, str]:
    """A text in two pieces."""
    return text[: len(text) // 2], text[len(text) // 2 :]


def arguments_of(call: ToolCall) -> str:
    """The arguments of a call as JSON; a text is taken for JSON, or for whatever the script wants it to be."""
    return call.input if isinstance(call.input, str) else msgspec.json.encode(call.input or {}).decode()


def id_of(call: ToolCall, asked: Asked, index: int, prefix: str = "call") -> str:
    """The id that the script gives a call, else one that no other call of the server has."""
    return call.id or f"{prefix}_{asked.number}_{index}"


def stop_reason_of(answer: Answer, names: Mapping[str, str]) -> str:
    """Why the answer ends: OpenAI's words (`stop`, `tool_calls`, `length`, `content_filter`) in those of a format.

    A word that has no counterpart goes out as it is.
    """
    reason = answer.stop_reason or ("tool_calls" if answer.tool_calls else "stop")
    return names.get(reason, reason)


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """A server-sent event."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


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
