"""Make a call part of a trace, and add what its spans describe to the response."""

import logging

import aiohttp
import msgspec

from agentv.executors.executor import JobSlots
from agentv.extensions.otel.span_answer import answer_of_spans
from agentv.extensions.otel.span_receiver import COLLECT, DISCARD, OPEN
from agentv.extensions.otel.span_store import CollectedSpans, Collection
from agentv.model.call_trace import ReceiverAddress
from agentv.model.message import Message
from agentv.model.response import Request, Responder, ResponderWrapper, Response, content_text
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
