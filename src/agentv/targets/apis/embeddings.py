"""Embeddings: vectors of texts. Who makes them is asked like any target: texts as messages in, vectors as data out."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.model.message import Message
from agentv.model.response import Request, Response, content_text
from agentv.model.result import TokenUsage
from agentv.targets.apis.model_api import AnswerError, WireApi, decoded


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


def embeddings_wire(model: str | None) -> WireApi:
    """OpenAI's embeddings: one call for all texts."""

    def body(request: Request) -> dict[str, Any]:
        return {"model": model, "input": texts_in(request), "encoding_format": "float"}

    return WireApi(body, _read)


def _read(body: bytes, request: Request) -> Response:
    read = decoded(_decode, body, "The answer holds no embeddings")
    vectors = [item.embedding for item in sorted(read.data, key=lambda item: item.index)]
    if len(vectors) != len(request.messages):
        raise AnswerError(f"The answer holds {len(vectors)} embeddings for {len(request.messages)} texts")
    usage = read.usage or _Usage()
    return vectors_as_answer(
        vectors,
        usage=None if read.usage is None else TokenUsage(usage.prompt_tokens, 0),
        cost_usd=usage.cost,
        model=read.model,
    )
