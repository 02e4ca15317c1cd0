"""The mock target: answers made up from settings, for trying things out without a model."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated
from zlib import crc32

from msgspec import Meta

from agentv.model.message import Message, ToolCall
from agentv.model.response import Request, Responder, Response, TargetFailure, content_text
from agentv.model.result import TokenUsage
from agentv.targets.target import NonNegative, Target

Texts = str | Annotated[list[str], Meta(min_length=1)]


class Mock(Target, frozen=True, kw_only=True):
    """Answers without a model, for trying things out.

    `response` for every case (unset: the last user message again), or `responses` by globs over case ids.

    A list is for conversations: a text for each turn, the last one for all further turns.
    `delay_ms` is a number or the least and the most; `fault_rate` is the share of calls that fail.
    """

    response: Texts | None = None
    responses: dict[str, Texts] = {}
    # A list, not a tuple of two: msgspec 0.22 crashes on a fixed tuple in a union with a bounded number.
    delay_ms: NonNegative | list[NonNegative] = 0.0
    fault_rate: Annotated[float, Meta(ge=0, le=1)] = 0.0
    tool_calls: tuple[ToolCall, ...] = ()
    token_usage: TokenUsage | None = None

    def open(self, home: str) -> Responder:  # noqa: ARG002
        """The same answers, delays and faults for the same cases, trials and attempts in every run."""
        return _MockResponder(self)

    @property
    def is_free(self) -> bool:
        """It calls nothing."""
        return True

    def complaints(self) -> list[str]:
        """A range of delays that is none."""
        if isinstance(self.delay_ms, list) and (len(self.delay_ms) != 2 or self.delay_ms[0] > self.delay_ms[1]):
            return ["'delay_ms' must be a number, or the least and the most: [100, 500]"]
        return []


class _MockResponder:
    """Does as little as it can for each call: it is also what the speed of a run is measured with."""

    def __init__(self, settings: Mock) -> None:
        self.endpoint = f"mock:{settings.name}"
        self._tool_calls = settings.tool_calls
        self._usage = settings.token_usage
        self._fault_rate = settings.fault_rate
        delay = settings.delay_ms
        self._least_s, self._most_s = (value / 1000 for value in (delay if isinstance(delay, list) else (delay, delay)))
        self._exact = {id: self._answers(texts) for id, texts in settings.responses.items()}
        self._globs = [
            (pattern, made) for pattern, made in self._exact.items() if any(char in pattern for char in "*?[")
        ]
        self._fixed = None if settings.response is None else self._answers(settings.response)
        self._at_once = not self._most_s and not self._fault_rate

    async def respond(self, request: Request) -> Response:
        if not self._at_once:
            await self._stumble(request)
        if self._exact:
            found = self._exact.get(request.case.id) or next(
                (made for pattern, made in self._globs if fnmatchcase(request.case.id, pattern)), None
            )
            if found is not None:
                return _of_turn(found, request)
        return self._answer(_last_said(request)) if self._fixed is None else _of_turn(self._fixed, request)

    async def aclose(self) -> None:
        """Nothing is open."""

    def _answers(self, texts: Texts) -> tuple[Response, ...]:
        return tuple(self._answer(text) for text in ([texts] if isinstance(texts, str) else texts))

    def _answer(self, text: str) -> Response:
        return Response(messages=(Message("assistant", text, self._tool_calls),), usage=self._usage)

    async def _stumble(self, request: Request) -> None:
        """Waits, and fails, as the case, the trial and the attempt decide."""
        key = f"{request.case.id}\0{request.trial}"
        if request.turn:
            key += f"\0{request.turn}"
        if self._most_s:
            from asyncio import sleep  # late: settings are checked without asyncio, and most mocks answer at once

            delay_s = self._least_s + (self._most_s - self._least_s) * _share(key)
            await sleep(min(delay_s, request.timeout_s))
            if delay_s > request.timeout_s:
                raise TargetFailure("timeout", f"The mock did not answer within {request.timeout_s:g} s")
        if self._fault_rate and _share(f"{key}\0{request.attempt}") < self._fault_rate:
            raise TargetFailure("server", "The mock failed, as its fault_rate wants it", status=500)


def _of_turn(answers: tuple[Response, ...], request: Request) -> Response:
    return answers[0] if len(answers) == 1 else answers[min(request.turn, len(answers) - 1)]


def _share(key: str) -> float:
    """A number from 0 up to 1 that looks random and is the same for the same key."""
    # Multiplied, because a checksum of texts that differ in their last character differs in its low bits only.
    return (crc32(key.encode()) * 0x9E3779B1 % 2**32) / 2**32


def _last_said(request: Request) -> str:
    for message in reversed(request.messages):
        if message.role == "user" and message.content is not None:
            return content_text(message.content)
    return request.prompt
