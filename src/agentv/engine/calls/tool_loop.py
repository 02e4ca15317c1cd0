"""Let a model call tools: run its calls, send it the results, and repeat until it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import Request, Responder, ResponderWrapper, Response, TargetFailure
from agentv.model.result import sum_usage
from agentv.targets.apis.api_messages import parse_function

if TYPE_CHECKING:
    from agentv.engine.job.request import CaseRequest
    from agentv.targets.tools.tool import DeclaredTool
    from agentv.targets.tools.toolbox import Toolbox

MAX_TURNS = 20


class ToolLoopWrapper(ResponderWrapper):
    """Answers with all messages and tool calls up to the model's answer, or up to `max_turns` calls of the model.

    `open_with` opens the model with declared tools. Calls of tools in `left_out` end the loop: they are the answer.
    """

    def __init__(
        self,
        inner: Responder,
        open_with: Callable[[tuple[DeclaredTool, ...]], Responder],
        toolbox: Toolbox,
        left_out: frozenset[str],
        max_turns: int | None,
    ) -> None:
        super().__init__(inner)
        self._open_with = open_with
        self._toolbox = toolbox
        self._left_out = left_out
        self._max_turns = max_turns or MAX_TURNS
        self._model: Responder | None = None

    async def respond(self, request: Request) -> Response:
        started = time.perf_counter()
        declared = await self._toolbox.start()
        if self._model is None:
            self._model = self._open_with(declared)
        loop = _Loop(cast("CaseRequest", request), started)
        try:
            async with asyncio.timeout(request.timeout_s):
                await self._play(loop, self._model)
        except TimeoutError:
            message = f"The model and its tools did not finish within {request.timeout_s:g} s"
            raise loop.add_use_to(TargetFailure("timeout", message)) from None
        except TargetFailure as failure:
            loop.add_use_to(failure)
            raise
        return loop.response()

    async def aclose(self) -> None:
        """Close the model and its tools."""
        await self._toolbox.aclose()
        if self._model is not None:
            await self._model.aclose()
        await super().aclose()

    async def _play(self, loop: _Loop, model: Responder) -> None:
        for _ in range(self._max_turns):
            response = await model.respond(loop.next_request())
            loop.responses.append(response)
            calls = [call for message in response.messages for call in message.tool_calls if call.output is None]
            if not calls or any(call.tool in self._left_out for call in calls):
                loop.messages += response.messages
                return
            if len(loop.responses) == self._max_turns:
                break
            for message in response.messages:
                loop.messages.append(await self._answered(message, loop))
        loop.messages += response.messages
        loop.is_cut_off = True

    async def _answered(self, message: Message, loop: _Loop) -> Message:
        """Return a message with the results of its tool calls."""
        if not message.tool_calls:
            return message
        calls = [call if call.output is not None else await self._run(call, loop) for call in message.tool_calls]
        return msgspec.structs.replace(message, tool_calls=tuple(calls))

    async def _run(self, call: ToolCall, loop: _Loop) -> ToolCall:
        started = time.perf_counter()
        arguments = {} if call.input is None else call.input
        result = await self._toolbox.run(call.tool, arguments, loop.request.workspace, loop.left_s)
        loop.tool_errors += result.failed
        duration_ms = round((time.perf_counter() - started) * 1000, 3)
        return msgspec.structs.replace(call, output=result.output, duration_ms=duration_ms)


class _Loop:
    """The state of one call: the messages after the request, and the model's responses."""

    def __init__(self, request: CaseRequest, started: float) -> None:
        self.request = request
        self.messages: list[Message] = []
        self.responses: list[Response] = []
        self.tool_errors = 0
        self.is_cut_off = False
        self._started = started

    @property
    def left_s(self) -> float:
        """The seconds left of the request's timeout."""
        return max(0.001, self.request.timeout_s - (time.perf_counter() - self._started))

    def next_request(self) -> Request:
        return self.request.followed_by(self.messages, self.left_s)

    def add_use_to(self, failure: TargetFailure) -> TargetFailure:
        """Add what the model's responses before a failure used."""
        for response in self.responses:
            failure.add_use(response)
        return failure

    def response(self) -> Response:
        """Return one response for the whole loop. Usage and cost are summed, and unknown if one of them is."""
        last = self.responses[-1]
        return msgspec.structs.replace(
            last,
            messages=tuple(self.messages),
            usage=_total([response.usage for response in self.responses], sum_usage),
            cost_usd=_total([response.cost_usd for response in self.responses], sum),
            estimated_usd=sum(response.estimated_usd for response in self.responses),
            duration_ms=round((time.perf_counter() - self._started) * 1000, 3),
            stop_reason="max_turns" if self.is_cut_off else last.stop_reason,
            tool_errors=self.tool_errors,
        )


def _total(values: Sequence[Any], add: Callable[[list[Any]], Any]) -> Any:
    known_values = [value for value in values if value is not None]
    return add(known_values) if len(known_values) == len(values) else None


def names_of(tools: Iterable[dict[str, Any]]) -> frozenset[str]:
    """Return the names of the functions among tools that a target declares."""
    return frozenset(function.name for tool in tools if (function := parse_function(tool)) is not None)
