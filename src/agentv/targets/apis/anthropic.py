"""Anthropic's Messages API: settings, requests and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import Request, Response, content_text
from agentv.model.token_counts import UsageFields, read_usage
from agentv.registry import service
from agentv.targets.apis import model_api as api
from agentv.targets.apis.api_messages import (
    JsonFormat,
    Media,
    arguments_object,
    attach_tool_results,
    parse_function,
    parse_response_format,
)
from agentv.targets.target import Count, HostedApi, PriceKey

if TYPE_CHECKING:
    from agentv.targets.apis.batch_api import BatchApi

ANTHROPIC_URL = "https://api.anthropic.com"
VERSION, VERSION_WITH_TEMPERATURE = "2026-10-21", "2023-06-01"
OUTPUT_TOKENS = 20_000
"""The default token limit, without the thinking budget; the API requires one. Larger responses may take longer than ten
minutes, for which Anthropic requires streaming."""

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class Anthropic(HostedApi, frozen=True, kw_only=True):
    """Anthropic's Messages API.

    The key defaults to `ANTHROPIC_API_KEY`. `reasoning` is an effort (`low` to `max`), or an object that is sent as
    `thinking`; `thinking_budget` is for models that take one. Thinking counts towards `max_output_tokens`, which
    defaults to 20,000 plus the budget. `version` defaults to 2026-10-21, or to 2023-06-01 with a `temperature`, which
    the newer version rejects. The API does not support `seed`, so it is not sent.
    """

    aliases: ClassVar[dict[str, str]] = {**HostedApi.aliases, "api_version": "version"}
    price_list_name: ClassVar[str | None] = "anthropic"
    vendor_url: ClassVar[str] = ANTHROPIC_URL
    vendor_keys: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY",)
    has_json_mode: ClassVar[bool] = False

    version: str | None = None
    """Version of the API."""

    thinking_budget: Count | None = None
    """Maximum reasoning tokens."""

    prompt_caching: bool | Literal["5m", "1h"] = False
    """Cache tools and system prompt at the vendor: for five minutes, or for the given time."""

    batch: bool = False
    """Send requests through the [batch API](../how-to/batch-mode.md): half the price, up to 24 hours."""

    @property
    def price_key(self) -> PriceKey | None:
        """The price key of the model; writing to the one-hour cache has its own price."""
        key = super().price_key
        return None if key is None else msgspec.structs.replace(key, has_long_cache=self.prompt_caching == "1h")

    def complaints(self) -> list[str]:
        """Check the model, the address, and settings that Anthropic rejects in combination."""
        complaints = super().complaints()
        if self.thinking_budget and self.temperature not in (None, 1):
            complaints.append("'temperature' must be 1 or unset when 'thinking_budget' is set")
        if self.thinking_budget and self.max_output_tokens and self.thinking_budget >= self.max_output_tokens:
            complaints.append("'thinking_budget' must be less than 'max_output_tokens', which includes it")
        if self.thinking_budget and len(self.declared_tools) < len(self.tools):
            complaints.append("'thinking_budget' cannot be combined with tools that run here; use `reasoning`")
        declared = parse_response_format(self.response_format)
        if isinstance(declared, JsonFormat) and declared.schema is None:
            complaints.append("'response_format' needs a JSON Schema: Anthropic has no JSON mode without one")
        return complaints

    def open_batches(self, home: str) -> BatchApi:
        """Open the endpoint for batches."""
        batches: BatchApi = service("anthropic-batches", "`batch`")(self.open(home), *self._base())
        return batches

    def _base(self) -> tuple[str, str]:
        base, _, query = (self.base_url or ANTHROPIC_URL).partition("?")
        return base.rstrip("/").removesuffix("/messages").removesuffix("/v1"), query

    def open(self, home: str) -> api.ApiResponder:
        """Open the endpoint."""
        key = api.find_api_key(self, home, *self.vendor_keys)
        base, query = self._base()
        url = f"{base}/v1/messages" + (f"?{query}" if query else "")
        return api.open_api(self, url, {"x-api-key": key} if key else {}, messages_wire(self), base=base)


class _Block(msgspec.Struct, gc=False):
    """A content block. Thinking and unknown blocks are ignored."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None


class _Answer(api.ApiAnswer, gc=False):
    content: list[_Block] | None = None
    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_USAGE = UsageFields(
    # Cache reads and writes count as input, as with other APIs.
    ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    ("output_tokens",),
    "cache_read_input_tokens",
    "output_tokens_details.thinking_tokens",
    "cache_creation_input_tokens",
)


def messages_wire(settings: Anthropic) -> api.WireApi:
    """Return the Messages format with a target's settings."""
    constant = _constant_body(settings)
    version = settings.version or (VERSION if settings.temperature is None else VERSION_WITH_TEMPERATURE)

    def variable(request: Request) -> dict[str, Any]:
        fields: dict[str, Any] = {"messages": wire_messages(request.messages)}
        if system := api.system_texts(settings, request.messages):
            fields["system"] = "\n\n".join(system)
        return _cached({**constant, **fields}, settings.prompt_caching) if settings.prompt_caching else fields

    def bill(body: dict[str, Any]) -> api.Bill:
        return api.Bill(read_usage(body.get("usage"), _USAGE))

    headers = {"anthropic-version": version}
    return api.WireApi(constant, variable, read_answer, bill, settings.extra_body, headers)


def wire_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Return user and assistant messages. Tool results are in the user message after the calls."""
    wire: list[dict[str, Any]] = []
    for message in attach_tool_results(messages):
        if message.role == "system":
            continue
        content = api.wire_content(message, _media)
        if isinstance(content, list):
            content = [part for part in content if part.get("text") != ""]
        if message.tool_calls:
            text = [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content)
            uses = [
                {"type": "tool_use", "id": call.id, "name": call.tool, "input": arguments_object(call)}
                for call in message.tool_calls
            ]
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": content_text(call.output)}
                for call in message.tool_calls
            ]
            wire += [{"role": "assistant", "content": [*text, *uses]}, {"role": "user", "content": results}]
        elif content or message.role == "user":  # the API rejects empty assistant messages
            wire.append({"role": message.role, "content": content})
    return wire


def read_answer(body: bytes, _: Request) -> Response:
    """Read a response body. Raises AnswerError if it has no answer."""
    answer = api.decode_body(_decode_answer, body, "a message")
    if answer.content is None:
        raise api.AnswerError("The response has no content")
    text = "".join(block.text or "" for block in answer.content if block.type == "text")
    if answer.stop_reason == "refusal":
        why = (answer.stop_details or {}).get("explanation") or text
        raise api.AnswerError(f"The model refused: {why}" if why else "The model refused", refused=True)
    outputs = {block.tool_use_id: block.content for block in answer.content if block.tool_use_id}
    calls = tuple(
        ToolCall(block.name or "", block.input, outputs.get(block.id or ""), id=block.id)
        for block in answer.content
        if block.type in ("tool_use", "server_tool_use", "mcp_tool_use")
    )
    return Response(
        messages=(api.assistant_message(text, calls),),
        usage=read_usage(answer.usage, _USAGE),
        id=answer.id,
        model=answer.model,
        stop_reason=_STOP_REASONS.get(answer.stop_reason or "", answer.stop_reason),
    )


def _constant_body(settings: Anthropic) -> dict[str, Any]:
    declared = parse_response_format(settings.response_format)
    effort, thinking = api.split_reasoning(settings.reasoning)
    if settings.thinking_budget:
        thinking = {**(thinking or {}), "type": "enabled", "budget_tokens": settings.thinking_budget}
    form = {"type": "json_schema", "schema": declared.schema} if isinstance(declared, JsonFormat) else declared
    return api.drop_none(
        model=settings.model,
        max_tokens=settings.max_output_tokens or OUTPUT_TOKENS + (settings.thinking_budget or 0),
        temperature=settings.temperature,
        thinking=thinking,
        tools=[_tool(tool) for tool in settings.declared_tools] or None,
        output_config=api.drop_none(effort=effort, format=form) or None,
    )


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in the API's format. Anthropic's own tools are returned unchanged."""
    function = parse_function(tool)
    if function is None or "input_schema" in tool:
        return tool
    schema = function.parameters or {"type": "object", "properties": {}}
    name, description, strict = function.name, function.description, function.strict
    return api.drop_none(name=name, description=description, input_schema=schema, strict=strict)


def _cached(body: dict[str, Any], lifetime: bool | str) -> dict[str, Any]:
    """Return a body that caches what all prompts share: the system prompt, else the tools, else the whole prompt."""
    mark = {"type": "ephemeral"} if lifetime is True else {"type": "ephemeral", "ttl": lifetime}
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
