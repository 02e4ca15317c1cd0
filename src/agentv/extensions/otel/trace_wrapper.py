"""Make a call part of a trace, and add what its spans describe to the response."""

import logging
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp
import msgspec

from agentv.executors.executor import JobSlots
from agentv.extensions.otel.otlp_traces import (
    COSTS,
    MergedMessage,
    TraceReader,
    add_tool_span,
    call_id_of,
    duration_of,
    ids_below,
    output_of,
    tool_of,
    usage_of,
)
from agentv.extensions.otel.span_receiver import COLLECT, DISCARD, OPEN
from agentv.extensions.otel.span_store import CollectedSpans, Collection
from agentv.extensions.otel.spans import Span
from agentv.model.call_trace import ReceiverAddress
from agentv.model.message import Message
from agentv.model.response import Request, Responder, ResponderWrapper, Response, content_text
from agentv.model.result import TokenUsage, sum_usage
from agentv.sessions.turns import Turns, sum_costs, text_or_none
from agentv.targets.cli import Cli
from agentv.targets.target import Target

_log = logging.getLogger(__name__)
_SPARE_S = 30.0
_decode = msgspec.json.Decoder(CollectedSpans).decode


class TraceWrapper(ResponderWrapper):
    """Gives each call a trace, and waits for the spans of an answered call without a place at the endpoint."""

    def __init__(self, inner: Responder, settings: Target, receiver: ReceiverAddress, slots: JobSlots) -> None:
        super().__init__(inner)
        self._receiver = receiver
        self._slots = slots
        self._wait_s: float = getattr(settings, "trace_wait", 0.0)
        self._is_command = isinstance(settings, Cli)
        self._session: aiohttp.ClientSession | None = None

    async def respond(self, request: Request) -> Response:
        request.trace = self._receiver.new_trace()
        trace_id = request.trace.trace_id
        try:
            await self._send(OPEN, trace_id.encode(), _SPARE_S)
            response = await self._inner.respond(request)
        except BaseException:
            await self._send(DISCARD, trace_id.encode(), 1.0)
            raise
        finally:
            request.trace = None
        collection = Collection(trace_id, request.case.id, self._wait_s, self._is_command)
        with self._slots.lent_slot():
            body = await self._send(COLLECT, msgspec.json.encode(collection), self._wait_s + _SPARE_S)
        return with_spans(response, _decode(body or b"{}"), trace_id)

    async def aclose(self) -> None:
        """Close the connections and the target."""
        if self._session is not None:
            await self._session.close()
        await super().aclose()

    async def _send(self, path: str, body: bytes, timeout_s: float) -> bytes | None:
        if self._session is None:
            headers = {"Authorization": f"Bearer {self._receiver.token}"}
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(self._receiver.url, headers=headers, connector=connector)
        try:
            timeout = aiohttp.ClientTimeout(total=timeout_s)
            async with self._session.post(path, data=body, timeout=timeout) as reply:
                reply.raise_for_status()
                return await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("Cannot collect spans: %s", error)
            return None


def with_spans(response: Response, collected: CollectedSpans, trace_id: str) -> Response:
    """Return a response with the messages, tool calls and usage that spans describe, unless the target reported them.

    If the spans do not show which tools were called, that stays unknown. If some were rejected, the others are not
    used, because they describe a part of the answer.
    """
    spans, has_own = collected.spans, any(message.tool_calls for message in response.messages)
    if collected.rejected:
        return msgspec.structs.replace(response, calls_unknown=not has_own)
    if not any(span.kind or span.is_log for span in spans):
        return response
    answer = answer_of_spans(spans)
    if response.usage is None and answer.usage is not None:
        response = msgspec.structs.replace(response, usage=answer.usage, cost_usd=response.cost_usd or answer.cost_usd)
    response = msgspec.structs.replace(response, model=response.model or answer.model)
    if not answer.has_calls_known:
        return response
    messages = response.messages if has_own else _joined(answer.messages, response)
    errors = response.tool_errors if has_own else answer.tool_errors
    return msgspec.structs.replace(
        response, messages=messages, tool_errors=errors, calls_unknown=False, trace_id=trace_id
    )


def _joined(messages: tuple[Message, ...], response: Response) -> tuple[Message, ...]:
    """Return the messages of spans before the target's own, which they may end with."""
    if messages and not messages[-1].tool_calls and _words(messages[-1]) == response.text.split():
        messages = messages[:-1]
    return (*messages, *response.messages)


def _words(message: Message) -> list[str]:
    return [] if message.content is None else content_text(message.content).split()


class SpanAnswer(NamedTuple):
    """What an agent did to answer, as far as its spans describe it. `tool_errors` counts failed tool calls.

    Without `has_calls_known`, it may have called tools that no span describes.
    """

    messages: tuple[Message, ...]
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    model: str | None = None
    tool_errors: int = 0
    has_calls_known: bool = True


def answer_of_spans(spans: Sequence[Span]) -> SpanAnswer:
    """Return the answer to one call, given the spans of its trace in any order."""
    reader = TraceReader()
    reader.take(list(spans))
    turns = _Steps(reader).turns()
    models = _outermost_models(spans)
    return SpanAnswer(
        turns.messages,
        sum_usage(map(usage_of, models)),
        sum_costs(span.first(*COSTS) for span in models),
        text_or_none(reader.builder.known.get("model")),
        turns.failed_calls,
        _are_calls_known(turns.messages, spans, reader),
    )


def _are_calls_known(messages: tuple[Message, ...], spans: Sequence[Span], reader: TraceReader) -> bool:
    """Whether the spans describe all tool calls: of tools, of an agent, or of models with their messages or endings."""
    if any(message.tool_calls for message in messages) or any(span.kind in ("tool", "agent") for span in spans):
        return True
    recorded = {entry.span.id for entry in reader.merged if entry.is_received}
    models = [span for span in spans if span.kind == "llm" or span.is_log]
    return bool(models) and all(span.id in recorded or _ended_with_text(span) for span in models)


def _ended_with_text(span: Span) -> bool:
    reasons = span.first("gen_ai.response.finish_reasons", "llm.finish_reason")
    endings = [str(reason) for reason in (reasons if isinstance(reasons, list) else [reasons] if reasons else ())]
    return bool(endings) and not any("tool" in reason or "function" in reason for reason in endings)


class _Steps:
    """Merges the messages of a trace with its tool spans, which may describe the same calls."""

    def __init__(self, reader: TraceReader) -> None:
        self._results = reader.results
        self._written = [entry for entry in reader.merged if entry.message.role == "assistant" and not entry.is_history]
        self._tools = dict(enumerate(sorted(reader.tools, key=lambda span: span.start)))
        self._turns = Turns()

    def turns(self) -> Turns:
        """Return the turns of the agent. Tool calls that no message mentions are added in order of time."""
        pairs = self._pairs()
        others = deque(self._tools.values())
        for place, entry in enumerate(self._written):
            while others and others[0].start and others[0].start < _time_of(entry):
                self._add_tool(others.popleft())
            self._add_message(place, entry, pairs)
        for span in others:
            self._add_tool(span)
        return self._turns

    def _pairs(self) -> dict[tuple[int, int], Span]:
        """Take the span of each call in a message: the one with its id, else the first with its name."""
        calls = {
            (place, number): call
            for place, entry in enumerate(self._written)
            for number, call in enumerate(entry.message.calls)
        }
        by_id = {id: number for number, span in self._tools.items() if (id := call_id_of(span))}
        pairs = {key: self._tools.pop(by_id.pop(id)) for key, (id, _, _) in calls.items() if id in by_id}
        by_name: dict[str, deque[int]] = {}
        for number, span in self._tools.items():
            by_name.setdefault(tool_of(span), deque()).append(number)
        for key, (_, tool, _) in calls.items():
            if key not in pairs and by_name.get(tool):
                pairs[key] = self._tools.pop(by_name[tool].popleft())
        return pairs

    def _add_message(self, place: int, entry: MergedMessage, pairs: dict[tuple[int, int], Span]) -> None:
        turns = self._turns
        turns.start_turn(("message", place))
        turns.add_text(entry.message.text)
        for number, (id, tool, arguments) in enumerate(entry.message.calls):
            key, span = id or f"{place}.{number}", pairs.get((place, number))
            turns.add_call(key, tool, arguments, None)
            output = self._results.get(id)
            if output is None and span is not None:
                output = output_of(span)
            if output is not None or span is not None:
                failed, took = (False, None) if span is None else (span.failed, duration_of(span))
                turns.add_result(key, output, None, failed=failed, duration_ms=took)

    def _add_tool(self, span: Span) -> None:
        self._turns.start_turn(("span", span.id))
        add_tool_span(self._turns, span, call_id_of(span) or f"span {span.id}")


def _time_of(entry: MergedMessage) -> int:
    return entry.span.end if entry.is_received else entry.span.start


def _outermost_models(spans: Sequence[Span]) -> list[Span]:
    """Return the calls of models that are not part of another: a framework and a client may describe the same call."""
    own = [span for span in spans if not span.is_log]
    below = ids_below(own, "llm")
    return [span for span in own if span.kind == "llm" and span.id not in below]
