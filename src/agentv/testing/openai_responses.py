"""OpenAI's responses as the model server speaks them, plain and streaming."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any
from zlib import crc32

from agentv.testing.chat import (
    ChatCompletions,
    arguments_of,
    event,
    halves_of,
    id_of,
    last_asked,
    pieces_of,
    text_of,
    tokens_of,
    words_in,
)
from agentv.testing.wire import Answer, Asked, NotUnderstood, json_object

_CUT_OFF = {"length": "max_output_tokens", "content_filter": "content_filter"}
_DEFAULTS: dict[str, Any] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""What a response repeats of its request, and what it says where the request is silent."""


class Responses:
    """`…/responses`, under whatever address. Every request must bring its whole conversation: nothing is stored."""

    def serves(self, path: str) -> bool:
        """Whether the path is that of responses."""
        return path.endswith("/responses")

    def read(self, asked: Asked) -> Asked:
        """Last message of the user, answers since, model; refuses what OpenAI would refuse."""
        body = json_object(asked.raw)
        items = body.get("input")
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
            raise NotUnderstood("'input' must be a text or a list with at least one item")
        _check(items)
        texts = [text_of(item.get("content")) for item in items]
        prompt, since = last_asked(texts, [item.get("role") == "user" for item in items])
        return replace(
            asked,
            body=body,
            prompt=prompt,
            turn=_turns(items[since:]),
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            words=words_in([text_of(body.get("instructions")), *texts]),
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Any]:
        """One response."""
        cut_off = _CUT_OFF.get(answer.stop_reason or "")
        made = _head(asked, answer, "incomplete" if cut_off else "completed")
        made["output"] = [item for _, item in _items(asked, answer)]
        made["incomplete_details"] = {"reason": cut_off} if cut_off else None
        made["usage"] = _usage(asked, answer)
        return made

    def pieces(self, asked: Asked, answer: Answer) -> Iterable[bytes]:
        """The events of a stream, numbered: the response, each item with its parts from start to end, the response."""
        numbers = count()
        for name, data in self._events(asked, answer):
            yield event({"type": name, "sequence_number": next(numbers), **data}, name)

    def _events(self, asked: Asked, answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
        started = {**_head(asked, answer, "in_progress"), "output": [], "usage": None}
        yield "response.created", {"response": started}
        yield "response.in_progress", {"response": started}
        for index, item in _items(asked, answer):
            place = {"item_id": item["id"], "output_index": index}
            yield "response.output_item.added", {"output_index": index, "item": _empty(item)}
            for name, data in _item_events(item):
                yield name, {**place, **data}
            yield "response.output_item.done", {"output_index": index, "item": item}
        ended = self.whole(asked, answer)
        yield f"response.{ended['status']}", {"response": ended}

    def error(self, status: int, message: str) -> dict[str, Any]:
        """An error in OpenAI's form."""
        return ChatCompletions().error(status, message)


def _check(items: list[dict[str, Any]]) -> None:
    """The order that OpenAI insists on: every output follows its call, and no call stays without one."""
    called: set[str] = set()
    for item in items:
        kind, id = str(item.get("type", "message")), str(item.get("call_id"))
        if kind.endswith("_call_output"):
            if id not in called:
                raise NotUnderstood(f"No tool call found for function call output with call_id {id}.")
            called.remove(id)
        elif kind in ("function_call", "custom_tool_call"):
            called.add(id)
    if called:
        raise NotUnderstood(f"No tool output found for function call {', '.join(sorted(called))}.")


def _turns(items: list[dict[str, Any]]) -> int:
    """Answers among the items since the question: each is a run of items that the model made."""
    turns, answering = 0, False
    for item in items:
        made = not str(item.get("type", "message")).endswith("_output") and item.get("role", "assistant") == "assistant"
        turns += made and not answering
        answering = made
    return turns


def _head(asked: Asked, answer: Answer, status: str) -> dict[str, Any]:
    repeated = {name: asked.body.get(name, default) for name, default in _DEFAULTS.items()}
    return {
        "id": f"resp_{asked.number}",
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": answer.model or asked.model,
        **repeated,
    }


def _items(asked: Asked, answer: Answer) -> Iterator[tuple[int, dict[str, Any]]]:
    return enumerate(_output(asked, answer))


def _output(asked: Asked, answer: Answer) -> Iterator[dict[str, Any]]:
    number = asked.number
    if answer.thinking is not None:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        yield {"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": None}
    part: dict[str, Any] | None = None
    if answer.refusal is not None:
        part = {"type": "refusal", "refusal": answer.refusal}
    elif answer.text is not None:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
    if part is not None:
        yield {
            "id": f"msg_{number}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [part],
        }
    free_form = {tool.get("name") for tool in asked.body.get("tools") or () if tool.get("type") == "custom"}
    for index, call in enumerate(answer.tool_calls):
        custom = call.tool in free_form
        yield {
            "id": f"{'ctc' if custom else 'fc'}_{number}_{index}",
            "type": "custom_tool_call" if custom else "function_call",
            "status": "completed",
            "call_id": id_of(call, asked, index),
            "name": call.tool,
            "input" if custom else "arguments": arguments_of(call),
        }


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    """An item as it starts: what it holds comes after it."""
    nothing: dict[str, dict[str, Any]] = {"reasoning": {"summary": []}, "message": {"content": []}}
    field = {"function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
    started = {**item, **nothing.get(item["type"], {}), **({field: ""} if field else {})}
    return {**started, "status": "in_progress"} if "status" in item else started


def _item_events(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if item["type"] == "reasoning":
        yield from _summary_events(item["summary"][0])
    elif item["type"] == "message":
        yield from _part_events(item["content"][0])
    else:
        field = "arguments" if item["type"] == "function_call" else "input"
        name = "function_call_arguments" if field == "arguments" else "custom_tool_call_input"
        for piece in halves_of(item[field]):
            yield f"response.{name}.delta", {"delta": piece}
        yield f"response.{name}.done", {field: item[field], "name": item["name"]}


def _summary_events(part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    place = {"summary_index": 0}
    yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
    for piece in pieces_of(part["text"]):
        yield "response.reasoning_summary_text.delta", {**place, "delta": piece}
    yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
    yield "response.reasoning_summary_part.done", {**place, "part": part}


def _part_events(part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    place = {"content_index": 0}
    field = "refusal" if part["type"] == "refusal" else "text"
    more: dict[str, Any] = {"logprobs": []} if field == "text" else {}
    yield "response.content_part.added", {**place, "part": {**part, field: ""}}
    for piece in pieces_of(part[field]):
        yield f"response.{part['type']}.delta", {**place, "delta": piece, **more}
    yield f"response.{part['type']}.done", {**place, field: part[field], **more}
    yield "response.content_part.done", {**place, "part": part}


def _usage(asked: Asked, answer: Answer) -> dict[str, Any]:
    if answer.wrong_usage:
        return {"input_tokens": "many", "output_tokens": -1, "total_tokens": None}
    tokens = tokens_of(asked, answer)
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


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
