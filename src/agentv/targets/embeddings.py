"""Embeddings: vectors of texts. Who makes them is asked like any target: texts as messages in, vectors as data out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.model.message import Message
from agentv.model.response import Request, Response, TargetFailure, content_text
from agentv.model.result import TokenUsage
from agentv.model.values import to_json

if TYPE_CHECKING:
    from agentv.targets.client import HttpClient


class _Vector(msgspec.Struct, gc=False):
    embedding: list[float]
    index: int = 0


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int = 0
    cost: float | None = None


class _Embeddings(msgspec.Struct, gc=False):
    data: list[_Vector]
    model: str | None = None
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Embeddings).decode


def texts_in(request: Request) -> list[str]:
    """The texts of which vectors are wanted, one a message."""
    return [content_text(message.content) for message in request.messages]


def vectors_as_answer(vectors: list[list[float]], **known: Any) -> Response:
    """Vectors in the order of their texts, as the data of one message."""
    return Response(messages=(Message("assistant", vectors),), **known)


class EmbeddingResponder:
    """An endpoint of OpenAI's embeddings API."""

    def __init__(self, client: HttpClient, url: str, *, endpoint: str, model: str | None) -> None:
        self.endpoint = endpoint
        self._client = client
        self._url = url
        self._model = model

    async def respond(self, request: Request) -> Response:
        """One call for all texts. Raises TargetFailure."""
        body = to_json(self.sends(request))
        start = time.perf_counter()
        reply = await self._client.send("POST", self._url, body, request.timeout_s)
        duration_ms = (time.perf_counter() - start) * 1000
        try:
            read = _decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._client.unreadable(reply, f"The answer holds no embeddings: {error}") from None
        vectors = [item.embedding for item in sorted(read.data, key=lambda item: item.index)]
        if len(vectors) != len(request.messages):
            message = f"The answer holds {len(vectors)} embeddings for {len(request.messages)} texts"
            raise TargetFailure("invalid_response", message, status=reply.status)
        usage = read.usage or _Usage()
        return vectors_as_answer(
            vectors,
            usage=None if read.usage is None else TokenUsage(usage.prompt_tokens, 0),
            cost_usd=usage.cost,
            duration_ms=duration_ms,
            model=read.model,
        )

    def sends(self, request: Request) -> dict[str, Any]:
        """The body of the call."""
        return {"model": self._model, "input": texts_in(request), "encoding_format": "float"}

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()
