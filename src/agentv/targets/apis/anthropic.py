"""Anthropic's Messages API: its settings, its requests and its answers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import Request, Responder, Response, content_text
from agentv.targets.apis.api_messages import (
    Media,
    ResponseFormat,
    arguments_object,
    attach_tool_results,
    parse_function,
    parse_response_format,
)
from agentv.targets.apis.model_api import (
    AnswerError,
    UsageFields,
    WireApi,
    assistant_message,
    decode_body,
    deep_merge,
    drop_none,
    find_api_key,
    merge_headers,
    open_api,
    read_usage,
    split_reasoning,
    system_texts,
    wire_content,
)
from agentv.targets.target import Count, HostedApi, PriceKey

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


class Anthropic(HostedApi, frozen=True, kw_only=True):
    """Anthropic's Messages API.

    Where no `api_key` is written, `ANTHROPIC_API_KEY` is taken. `reasoning` is an effort (`low` to `max`), or an object
    that is sent as `thinking`; `thinking_budget` is for models that take one. Thinking is part of `max_output_tokens`,
    which is 20,000 and the budget where it is not given. `version` is 2026-10-21; that one refuses a `temperature`,
    with which it is 2023-06-01. The API has no `seed`: none is sent.
    """

    aliases: ClassVar[dict[str, str]] = {**HostedApi.aliases, "api_version": "version"}
    price_list_name: ClassVar[str | None] = "anthropic"

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
        found = super().complaints()
        if self.thinking_budget and self.temperature not in (None, 1):
            found.append("'temperature' must be 1 or left out where the model thinks ('thinking_budget')")
        if self.thinking_budget and self.max_output_tokens and self.thinking_budget >= self.max_output_tokens:
            found.append("'thinking_budget' must be less than 'max_output_tokens', of which it is a part")
        declared = parse_response_format(self.response_format)
        if isinstance(declared, ResponseFormat) and declared.schema is None:
            found.append("'response_format' needs a JSON Schema: Anthropic knows no JSON without one")
        return found

    def open(self, home: str) -> Responder:
        """The endpoint, ready to be asked."""
        key = find_api_key(self, home, "ANTHROPIC_API_KEY")
        base, _, query = (self.base_url or ANTHROPIC_URL).partition("?")
        base = base.rstrip("/").removesuffix("/messages").removesuffix("/v1")
        version = self.version or (VERSION if self.temperature is None else VERSION_WITH_TEMPERATURE)
        headers = {"anthropic-version": version, **({"x-api-key": key} if key else {})}
        url = f"{base}/v1/messages" + (f"?{query}" if query else "")
        return open_api(url, key, merge_headers(headers, self.headers), messages_wire(self), base=base)


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
    usage: Any = None
    error: Any = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_USAGE = UsageFields(
    # What was read from the cache and written there counts as input, as with other APIs.
    ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    ("output_tokens",),
    "cache_read_input_tokens",
    "output_tokens_details.thinking_tokens",
    "cache_creation_input_tokens",
)


def messages_wire(settings: Anthropic) -> WireApi:
    """Messages as a target asks for them."""
    constant = _constant_body(settings)

    def body(request: Request) -> dict[str, Any]:
        made = {**constant, "messages": wire_messages(request.messages)}
        if system := system_texts(settings, request.messages):
            made["system"] = "\n\n".join(system)
        if settings.prompt_caching:
            made = _cached(made, settings.prompt_caching)
        return deep_merge(made, settings.extra_body)

    return WireApi(body, read_answer)


def wire_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Messages of user and assistant. The results of tool calls are in the user's message after them."""
    wire: list[dict[str, Any]] = []
    for message in attach_tool_results(messages):
        if message.role == "system":
            continue
        content = wire_content(message, _media)
        if isinstance(content, list):
            content = [part for part in content if part.get("text") != ""]
        if message.tool_calls:
            said = [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content)
            uses = [
                {"type": "tool_use", "id": call.id, "name": call.tool, "input": arguments_object(call)}
                for call in message.tool_calls
            ]
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": content_text(call.output)}
                for call in message.tool_calls
            ]
            wire += [{"role": "assistant", "content": [*said, *uses]}, {"role": "user", "content": results}]
        elif content or message.role == "user":  # an assistant that said nothing cannot be quoted
            wire.append({"role": message.role, "content": content})
    return wire


def read_answer(body: bytes, _: Request) -> Response:
    """The response in an answer's body. Raises AnswerError for anything that is no answer."""
    answer = decode_body(_decode_answer, body, "The answer is no message")
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
        messages=(assistant_message(text, calls),),
        usage=read_usage(answer.usage, _USAGE),
        id=answer.id,
        model=answer.model,
        stop_reason=_STOP_REASONS.get(answer.stop_reason or "", answer.stop_reason),
    )


def _constant_body(settings: Anthropic) -> dict[str, Any]:
    declared = parse_response_format(settings.response_format)
    effort, thinking = split_reasoning(settings.reasoning)
    if settings.thinking_budget:
        thinking = {**(thinking or {}), "type": "enabled", "budget_tokens": settings.thinking_budget}
    form = {"type": "json_schema", "schema": declared.schema} if isinstance(declared, ResponseFormat) else declared
    return drop_none(
        {
            "model": settings.model,
            "max_tokens": settings.max_output_tokens or OUTPUT_TOKENS + (settings.thinking_budget or 0),
            "temperature": settings.temperature,
            "thinking": thinking,
            "tools": [_tool(tool) for tool in settings.tools] or None,
            "output_config": drop_none({"effort": effort, "format": form}) or None,
        }
    )


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool in the API's form; one of Anthropic's own goes as it is."""
    function = parse_function(tool)
    if function is None or "input_schema" in tool:
        return tool
    schema = function.parameters or {"type": "object", "properties": {}}
    return drop_none(
        {"name": function.name, "description": function.description, "input_schema": schema, "strict": function.strict}
    )


def _cached(body: dict[str, Any], kept: bool | str) -> dict[str, Any]:
    """A body with a mark behind what all questions share: the system prompt, else the tools, else what there is."""
    mark = {"type": "ephemeral"} if kept is True else {"type": "ephemeral", "ttl": kept}
    if "system" in body:
        return {**body, "system": [{"type": "text", "text": body["system"], "cache_control": mark}]}
    if "tools" in body:
        *others, last = body["tools"]
        return {**body, "tools": [*others, {**last, "cache_control": mark}]}
    return {**body, "cache_control": mark}


def _media(media: Media) -> dict[str, Any]:
    source: dict[str, Any]
    if media.data is None:
        source = {"type": "url", "url": media.address}
    elif media.media_type == "text/plain":
        source = {"type": "text", "media_type": "text/plain", "data": media.text}
    else:
        source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    return {"type": "image" if media.is_image else "document", "source": source}
