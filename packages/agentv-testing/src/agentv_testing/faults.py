"""What goes wrong at the model server and when: by rate with a seed, by script, and a cap on requests a second."""

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
"""The kinds of fault beside the statuses 400 to 599."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong with one request.

    - a status such as `429` or `503`, with `retry_after_s` (both `Retry-After` and `retry-after-ms`) and `headers`
    - `latency`: the answer comes `delay_s` later
    - `hang`: no answer, until the caller gives up
    - `half_closed`: half of an answer, then the server's side of the connection is shut
    - `reset`: no answer and a reset of the connection
    - `truncated`: an answer that is whole as HTTP, with half of its JSON
    - `wrong_usage`: a good answer with nonsense for token counts
    - `slow_drip`: the answer in twenty pieces, `delay_s` between them
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
        """The status that is answered, when the fault is one."""
        is_status = len(self.kind) == 3 and self.kind.isdecimal() and "400" <= self.kind < "600"
        return int(self.kind) if is_status else None

    def wait_headers(self) -> dict[str, str]:
        """How long to wait as headers: whole seconds, as the standard has it, and exactly, as OpenAI does."""
        wait_s = self.retry_after_s
        known = {"Retry-After": wait_s, "retry-after-ms": wait_s * 1000} if wait_s is not None else {}
        return {**{name: str(math.ceil(value)) for name, value in known.items()}, **self.headers}


Faults = Mapping[str | Fault, float] | Sequence[str | Fault | None]
"""Rates that add up to at most 1, or a script: the fault of each request in the order they come, None for none."""


class FaultPlan:
    """Decides for each request. By rate, the seed, the body and how often it came decide, and not the order of arrival:
    a run gets the same faults again however its requests overlap."""

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
                raise ValueError(f"The rates of faults add up to {total:g}, which is more than 1")
        else:
            self._script = [None if fault is None else _fault(fault) for fault in reversed(faults)]

    def next(self, body: bytes) -> Fault | None:
        """The fault of the request that has just come."""
        if self._script:
            return self._script.pop()
        if not self._bounds:
            return None
        key = hashlib.blake2b(body, digest_size=16, key=self._seed).digest()
        times = self._seen[key] = self._seen.get(key, 0) + 1
        drawn = hashlib.blake2b(key + times.to_bytes(8, "big"), digest_size=8).digest()
        share = int.from_bytes(drawn, "big") / 2**64
        return next((fault for bound, fault in self._bounds if share < bound), None)


class RequestCap:
    """At most so many requests a second: a bucket of tokens that fills at that rate and holds `burst` of them."""

    def __init__(self, requests_per_s: float, burst: float) -> None:
        self._rate = requests_per_s
        self._burst = burst
        self._tokens = burst
        self._filled_at = time.monotonic()

    def wait_s(self) -> float:
        """0 for a request that may pass, which takes a token; else the seconds until there is one."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0

    def headers(self) -> dict[str, str]:
        """What is left, as OpenAI says it."""
        reset_ms = math.ceil(max(0.0, self._burst - self._tokens) / self._rate * 1000)
        return {
            "x-ratelimit-limit-requests": f"{self._burst:.0f}",
            "x-ratelimit-remaining-requests": f"{math.floor(self._tokens)}",
            "x-ratelimit-reset-requests": f"{reset_ms}ms",
        }

    def refused(self, wait_s: float) -> Fault:
        """The answer to a request that came too early."""
        return Fault("429", retry_after_s=wait_s, headers=self.headers())


def _fault(fault: str | Fault) -> Fault:
    return Fault(fault) if isinstance(fault, str) else fault


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
