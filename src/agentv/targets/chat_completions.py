"""OpenAI's chat completions on the wire: messages and settings to a request, an answer to a response. Makes no call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from agentv.model.message import ImagePart, Message, ToolCall
from agentv.model.response import Response, content_text
from agentv.model.result import TokenUsage
from agentv.model.values import to_json
from agentv.targets.base import ModelApi


class AnswerError(Exception):
    """An answer that is none: of another shape, or an error under a good status (`error`), or a refusal."""

    def __init__(self, message: str, *, error: Any = None, refused: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.error = error
        self.refused = refused


class _Function(msgspec.Struct, gc=False):
    name: str
    arguments: Any = None


class _Call(msgspec.Struct, gc=False):
    function: _Function
    id: str | None = None


class _ChatMessage(msgspec.Struct, gc=False):
    content: Any = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _ChatMessage
    finish_reason: str | None = None
    error: Any = None


class _Completion(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    id: str | None = None
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: Any = None


class _CachedTokens(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _CachedTokens | None = None
    cost: float | None = None


_decode_completion = msgspec.json.Decoder(_Completion).decode
_decode_usage = msgspec.json.Decoder(_Usage).decode


def constant_body(settings: ModelApi, token_limit: str) -> dict[str, Any]:
    """Everything of a request but its messages. `token_limit` is the name under which the endpoint takes that limit."""
    body: dict[str, Any] = {
        "model": settings.model,
        "temperature": settings.temperature,
        token_limit: settings.max_output_tokens,
        "seed": settings.seed,
        "tools": [_tool(tool) for tool in settings.tools] or None,
        "response_format": _response_format(settings.response_format),
        **_reasoning(settings.reasoning),
    }
    return {name: value for name, value in body.items() if value is not None} | settings.extra_body


def wire_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Chat messages as the API takes them. Every tool call gets an id and exactly one result behind it."""
    conversation = _Conversation(messages)
    for message in messages:
        if message.role == "tool":
            conversation.add_results(message)
        else:
            conversation.add(message)
    conversation.close_calls()
    return conversation.wire


def read_completion(body: bytes, duration_ms: float | None = None) -> Response:
    """The response in an answer's body. Raises AnswerError for anything that is no answer."""
    try:
        completion = _decode_completion(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerError(f"The answer is no chat completion: {error}") from None
    if completion.error is not None:
        raise AnswerError("The answer is an error", error=completion.error)
    if not completion.choices:
        raise AnswerError("The answer has no choices")
    choice = completion.choices[0]
    if choice.error is not None:
        raise AnswerError("The answer is an error", error=choice.error)
    said = choice.message
    if said.refusal:
        raise AnswerError(f"The model refused: {said.refusal}", refused=True)
    if choice.finish_reason == "content_filter":
        raise AnswerError("A content filter stopped the answer", refused=True)
    usage, cost_usd = _usage(completion.usage)
    calls = tuple(_tool_call(call) for call in said.tool_calls or ())
    text = _text(said.content)
    return Response(
        messages=(Message("assistant", text if text or not calls else None, calls),),
        usage=usage,
        cost_usd=cost_usd,
        duration_ms=duration_ms,
        id=completion.id,
        model=completion.model,
        stop_reason=choice.finish_reason,
    )


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool in the API's form; one that is just a function (`name`, `description`, `parameters`) is put into it."""
    return tool if "type" in tool else {"type": "function", "function": tool}


def _response_format(value: dict[str, Any] | str | None) -> dict[str, Any] | None:
    if isinstance(value, str):
        return {"type": "json_object" if value == "json" else value}
    return value


def _reasoning(value: dict[str, Any] | str | None) -> dict[str, Any]:
    """An effort under OpenAI's name; an object with more in it under the name that gateways have for one."""
    if isinstance(value, dict) and value.keys() != {"effort"}:
        return {"reasoning": value}
    return {"reasoning_effort": value["effort"] if isinstance(value, dict) else value}


class _Conversation:
    """The messages so far, and the tool calls in them that still wait for their result."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.wire: list[dict[str, Any]] = []
        self._waiting: list[ToolCall] = []
        self._taken_ids = {call.id for message in messages for call in message.tool_calls}

    def add(self, message: Message) -> None:
        """A message of anyone but a tool, and the results that its calls brought along."""
        self.close_calls()
        calls = [self._named(call) for call in message.tool_calls]
        self._say(message, calls)
        for call in calls:
            if call.output is None:
                self._waiting.append(call)
            else:
                self._result(call, call.output)

    def add_results(self, message: Message) -> None:
        """A tool's message: results for calls that wait, found by id, else by name, else the first that waits.

        A result that belongs to no call gets one of its own, because the API takes no result without.
        """
        given = message.tool_calls or (ToolCall(message.name or "", output=_content(message)),)
        for result in given:
            call = self._waiting_for(result)
            if call is None:
                call = self._named(msgspec.structs.replace(result, tool=result.tool or "tool"))
                self._say(Message("assistant"), [call])
            self._result(call, result.output)

    def close_calls(self) -> None:
        """Gives empty results to calls that nothing answered: the API refuses a conversation with an open call."""
        for call in self._waiting:
            self._result(call, "")
        self._waiting.clear()

    def _say(self, message: Message, calls: list[ToolCall]) -> None:
        content = _content(message)
        wire: dict[str, Any] = {"role": message.role, "content": "" if content is None and not calls else content}
        if message.name is not None:
            wire["name"] = message.name
        if calls:
            wire["tool_calls"] = [_wire_call(call) for call in calls]
        self.wire.append(wire)

    def _result(self, call: ToolCall, output: Any) -> None:
        content = "" if output is None else content_text(output)
        self.wire.append({"role": "tool", "tool_call_id": call.id, "content": content})

    def _waiting_for(self, result: ToolCall) -> ToolCall | None:
        for call in self._waiting:
            if result.id == call.id if result.id else result.tool in ("", call.tool):
                self._waiting.remove(call)
                return call
        return None

    def _named(self, call: ToolCall) -> ToolCall:
        if call.id:
            return call
        number = 1
        while (id := f"call_{number}") in self._taken_ids:
            number += 1
        self._taken_ids.add(id)
        return msgspec.structs.replace(call, id=id)


def _wire_call(call: ToolCall) -> dict[str, Any]:
    given = {} if call.input is None else call.input
    arguments = given if isinstance(given, str) else to_json(given).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments}}


def _content(message: Message) -> str | list[dict[str, Any]] | None:
    content = message.content
    if content is None or isinstance(content, str):
        return content
    # Only what holds an image is sent as parts: many servers take nothing but text from anyone but the user.
    if not any(isinstance(part, ImagePart) for part in message.parts):
        return content_text(content)
    return [
        {"type": "image_url", "image_url": {"url": part.value}}
        if isinstance(part, ImagePart)
        else {"type": "text", "text": part.value}
        for part in message.parts
    ]


def _usage(raw: msgspec.Raw) -> tuple[TokenUsage | None, float | None]:
    """Tokens and cost as reported. A count that makes no sense is no reason to throw a paid answer away."""
    try:
        usage = _decode_usage(raw)
    except (msgspec.DecodeError, RecursionError):
        return None, None
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    if usage.prompt_tokens < 0 or usage.completion_tokens < 0 or (cached or 0) < 0:
        return None, None
    cost_usd = usage.cost if usage.cost is not None and usage.cost >= 0 else None
    return TokenUsage(usage.prompt_tokens, usage.completion_tokens, cached), cost_usd


def _tool_call(call: _Call) -> ToolCall:
    arguments = call.function.arguments
    if isinstance(arguments, str):
        # What is no JSON stays the text it is: what the model wrote is what evaluators should see.
        with suppress(msgspec.DecodeError, RecursionError):
            arguments = msgspec.json.decode(arguments)
    return ToolCall(call.function.name, arguments, id=call.id)


def _text(content: Any) -> str:
    """The text of an answer: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if content is None:
        return ""
    raise AnswerError("The answer is no chat completion: its content is neither text nor a list of parts")
