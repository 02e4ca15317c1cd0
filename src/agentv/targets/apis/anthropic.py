"""Anthropic's Messages API: its settings, its requests and its answers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from agentv.model.message import ImagePart, Message, ToolCall
from agentv.model.response import Request, Responder, Response, content_text
from agentv.model.result import TokenUsage
from agentv.targets.apis.api_messages import (
    AnswerFormat,
    answer_format,
    arguments_object,
    folded,
    function_of,
    media_of,
)
from agentv.targets.apis.model_api import (
    AnswerError,
    WireApi,
    decoded,
    given_only,
    key_of,
    merged,
    open_api,
    overlaid,
    sensible_usage,
    spoken,
    told,
)
from agentv.targets.target import Count, ModelApi, PriceKey, address_complaints, without

ANTHROPIC_URL = "https://api.anthropic.com"
VERSION, VERSION_WITH_TEMPERATURE = "2026-10-21", "2023-06-01"
OUTPUT_TOKENS = 20_000
"""The limit where none is given, a budget for thinking aside: the API insists on one. More may take longer than the ten
minutes after which Anthropic wants answers to be streamed."""

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class Anthropic(ModelApi, frozen=True, kw_only=True):
    """Anthropic's Messages API.

    Where no `api_key` is written, `ANTHROPIC_API_KEY` is taken. `reasoning` is an effort (`low` to `max`), or an object
    that is sent as `thinking`; `thinking_budget` is for models that take one. Thinking is part of `max_output_tokens`,
    which is 20,000 and the budget where it is not given. `version` is 2026-10-21; that one refuses a `temperature`,
    with which it is 2023-06-01. The API has no `seed`: none is sent.
    """

    aliases: ClassVar[dict[str, str]] = {
        **ModelApi.aliases,
        "deployment": "model",
        "variant": "model",
        "endpoint": "base_url",
        "api_version": "version",
    }
    price_list_name: ClassVar[str | None] = "anthropic"

    base_url: str | None = None
    api_key: str | None = None
    version: str | None = None
    thinking_budget: Count | None = None
    prompt_caching: bool | Literal["5m", "1h"] = False

    @property
    def price_key(self) -> PriceKey | None:
        """What is cached for an hour has a price of its own."""
        key = super().price_key
        return None if key is None else key._replace(has_long_cache=self.prompt_caching == "1h")

    def complaints(self) -> list[str]:
        """No model, an address that is none, or settings that Anthropic refuses together."""
        found = without(self, "model") + address_complaints("base_url", self.base_url)
        if self.thinking_budget and self.temperature not in (None, 1):
            found.append("'temperature' must be 1 or left out where the model thinks ('thinking_budget')")
        if self.thinking_budget and self.max_output_tokens and self.thinking_budget >= self.max_output_tokens:
            found.append("'thinking_budget' must be less than 'max_output_tokens', of which it is a part")
        declared = answer_format(self.response_format)
        if isinstance(declared, AnswerFormat) and declared.schema is None:
            found.append("'response_format' needs a JSON Schema: Anthropic knows no JSON without one")
        return found

    def open(self, home: str) -> Responder:
        """The endpoint, ready to be asked."""
        is_anthropic = self.base_url is None
        key = key_of(self, home, "ANTHROPIC_API_KEY", given=self.api_key) if is_anthropic else self.api_key or None
        base, _, query = (self.base_url or ANTHROPIC_URL).partition("?")
        base = base.rstrip("/").removesuffix("/messages").removesuffix("/v1")
        version = self.version or (VERSION if self.temperature is None else VERSION_WITH_TEMPERATURE)
        headers = {"anthropic-version": version, **({"x-api-key": key} if key else {})}
        url = f"{base}/v1/messages" + (f"?{query}" if query else "")
        return open_api(url, key, overlaid(headers, self.headers), messages_wire(self), base=base)


class _Block(msgspec.Struct, gc=False):
    """One block of an answer. Thinking and blocks of other kinds are passed over."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None


class _Details(msgspec.Struct, gc=False):
    explanation: str | None = None


class _Answer(msgspec.Struct, gc=False):
    content: list[_Block] | None = None
    stop_reason: str | None = None
    stop_details: _Details | None = None
    id: str | None = None
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: Any = None


class _OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int
    output_tokens: int = 0
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_usage = msgspec.json.Decoder(_Usage, strict=False).decode


def messages_wire(settings: Anthropic) -> WireApi:
    """Messages as a target asks for them."""
    constant = _constant_body(settings)

    def body(request: Request) -> dict[str, Any]:
        system = [settings.system_prompt] if settings.system_prompt else []
        system += [content_text(message.content) for message in request.messages if message.role == "system"]
        made = {**constant, "messages": wire_messages(request.messages)}
        if system:
            made["system"] = "\n\n".join(system)
        if settings.prompt_caching:
            made = _cached(made, settings.prompt_caching)
        return merged(made, settings.extra_body)

    return WireApi(body, read_answer)


def wire_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Messages of user and assistant. The results of tool calls stand in the user's message behind them."""
    wire: list[dict[str, Any]] = []
    for message in folded(messages):
        if message.role == "system":
            continue
        content = _content(message)
        if message.tool_calls:
            said = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
            wire.append({"role": "assistant", "content": [*said, *map(_call, message.tool_calls)]})
            wire.append({"role": "user", "content": [_result(call) for call in message.tool_calls]})
        elif content or message.role == "user":  # an assistant that said nothing cannot be quoted
            wire.append({"role": message.role, "content": content})
    return wire


def read_answer(body: bytes, _: Request) -> Response:
    """The response in an answer's body. Raises AnswerError for anything that is no answer."""
    answer = decoded(_decode_answer, body, "The answer is no message")
    if answer.error is not None:
        raise AnswerError("The answer is an error", error=answer.error)
    if answer.content is None:
        raise AnswerError("The answer has no content")
    text = "".join(block.text or "" for block in answer.content if block.type == "text")
    if answer.stop_reason == "refusal":
        said = (answer.stop_details and answer.stop_details.explanation) or text
        raise AnswerError(f"The model refused: {said}" if said else "The model refused", refused=True)
    outputs = {block.tool_use_id: block.content for block in answer.content if block.tool_use_id}
    calls = tuple(
        ToolCall(block.name or "", block.input, outputs.get(block.id or ""), id=block.id)
        for block in answer.content
        if block.type in ("tool_use", "server_tool_use", "mcp_tool_use")
    )
    return Response(
        messages=(spoken(text, calls),),
        usage=_usage(answer.usage),
        id=answer.id,
        model=answer.model,
        stop_reason=_STOP_REASONS.get(answer.stop_reason or "", answer.stop_reason),
    )


def _constant_body(settings: Anthropic) -> dict[str, Any]:
    declared = answer_format(settings.response_format)
    effort, thinking = _reasoning(settings)
    output = given_only({"effort": effort, "format": None if declared is None else _format(declared)})
    return given_only(
        {
            "model": settings.model,
            "max_tokens": settings.max_output_tokens or OUTPUT_TOKENS + (settings.thinking_budget or 0),
            "temperature": settings.temperature,
            "thinking": thinking,
            "tools": [_tool(tool) for tool in settings.tools] or None,
            "output_config": output or None,
        }
    )


def _reasoning(settings: Anthropic) -> tuple[str | None, dict[str, Any] | None]:
    """The effort, and what is said about thinking."""
    given = settings.reasoning
    effort, thinking = (given, None) if isinstance(given, str) else (None, given)
    if thinking is not None and thinking.keys() == {"effort"}:
        effort, thinking = thinking["effort"], None
    if settings.thinking_budget:
        thinking = {**(thinking or {}), "type": "enabled", "budget_tokens": settings.thinking_budget}
    return effort, thinking


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool in the API's form; one of Anthropic's own goes as it is."""
    function = function_of(tool)
    if function is None or "input_schema" in tool:
        return tool
    schema = function.parameters or {"type": "object", "properties": {}}
    return given_only(
        {"name": function.name, "description": function.description, "input_schema": schema, "strict": function.strict}
    )


def _format(value: AnswerFormat | dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "schema": value.schema} if isinstance(value, AnswerFormat) else value


def _cached(body: dict[str, Any], kept: bool | str) -> dict[str, Any]:
    """A body with a mark behind what all questions share: the system prompt, else the tools, else what there is."""
    mark = {"type": "ephemeral"} if kept is True else {"type": "ephemeral", "ttl": kept}
    if "system" in body:
        return {**body, "system": [{"type": "text", "text": body["system"], "cache_control": mark}]}
    if "tools" in body:
        *others, last = body["tools"]
        return {**body, "tools": [*others, {**last, "cache_control": mark}]}
    return {**body, "cache_control": mark}


def _content(message: Message) -> str | list[dict[str, Any]]:
    if not any(isinstance(part, ImagePart) for part in message.parts):
        return "" if message.content is None else content_text(message.content)
    return [
        _media(part.value) if isinstance(part, ImagePart) else {"type": "text", "text": part.value}
        for part in message.parts
        if part.value
    ]


def _media(value: str) -> dict[str, Any]:
    media = media_of(value)
    source: dict[str, Any]
    if media.data is None:
        source = {"type": "url", "url": media.address}
    elif media.media_type == "text/plain":
        source = {"type": "text", "media_type": "text/plain", "data": media.text}
    else:
        source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    return {"type": "image" if media.is_image else "document", "source": source}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.tool, "input": arguments_object(call)}


def _result(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.id, "content": content_text(call.output)}


def _usage(raw: msgspec.Raw) -> TokenUsage | None:
    """Tokens as reported; what was read from the cache and written there counts as input, as with other APIs."""
    usage = told(_decode_usage, raw)
    if usage is None:
        return None
    if usage.input_tokens < 0:
        return None
    cached, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    thought = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else None
    input = usage.input_tokens + (cached or 0) + (written or 0)
    return sensible_usage(input, usage.output_tokens, cached, thought, written)
