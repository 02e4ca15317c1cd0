"""OpenAI's chat completions and responses on the wire: requests from messages and settings, responses from answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import Request, Response, content_text
from agentv.model.values import to_json
from agentv.targets.apis.api_messages import (
    Media,
    ResponseFormat,
    attach_tool_results,
    parse_function,
    parse_response_format,
    read_arguments,
)
from agentv.targets.apis.model_api import (
    AnswerError,
    UsageFields,
    WireApi,
    amount,
    assistant_message,
    decode_body,
    deep_merge,
    drop_none,
    read_usage,
    split_reasoning,
    wire_content,
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
    # An effort under OpenAI's name; an object with more in it under the name that gateways have for one.
    effort, reasoning = split_reasoning(settings.reasoning)
    constant = drop_none(
        {
            "model": settings.model,
            "temperature": settings.temperature,
            dialect.output_limit: settings.max_output_tokens,
            dialect.seed: settings.seed,
            "tools": [_tool(tool) for tool in settings.tools] or None,
            "response_format": _response_format(settings.response_format),
            "reasoning_effort": effort,
            "reasoning": reasoning,
            **_logprobs(logprobs),
        }
    )
    first = (Message("system", settings.system_prompt),) if settings.system_prompt else ()

    def body(request: Request) -> dict[str, Any]:
        return deep_merge({**constant, "messages": wire_messages(first + request.messages)}, settings.extra_body)

    return WireApi(body, read_completion)


def wire_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Chat messages as the API takes them. Every tool call has an id and exactly one result behind it."""
    wire: list[dict[str, Any]] = []
    for message in attach_tool_results(messages):
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments_text(call)}}
            for call in message.tool_calls
        ]
        content = None if message.content is None and calls else wire_content(message, _media)
        optional = drop_none({"name": message.name, "tool_calls": calls or None})
        wire.append({"role": message.role, "content": content, **optional})
        wire += [
            {"role": "tool", "tool_call_id": call.id, "content": content_text(call.output)}
            for call in message.tool_calls
        ]
    return wire


def read_completion(body: bytes, _: Request) -> Response:
    """The response in an answer's body. Raises AnswerError for anything that is no answer."""
    completion = decode_body(_decode_completion, body, "The answer is no chat completion")
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
        messages=(assistant_message(_text(message.content), tuple(_tool_calls(message))),),
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
    function = parse_function(tool)
    if function is None or "function" in tool:
        return tool
    return {"type": "function", "function": drop_none(msgspec.structs.asdict(function))}


def _response_format(value: dict[str, Any] | str | None, *, boxed: bool = True) -> dict[str, Any] | None:
    form = parse_response_format(value)
    if not isinstance(form, ResponseFormat):
        return form
    if form.schema is None:
        return {"type": "json_object"}
    schema = drop_none(msgspec.structs.asdict(form))
    return {"type": "json_schema", **({"json_schema": schema} if boxed else schema)}


def _logprobs(value: bool | int | None) -> dict[str, Any]:
    """The logarithms of the tokens that were chosen, and of as many others as a number says."""
    if value is None or value is False:
        return {}
    return {"logprobs": True} if value is True else {"logprobs": True, "top_logprobs": value}


def arguments_text(call: ToolCall) -> str:
    """The arguments of a call as OpenAI writes them: JSON in a text."""
    given = {} if call.input is None else call.input
    return given if isinstance(given, str) else to_json(given).decode()


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


_STOP_REASONS = {"max_output_tokens": "length"}
_OURS_TO_MAKE = frozenset({"function_call", "custom_tool_call"})
"""The calls that wait for a result; OpenAI makes those of its own tools itself."""


class _OutputPart(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    logprobs: Any = None


class _OutputItem(msgspec.Struct, gc=False):
    """One item of the output: a message, or a call. What stands in others (reasoning) is of no concern here."""

    type: str
    content: list[_OutputPart] | None = None
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


class _ResponsesAnswer(msgspec.Struct, gc=False):
    output: list[_OutputItem] | None = None
    status: str | None = None
    id: str | None = None
    model: str | None = None
    usage: Any = None
    incomplete_details: _Incomplete | None = None
    error: Any = None


_decode_answer = msgspec.json.Decoder(_ResponsesAnswer).decode
_RESPONSES_USAGE = UsageFields(
    ("input_tokens",),
    ("output_tokens",),
    "input_tokens_details.cached_tokens",
    "output_tokens_details.reasoning_tokens",
)


def responses_wire(settings: ModelApi, logprobs: bool | int | None = None) -> WireApi:
    """Responses as a target asks for them."""
    form = _response_format(settings.response_format, boxed=False)
    constant = drop_none(
        {
            "model": settings.model,
            "instructions": settings.system_prompt,
            "temperature": settings.temperature,
            "max_output_tokens": settings.max_output_tokens,
            "tools": [_responses_tool(tool) for tool in settings.tools] or None,
            "text": None if form is None else {"format": form},
            "reasoning": {"effort": settings.reasoning} if isinstance(settings.reasoning, str) else settings.reasoning,
            # Answers are kept by the run, and not by OpenAI.
            "store": False,
            **_responses_logprobs(logprobs),
        }
    )

    def body(request: Request) -> dict[str, Any]:
        return deep_merge({**constant, "input": wire_items(request.messages)}, settings.extra_body)

    return WireApi(body, read_answer)


def wire_items(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """The conversation as items. Every tool call has an id and exactly one output behind it."""
    items: list[dict[str, Any]] = []
    for message in attach_tool_results(messages):
        # What the assistant said is called output even where it goes in.
        kind = "output_text" if message.role == "assistant" else "input_text"
        content = wire_content(message, _responses_media, kind)
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
    answer = decode_body(_decode_answer, body, "The answer is no response")
    if answer.output is None or answer.status not in (None, "completed", "incomplete"):
        raise AnswerError(f"The answer is no response that has ended (status {answer.status})")
    parts = [part for item in answer.output if item.type == "message" for part in item.content or ()]
    refusal = next((part.refusal for part in parts if part.refusal), None)
    if refusal is not None:
        raise AnswerError(f"The model refused: {refusal}", refused=True)
    logprobs = [entry for part in parts for entry in part.logprobs or ()]
    return Response(
        messages=_output_messages(answer.output),
        usage=read_usage(answer.usage, _RESPONSES_USAGE),
        id=answer.id,
        model=answer.model,
        stop_reason=_stop_reason(answer),
        logprobs={"content": logprobs} if logprobs else None,
    )


def _output_messages(output: list[_OutputItem]) -> tuple[Message, ...]:
    """The answer, with every call; before it what the model said on the way, where it tells the two apart."""
    messages = [item for item in output if item.type == "message"]
    last = [item for item in messages if item.phase != "commentary"] or messages
    on_the_way = [Message("assistant", _item_text(item)) for item in messages if item not in last]
    calls = tuple(_tool_call(item) for item in output if item.type.endswith("_call"))
    return *on_the_way, assistant_message("".join(map(_item_text, last)), calls)


def _item_text(item: _OutputItem) -> str:
    return "".join(part.text or "" for part in item.content or ())


def _responses_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool in the API's form: like that of chat completions, without the box around the function."""
    function = parse_function(tool)
    if function is None:
        return tool
    # Without a word about it, this API would take a schema for strict.
    return {"type": "function", **drop_none(msgspec.structs.asdict(function)), "strict": bool(function.strict)}


def _responses_logprobs(value: bool | int | None) -> dict[str, Any]:
    if value is None or value is False:
        return {}
    others = {} if value is True else {"top_logprobs": value}
    return {"include": ["message.output_text.logprobs"], **others}


def _responses_media(media: Media) -> dict[str, Any]:
    if media.is_image:
        return {"type": "input_image", "image_url": media.address, "detail": "auto"}
    if media.data is None:
        return {"type": "input_file", "file_url": media.address}
    return {"type": "input_file", "filename": media.file_name, "file_data": media.address}


def _tool_call(item: _OutputItem) -> ToolCall:
    """A call of ours to make, or one of OpenAI's own tools, which it has made already."""
    tool = item.name or item.type.removesuffix("_call")
    if item.arguments is not None:
        given = read_arguments(item.arguments)
    elif item.input is not None or item.action is not None:
        given = item.action if item.input is None else item.input
    else:
        given = drop_none({"code": item.code, "queries": item.queries}) or None
    outputs = (item.output, item.outputs, item.results)
    output = next((value for value in outputs if value is not None), None)
    return ToolCall(tool, given, output, item.call_id or item.id)


def _stop_reason(answer: _ResponsesAnswer) -> str:
    if answer.status != "incomplete":
        waits = any(item.type in _OURS_TO_MAKE for item in answer.output or ())
        return "tool_calls" if waits else "stop"
    reason = answer.incomplete_details.reason if answer.incomplete_details else None
    if reason == "content_filter":
        raise AnswerError("A content filter stopped the answer", refused=True)
    return _STOP_REASONS.get(reason or "", reason or "incomplete")
