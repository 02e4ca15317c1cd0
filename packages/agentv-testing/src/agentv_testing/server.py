"""A local model server with scripted answers and simulated failures."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Self

import msgspec
from aiohttp import web

from agentv_testing.anthropic_messages import AnthropicMessages
from agentv_testing.batches import AnthropicBatches, BatchScript, OpenAIBatches
from agentv_testing.faults import Fault, FaultPlan, Faults, RequestCap, reset, send_stream, send_whole
from agentv_testing.gemini_content import GeminiContent
from agentv_testing.openai_chat import ChatCompletions, Embeddings
from agentv_testing.openai_responses import Responses
from agentv_testing.wire import Answers, NotUnderstood, RawReply, ReceivedRequest, WireFormat, answer_to

_PATIENCE_S = 60.0
_BACKLOG = 4096
"""Large enough for hundreds of simultaneous connections; a client that does not fit waits a second."""


@dataclass
class ServerCounts:
    """Counts of requests. `disconnected` clients left before their response was complete."""

    requests: int = 0
    by_status: Counter[int] = field(default_factory=Counter)
    by_fault: Counter[str] = field(default_factory=Counter)
    over_cap: int = 0
    disconnected: int = 0
    at_once: int = 0
    most_at_once: int = 0


@dataclass(eq=False)
class FaultyServer:
    """`with FaultyServer(answers="Paris") as server:` serves at `server.url` from a thread.

    `async with` serves from the running event loop. The types `Answers` and `Faults` describe `answers` and `faults`;
    `latency_s` delays every response; `together` holds the first responses back until that many requests are in flight;
    `requests_per_s` limits requests, with bursts of up to `burst` (default: those of one second).
    `requests` has the last `keep` requests; `counts` counts all. `batches` decides how batches run.
    """

    answers: Answers = None
    _: KW_ONLY
    faults: Faults = ()
    seed: int = 0
    latency_s: float = 0.0
    together: int = 0
    requests_per_s: float | None = None
    burst: float | None = None
    formats: Sequence[WireFormat] = ()
    tls: ssl.SSLContext | None = None
    keep: int = 1000
    batches: BatchScript = field(default_factory=BatchScript)

    def __post_init__(self) -> None:
        self.counts = ServerCounts()
        self.requests: deque[ReceivedRequest] = deque(maxlen=self.keep)
        self._plan = FaultPlan(self.faults, self.seed)
        rate = self.requests_per_s
        self._cap = RequestCap(rate, self.burst or max(1.0, rate)) if rate else None
        batches = (OpenAIBatches(self.batches, self._batched), AnthropicBatches(self.batches, self._batched))
        own = (*batches, ChatCompletions(), Responses(), AnthropicMessages(), GeminiContent(), Embeddings())
        self._formats: tuple[WireFormat, ...] = (*self.formats, *own)
        self._port = 0
        self._runner: web.ServerRunner | None = None
        self._stopping, self._is_together = asyncio.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="agentv-server", daemon=True)

    @property
    def origin(self) -> str:
        """The scheme, host and port."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The base URL for OpenAI's clients; for Anthropic's and Google's, use `origin`."""
        return f"{self.origin}/v1"

    @property
    def connections(self) -> int:
        """The number of open connections, including idle ones."""
        server = self._runner.server if self._runner else None
        return len(server.connections) if server else 0

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_PATIENCE_S) or not self._port:
            raise RuntimeError("The model server did not start")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_PATIENCE_S)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls, backlog=_BACKLOG).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self._stopping.set()
        await self._runner.cleanup()

    async def _serve(self) -> None:
        try:
            await self.__aenter__()
        finally:
            self._ready.set()
        await self._stopping.wait()
        await self.__aexit__()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        counts = self.counts
        counts.requests += 1
        counts.at_once += 1
        counts.most_at_once = max(counts.most_at_once, counts.at_once)
        if counts.at_once >= self.together:
            self._is_together.set()
        try:
            return await self._reply(request, counts.requests)
        except ConnectionResetError:
            # Noticed while writing a response: the client is gone, so no response can be sent.
            counts.disconnected += 1
            return web.Response()
        except asyncio.CancelledError:
            counts.disconnected += not self._stopping.is_set()
            raise
        finally:
            counts.at_once -= 1

    async def _reply(self, request: web.BaseRequest, number: int) -> web.StreamResponse:
        raw = await request.content.read()
        wire = next((wire for wire in self._formats if wire.serves(request.path)), None)
        if wire is None:
            return self._error(self._formats[0], 404, f"Nothing is served at {request.path}")
        try:
            path, _, query = request.raw_path.partition("?")
            received = wire.read(ReceivedRequest(number, request.method, path, query, request.headers, raw))
        except NotUnderstood as error:
            return self._error(wire, error.status, str(error))
        self.requests.append(received)
        if received.reply is not None:
            return await self._send_reply(request, wire, received)
        fault = self._next_fault(raw)
        if fault is not None and fault.status is not None:
            return self._error(wire, fault.status, "Simulated failure", fault.wait_headers())
        return await self._answer(request, wire, received, fault)

    async def _send_reply(
        self, request: web.BaseRequest, wire: WireFormat, received: ReceivedRequest
    ) -> web.StreamResponse:
        """Send a response that is not the model's. Faults of batches happen after the request was carried out."""
        fault = self._next_fault(received.raw) if "/batches" in received.path else None
        if fault is not None and fault.status is not None:
            return self._error(wire, fault.status, "Simulated failure", fault.wait_headers())
        if fault is not None and fault.kind == "reset":
            return reset(request)
        self.counts.by_status[200] += 1
        if isinstance(received.reply, RawReply):
            return web.Response(body=received.reply.body, headers=received.reply.headers)
        return await send_whole(request, msgspec.json.encode(received.reply), fault)

    def _batched(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Answer one request of a batch; return its status and response."""
        wire = next(wire for wire in self._formats if wire.serves(path))
        received = ReceivedRequest(self.counts.requests, "POST", path, "", {}, msgspec.json.encode(body))
        try:
            received = wire.read(received)
            answer = answer_to(received, self.answers)
        except NotUnderstood as error:
            return error.status, wire.error(error.status, str(error))
        if isinstance(answer, RawReply):
            return answer.status, msgspec.Raw(answer.body)
        return 200, wire.whole(received, answer)

    def _next_fault(self, raw: bytes) -> Fault | None:
        wait_s = self._cap.wait_s() if self._cap else 0.0
        if self._cap and wait_s:
            self.counts.over_cap += 1
            return self._cap.refused(wait_s)
        fault = self._plan.next(raw)
        if fault is not None:
            self.counts.by_fault[fault.kind] += 1
        return fault

    async def _answer(
        self, request: web.BaseRequest, wire: WireFormat, received: ReceivedRequest, fault: Fault | None
    ) -> web.StreamResponse:
        kind = fault.kind if fault else None
        await self._is_together.wait()
        delay_s = self.latency_s + (fault.delay_s if fault and kind == "latency" else 0.0)
        if delay_s:
            await asyncio.sleep(delay_s)
        if kind == "hang":
            await self._stopping.wait()
        if kind == "reset":
            return reset(request)
        try:
            answer = answer_to(received, self.answers)
        except Exception as error:
            return self._error(wire, 500, f"The answer script failed: {error!r}")
        if isinstance(answer, RawReply):
            self.counts.by_status[answer.status] += 1
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)
        if kind == "wrong_usage":
            answer = replace(answer, wrong_usage=True)
        self.counts.by_status[200] += 1
        if received.stream:
            return await send_stream(request, list(wire.pieces(received, answer)), fault)
        response = await send_whole(request, msgspec.json.encode(wire.whole(received, answer)), fault)
        if self._cap and not response.prepared:
            response.headers.update(self._cap.headers())
        return response

    def _error(
        self, wire: WireFormat, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        self.counts.by_status[status] += 1
        body = msgspec.json.encode(wire.error(status, message))
        return web.Response(body=body, status=status, headers=headers, content_type="application/json")
