"""OpenAI's chat completions on the wire: messages and settings to a request, an answer to a response. Makes no call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import Request, Response, content_text
from agentv.model.values import to_json
from agentv.targets.apis.api_messages import AnswerFormat, Media, answer_format, folded, function_of, read_arguments
from agentv.targets.apis.model_api import (
    AnswerError,
    UsageFields,
    WireApi,
    amount,
    content_with,
    decoded,
    effort_of,
    given_only,
    merged,
    read_usage,
    spoken,
)
from agentv.targets.target import ModelApi


class _Function(msgspec.Struct, gc=False):
    name: str
    arguments: Any = None


class _Custom(msgspec.Struct, gc=False):
    """A tool that takes any text."""

    name: str
    input: str = ""


class _Call(msgspec.Struct, gc=False):
    id: str | None = None
    function: _Function | None = None
    custom: _Custom | None = None


class _ChatMessage(msgspec.Struct, gc=False):
    content: Any = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _ChatMessage | None = None
    finish_reason: str | None = None
    logprobs: Any = None
    error: Any = None


class _Completion(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    id: str | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None


_decode_completion = msgspec.json.Decoder(_Completion).decode
_DETAILS = "prompt_tokens_details.", "completion_tokens_details."
_USAGE = UsageFields(
    ("prompt_tokens",),
    ("completion_tokens",),
    _DETAILS[0] + "cached_tokens",
    _DETAILS[1] + "reasoning_tokens",
    _DETAILS[0] + "cache_write_tokens",
)
_USAGE_WITHOUT_DETAILS = _USAGE._replace(cached="prompt_cache_hit_tokens")


class Dialect(msgspec.Struct, frozen=True):
    """Where servers that speak this API differ: the names of the limit of tokens and of the seed."""

    output_limit: str = "max_tokens"
    seed: str = "seed"


def chat_wire(settings: ModelApi, dialect: Dialect, logprobs: bool | int | None = None) -> WireApi:
    """Chat completions as a target asks for them."""
    constant = given_only(
        {
            "model": settings.model,
            "temperature": settings.temperature,
            dialect.output_limit: settings.max_output_tokens,
            dialect.seed: settings.seed,
            "tools": [_tool(tool) for tool in settings.tools] or None,
            "response_format": _response_format(answer_format(settings.response_format)),
            **_reasoning(settings.reasoning),
            **_logprobs(logprobs),
        }
    )
    first = (Message("system", settings.system_prompt),) if settings.system_prompt else ()

    def body(request: Request) -> dict[str, Any]:
        return merged({**constant, "messages": wire_messages(first + request.messages)}, settings.extra_body)

    return WireApi(body, read_completion)


def wire_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Chat messages as the API takes them. Every tool call has an id and exactly one result behind it."""
    wire: list[dict[str, Any]] = []
    for message in folded(messages):
        wire.append(_said(message))
        for call in message.tool_calls:
            wire.append({"role": "tool", "tool_call_id": call.id, "content": content_text(call.output)})
    return wire


def read_completion(body: bytes, _: Request) -> Response:
    """The response in an answer's body. Raises AnswerError for anything that is no answer."""
    completion = decoded(_decode_completion, body, "The answer is no chat completion")
    if not completion.choices:
        raise AnswerError("The answer has no choices")
    choice = completion.choices[0]
    if choice.error is not None:
        raise AnswerError("The answer is an error", error=choice.error)
    message = choice.message
    if message is not None and message.refusal:
        raise AnswerError(f"The model refused: {message.refusal}", refused=True)
    if choice.finish_reason == "content_filter":
        raise AnswerError("A content filter stopped the answer", refused=True)
    if message is None:
        raise AnswerError("The answer has no message")
    usage = completion.usage if isinstance(completion.usage, dict) else {}
    cost = usage.get("cost")
    return Response(
        messages=(spoken(_text(message.content), tuple(_tool_calls(message))),),
        usage=read_usage(usage, _USAGE if usage.get("prompt_tokens_details") else _USAGE_WITHOUT_DETAILS),
        # Some gateways report the cost part by part, with the sum.
        cost_usd=amount(cost.get("total_cost") if isinstance(cost, dict) else cost),
        id=completion.id,
        model=completion.model,
        stop_reason=choice.finish_reason,
        logprobs=choice.logprobs,
    )


def _tool_calls(message: _ChatMessage) -> Iterator[ToolCall]:
    # `function_call` is how calls were written before there could be several.
    for call in message.tool_calls or ([_Call(function=message.function_call)] if message.function_call else []):
        if call.custom is not None:
            yield ToolCall(call.custom.name, call.custom.input, id=call.id)
        elif call.function is not None:
            yield ToolCall(call.function.name, read_arguments(call.function.arguments), id=call.id)
        else:
            raise AnswerError("The answer has a tool call without a function")


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool in the API's form; one in another form that is a function is put into it."""
    function = function_of(tool)
    if function is None or "function" in tool:
        return tool
    return {"type": "function", "function": given_only(msgspec.structs.asdict(function))}


def _response_format(value: AnswerFormat | dict[str, Any] | None) -> dict[str, Any] | None:
    if not isinstance(value, AnswerFormat):
        return value
    if value.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": given_only(msgspec.structs.asdict(value))}


def _reasoning(value: dict[str, Any] | str | None) -> dict[str, Any]:
    """An effort under OpenAI's name; an object with more in it under the name that gateways have for one."""
    effort, more = effort_of(value)
    return {"reasoning_effort": effort, "reasoning": more}


def _logprobs(value: bool | int | None) -> dict[str, Any]:
    """The logarithms of the tokens that were chosen, and of as many others as a number says."""
    if value is None or value is False:
        return {}
    return {"logprobs": True} if value is True else {"logprobs": True, "top_logprobs": value}


def _said(message: Message) -> dict[str, Any]:
    calls = message.tool_calls
    content = None if message.content is None and calls else content_with(message, _text_part, _media)
    wire: dict[str, Any] = {"role": message.role, "content": content}
    if message.name is not None:
        wire["name"] = message.name
    if calls:
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments_text(call)}}
            for call in calls
        ]
    return wire


def arguments_text(call: ToolCall) -> str:
    """The arguments of a call as OpenAI writes them: JSON in a text."""
    given = {} if call.input is None else call.input
    return given if isinstance(given, str) else to_json(given).decode()


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _media(media: Media) -> dict[str, Any]:
    if media.is_image:
        return {"type": "image_url", "image_url": {"url": media.address}}
    return {"type": "file", "file": {"filename": media.file_name, "file_data": media.address}}


def _text(content: Any) -> str:
    """The text of an answer: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    if content is None:
        return ""
    raise AnswerError("The answer is no chat completion: its content is neither text nor a list of parts")
