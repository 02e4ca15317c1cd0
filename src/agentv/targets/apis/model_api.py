"""Code shared by all model APIs: calls, API keys, headers, token usage, and errors in responses."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from agentv.errors import UsageError
from agentv.model.call_trace import trace_headers
from agentv.model.message import ImagePart, Message, ToolCall
from agentv.model.response import Request, Response, TargetFailure, content_text
from agentv.model.result import TokenUsage
from agentv.model.token_counts import UsageFields, amount, read_usage
from agentv.model.values import digest, to_json
from agentv.registry import service
from agentv.support.json_values import json_or
from agentv.targets.apis.api_errors import capacity_wait_s
from agentv.targets.apis.api_messages import Media, media_of
from agentv.targets.target import HostedApi, ModelApi
from agentv.trust.env_file import environment_of

if TYPE_CHECKING:
    from agentv.targets.apis.http_client import HttpClient, HttpResponse


Read = TypeVar("Read")
WirePart = dict[str, Any]


_SHOWN_BYTES = 100


class AnswerError(Exception):
    """A response without an answer: an unexpected shape, an error object (`error`), or a refusal."""

    def __init__(self, message: str, *, error: Any = None, refused: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.error = error
        self.refused = refused


def decode_body(decode: Callable[[bytes], Read], body: bytes, what: str) -> Read:
    """Decode a response body. Raises AnswerError if it is not `what`, e.g. "a chat completion"."""
    try:
        answer = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        is_stream = body.lstrip().startswith((b"data:", b"event:"))
        why = "it is an event stream, which was not requested" if is_stream else _why_undecodable(body, error)
        raise AnswerError(f"The response is not {what}: {why}") from None
    if getattr(answer, "error", None) is not None:
        raise AnswerError("The response is an error", error=answer.error)  # type: ignore[attr-defined]
    return answer


def _why_undecodable(body: bytes, error: Exception) -> str:
    start = " ".join(body[:_SHOWN_BYTES].decode(errors="replace").split())
    if not start:
        return "it is empty"
    return str(error) if start[0] in "{[" else f"it is not JSON, and begins with: {start}"


class ApiAnswer(msgspec.Struct, gc=False, kw_only=True):
    """Fields that most APIs have in their responses."""

    id: str | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None


def assistant_message(text: str, calls: tuple[ToolCall, ...]) -> Message:
    """Return the model's text and tool calls as a message. The content is None if there are only tool calls."""
    return Message("assistant", text if text or not calls else None, calls)


class Bill(NamedTuple):
    """What a reply cost: its tokens, and the amount if the API reports one."""

    usage: TokenUsage | None = None
    cost_usd: float | None = None


class WireApi(NamedTuple):
    """An API's format: the fields of a request body, and a function that reads a response body or raises AnswerError.

    `constant` fields are the same for all requests, `variable` returns the others, `extra_body` is merged over both.
    `bill` reads what a reply cost, with or without an answer, from its decoded body. `api` is the name of the format.
    """

    constant: dict[str, Any]
    variable: Callable[[Request], dict[str, Any]]
    read: Callable[[bytes, Request], Response]
    bill: Callable[[dict[str, Any]], Bill]
    extra_body: dict[str, Any] = {}
    headers: dict[str, str] = {}
    api: str = ""

    def body(self, request: Request) -> dict[str, Any]:
        """Return a request body."""
        return deep_merge({**self.constant, **self.variable(request)}, self.extra_body)


class ApiResponder:
    """Calls one model API endpoint."""

    def __init__(self, client: HttpClient, url: str, endpoint: str, wire: WireApi) -> None:
        self.endpoint = endpoint
        self.client = client
        """The client with the target's headers, for other calls to its API."""
        self._url = url
        self._wire = wire

    async def respond(self, request: Request) -> Response:
        """Make one call. Raises TargetFailure."""
        body = to_json(self._wire.body(request))
        start = time.perf_counter()
        http_response = await self.client.send("POST", self._url, body, request.timeout_s, trace_headers(request.trace))
        duration_ms = (time.perf_counter() - start) * 1000
        response = self.read(http_response, request)
        tokens = 0 if response.usage is None else response.usage.input + response.usage.output
        wait_s = capacity_wait_s(http_response.headers, tokens, time.time())
        return msgspec.structs.replace(response, duration_ms=duration_ms, wait_s=wait_s)

    def read(self, http_response: HttpResponse, request: Request) -> Response:
        """Read a response. Raises TargetFailure."""
        try:
            return require_content(self._wire.read(http_response.body, request))
        except AnswerError as error:
            raise billed(self._failure(error, http_response), http_response.body, self._wire) from None

    def sends(self, request: Request) -> dict[str, Any]:
        """Return the request body."""
        return self._wire.body(request)

    def _failure(self, error: AnswerError, http_response: HttpResponse) -> TargetFailure:
        if error.refused:
            return self.client.failure("refused", error.message, status=http_response.status)
        if error.error is not None:
            # Gateways report a provider's failure with status 200 and put the provider's status in `code`.
            code = error.error.get("code") if isinstance(error.error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else http_response.status
            return self.client.reported(error.error, status, http_response.headers)
        return self.client.unreadable(http_response, error.message)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()


def billed(failure: TargetFailure, body: bytes, wire: WireApi) -> TargetFailure:
    """Return the failure of a reply with what the reply cost. A reply that was cut off has no known cost."""
    data = json_or(body, None)
    if isinstance(data, dict):
        failure.usage, failure.cost_usd = wire.bill(data)
        failure.model = data.get("model") if isinstance(data.get("model"), str) else None
    is_known = failure.usage is not None or failure.cost_usd is not None
    failure.is_billed = not is_known and failure.status is not None and failure.status < 300 and body[:1] == b"{"
    return failure


def open_api(settings: ModelApi, url: str, auth: dict[str, str], wire: WireApi, *, base: str) -> ApiResponder:
    """Open an endpoint. Calls with the same `base` and `auth` headers share one concurrency limit."""
    from agentv.targets.apis.http_client import HttpClient  # late: aiohttp takes a quarter of a second to import

    headers = merge_headers({"Content-Type": "application/json", **wire.headers, **auth}, settings.headers)
    endpoint = f"{base}#{digest(auth)[:8] if auth else 'no-key'}"
    if settings.answer_form == "promptfoo" and wire.api:
        wire = wire._replace(read=partial(service("promptfoo-output", "`answer_form`"), wire.read, wire.api))
    return ApiResponder(HttpClient(url, headers), url, endpoint, wire)


def find_api_key(settings: HostedApi, home: str, *variables: str) -> str | None:
    """Return the API key from the settings, or else from the vendor's environment variables.

    The variables are only used for the vendor's own address, so that no other host receives the key. Raises UsageError
    if that address has no key.
    """
    if settings.api_key or settings.base_url is not None:
        return settings.api_key or None
    values = environment_of(home).variables
    for variable in variables:
        if values.get(variable, "").strip():
            return values[variable]
    hint = f"Set {variables[0]} in the environment or in .env, or write api_key: ${{{{ YOUR_VARIABLE }}}}"
    raise UsageError(f"Target '{settings.name}' has no 'api_key'", hint=hint)


def merge_headers(headers: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Return headers in which the user's own replace others of the same name, compared case-insensitively."""
    own_names = {name.lower() for name in own}
    return {name: value for name, value in headers.items() if name.lower() not in own_names} | own


def drop_none(**fields: Any) -> dict[str, Any]:
    """Return the fields of a body that are not null."""
    return {name: value for name, value in fields.items() if value is not None}


def deep_merge(body: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return a body with `more` merged into it; nested objects are merged key by key."""
    if not more:
        return body
    both = {
        name: deep_merge(body[name], value) if isinstance(value, dict) and isinstance(body.get(name), dict) else value
        for name, value in more.items()
    }
    return {**body, **both}


def require_content(response: Response) -> Response:
    """Return the response. Raises TargetFailure if the token limit was reached before any output, while thinking."""
    if response.stop_reason == "length" and not any(item.content or item.tool_calls for item in response.messages):
        message = "The token limit was reached before the model produced any output. Raise max_output_tokens."
        failure = TargetFailure("invalid_response", message).add_use(response)
        failure.model = response.model
        raise failure
    return response


def system_texts(settings: ModelApi, messages: tuple[Message, ...]) -> list[str]:
    """Return the target's system prompt and the system messages, for APIs that take them in a separate field."""
    own = [settings.system_prompt] if settings.system_prompt else []
    return own + [content_text(message.content) for message in messages if message.role == "system"]


def split_reasoning(reasoning: dict[str, Any] | str | None) -> tuple[str | None, dict[str, Any] | None]:
    """Return `reasoning` as an effort, or as an object if it has other keys."""
    if isinstance(reasoning, dict) and reasoning.keys() != {"effort"}:
        return None, reasoning
    return (reasoning["effort"] if isinstance(reasoning, dict) else reasoning), None


def wire_content(message: Message, media: Callable[[Media], WirePart], kind: str = "text") -> str | list[WirePart]:
    """Return a message's content: parts in the API's format if it has an image, else text, which all servers accept."""
    if not any(isinstance(part, ImagePart) for part in message.parts):
        return "" if message.content is None else content_text(message.content)
    return [
        media(media_of(part.value)) if isinstance(part, ImagePart) else {"type": kind, "text": part.value}
        for part in message.parts
    ]


class _Vector(msgspec.Struct, gc=False):
    embedding: list[float]
    index: int = 0


class _Embeddings(ApiAnswer, gc=False):
    data: list[_Vector]


_decode_embeddings = msgspec.json.Decoder(_Embeddings).decode
_EMBEDDING_USAGE = UsageFields(("prompt_tokens",), ("completion_tokens",))


def embedding_texts(request: Request) -> list[str]:
    """Return the texts to embed, one per message."""
    return [content_text(message.content) for message in request.messages]


def embedding_response(vectors: list[list[float]], **fields: Any) -> Response:
    """Return a response with the vectors, in the order of the texts, as the content of one message."""
    return Response(messages=(Message("assistant", vectors),), **fields)


def embeddings_wire(model: str | None) -> WireApi:
    """Return OpenAI's embeddings format: one call for all texts."""
    return WireApi(
        {"model": model},
        lambda request: {"input": embedding_texts(request), "encoding_format": "float"},
        _read_embeddings,
        _embeddings_bill,
    )


def _read_embeddings(body: bytes, request: Request) -> Response:
    read = decode_body(_decode_embeddings, body, "a list of embeddings")
    vectors = [item.embedding for item in sorted(read.data, key=lambda item: item.index)]
    if len(vectors) != len(request.messages):
        raise AnswerError(f"The response has {len(vectors)} embeddings for {len(request.messages)} texts")
    usage, cost_usd = _embeddings_bill({"usage": read.usage})
    return embedding_response(vectors, usage=usage, cost_usd=cost_usd, model=read.model)


def _embeddings_bill(body: dict[str, Any]) -> Bill:
    usage = body.get("usage")
    cost_usd = amount(usage.get("cost")) if isinstance(usage, dict) else None
    return Bill(read_usage(usage, _EMBEDDING_USAGE), cost_usd)
