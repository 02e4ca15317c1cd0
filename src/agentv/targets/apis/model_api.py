"""What all model APIs share around their own form: the call, keys, headers, and what an answer that is none becomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from agentv.errors import UsageError
from agentv.model.message import Message, ToolCall
from agentv.model.response import Request, Response, TargetFailure
from agentv.model.result import TokenUsage
from agentv.model.values import digest, to_json
from agentv.settings.environment import environment_of
from agentv.targets.apis.api_errors import until_next_s
from agentv.targets.target import ModelApi

if TYPE_CHECKING:
    from agentv.targets.apis.http_client import HttpClient, Reply


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


def decoded(decode: Callable[[bytes], Read], body: bytes, without: str) -> Read:
    """An answer's body as its API's struct. Raises AnswerError, which begins with `without`, for any other body."""
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        streamed = body.lstrip().startswith((b"data:", b"event:"))
        why = "it is a stream of events, which was not asked for" if streamed else error
        raise AnswerError(f"{without}: {why}") from None


def told(decode: Callable[[msgspec.Raw], Read], counts: msgspec.Raw) -> Read | None:
    """Counts of tokens as an API's struct; None for any other form, which is no reason to throw a paid answer away."""
    try:
        return decode(counts)
    except (msgspec.DecodeError, RecursionError):
        return None


def spoken(text: str, calls: tuple[ToolCall, ...]) -> Message:
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
            response = answered_something(self._wire.read(reply.body, request))
        except AnswerError as error:
            raise self._failure(error, reply) from None
        tokens = 0 if response.usage is None else response.usage.input + response.usage.output
        wait_s = until_next_s(reply.headers, tokens, time.time())
        return msgspec.structs.replace(response, duration_ms=duration_ms, wait_s=wait_s)

    def sends(self, request: Request) -> dict[str, Any]:
        """The body of the call."""
        return self._wire.body(request)

    def _failure(self, error: AnswerError, reply: Reply) -> TargetFailure:
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


def key_of(settings: ModelApi, home: str, *variables: str, given: str | None = None) -> str:
    """The key that is written, else that of the first of the vendor's own variables. Raises UsageError for none."""
    if given:
        return given
    known = environment_of(home).variables
    for variable in variables:
        if known.get(variable, "").strip():
            return known[variable]
    named = variables[0]
    raise UsageError(
        f"Target '{settings.name}' has no 'api_key'",
        hint=f"Set {named} in the environment or in .env, or write api_key: ${{{{ YOUR_VARIABLE }}}}",
    )


def overlaid(headers: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Headers with the user's own over them; names are the same in any case."""
    written = {name.lower() for name in own}
    return {name: value for name, value in headers.items() if name.lower() not in written} | own


def given_only(body: dict[str, Any]) -> dict[str, Any]:
    """A body without the fields that nobody set."""
    return {name: value for name, value in body.items() if value is not None}


def merged(body: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """A body with more put over it, objects within objects key by key."""
    if not more:
        return body
    both = {
        name: merged(body[name], value) if isinstance(value, dict) and isinstance(body.get(name), dict) else value
        for name, value in more.items()
    }
    return {**body, **both}


def sensible_usage(
    input: int, output: int, cached: int | None, reasoning: int | None = None, cache_write: int | None = None
) -> TokenUsage | None:
    """Counts as a usage; None when one of them makes no sense. That nothing was thought or written is not said."""
    counts = (input, output, cached or 0, reasoning or 0, cache_write or 0)
    if min(counts) < 0 or max(counts) > _MOST_TOKENS:
        return None
    return TokenUsage(input, output, cached, reasoning or None, cache_write or None)


def answered_something(response: Response) -> Response:
    """The response, if there is anything in it or the model ended it so. Raises TargetFailure.

    One that was stopped while it still thought is no answer; scored, it would be a wrong one.
    """
    if response.stop_reason == "length" and not any(said.content or said.tool_calls for said in response.messages):
        message = "The limit of tokens was reached before the model said anything; raise max_output_tokens"
        raise TargetFailure("invalid_response", message)
    return response
