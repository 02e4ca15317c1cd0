"""What all model APIs share around their own form: the call, keys, headers, and what an answer that is none becomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from agentv.errors import UsageError
from agentv.model.message import ImagePart, Message, ToolCall
from agentv.model.response import Request, Response, TargetFailure, content_text
from agentv.model.result import TokenUsage
from agentv.model.values import digest, to_json
from agentv.settings.environment import environment_of
from agentv.targets.apis.api_errors import capacity_wait_s
from agentv.targets.apis.api_messages import Media, media_of
from agentv.targets.target import HostedApi, ModelApi

if TYPE_CHECKING:
    from agentv.targets.apis.http_client import HttpClient, HttpReply


Read = TypeVar("Read")

_MOST_TOKENS = 2**53
"""More is nonsense, and no number that every reader of JSON has."""


class AnswerError(Exception):
    """An answer that is none: of another shape, an error under a good status (`error`), or a refusal."""

    def __init__(self, message: str, *, error: Any = None, refused: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.error = error
        self.refused = refused


def decode_body(decode: Callable[[bytes], Read], body: bytes, what: str) -> Read:
    """An answer's body as its API's struct. Raises AnswerError, which begins with `what`, for any other body."""
    try:
        answer = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        streamed = body.lstrip().startswith((b"data:", b"event:"))
        why = "it is a stream of events, which was not asked for" if streamed else error
        raise AnswerError(f"{what}: {why}") from None
    if getattr(answer, "error", None) is not None:
        raise AnswerError("The answer is an error", error=answer.error)  # type: ignore[attr-defined]
    return answer


def assistant_message(text: str, calls: tuple[ToolCall, ...]) -> Message:
    """What a model said, and the tools it called: one that called some may say nothing."""
    return Message("assistant", text if text or not calls else None, calls)


class WireApi(NamedTuple):
    """One API's own form: the body of a request, and the response in the body of its answer. Raises AnswerError."""

    body: Callable[[Request], dict[str, Any]]
    read: Callable[[bytes, Request], Response]


class ApiResponder:
    """An endpoint that is alive, whatever API it speaks."""

    def __init__(self, client: HttpClient, url: str, endpoint: str, wire: WireApi) -> None:
        self.endpoint = endpoint
        self._client = client
        self._url = url
        self._wire = wire

    async def respond(self, request: Request) -> Response:
        """One call. Raises TargetFailure."""
        body = to_json(self._wire.body(request))
        start = time.perf_counter()
        reply = await self._client.send("POST", self._url, body, request.timeout_s)
        duration_ms = (time.perf_counter() - start) * 1000
        try:
            response = require_content(self._wire.read(reply.body, request))
        except AnswerError as error:
            raise self._failure(error, reply) from None
        tokens = 0 if response.usage is None else response.usage.input + response.usage.output
        wait_s = capacity_wait_s(reply.headers, tokens, time.time())
        return msgspec.structs.replace(response, duration_ms=duration_ms, wait_s=wait_s)

    def sends(self, request: Request) -> dict[str, Any]:
        """The body of the call."""
        return self._wire.body(request)

    def _failure(self, error: AnswerError, reply: HttpReply) -> TargetFailure:
        if error.refused:
            return self._client.failure("refused", error.message, status=reply.status)
        if error.error is not None:
            # Gateways report a provider's failure under status 200, with the status it had as its code.
            code = error.error.get("code") if isinstance(error.error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else reply.status
            return self._client.reported(error.error, status, reply.headers)
        return self._client.unreadable(reply, error.message)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


def open_api(url: str, key: str | None, headers: dict[str, str], wire: WireApi, *, base: str) -> ApiResponder:
    """An endpoint ready to be asked. `base` and the key name what its calls compete for."""
    from agentv.targets.apis.http_client import HttpClient  # late: aiohttp takes a quarter of a second to import

    endpoint = f"{base}#{digest(key)[:8] if key else 'no-key'}"
    return ApiResponder(HttpClient(url, {"Content-Type": "application/json", **headers}), url, endpoint, wire)


def find_api_key(settings: HostedApi, home: str, *variables: str) -> str | None:
    """The key of a model API: the written one, else the vendor's own variable's.

    The vendor's variable is for its own address alone: other hosts must not be sent its key. Raises UsageError if the
    vendor's address has no key.
    """
    if settings.api_key or settings.base_url is not None:
        return settings.api_key or None
    known = environment_of(home).variables
    for variable in variables:
        if known.get(variable, "").strip():
            return known[variable]
    raise UsageError(
        f"Target '{settings.name}' has no 'api_key'",
        hint=f"Set {variables[0]} in the environment or in .env, or write api_key: ${{{{ YOUR_VARIABLE }}}}",
    )


def merge_headers(headers: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Headers with the user's own over them; names are the same in any case."""
    written = {name.lower() for name in own}
    return {name: value for name, value in headers.items() if name.lower() not in written} | own


def drop_none(body: dict[str, Any]) -> dict[str, Any]:
    """A body without the fields that nobody set."""
    return {name: value for name, value in body.items() if value is not None}


def deep_merge(body: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """A body with more put over it, objects within objects key by key."""
    if not more:
        return body
    both = {
        name: deep_merge(body[name], value) if isinstance(value, dict) and isinstance(body.get(name), dict) else value
        for name, value in more.items()
    }
    return {**body, **both}


class UsageFields(NamedTuple):
    """Where an API reports its counts: keys, or paths of keys. Several are added up; the first input is required."""

    input: tuple[str, ...]
    output: tuple[str, ...]
    cached: str = ""
    reasoning: str = ""
    cache_write: str = ""


def read_usage(reported: Any, fields: UsageFields) -> TokenUsage | None:
    """Token counts as a usage; None for counts of another form, which is no reason to throw a paid answer away."""
    try:
        if reported.get(fields.input[0]) is None or reported.get(fields.output[0], 0) is None:
            return None
        known = [_count(reported, path) for path in fields[2:]]
        input, output = (sum(_count(reported, path) or 0 for path in paths) for paths in fields[:2])
    except (AttributeError, TypeError, ValueError):
        return None
    if min(counts := (input, output, *(count or 0 for count in known))) < 0 or max(counts) > _MOST_TOKENS:
        return None
    cached, reasoning, cache_write = known
    return TokenUsage(input, output, cached, reasoning or None, cache_write or None)


def _count(reported: Any, path: str) -> int | None:
    """A count that is not negative; a text is taken for the number it holds."""
    for key in path.split("."):
        reported = reported.get(key) if isinstance(reported, dict) else None
    if reported is None:
        return None
    count = int(reported)
    if count < 0 or isinstance(reported, bool) or count != float(reported):
        raise ValueError(f"{path} is not a count")
    return count


def amount(value: Any) -> float | None:
    """An amount of money as reported; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return None
    return float(value)


def require_content(response: Response) -> Response:
    """The response, if there is anything in it or the model ended it so. Raises TargetFailure.

    One that was stopped while it still thought is no answer; scored, it would be a wrong one.
    """
    if response.stop_reason == "length" and not any(said.content or said.tool_calls for said in response.messages):
        message = "The limit of tokens was reached before the model said anything; raise max_output_tokens"
        raise TargetFailure("invalid_response", message)
    return response


def system_texts(settings: ModelApi, messages: tuple[Message, ...]) -> list[str]:
    """The target's system prompt and the system messages, for APIs that take them apart from the others."""
    own = [settings.system_prompt] if settings.system_prompt else []
    return own + [content_text(message.content) for message in messages if message.role == "system"]


def split_reasoning(reasoning: dict[str, Any] | str | None) -> tuple[str | None, dict[str, Any] | None]:
    """`reasoning` as an effort, or as an object with more in it."""
    if isinstance(reasoning, dict) and reasoning.keys() != {"effort"}:
        return None, reasoning
    return (reasoning["effort"] if isinstance(reasoning, dict) else reasoning), None


def wire_content(
    message: Message, media: Callable[[Media], dict[str, Any]], text_type: str = "text"
) -> str | list[dict[str, Any]]:
    """A message's content: parts in an API's own form if it has an image, else text, which every server takes."""
    if not any(isinstance(part, ImagePart) for part in message.parts):
        return "" if message.content is None else content_text(message.content)
    return [
        media(media_of(part.value)) if isinstance(part, ImagePart) else {"type": text_type, "text": part.value}
        for part in message.parts
    ]


class _Vector(msgspec.Struct, gc=False):
    embedding: list[float]
    index: int = 0


class _EmbeddingUsage(msgspec.Struct, gc=False):
    prompt_tokens: int = 0
    cost: float | None = None


class _Embeddings(msgspec.Struct, gc=False):
    data: list[_Vector]
    model: str | None = None
    usage: _EmbeddingUsage | None = None


_decode_embeddings = msgspec.json.Decoder(_Embeddings).decode


def embedding_texts(request: Request) -> list[str]:
    """The texts of which vectors are wanted, one a message."""
    return [content_text(message.content) for message in request.messages]


def embedding_response(vectors: list[list[float]], **known: Any) -> Response:
    """Vectors in the order of their texts, as the data of one message."""
    return Response(messages=(Message("assistant", vectors),), **known)


def embeddings_wire(model: str | None) -> WireApi:
    """OpenAI's embeddings: one call for all texts."""

    def body(request: Request) -> dict[str, Any]:
        return {"model": model, "input": embedding_texts(request), "encoding_format": "float"}

    return WireApi(body, _read_embeddings)


def _read_embeddings(body: bytes, request: Request) -> Response:
    read = decode_body(_decode_embeddings, body, "The answer holds no embeddings")
    vectors = [item.embedding for item in sorted(read.data, key=lambda item: item.index)]
    if len(vectors) != len(request.messages):
        raise AnswerError(f"The answer holds {len(vectors)} embeddings for {len(request.messages)} texts")
    usage = read.usage or _EmbeddingUsage()
    return embedding_response(
        vectors,
        usage=None if read.usage is None else TokenUsage(usage.prompt_tokens, 0),
        cost_usd=usage.cost,
        model=read.model,
    )
