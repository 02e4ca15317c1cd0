"""Gemini's generateContent as the model server speaks it, plain and streaming, and its counting of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, unquote

from agentv_testing.wire import Answer, NotUnderstood, ReceivedRequest, arguments_value, event, pieces_of, text_of

_PATH = re.compile(r"/models/(?P<model>[^/]+):(?P<verb>generateContent|streamGenerateContent|countTokens)$")
_STOP_REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GeminiContent:
    """`…/models/MODEL:generateContent` and its neighbours, under any address, Vertex's too."""

    def serves(self, path: str) -> bool:
        """Whether the path asks a model to generate or to count."""
        return _PATH.search(unquote(path)) is not None

    def read(self, asked: ReceivedRequest) -> ReceivedRequest:
        """Last question of the user, answers since, model; refuses what Gemini would refuse."""
        found = _PATH.search(unquote(asked.path))
        assert found is not None
        body = asked.json()
        # Some clients put what is to be counted into the request that it would be.
        asking_for = body.get("generateContentRequest", body)
        contents = asking_for.get("contents")
        if not isinstance(contents, list) or not contents:
            raise NotUnderstood("* GenerateContentRequest.contents: contents is not specified")
        _check(contents)
        system = asking_for.get("systemInstruction") or asking_for.get("system_instruction") or {}
        turns = [
            ("system", text_of(system.get("parts"))),
            *((_role(each), text_of(each["parts"])) for each in contents),
        ]
        # Without `alt=sse`, what would be streamed is one array.
        streams = found["verb"] == "streamGenerateContent" and "sse" in parse_qs(asked.query).get("alt", ())
        read = asked.understood(body, turns, model=found["model"], stream=streams)
        return replace(read, reply={"totalTokens": read.words}) if found["verb"] == "countTokens" else read

    def whole(self, asked: ReceivedRequest, answer: Answer) -> Any:
        """One candidate; for a stream that is none, in an array."""
        made = {**_candidate(list(_parts(answer)), answer), **_tail(asked, answer)}
        return [made] if asked.path.endswith("streamGenerateContent") else made

    def pieces(self, asked: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """A chunk for each piece; the last has the reason of the end."""
        chunks = [
            {**part, **piece}
            for part in _parts(answer)
            for piece in ([{"text": text} for text in pieces_of(part["text"])] if "text" in part else [{}])
        ]
        for chunk in chunks[:-1]:
            yield event({**_candidate([chunk], None), **_tail(asked, answer)})
        yield event({**_candidate(chunks[-1:], answer), **_tail(asked, answer)})

    def error(self, status: int, message: str) -> dict[str, Any]:
        """An error in Google's form."""
        return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}}


def _check(contents: list[Any]) -> None:
    """The order that Gemini insists on: as many function responses as there were calls right before them."""
    calls = 0
    for content in contents:
        parts = content.get("parts") if isinstance(content, dict) else None
        if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
            raise NotUnderstood("* GenerateContentRequest.contents.parts: contents.parts must not be empty")
        if content.get("role", "user") not in ("user", "model", "function"):
            raise NotUnderstood("Please use a valid role: user, model")
        responses = sum("functionResponse" in part for part in parts)
        if calls != responses:
            raise NotUnderstood(
                "Please ensure that the number of function response parts is equal to the number of function call "
                f"parts of the function call turn: {responses} responses, {calls} calls"
            )
        calls = sum("functionCall" in part for part in parts)
    if calls:
        raise NotUnderstood("Please ensure that function call turn is followed by a function response turn")


def _role(content: dict[str, Any]) -> str:
    """The role of a content; responses of functions come as the user's."""
    if any("functionResponse" in part for part in content["parts"]):
        return "tool"
    return "assistant" if content.get("role") == "model" else str(content.get("role", "user"))


def _parts(answer: Answer) -> Iterator[dict[str, Any]]:
    if answer.thinking is not None:
        yield {"text": answer.thinking, "thought": True}
    if answer.refusal is None and answer.text:
        yield {"text": answer.text}
    for call in answer.tool_calls:
        made = {"name": call.tool, "args": arguments_value(call)}
        yield {"functionCall": {**made, **({"id": call.id} if call.id else {})}}


def _candidate(parts: list[dict[str, Any]], answer: Answer | None) -> dict[str, Any]:
    """A candidate; with an answer, one that says why it ends."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if answer is not None:
        refused = answer.refusal is not None
        candidate["finishReason"] = "SAFETY" if refused else answer.stop(_STOP_REASONS)
        if refused:
            candidate["finishMessage"] = answer.refusal
    return {"candidates": [candidate]}


def _tail(asked: ReceivedRequest, answer: Answer) -> dict[str, Any]:
    return {
        "usageMetadata": _usage(asked, answer),
        "modelVersion": answer.model or asked.model,
        "responseId": f"gemini-{asked.number}",
    }


def _usage(asked: ReceivedRequest, answer: Answer) -> dict[str, Any]:
    if answer.wrong_usage:
        return {"promptTokenCount": -1, "candidatesTokenCount": -1, "totalTokenCount": -2}
    tokens = answer.tokens(asked)
    thought = tokens.reasoning or 0
    counts = {
        "promptTokenCount": tokens.input,
        # Gemini counts thoughts apart from the answer.
        "candidatesTokenCount": tokens.output - thought,
        "totalTokenCount": tokens.input + tokens.output,
        "cachedContentTokenCount": tokens.cached or 0,
        "thoughtsTokenCount": thought,
    }
    return {name: count for name, count in counts.items() if count}
