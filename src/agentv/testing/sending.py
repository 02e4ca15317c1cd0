"""How the model server puts an answer on the wire, and how it fails to."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence

from aiohttp import web

from agentv.testing.faults import Fault

_DRIPS = 20


async def send_whole(request: web.BaseRequest, body: bytes, fault: Fault | None) -> web.StreamResponse:
    """A plain answer of JSON."""
    kind = fault.kind if fault else None
    if kind == "truncated":
        body = body[: len(body) // 2]
    if fault is None or kind not in ("half_closed", "slow_drip"):
        return web.Response(body=body, content_type="application/json")
    response = web.StreamResponse()
    response.content_type, response.content_length = "application/json", len(body)
    await response.prepare(request)
    if kind == "half_closed":
        await response.write(body[: len(body) // 2])
        await _shut_our_side(request)
    size = max(1, -(-len(body) // _DRIPS))
    for start in range(0, len(body), size):
        await asyncio.sleep(fault.delay_s)
        await response.write(body[start : start + size])
    return response


async def send_stream(request: web.BaseRequest, pieces: Sequence[bytes], fault: Fault | None) -> web.StreamResponse:
    """An answer of server-sent events; what is cut off ends in the middle of one."""
    kind = fault.kind if fault else None
    if kind in ("truncated", "half_closed"):
        half = len(pieces) // 2
        # Readers pass over an event without an end; one with an end and half of its JSON they must face.
        end = b"\n\n" if kind == "truncated" else b""
        pieces = [*pieces[:half], pieces[half][: len(pieces[half]) // 2] + end]
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    for piece in pieces:
        if fault is not None and kind == "slow_drip":
            await asyncio.sleep(fault.delay_s)
        await response.write(piece)
    if kind == "half_closed":
        await _shut_our_side(request)
    await response.write_eof()
    return response


def reset(request: web.BaseRequest) -> web.StreamResponse:
    """Resets the connection. What is returned goes nowhere."""
    if request.transport is not None:
        # Closing with nothing to linger for makes the system send a reset instead of an orderly end.
        endpoint = request.transport.get_extra_info("socket")
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()


async def _shut_our_side(request: web.BaseRequest) -> None:
    """Ends what the server sends and goes on listening, until the caller leaves and the handler with it."""
    transport = request.transport
    if transport is None:
        return
    if not transport.can_write_eof():  # TLS has no half-closed connections
        transport.abort()
        return
    transport.write_eof()
    await asyncio.get_running_loop().create_future()
