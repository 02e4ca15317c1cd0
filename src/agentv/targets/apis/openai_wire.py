"""Request and response formats of OpenAI's Chat Completions and Responses APIs."""

from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import Request, Response, content_text
from agentv.model.token_counts import UsageFields, amount, read_usage
from agentv.model.values import to_json
from agentv.targets.apis import model_api as api
from agentv.targets.apis.api_messages import (
    JsonFormat,
    Media,
    attach_tool_results,
    parse_function,
    parse_response_format,
    read_arguments,
)
from agentv.targets.target import ModelApi


class _Function(msgspec.Struct, gc=False):
    """The call of a function, or of a custom tool, which takes free text as `input`."""

    name: str
    arguments: Any = None
    input: str = ""


class _Call(msgspec.Struct, gc=False):
    id: str | None = None
    function: _Function | None = None
    custom: _Function | None = None


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


class _Completion(api.ApiAnswer, gc=False):
    choices: list[_Choice] | None = None


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
    """Parameter names that differ between servers with this API: those of the token limit and the seed."""

    output_limit: str = "max_tokens"
    seed: str = "seed"


def chat_wire(settings: ModelApi, dialect: Dialect, logprobs: bool | int | None = None) -> api.WireApi:
    """Return the Chat Completions format with a target's settings."""
    # OpenAI takes an effort; gateways take an object under another name.
    effort, reasoning = api.split_reasoning(settings.reasoning)
    constant = api.drop_none(
        model=settings.model,
        temperature=settings.temperature,
        **{dialect.output_limit: settings.max_output_tokens, dialect.seed: settings.seed},
        tools=[_tool(tool) for tool in settings.declared_tools] or None,
        response_format=_response_format(settings.response_format),
        reasoning_effort=effort,
        reasoning=reasoning,
        **_logprobs(logprobs, {"logprobs": True}),
    )
    first = (Message("system", settings.system_prompt),) if settings.system_prompt else ()
    return api.WireApi(
        constant,
        lambda request: {"messages": wire_messages(first + request.messages)},
        read_completion,
        read_bill,
        settings.extra_body,
        api="chat",
    )


def wire_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Return chat messages. Every tool call has an id and is followed by exactly one result."""
    wire: list[dict[str, Any]] = []
    for message in attach_tool_results(messages):
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments_text(call)}}
            for call in message.tool_calls
        ]
        content = None if message.content is None and calls else api.wire_content(message, _media)
        optional = api.drop_none(name=message.name, tool_calls=calls or None)
        wire.append({"role": message.role, "content": content, **optional})
        wire += [
            {"role": "tool", "tool_call_id": call.id, "content": content_text(call.output)}
            for call in message.tool_calls
        ]
    return wire


def read_completion(body: bytes, _: Request) -> Response:
    """Read a response body. Raises AnswerError if it has no answer."""
    completion = api.decode_body(_decode_completion, body, "a chat completion")
    if not completion.choices:
        raise api.AnswerError("The response has no choices")
    choice = completion.choices[0]
    if choice.error is not None:
        raise api.AnswerError("The response is an error", error=choice.error)
    message = choice.message
    if message is not None and message.refusal:
        raise api.AnswerError(f"The model refused: {message.refusal}", refused=True)
    if choice.finish_reason == "content_filter":
        raise api.AnswerError("A content filter stopped the response", refused=True)
    if choice.finish_reason == "error":
        raise api.AnswerError("The model stopped with an error (finish_reason: error)")
    if message is None:
        raise api.AnswerError("The response has no message")
    has_calls = bool(message.tool_calls or message.function_call)
    if message.content is None and not has_calls and choice.finish_reason is None:
        raise api.AnswerError("The response has no content, no tool calls and no finish reason")
    bill = _bill(completion.usage)
    return Response(
        messages=(api.assistant_message(_text(message.content), tuple(_tool_calls(message))),),
        usage=bill.usage,
        cost_usd=bill.cost_usd,
        id=completion.id,
        model=completion.model,
        stop_reason=choice.finish_reason,
        logprobs=choice.logprobs,
    )


def read_bill(body: dict[str, Any]) -> api.Bill:
    """Return what a reply cost."""
    return _bill(body.get("usage"))


def _bill(reported: Any) -> api.Bill:
    usage = reported if isinstance(reported, dict) else {}
    cost = usage.get("cost")
    return api.Bill(
        read_usage(usage, _USAGE if usage.get("prompt_tokens_details") else _USAGE_WITHOUT_DETAILS),
        # Some gateways itemize the cost and add the total.
        amount(cost.get("total_cost") if isinstance(cost, dict) else cost),
    )


def _tool_calls(message: _ChatMessage) -> Iterator[ToolCall]:
    # `function_call` is the deprecated form for a single call.
    for call in message.tool_calls or ([_Call(function=message.function_call)] if message.function_call else []):
        if call.custom is not None:
            yield ToolCall(call.custom.name, call.custom.input, id=call.id)
        elif call.function is not None:
            yield ToolCall(call.function.name, read_arguments(call.function.arguments), id=call.id)
        else:
            raise api.AnswerError("The response has a tool call without a function")


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in the API's format. Tools that are not functions are returned unchanged."""
    function = parse_function(tool)
    if function is None or "function" in tool:
        return tool
    return {"type": "function", "function": api.drop_none(**msgspec.structs.asdict(function))}


def _response_format(value: dict[str, Any] | str | None, *, boxed: bool = True) -> dict[str, Any] | None:
    form = parse_response_format(value)
    if not isinstance(form, JsonFormat):
        return form
    if form.schema is None:
        return {"type": "json_object"}
    schema = api.drop_none(**msgspec.structs.asdict(form))
    return {"type": "json_schema", **({"json_schema": schema} if boxed else schema)}


def _logprobs(value: bool | int | None, request: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that request log probabilities, and those of the top alternatives if `value` is a number."""
    if value is None or value is False:
        return {}
    return request if value is True else {**request, "top_logprobs": value}


def arguments_text(call: ToolCall) -> str:
    """Return a call's arguments in OpenAI's form, a JSON string."""
    arguments = {} if call.input is None else call.input
    return arguments if isinstance(arguments, str) else to_json(arguments).decode()


def _media(media: Media) -> dict[str, Any]:
    if media.is_image:
        return {"type": "image_url", "image_url": {"url": media.address}}
    return {"type": "file", "file": {"filename": media.file_name, "file_data": media.address}}


_PARTS = frozenset({"text", "refusal", "thinking", "reasoning", "image_url", "file", "audio", "input_audio"})
"""Keys of the parts of a message. A list with only others is not an answer, and must not be scored as an empty one."""


def _text(content: Any) -> str:
    """Return the text of a message's content: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    if content in (None, []) or any(_PARTS.intersection(part) for part in parts):
        return "".join(str(part.get("text") or "") for part in parts)
    raise api.AnswerError(
        "The response is not a chat completion: its content is neither text nor a list of known parts"
    )


_CLIENT_CALLS = frozenset({"function_call", "custom_tool_call"})
"""Calls whose results the client must send; OpenAI runs its own tools itself."""


class _OutputPart(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    logprobs: Any = None


class _OutputItem(msgspec.Struct, gc=False):
    """An output item: a message or a tool call. Fields of other items, such as reasoning, are ignored."""

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


class _ResponsesAnswer(api.ApiAnswer, gc=False):
    output: list[_OutputItem] | None = None
    status: str | None = None
    incomplete_details: dict[str, Any] | None = None


_decode_answer = msgspec.json.Decoder(_ResponsesAnswer).decode
_RESPONSES_USAGE = UsageFields(
    ("input_tokens",),
    ("output_tokens",),
    "input_tokens_details.cached_tokens",
    "output_tokens_details.reasoning_tokens",
)


def responses_wire(settings: ModelApi, logprobs: bool | int | None = None) -> api.WireApi:
    """Return the Responses format with a target's settings."""
    form = _response_format(settings.response_format, boxed=False)
    constant = api.drop_none(
        model=settings.model,
        instructions=settings.system_prompt,
        temperature=settings.temperature,
        max_output_tokens=settings.max_output_tokens,
        tools=[_responses_tool(tool) for tool in settings.declared_tools] or None,
        text=None if form is None else {"format": form},
        reasoning={"effort": settings.reasoning} if isinstance(settings.reasoning, str) else settings.reasoning,
        store=False,  # the run stores responses, OpenAI need not
        **_logprobs(logprobs, {"include": ["message.output_text.logprobs"]}),
    )
    return api.WireApi(
        constant,
        lambda request: {"input": wire_items(request.messages)},
        read_answer,
        lambda body: api.Bill(read_usage(body.get("usage"), _RESPONSES_USAGE)),
        settings.extra_body,
        api="responses",
    )


def wire_items(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Return the conversation as items. Every tool call has an id and is followed by exactly one output."""
    items: list[dict[str, Any]] = []
    for message in attach_tool_results(messages):
        # Assistant text is `output_text` even in the input.
        kind = "output_text" if message.role == "assistant" else "input_text"
        content = api.wire_content(message, _responses_media, kind)
        if content or not message.tool_calls:
            items.append({"role": message.role, "content": content})
        items += [
            {"type": "function_call", "call_id": call.id, "name": call.tool, "arguments": arguments_text(call)}
            for call in message.tool_calls
        ]
        items += [
            {"type": "function_call_output", "call_id": call.id, "output": content_text(call.output)}
            for call in message.tool_calls
        ]
    return items


def read_answer(body: bytes, _: Request) -> Response:
    """Read a response body. Raises AnswerError if it has no answer."""
    answer = api.decode_body(_decode_answer, body, "a Responses API object")
    if answer.output is None or answer.status not in (None, "completed", "incomplete"):
        raise api.AnswerError(f"The response is not complete (status {answer.status})")
    parts = [part for item in answer.output if item.type == "message" for part in item.content or ()]
    if (refusal := next((part.refusal for part in parts if part.refusal), None)) is not None:
        raise api.AnswerError(f"The model refused: {refusal}", refused=True)
    has_answer = any(item.type == "message" or item.type.endswith("_call") for item in answer.output)
    if not has_answer and answer.status != "incomplete":
        raise api.AnswerError("The response has no message and no tool calls")
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
    """Return the answer with all tool calls, after the commentary messages, if the model marks those."""
    messages = [item for item in output if item.type == "message"]
    final = [item for item in messages if item.phase != "commentary"] or messages
    commentary = [Message("assistant", _item_text(item)) for item in messages if item not in final]
    calls = tuple(_tool_call(item) for item in output if item.type.endswith("_call"))
    return *commentary, api.assistant_message("".join(map(_item_text, final)), calls)


def _item_text(item: _OutputItem) -> str:
    return "".join(part.text or "" for part in item.content or ())


def _responses_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in the API's format: that of Chat Completions without the nested `function` object."""
    if (function := parse_function(tool)) is None:
        return tool
    # This API treats schemas as strict unless told otherwise.
    return {"type": "function", **api.drop_none(**msgspec.structs.asdict(function)), "strict": bool(function.strict)}


def _responses_media(media: Media) -> dict[str, Any]:
    if media.is_image:
        return {"type": "input_image", "image_url": media.address, "detail": "auto"}
    if media.data is None:
        return {"type": "input_file", "file_url": media.address}
    return {"type": "input_file", "filename": media.file_name, "file_data": media.address}


def _tool_call(item: _OutputItem) -> ToolCall:
    """Return a function call to run, or the call of an OpenAI tool, which has already run."""
    tool = item.name or item.type.removesuffix("_call")
    if item.arguments is not None:
        arguments = read_arguments(item.arguments)
    elif item.input is not None or item.action is not None:
        arguments = item.action if item.input is None else item.input
    else:
        arguments = api.drop_none(code=item.code, queries=item.queries) or None
    outputs = (item.output, item.outputs, item.results)
    output = next((value for value in outputs if value is not None), None)
    return ToolCall(tool, arguments, output, item.call_id or item.id)


def _stop_reason(answer: _ResponsesAnswer) -> str:
    if answer.status != "incomplete":
        return "tool_calls" if any(item.type in _CLIENT_CALLS for item in answer.output or ()) else "stop"
    if (reason := (answer.incomplete_details or {}).get("reason")) == "content_filter":
        raise api.AnswerError("A content filter stopped the response", refused=True)
    return "length" if reason == "max_output_tokens" else str(reason or "incomplete")
