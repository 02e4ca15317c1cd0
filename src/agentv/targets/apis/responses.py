"""OpenAI's responses on the wire: messages and settings to a request, an answer to a response. Makes no call."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import Request, Response, content_text
from agentv.targets.apis.api_messages import AnswerFormat, Media, answer_format, folded, function_of, read_arguments
from agentv.targets.apis.chat_completions import arguments_text
from agentv.targets.apis.model_api import (
    AnswerError,
    UsageFields,
    WireApi,
    content_with,
    decoded,
    given_only,
    merged,
    read_usage,
    spoken,
)
from agentv.targets.target import ModelApi

_STOP_REASONS = {"max_output_tokens": "length"}
_OURS_TO_MAKE = frozenset({"function_call", "custom_tool_call"})
"""The calls that wait for a result; OpenAI makes those of its own tools itself."""


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    logprobs: Any = None


class _Item(msgspec.Struct, gc=False):
    """One item of the output: a message, or a call. What stands in others (reasoning) is of no concern here."""

    type: str
    content: list[_Part] | None = None
    phase: str | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    input: Any = None
    action: Any = None
    code: str | None = None
    queries: Any = None
    output: Any = None
    outputs: Any = None
    results: Any = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Answer(msgspec.Struct, gc=False):
    output: list[_Item] | None = None
    status: str | None = None
    id: str | None = None
    model: str | None = None
    usage: Any = None
    incomplete_details: _Incomplete | None = None
    error: Any = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_USAGE = UsageFields(
    ("input_tokens",),
    ("output_tokens",),
    "input_tokens_details.cached_tokens",
    "output_tokens_details.reasoning_tokens",
)


def responses_wire(settings: ModelApi, logprobs: bool | int | None = None) -> WireApi:
    """Responses as a target asks for them."""
    declared = answer_format(settings.response_format)
    constant = given_only(
        {
            "model": settings.model,
            "instructions": settings.system_prompt,
            "temperature": settings.temperature,
            "max_output_tokens": settings.max_output_tokens,
            "tools": [_tool(tool) for tool in settings.tools] or None,
            "text": None if declared is None else {"format": _format(declared)},
            "reasoning": {"effort": settings.reasoning} if isinstance(settings.reasoning, str) else settings.reasoning,
            # Answers are kept by the run, and not by OpenAI.
            "store": False,
            **_logprobs(logprobs),
        }
    )

    def body(request: Request) -> dict[str, Any]:
        return merged({**constant, "input": wire_items(request.messages)}, settings.extra_body)

    return WireApi(body, read_answer)


def wire_items(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """The conversation as items. Every tool call has an id and exactly one output behind it."""
    items: list[dict[str, Any]] = []
    for message in folded(messages):
        content = _content(message)
        if content or not message.tool_calls:
            items.append({"role": message.role, "content": content})
        items += [
            {"type": "function_call", "call_id": call.id, "name": call.tool, "arguments": arguments_text(call)}
            for call in message.tool_calls
        ]
        for call in message.tool_calls:
            output = content_text(call.output)
            items.append({"type": "function_call_output", "call_id": call.id, "output": output})
    return items


def read_answer(body: bytes, _: Request) -> Response:
    """The response in an answer's body. Raises AnswerError for anything that is no answer."""
    answer = decoded(_decode_answer, body, "The answer is no response")
    if answer.output is None or answer.status not in (None, "completed", "incomplete"):
        raise AnswerError(f"The answer is no response that has ended (status {answer.status})")
    parts = [part for item in answer.output if item.type == "message" for part in item.content or ()]
    refusal = next((part.refusal for part in parts if part.refusal), None)
    if refusal is not None:
        raise AnswerError(f"The model refused: {refusal}", refused=True)
    logprobs = [entry for part in parts for entry in part.logprobs or ()]
    return Response(
        messages=_messages(answer.output),
        usage=read_usage(answer.usage, _USAGE),
        id=answer.id,
        model=answer.model,
        stop_reason=_stop_reason(answer),
        logprobs={"content": logprobs} if logprobs else None,
    )


def _messages(output: list[_Item]) -> tuple[Message, ...]:
    """The answer, with every call; before it what the model said on the way, where it tells the two apart."""
    messages = [item for item in output if item.type == "message"]
    last = [item for item in messages if item.phase != "commentary"] or messages
    on_the_way = [Message("assistant", _text(item)) for item in messages if item not in last]
    calls = tuple(_tool_call(item) for item in output if item.type.endswith("_call"))
    return *on_the_way, spoken("".join(map(_text, last)), calls)


def _text(item: _Item) -> str:
    return "".join(part.text or "" for part in item.content or ())


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool in the API's form: like that of chat completions, without the box around the function."""
    function = function_of(tool)
    if function is None:
        return tool
    made = {"type": "function", **given_only(msgspec.structs.asdict(function))}
    # Without a word about it, this API would take a schema for strict.
    return {**made, "strict": bool(function.strict)}


def _format(value: AnswerFormat | dict[str, Any]) -> dict[str, Any]:
    if not isinstance(value, AnswerFormat):
        return value
    if value.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", **given_only(msgspec.structs.asdict(value))}


def _logprobs(value: bool | int | None) -> dict[str, Any]:
    if value is None or value is False:
        return {}
    others = {} if value is True else {"top_logprobs": value}
    return {"include": ["message.output_text.logprobs"], **others}


def _content(message: Message) -> str | list[dict[str, Any]]:
    # What the assistant said is called output even where it goes in.
    kind = "output_text" if message.role == "assistant" else "input_text"
    return content_with(message, lambda text: {"type": kind, "text": text}, _media)


def _media(media: Media) -> dict[str, Any]:
    if media.is_image:
        return {"type": "input_image", "image_url": media.address, "detail": "auto"}
    if media.data is None:
        return {"type": "input_file", "file_url": media.address}
    return {"type": "input_file", "filename": media.file_name, "file_data": media.address}


def _tool_call(item: _Item) -> ToolCall:
    """A call of ours to make, or one of OpenAI's own tools, which it has made already."""
    tool = item.name or item.type.removesuffix("_call")
    if item.arguments is not None:
        given = read_arguments(item.arguments)
    elif item.input is not None or item.action is not None:
        given = item.action if item.input is None else item.input
    else:
        given = given_only({"code": item.code, "queries": item.queries}) or None
    outputs = (item.output, item.outputs, item.results)
    output = next((value for value in outputs if value is not None), None)
    return ToolCall(tool, given, output, item.call_id or item.id)


def _stop_reason(answer: _Answer) -> str:
    if answer.status != "incomplete":
        waits = any(item.type in _OURS_TO_MAKE for item in answer.output or ())
        return "tool_calls" if waits else "stop"
    reason = answer.incomplete_details.reason if answer.incomplete_details else None
    if reason == "content_filter":
        raise AnswerError("A content filter stopped the answer", refused=True)
    return _STOP_REASONS.get(reason or "", reason or "incomplete")
