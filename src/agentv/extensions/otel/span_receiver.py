"""Receive spans over OTLP/HTTP on the loopback address while a run executes.

The receiver has its own thread in the process of the run. Workers, which may be other processes, collect the spans of
their calls from it over HTTP, with a token.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import msgspec
from aiohttp import web

from agentv.errors import UsageError
from agentv.extensions.otel.otlp_body import (
    JSON,
    MAX_BODY_BYTES,
    PROTOBUF,
    UnreadableBody,
    check_installed,
    decompressed,
    spans_of_body,
)
from agentv.extensions.otel.span_store import Collection, SpanStore
from agentv.extensions.otel.spans import Span
from agentv.model.call_trace import ReceiverAddress
from agentv.model.manifest import SpanCounts
from agentv.support.web_listener import listen

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HOST = "127.0.0.1"
_OWN_NAMES = ("127.0.0.1", "localhost", "host.docker.internal", "host.containers.internal")
USUAL_PORT = 4318
PORT_VARIABLE = "AGENTV_TRACE_PORT"
OPEN, COLLECT, DISCARD = "/agentv/open", "/agentv/collect", "/agentv/discard"
_STOP_S = 1.0

T = TypeVar("T")


class OtlpReceiver:
    """A running receiver."""

    def __init__(self, port: int) -> None:
        prefix = secrets.token_hex(8)
        self._store = SpanStore(prefix)
        self._token = secrets.token_urlsafe(24)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agentv-spans", daemon=True)
        self._thread.start()
        try:
            self._runner, self._listener = self._in_thread(self._started(port))
        except OSError as error:
            self._end_thread()
            message = f"Cannot receive spans at {HOST}:{port}: {error.strerror or error}"
            hint = f"Pass another port with --trace-port or {PORT_VARIABLE}, and send the spans there"
            raise UsageError(message, hint=hint) from None
        url = f"http://{HOST}:{self._listener.sockets[0].getsockname()[1]}"
        self.address = ReceiverAddress(url, self._token, prefix)

    def counts(self) -> SpanCounts:
        """Return what arrived so far."""

        async def count() -> SpanCounts:
            return self._store.counts()

        return self._in_thread(count())

    def close(self) -> None:
        """Stop receiving."""

        async def stop() -> None:
            self._listener.close()
            await self._runner.cleanup()

        self._in_thread(stop())
        self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _in_thread(self, work: Awaitable[T]) -> T:
        async def done() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    async def _started(self, port: int) -> tuple[web.AppRunner, asyncio.Server]:
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._check_caller])
        handlers = {OPEN: self._open, COLLECT: self._collect, DISCARD: self._discard}
        handlers["/v1/{signal:traces|logs|metrics}"] = self._receive
        app.add_routes(web.post(path, handler) for path, handler in handlers.items())
        runner = web.AppRunner(app, shutdown_timeout=_STOP_S)
        await runner.setup()
        try:
            return runner, await listen(runner, (HOST, port), on_broken=self._store.add_unreadable)
        except OSError:
            await runner.cleanup()
            raise

    async def _receive(self, request: web.Request) -> web.Response:
        """Handle an export. Metrics are accepted, because exporters send them to the same address, and ignored."""
        if request.content_type not in (JSON, PROTOBUF):
            self._store.add_unreadable(request.content_type.startswith("application/grpc"))
            return web.Response(status=415, text=f"The content type must be {JSON} or {PROTOBUF}")
        body, signal = await request.read(), request.match_info["signal"]
        coding = request.headers.get("Content-Encoding", "").lower()

        def read() -> list[Span]:
            plain = decompressed(body, coding)
            return [] if signal == "metrics" else spans_of_body(plain, request.content_type, signal)

        try:
            spans = await asyncio.to_thread(read)  # the spans of other calls arrive meanwhile
        except UnreadableBody as error:
            self._store.add_unreadable(is_grpc=False)
            return web.Response(status=error.status, text=str(error))
        rejected = sum(not self._store.add(span) for span in spans)
        return web.Response(body=_reply(rejected, request.content_type, signal), content_type=request.content_type)

    async def _open(self, request: web.Request) -> web.Response:
        self._store.open(await request.text())
        return web.Response()

    async def _collect(self, request: web.Request) -> web.Response:
        collection = msgspec.json.decode(await request.read(), type=Collection)
        return web.Response(body=await self._store.collect(collection), content_type=JSON)

    async def _discard(self, request: web.Request) -> web.Response:
        self._store.discard(await request.text())
        return web.Response()

    @web.middleware
    async def _check_caller(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse requests of web pages, under another host name or with the origin of a page, and those of others for
        the spans of calls.
        """
        name = request.host.rpartition(":")[0] or request.host
        if name.lower() not in _OWN_NAMES or "Origin" in request.headers or "Sec-Fetch-Site" in request.headers:
            raise web.HTTPForbidden(text="Spans are received from programs of this machine only, not from web pages")
        token = request.headers.get("Authorization", "").encode("utf-8", "replace")
        has_token = hmac.compare_digest(token, f"Bearer {self._token}".encode())
        if request.path in (OPEN, COLLECT, DISCARD) and not has_token:
            raise web.HTTPForbidden
        return await handler(request)


def _reply(rejected: int, content_type: str, signal: str) -> bytes:
    """Return the body of a reply, which states how many spans were rejected."""
    if not rejected:
        return b"{}" if content_type == JSON else b""
    why, name = "too many spans", "rejectedLogRecords" if signal == "logs" else "rejectedSpans"
    if content_type == JSON:
        return msgspec.json.encode({"partialSuccess": {name: str(rejected), "errorMessage": why}})
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # late: an optional extra
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    # The response for log records has the same fields under the same numbers.
    partial = ExportTracePartialSuccess(rejected_spans=rejected, error_message=why)
    return bytes(ExportTraceServiceResponse(partial_success=partial).SerializeToString())


def port_of(port: int | None, *, may_be_any: bool) -> int:
    """Return the port: the one given by the option or the environment, else the usual one, or any (0)."""
    text = os.environ.get(PORT_VARIABLE, "")
    if port is None and text:
        if not (text.isascii() and text.isdigit() and int(text) < 2**16):
            raise UsageError(f"{PORT_VARIABLE} must be a port from 0 to 65535, got '{text}'")
        port = int(text)
    if port is not None:
        return port
    return 0 if may_be_any else USUAL_PORT


def receive_spans(port: int | None, *, may_be_any: bool) -> AbstractContextManager[OtlpReceiver]:
    """Receive spans at a port while the context is active; `may_be_any`: the systems under test learn the port."""
    return open_receiver(port_of(port, may_be_any=may_be_any))


@contextmanager
def open_receiver(port: int) -> Iterator[OtlpReceiver]:
    """Receive spans while the context is active."""
    check_installed()
    receiver = OtlpReceiver(port)
    try:
        yield receiver
    finally:
        receiver.close()
