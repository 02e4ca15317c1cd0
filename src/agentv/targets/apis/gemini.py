"""Google's Gemini API: settings, requests and responses."""

import re
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from agentv.model.message import ImagePart, Message, ToolCall
from agentv.model.response import Request, Responder, Response, content_text
from agentv.model.token_counts import UsageFields, read_usage
from agentv.targets.apis import api_messages
from agentv.targets.apis import model_api as api
from agentv.targets.target import Count, HostedApi

GEMINI_URL = "https://generativelanguage.googleapis.com"

_VERSIONED = re.compile(r"/v\d\w*(/|$)")
_STOP_REASONS = {"STOP": "stop", "MAX_TOKENS": "length"}
_REFUSED = re.compile(r"(IMAGE_)?(SAFETY|RECITATION|PROHIBITED_CONTENT)|BLOCKLIST|SPII")
_NO_SIGNATURE = "skip_thought_signature_validator"
"""The thought signature that Gemini 3 accepts for conversations it did not produce."""


class Gemini(HostedApi, frozen=True, kw_only=True):
    """Google's Gemini API.

    The key defaults to `GEMINI_API_KEY`, then `GOOGLE_API_KEY`. `reasoning` is a level (`low`, `high`), or an object
    that is sent as `thinkingConfig`. `base_url` may point to Vertex AI: `…/v1/projects/…/publishers/google`.
    """

    price_list_name: ClassVar[str | None] = "google"
    vendor_url: ClassVar[str] = GEMINI_URL
    vendor_keys: ClassVar[tuple[str, ...]] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")

    model: str | None = "gemini-2.5-flash"
    thinking_budget: Count | None = None
    """Maximum reasoning tokens."""

    @classmethod
    def telemetry_name(cls, provider: str) -> str:  # noqa: ARG003
        """Return the name of the conventions."""
        return "gcp.gemini"

    def open(self, home: str) -> Responder:
        """Open the endpoint."""
        key = api.find_api_key(self, home, *self.vendor_keys)
        base = (self.base_url or GEMINI_URL).rstrip("/")
        versioned = base if _VERSIONED.search(base) else f"{base}/v1"
        model = quote(str(self.model).removeprefix("models/"))
        url = f"{versioned}/models/{model}:generateContent"
        return api.open_api(self, url, {"x-goog-api-key": key} if key else {}, content_wire(self), base=base)


class _FunctionCall(msgspec.Struct, gc=False):
    name: str = ""
    args: Any = None
    id: str | None = None


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool = False
    function_call: _FunctionCall | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Answer(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: dict[str, Any] | None = None
    usage_metadata: Any = None
    model_version: str | None = None
    response_id: str | None = None
    error: Any = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_USAGE = UsageFields(
    ("promptTokenCount", "toolUsePromptTokenCount"),
    # Gemini counts thoughts separately; they are output, as with other APIs.
    ("candidatesTokenCount", "thoughtsTokenCount"),
    "cachedContentTokenCount",
    "thoughtsTokenCount",
)


def content_wire(settings: Gemini) -> api.WireApi:
    """Return the generateContent format with a target's settings."""
    constant = _constant_body(settings)
    signed = str(settings.model).removeprefix("models/").startswith("gemini-3")

    def variable(request: Request) -> dict[str, Any]:
        fields: dict[str, Any] = {"contents": wire_contents(request.messages, signed)}
        if system := api.system_texts(settings, request.messages):
            fields["systemInstruction"] = {"parts": [{"text": text} for text in system]}
        return fields

    return api.WireApi(constant, variable, read_answer, read_bill, settings.extra_body, api="content")


def wire_contents(messages: tuple[Message, ...], signed: bool = False) -> list[dict[str, Any]]:
    """Return user and model contents. Function responses are in the user content after the calls.

    With `signed`, calls get a placeholder where Gemini expects a thought signature.
    """
    wire: list[dict[str, Any]] = []
    for message in api_messages.attach_tool_results(messages):
        if message.role == "system":
            continue
        parts = _parts(message)
        if not message.tool_calls:
            if parts or message.role == "user":  # the API rejects empty model contents
                wire.append({"role": "model" if message.role == "assistant" else "user", "parts": parts})
            continue
        calls: list[dict[str, Any]] = [
            {"functionCall": {"name": call.tool, "args": api_messages.arguments_object(call)}}
            for call in message.tool_calls
        ]
        if signed:
            calls[0]["thoughtSignature"] = _NO_SIGNATURE
        wire.append({"role": "model", "parts": [*parts, *calls]})
        wire.append({"role": "user", "parts": [_function_response(call) for call in message.tool_calls]})
    return wire


def _function_response(call: ToolCall) -> dict[str, Any]:
    output = call.output if isinstance(call.output, dict) else {"result": call.output}  # must be an object
    return {"functionResponse": {"name": call.tool, "response": output}}


def read_answer(body: bytes, _: Request) -> Response:
    """Read a response body. Raises AnswerError if it has no answer."""
    answer = api.decode_body(_decode_answer, body, "generated content")
    if blocked := (answer.prompt_feedback or {}).get("blockReason"):
        raise api.AnswerError(f"A filter blocked the prompt: {blocked}", refused=True)
    if not answer.candidates:
        raise api.AnswerError("The response has no candidates")
    candidate = answer.candidates[0]
    parts = (candidate.content and candidate.content.parts) or []
    calls = tuple(
        ToolCall(part.function_call.name, part.function_call.args or {}, id=part.function_call.id)
        for part in parts
        if part.function_call is not None
    )
    text = "".join(part.text or "" for part in parts if not part.thought)
    return Response(
        messages=(api.assistant_message(text, calls),),
        usage=read_usage(answer.usage_metadata, _USAGE),
        id=answer.response_id,
        model=answer.model_version,
        stop_reason=_stop_reason(candidate, bool(text or calls), bool(calls)),
    )


def read_bill(body: dict[str, Any]) -> api.Bill:
    """Return what a reply cost."""
    return api.Bill(read_usage(body.get("usageMetadata"), _USAGE))


def _constant_body(settings: Gemini) -> dict[str, Any]:
    declared = api_messages.parse_response_format(settings.response_format)
    effort, thinking = api.split_reasoning(settings.reasoning)
    thinking = (thinking or {}) | api.drop_none(thinkingLevel=effort, thinkingBudget=settings.thinking_budget)
    # Fields that request JSON; an object in Gemini's own format is used unchanged.
    form = declared or {}
    if isinstance(form, api_messages.JsonFormat):
        form = api.drop_none(responseMimeType="application/json", responseJsonSchema=form.schema)
    config = api.drop_none(
        temperature=settings.temperature,
        maxOutputTokens=settings.max_output_tokens,
        seed=settings.seed,
        thinkingConfig=thinking or None,
        **form,
    )
    return api.drop_none(generationConfig=config or None, tools=_tools(settings.declared_tools) or None)


def _tools(tools: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """Return the functions in one declaration. Google's own tools are returned unchanged."""
    functions = [(tool, api_messages.parse_function(tool)) for tool in tools]
    declared = [
        api.drop_none(name=spec.name, description=spec.description, parametersJsonSchema=spec.parameters)
        for _, spec in functions
        if spec is not None
    ]
    own = [tool for tool, spec in functions if spec is None]
    return [*([{"functionDeclarations": declared}] if declared else []), *own]


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message.content
    if isinstance(content, tuple):
        return [_media(part.value) if isinstance(part, ImagePart) else {"text": part.value} for part in content]
    return [{"text": content_text(content)}] if content not in (None, "") else []


def _media(value: str) -> dict[str, Any]:
    media = api_messages.media_of(value)
    if media.data is not None:
        return {"inlineData": {"mimeType": media.media_type, "data": media.data}}
    return {"fileData": {"fileUri": media.address, "mimeType": media.media_type or "image/jpeg"}}


def _stop_reason(candidate: _Candidate, has_output: bool, has_calls: bool) -> str | None:
    reason = candidate.finish_reason
    why = f"{reason}: {candidate.finish_message}" if candidate.finish_message else str(reason)
    if reason and _REFUSED.fullmatch(reason):
        raise api.AnswerError(f"A filter stopped the response: {why}", refused=True)
    if reason not in (None, *_STOP_REASONS) and not has_output:
        raise api.AnswerError(f"The model returned no answer: {why}")
    if has_calls and reason == "STOP":
        return "tool_calls"
    return None if reason is None else _STOP_REASONS.get(reason, reason.lower())
