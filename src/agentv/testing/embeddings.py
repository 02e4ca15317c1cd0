"""OpenAI's embeddings as the model server speaks them: texts that share words point the same way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from zlib import crc32

from agentv.testing.chat import ChatCompletions
from agentv.testing.parts import words_in
from agentv.testing.script import Answer
from agentv.testing.wire import Asked, NotUnderstood, json_object

DIMENSIONS = 64


class Embeddings:
    """`…/embeddings`, under whatever address. No script is asked: the vectors follow from the words."""

    def serves(self, path: str) -> bool:
        """Whether the path is that of embeddings."""
        return path.endswith("/embeddings")

    def read(self, asked: Asked) -> Asked:
        """The texts, joined by lines; refuses what OpenAI would refuse."""
        body = json_object(asked.raw)
        texts = _texts(body)
        model = str(body.get("model", ""))
        return replace(asked, body=body, prompt="\n".join(texts), model=model, words=words_in(texts))

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:  # noqa: ARG002
        """A vector for each text, in their order."""
        data = [
            {"object": "embedding", "index": index, "embedding": vector_of(text)}
            for index, text in enumerate(_texts(asked.body))
        ]
        usage = {"prompt_tokens": asked.words, "total_tokens": asked.words}
        return {"object": "list", "data": data, "model": asked.model, "usage": usage}

    def pieces(self, asked: Asked, answer: Answer) -> Iterable[bytes]:  # noqa: ARG002
        """Embeddings are not streamed."""
        raise NotUnderstood("Embeddings cannot be streamed")

    def error(self, status: int, message: str) -> dict[str, Any]:
        """As the chat completions put it."""
        return ChatCompletions().error(status, message)


def vector_of(text: str) -> list[float]:
    """How often each word occurs, words being told apart by a checksum."""
    vector = [0.0] * DIMENSIONS
    for word in text.lower().split():
        vector[crc32(word.strip(".,;:!?").encode()) % DIMENSIONS] += 1.0
    return vector


def _texts(body: dict[str, Any]) -> list[str]:
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise NotUnderstood("'input' must be a text or a list of texts, none of them empty")
    return texts
