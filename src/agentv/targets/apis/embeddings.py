"""Embeddings: vectors of texts. Who makes them is asked like any target: texts as messages in, vectors as data out."""

from __future__ import annotations

import asyncio
import os
from importlib import import_module
from typing import Any

import msgspec

from agentv.errors import UsageError
from agentv.model.message import Message
from agentv.model.response import Request, Responder, Response, TargetFailure, content_text
from agentv.model.result import TokenUsage
from agentv.targets.apis.model_api import AnswerError, WireApi, decoded
from agentv.targets.target import Target, without


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


INSTALL = "pip install 'agentv[embeddings]'"


class SentenceTransformers(Target, frozen=True, kw_only=True):
    """A model on this machine that makes embeddings, for `similarity`. `model` is a folder, or a name to download."""

    model: str
    device: str | None = None

    def complaints(self) -> list[str]:
        """A blank model."""
        return without(self, "model")

    def open(self, home: str) -> Responder:  # noqa: ARG002
        """It answers no questions."""
        raise UsageError(
            f"Target '{self.name}': provider '{self.provider}' makes embeddings and answers nothing",
            hint="Name it in `target` of a `similarity` evaluator with `method: embedding`",
        )

    def open_embeddings(self, home: str) -> Responder:
        """Loads the model, which takes seconds."""
        try:
            package = import_module("sentence_transformers")  # late: it takes seconds, and few runs need it
        except ImportError:
            raise UsageError(f"Target '{self.name}' needs a package that is not installed", hint=INSTALL) from None
        folder = os.path.join(home, os.path.expanduser(self.model))
        try:
            model = package.SentenceTransformer(folder if os.path.isdir(folder) else self.model, device=self.device)
        except Exception as error:
            raise UsageError(f"Target '{self.name}': the model '{self.model}' cannot be loaded", str(error)) from None
        return _LocalModel(model, f"sentence-transformers:{self.model}")


class _LocalModel:
    """A loaded model. One call at a time: it uses all cores by itself."""

    def __init__(self, model: Any, endpoint: str) -> None:
        self.endpoint = endpoint
        self._model = model
        self._turn = asyncio.Lock()

    async def respond(self, request: Request) -> Response:
        """Vectors of the texts, made in a thread."""
        async with self._turn:
            try:
                made = await asyncio.to_thread(self._model.encode, texts_in(request), show_progress_bar=False)
            except Exception as error:
                raise TargetFailure("process", f"The model failed: {type(error).__name__}: {error}") from error
        return vectors_as_answer([[float(number) for number in vector] for vector in made])

    async def aclose(self) -> None:
        """Nothing is open."""
