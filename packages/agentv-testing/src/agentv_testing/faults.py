"""Simulated faults of the model server: by rate with a seed, by script, or by a limit on requests per second."""

from __future__ import annotations

import asyncio
import hashlib
import math
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import web

KINDS = ("latency", "hang", "half_closed", "reset", "truncated", "wrong_usage", "slow_drip")
"""The kinds of fault in addition to the statuses 400 to 599."""


@dataclass(frozen=True)
class Fault:
    """A fault for one request.

    - a status such as `429` or `503`, with `retry_after_s` (both `Retry-After` and `retry-after-ms`) and `headers`
    - `latency`: the response is delayed by `delay_s`
    - `hang`: no response until the client gives up
    - `half_closed`: half of a response, then the server closes its side of the connection
    - `reset`: no response, and a connection reset
    - `truncated`: a complete HTTP response with half of the JSON
    - `wrong_usage`: a valid response with invalid token counts
    - `slow_drip`: the response in twenty pieces, with `delay_s` between them
    """

    kind: str
    delay_s: float = 0.05
    retry_after_s: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS and self.status is None:
            raise ValueError(f"Unknown fault '{self.kind}': a status such as '503', or {', '.join(KINDS)}")

    @property
    def status(self) -> int | None:
        """The HTTP status, if the fault is one."""
        is_status = len(self.kind) == 3 and self.kind.isdecimal() and "400" <= self.kind < "600"
        return int(self.kind) if is_status else None

    def wait_headers(self) -> dict[str, str]:
        """Return the retry headers: the standard one in seconds, and OpenAI's in milliseconds."""
        wait_s = self.retry_after_s
        known = {"Retry-After": wait_s, "retry-after-ms": wait_s * 1000} if wait_s is not None else {}
        return {**{name: str(math.ceil(value)) for name, value in known.items()}, **self.headers}


Faults = Mapping[str | Fault, float] | Sequence[str | Fault | None]
"""Rates that add up to at most 1, or a script with the fault of each request in order, where None means no fault."""


class FaultPlan:
    """Selects the fault of each request. With rates, it depends on the seed, the body and how often the body was sent,
    but not on the order of arrival, so that concurrent runs are reproducible."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self._seed = str(seed).encode()
        self._script: list[Fault | None] = []
        self._bounds: list[tuple[float, Fault]] = []
        self._seen: dict[bytes, int] = {}
        if isinstance(faults, Mapping):
            total = 0.0
            for fault, rate in faults.items():
                total += rate
                self._bounds.append((total, _fault(fault)))
            if total > 1 + 1e-9:
                raise ValueError(f"The fault rates add up to {total:g}, which is more than 1")
        else:
            self._script = [None if fault is None else _fault(fault) for fault in reversed(faults)]

    def next(self, body: bytes) -> Fault | None:
        """Return the fault of the next request."""
        if self._script:
            return self._script.pop()
        if not self._bounds:
            return None
        key = hashlib.blake2b(body, digest_size=16, key=self._seed).digest()
        times = self._seen[key] = self._seen.get(key, 0) + 1
        drawn = hashlib.blake2b(key + times.to_bytes(8, "big"), digest_size=8).digest()
        fraction = int.from_bytes(drawn, "big") / 2**64
        return next((fault for bound, fault in self._bounds if fraction < bound), None)


class RequestCap:
    """A limit on requests per second: a token bucket that holds `burst` tokens."""

    def __init__(self, requests_per_s: float, burst: float) -> None:
        self._rate = requests_per_s
        self._burst = burst
        self._tokens = burst
        self._filled_at = time.monotonic()

    def wait_s(self) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0

    def headers(self) -> dict[str, str]:
        """Return OpenAI's rate limit headers."""
        reset_ms = math.ceil(max(0.0, self._burst - self._tokens) / self._rate * 1000)
        return {
            "x-ratelimit-limit-requests": f"{self._burst:.0f}",
            "x-ratelimit-remaining-requests": f"{math.floor(self._tokens)}",
            "x-ratelimit-reset-requests": f"{reset_ms}ms",
        }

    def refused(self, wait_s: float) -> Fault:
        """Return the fault for a request over the limit."""
        return Fault("429", retry_after_s=wait_s, headers=self.headers())


def _fault(fault: str | Fault) -> Fault:
    return Fault(fault) if isinstance(fault, str) else fault


_DRIPS = 20


async def send_whole(request: web.BaseRequest, body: bytes, fault: Fault | None) -> web.StreamResponse:
    """Send a JSON response."""
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
        await _close_write_side(request)
    size = max(1, -(-len(body) // _DRIPS))
    for start in range(0, len(body), size):
        await asyncio.sleep(fault.delay_s)
        await response.write(body[start : start + size])
    return response


async def send_stream(request: web.BaseRequest, pieces: Sequence[bytes], fault: Fault | None) -> web.StreamResponse:
    """Send server-sent events. A truncated stream ends in the middle of an event."""
    kind = fault.kind if fault else None
    if kind in ("truncated", "half_closed"):
        half = len(pieces) // 2
        # Clients ignore an unfinished event, but not a finished one with half of its JSON.
        end = b"\n\n" if kind == "truncated" else b""
        pieces = [*pieces[:half], pieces[half][: len(pieces[half]) // 2] + end]
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    for piece in pieces:
        if fault is not None and kind == "slow_drip":
            await asyncio.sleep(fault.delay_s)
        await response.write(piece)
    if kind == "half_closed":
        await _close_write_side(request)
    await response.write_eof()
    return response


def reset(request: web.BaseRequest) -> web.StreamResponse:
    """Reset the connection. The returned response is not sent."""
    if request.transport is not None:
        # A linger time of 0 makes the system send a reset instead of an orderly close.
        endpoint = request.transport.get_extra_info("socket")
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()


async def _close_write_side(request: web.BaseRequest) -> None:
    """Close the server's side of the connection and wait until the client disconnects."""
    transport = request.transport
    if transport is None:
        return
    if not transport.can_write_eof():  # TLS has no half-closed connections
        transport.abort()
        return
    transport.write_eof()
    await asyncio.get_running_loop().create_future()
