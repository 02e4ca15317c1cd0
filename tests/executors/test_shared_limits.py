"""Processes that adapt to one endpoint divide it equally, and inherit it. Simulated on a virtual clock."""

import asyncio
import math
import random
import sys
from dataclasses import dataclass, field

import pytest

from agentv.executors.lane import Failure
from agentv.executors.limiter import Limiter
from agentv.executors.shares import FileLease
from virtual_time import passes, run

MOST = 60


@dataclass
class Endpoint:
    """Accepts `rate` calls per second, in a bucket of a tenth of it, or `slots` calls at a time."""

    rate: float = math.inf
    slots: float = math.inf
    latency_s: float = 0.2
    permits: float = 0.0
    filled_at: float = 0.0
    at_once: int = 0
    draws: random.Random = field(default_factory=lambda: random.Random(1))

    async def call(self):
        """Make a call; return how it failed, if it did."""
        now = asyncio.get_running_loop().time()
        if self.rate != math.inf:
            self.permits = min(max(2.0, self.rate / 10), self.permits + (now - self.filled_at) * self.rate)
            self.filled_at = now
            if self.permits < 1:
                await passes(0.01)
                return Failure(is_refused=True)
            self.permits -= 1
        if self.at_once >= self.slots:
            await passes(0.01)
            return Failure()
        self.at_once += 1
        try:
            await passes(self.latency_s * self.draws.uniform(0.8, 1.2))
        finally:
            self.at_once -= 1
        return None


class Process:
    """A process with some callers, each making its next call when the last one has ended."""

    def __init__(self, endpoint, folder, callers=MOST, start=10, most=MOST):
        self.answered = []
        self._endpoint, self._callers = endpoint, callers
        self._limits = (start, most)
        self._lease = FileLease("https://api.example.com#key", folder)

    async def lives(self, start_s, end_s):
        """Make calls between two moments."""
        loop = asyncio.get_running_loop()
        await passes(start_s)
        limiter = Limiter(*self._limits, clock=loop.time, lease=self._lease)
        callers = [asyncio.create_task(self._calls(limiter)) for _ in range(self._callers)]
        await passes(end_s - start_s)
        for each in callers:
            each.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        limiter.close()

    async def _calls(self, limiter):
        loop = asyncio.get_running_loop()
        limit = limiter.lane("")
        while True:
            ticket = limit.ticket()
            ticket.retries = 1_000_000
            await limit.enter(ticket)
            while (failure := await self._endpoint.call()) is not None:
                limit.leave(ticket, failure)
                ticket.delay_s = 0.2 + self._endpoint.draws.random()
                await limit.enter(ticket)
            limit.leave(ticket, is_answered=True)
            self.answered.append(loop.time())

    def rate(self, start_s, end_s):
        """Return the answered calls per second between two moments."""
        return sum(start_s < moment <= end_s for moment in self.answered) / (end_s - start_s)


def simulate(*lives):
    async def main():
        await asyncio.gather(*(process.lives(start_s, end_s) for process, start_s, end_s in lives))

    run(main())


ENDPOINTS = {
    "5 calls/s": ({"rate": 5}, 0.2),
    "50 calls/s of 2 s": ({"rate": 50, "latency_s": 2.0}, 0.3),
    "100 calls/s": ({"rate": 100}, 0.3),
    "20 slots": ({"slots": 20}, 0.0),
    "no limit": ({"latency_s": 1.0}, 0.8),
}
"""The endpoint, and the least part of a process in relation to the largest: each adapts to the server on its own."""


@pytest.mark.skipif(sys.platform == "win32", reason="processes share limits through POSIX locks")
@pytest.mark.parametrize(("settings", "least"), ENDPOINTS.values(), ids=ENDPOINTS)
def test_processes_divide_an_endpoint_and_the_last_one_inherits_it(tmp_path, settings, least):
    endpoint = Endpoint(**settings)
    first, second, third = (Process(endpoint, tmp_path) for _ in range(3))
    simulate((first, 0, 90), (second, 20, 70), (third, 40, 60))
    alone, left = first.rate(10, 20), first.rate(72, 90)
    for processes, span_s in [((first, second), (25, 40)), ((first, second, third), (45, 60))]:
        shares = [process.rate(*span_s) for process in processes]
        assert min(shares) >= least * max(shares)
        assert sum(shares) >= 0.6 * alone
    assert left >= 0.75 * alone


@pytest.mark.parametrize("settings", [{"rate": 50}, {"slots": 20}])
def test_a_process_with_few_calls_leaves_the_rest_to_others(tmp_path, settings):
    endpoint = Endpoint(**settings)
    small, large = Process(endpoint, tmp_path, callers=2), Process(endpoint, tmp_path)
    simulate((small, 0, 60), (large, 5, 60))
    assert small.rate(20, 60) >= 6
    assert large.rate(20, 60) >= 0.7 * (50 if "rate" in settings else 100)
