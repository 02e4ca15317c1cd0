"""Gemini's generateContent API for the model server, with and without streaming, and its token counting."""

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
    """`…/models/MODEL:generateContent` and related methods, with any prefix, including that of Vertex AI."""

    def serves(self, path: str) -> bool:
        """Return whether the path is that of a model's method."""
        return _PATH.search(unquote(path)) is not None

    def read(self, received: ReceivedRequest) -> ReceivedRequest:
        """Read the conversation; reject what Gemini would reject."""
        found = _PATH.search(unquote(received.path))
        assert found is not None
        body = received.json()
        # Some clients nest the request whose tokens are counted.
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
        # Without `alt=sse`, the stream is one JSON array.
        streams = found["verb"] == "streamGenerateContent" and "sse" in parse_qs(received.query).get("alt", ())
        read = received.understood(body, turns, model=found["model"], stream=streams)
        return replace(read, reply={"totalTokens": read.words}) if found["verb"] == "countTokens" else read

    def whole(self, received: ReceivedRequest, answer: Answer) -> Any:
        """Return one candidate, in an array if a stream without `alt=sse` was requested."""
        made = {**_candidate(list(_parts(answer)), answer), **_tail(received, answer)}
        return [made] if received.path.endswith("streamGenerateContent") else made

    def pieces(self, received: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """Return a chunk for each piece; the last one has the finish reason."""
        chunks = [
            {**part, **piece}
            for part in _parts(answer)
            for piece in ([{"text": text} for text in pieces_of(part["text"])] if "text" in part else [{}])
        ]
        for chunk in chunks[:-1]:
            yield event({**_candidate([chunk], None), **_tail(received, answer)})
        yield event({**_candidate(chunks[-1:], answer), **_tail(received, answer)})

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return an error in Google's format."""
        return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}}


def _check(contents: list[Any]) -> None:
    """Check that function calls are followed by the same number of function responses, as Gemini requires."""
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
    """Return the role of a content; function responses are in user contents."""
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
    """Return a candidate, with the finish reason if an answer is given."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if answer is not None:
        refused = answer.refusal is not None
        candidate["finishReason"] = "SAFETY" if refused else answer.stop(_STOP_REASONS)
        if refused:
            candidate["finishMessage"] = answer.refusal
    return {"candidates": [candidate]}


def _tail(received: ReceivedRequest, answer: Answer) -> dict[str, Any]:
    return {
        "usageMetadata": _usage(received, answer),
        "modelVersion": answer.model or received.model,
        "responseId": f"gemini-{received.number}",
    }


def _usage(received: ReceivedRequest, answer: Answer) -> dict[str, Any]:
    if answer.wrong_usage:
        return {"promptTokenCount": -1, "candidatesTokenCount": -1, "totalTokenCount": -2}
    tokens = answer.tokens(received)
    thought = tokens.reasoning or 0
    counts = {
        "promptTokenCount": tokens.input,
        # Gemini counts thoughts separately.
        "candidatesTokenCount": tokens.output - thought,
        "totalTokenCount": tokens.input + tokens.output,
        "cachedContentTokenCount": tokens.cached or 0,
        "thoughtsTokenCount": thought,
    }
    return {name: count for name, count in counts.items() if count}
