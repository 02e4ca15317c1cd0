"""OpenAI's Responses API for the model server, with and without streaming."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from agentv_testing.openai_chat import OpenAIFormat
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

Event = tuple[str, dict[str, Any]]

_CUT_OFF = {"length": "max_output_tokens", "content_filter": "content_filter"}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_DEFAULTS: dict[str, Any] = {
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
}
"""Fields that a response copies from its request, with their defaults."""


class Responses(OpenAIFormat):
    """`…/responses`. Requests must contain the whole conversation, because nothing is stored."""

    suffix = "/responses"

    def read(self, received: ReceivedRequest) -> ReceivedRequest:
        """Read the conversation; reject what OpenAI would reject."""
        body = received.json()
        items = body.get("input")
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
            raise NotUnderstood("'input' must be a text or a list with at least one item")
        _check(items)
        return received.understood(body, [*_turns(items), ("system", text_of(body.get("instructions")))])

    def whole(self, received: ReceivedRequest, answer: Answer) -> dict[str, Any]:
        """Return one response."""
        cut_off = _CUT_OFF.get(answer.stop_reason or "")
        return {
            **_head(received, answer, "incomplete" if cut_off else "completed"),
            "output": list(_output(received, answer)),
            "incomplete_details": {"reason": cut_off} if cut_off else None,
            "usage": _usage(received, answer),
        }

    def pieces(self, received: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """Return numbered events: the response, each item with its parts from start to end, and the response again."""
        numbers = count()
        for name, data in self._events(received, answer):
            yield event({"type": name, "sequence_number": next(numbers), **data}, name)

    def _events(self, received: ReceivedRequest, answer: Answer) -> Iterator[Event]:
        started = {**_head(received, answer, "in_progress"), "output": [], "usage": None}
        yield "response.created", {"response": started}
        yield "response.in_progress", {"response": started}
        for index, item in enumerate(_output(received, answer)):
            yield "response.output_item.added", {"output_index": index, "item": _empty(item)}
            for name, data in _item_events(item):
                yield name, {"item_id": item["id"], "output_index": index, **data}
            yield "response.output_item.done", {"output_index": index, "item": item}
        ended = self.whole(received, answer)
        yield f"response.{ended['status']}", {"response": ended}


def _check(items: list[dict[str, Any]]) -> None:
    """Check that every output follows its call and every call has an output, as OpenAI requires."""
    called: set[str] = set()
    for item in items:
        kind, id = str(item.get("type", "message")), str(item.get("call_id"))
        if kind.endswith("_call_output"):
            if id not in called:
                raise NotUnderstood(f"No tool call found for function call output with call_id {id}.")
            called.remove(id)
        elif kind in _CALLS:
            called.add(id)
    if called:
        raise NotUnderstood(f"No tool output found for function call {', '.join(sorted(called))}.")


def _turns(items: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Return the items with their roles; consecutive items of the model are one answer."""
    answering = False
    for item in items:
        role = "tool" if str(item.get("type", "")).endswith("_output") else item.get("role", "assistant")
        yield "" if role == "assistant" and answering else role, text_of(item.get("content"))
        answering = role == "assistant"


def _head(received: ReceivedRequest, answer: Answer, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{received.number}",
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": answer.model or received.model,
        **{name: received.body.get(name, default) for name, default in _DEFAULTS.items()},
    }


def _output(received: ReceivedRequest, answer: Answer) -> Iterator[dict[str, Any]]:
    number = received.number
    if answer.thinking is not None:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        yield {"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": None}
    part: dict[str, Any] = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
    if answer.refusal is not None:
        part = {"type": "refusal", "refusal": answer.refusal}
    if answer.refusal is not None or answer.text is not None:
        message = {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant"}
        yield {**message, "content": [part]}
    free_form = {tool.get("name") for tool in received.body.get("tools") or () if tool.get("type") == "custom"}
    for index, call in enumerate(answer.tool_calls):
        kind, prefix = ("custom_tool_call", "ctc") if call.tool in free_form else ("function_call", "fc")
        yield {
            "id": f"{prefix}_{number}_{index}",
            "type": kind,
            "status": "completed",
            "call_id": received.id_of(call, index),
            "name": call.tool,
            _CALLS[kind]: arguments_of(call),
        }


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without its content, for its start event."""
    kind = item["type"]
    empty: dict[str, Any] = {"reasoning": {"summary": []}, "message": {"content": []}}.get(kind) or {_CALLS[kind]: ""}
    return {**item, **empty, **({"status": "in_progress"} if "status" in item else {})}


def _item_events(item: dict[str, Any]) -> Iterator[Event]:
    if item["type"] == "reasoning":
        names = "response.reasoning_summary_part", "response.reasoning_summary_text"
        yield from _part_events(names, {"summary_index": 0}, item["summary"][0], {})
    elif item["type"] == "message":
        part = item["content"][0]
        more: dict[str, Any] = {"logprobs": []} if part["type"] == "output_text" else {}
        yield from _part_events(("response.content_part", f"response.{part['type']}"), {"content_index": 0}, part, more)
    else:
        field = _CALLS[item["type"]]
        name = "response.function_call_arguments" if field == "arguments" else "response.custom_tool_call_input"
        for piece in halves_of(item[field]):
            yield f"{name}.delta", {"delta": piece}
        yield f"{name}.done", {field: item[field], "name": item["name"]}


def _part_events(
    names: tuple[str, str], place: dict[str, Any], part: dict[str, Any], more: dict[str, Any]
) -> Iterator[Event]:
    """Return the events of a part, named after the part and its text. `more` is added to each text event."""
    of_part, of_text = names
    field = "refusal" if part["type"] == "refusal" else "text"
    yield f"{of_part}.added", {**place, "part": {**part, field: ""}}
    for piece in pieces_of(part[field]):
        yield f"{of_text}.delta", {**place, "delta": piece, **more}
    yield f"{of_text}.done", {**place, field: part[field], **more}
    yield f"{of_part}.done", {**place, "part": part}


def _usage(received: ReceivedRequest, answer: Answer) -> dict[str, Any]:
    if answer.wrong_usage:
        return {"input_tokens": "many", "output_tokens": -1, "total_tokens": None}
    tokens = answer.tokens(received)
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached or 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning or 0},
        "total_tokens": tokens.input + tokens.output,
    }
