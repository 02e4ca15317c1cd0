"""The mock target: canned responses, for testing without a model."""

# Without `from __future__ import annotations`: types are read here, and parsing them would take longer.

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any
from zlib import crc32

from msgspec import Meta

from agentv.model.message import Message, ToolCall
from agentv.model.response import Request, Responder, Response, TargetFailure, content_text
from agentv.model.result import TokenUsage
from agentv.targets.target import NonNegative, Target
from agentv.trust.inventory import NamedUse

Texts = str | Annotated[list[str], Meta(min_length=1)]
_GLOB = frozenset("*?[")


class Mock(Target, frozen=True, kw_only=True):
    """Canned responses, for testing without a model.

    `response` is for all cases (default: echo the last user message); `responses` are by case id, with globs. A list
    has a text for each turn of a conversation; the last one is repeated. `delay_ms` is a number or a range
    `[minimum, maximum]`; `fault_rate` is the fraction of calls that fail.
    """

    response: Texts | None = None
    """Answer to every input."""

    responses: dict[str, Texts] = {}
    """Answers by globs of case ids."""

    # A list, not a tuple of two: msgspec 0.22 crashes on a fixed tuple in a union with a bounded number.
    delay_ms: NonNegative | list[NonNegative] = 0.0
    """Delay of an answer: a number, or minimum and maximum."""

    fault_rate: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Fraction of calls that fail."""

    tool_calls: tuple[ToolCall, ...] = ()
    """Tool calls of each answer."""

    token_usage: TokenUsage | None = None
    """Token usage of each answer."""

    @classmethod
    def uses(cls, settings: Mapping[str, Any]) -> Iterable[NamedUse]:  # noqa: ARG003
        """Return nothing: no program and no host is called."""
        return ()

    def open(self, home: str) -> Responder:  # noqa: ARG002
        """Open the target. Delays and faults depend only on the case, trial and attempt."""
        return _MockResponder(self)

    @property
    def is_free(self) -> bool:
        """True: no model is called."""
        return True

    def complaints(self) -> list[str]:
        """Check the range of delays."""
        if isinstance(self.delay_ms, list) and (len(self.delay_ms) != 2 or self.delay_ms[0] > self.delay_ms[1]):
            return ["'delay_ms' must be a number, or a range [minimum, maximum] such as [100, 500]"]
        return []


class _MockResponder:
    """Returns canned responses with little overhead, because benchmarks use it."""

    def __init__(self, settings: Mock) -> None:
        self.endpoint = f"mock:{settings.name}"
        self._tool_calls = settings.tool_calls
        self._usage = settings.token_usage
        self._fault_rate = settings.fault_rate
        delay = settings.delay_ms
        self._min_s, self._max_s = (value / 1000 for value in (delay if isinstance(delay, list) else (delay, delay)))
        self._exact = {id: self._responses(texts) for id, texts in settings.responses.items()}
        self._globs = [(pattern, replies) for pattern, replies in self._exact.items() if not _GLOB.isdisjoint(pattern)]
        self._fixed = None if settings.response is None else self._responses(settings.response)
        self._is_immediate = not self._max_s and not self._fault_rate

    async def respond(self, request: Request) -> Response:
        if not self._is_immediate:
            await self._delay_or_fail(request)
        replies = self._fixed
        if self._exact:
            replies = self._exact.get(request.case.id) or next(
                (matches for pattern, matches in self._globs if fnmatchcase(request.case.id, pattern)), replies
            )
        if replies is None:
            return self._response(_last_user_text(request))
        return replies[0] if len(replies) == 1 else replies[min(request.turn, len(replies) - 1)]

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""

    def _responses(self, texts: Texts) -> tuple[Response, ...]:
        return tuple(self._response(text) for text in ([texts] if isinstance(texts, str) else texts))

    def _response(self, text: str) -> Response:
        message = Message("assistant", text, self._tool_calls)
        return Response(messages=(message,), usage=self._usage, calls_unknown=not self._tool_calls)

    async def _delay_or_fail(self, request: Request) -> None:
        key = f"{request.case.id}\0{request.trial}"
        if request.turn:
            key += f"\0{request.turn}"
        if self._max_s:
            from asyncio import sleep  # late: checking settings needs no asyncio, and most mocks have no delay

            delay_s = self._min_s + (self._max_s - self._min_s) * _fraction(key)
            await sleep(min(delay_s, request.timeout_s))
            if delay_s > request.timeout_s:
                raise TargetFailure("timeout", f"The mock did not respond within {request.timeout_s:g} s")
        if self._fault_rate and _fraction(f"{key}\0{request.attempt}") < self._fault_rate:
            raise TargetFailure("server", "Simulated failure (fault_rate)", status=500)


def _fraction(key: str) -> float:
    """Return a pseudo-random number in [0, 1) that depends only on the key."""
    # Multiplied, because checksums of texts that differ in the last character differ in the low bits only.
    return (crc32(key.encode()) * 0x9E3779B1 % 2**32) / 2**32


def _last_user_text(request: Request) -> str:
    for message in reversed(request.messages):
        if message.role == "user" and message.content is not None:
            return message.content if isinstance(message.content, str) else content_text(message.content)
    return request.prompt
