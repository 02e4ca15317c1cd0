"""Adaptive concurrency and rate of calls, against a simulated endpoint on a virtual clock."""

import asyncio
import math
import os
import random
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count

import pytest

from agentv.engine.calls.open_targets import OpenTargets, concurrency_of
from agentv.engine.job.spec import RunSpec
from agentv.executors.executor import LocalLimits
from agentv.executors.lane import Failure
from agentv.executors.limiter import Limiter
from agentv.model.response import TargetFailure
from agentv.targets.apis.openai import OpenAI
from agentv.targets.cli import Cli
from agentv.targets.http import Http
from agentv.targets.mock import Mock
from agentv_testing import FaultyServer, SampleRequest
from virtual_time import passes, run
from waiting import let_others_run

pytestmark = pytest.mark.ci


@dataclass
class Endpoint:
    """Answers after `latency_s`; counts requests in a bucket of `burst` permits that fills at `rate` a second."""

    rate: float = math.inf
    burst: float = 1.0
    latency_s: float = 0.2
    says_wait: str = "exactly"
    jitter_s: float = 0.0
    permits: float = field(init=False)
    filled_at: float = 0.0
    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    def __post_init__(self):
        self.permits = self.burst

    def wait_s(self):
        """0 for a request that may pass, else the time until the next may."""
        now = asyncio.get_running_loop().time()
        if self.rate == math.inf:
            return 0.0
        self.permits = min(self.burst, self.permits + (now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.permits < 1:
            return (1 - self.permits) / self.rate
        self.permits -= 1
        return 0.0

    async def call(self, limit, ticket, chance):
        """Make one call at its place; return whether it was answered."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await passes(chance.random() * self.jitter_s)
        wait_s = self.wait_s()
        await passes(0.01 if wait_s else self.latency_s * chance.uniform(0.8, 1.2))
        self.at_once -= 1
        (self.refused if wait_s else self.answered).append(asyncio.get_running_loop().time())
        if not wait_s:
            limit.leave(ticket, is_answered=True)
            return True
        retry_after_s = {"exactly": wait_s, "in whole seconds": float(math.ceil(wait_s)), "never": None}[self.says_wait]
        limit.leave(ticket, Failure(retry_after_s, is_refused=True))
        ticket.delay_s = max(retry_after_s or 0.0, chance.random())
        return False


async def entered(limit, **settings):
    """Return a ticket with a place."""
    ticket = limit.try_enter(**settings)
    if not ticket.has_place:
        assert await limit.enter(ticket)
    return ticket


def simulated(endpoint, seconds, start=10, most=200):
    """Run callers, each making its next call when the last one is answered; return the limit at the end."""

    async def main():
        loop = asyncio.get_running_loop()
        limiter = Limiter(start, most, clock=loop.time)
        limit = limiter.lane("")
        chance = random.Random(1)

        async def caller():
            while True:
                ticket = await entered(limit)
                ticket.retries = 1_000_000
                while not await endpoint.call(limit, ticket, chance):
                    await limit.enter(ticket)

        callers = [asyncio.create_task(caller()) for _ in range(most)]
        await passes(seconds)
        for each in callers:
            each.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        return limiter.endpoint.limit(loop.time())

    return run(main())


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("latency_s", "says_wait"), [(0.05, "never"), (0.2, "exactly"), (1.0, "never"), (2.0, "exactly")]
)
@pytest.mark.parametrize(("rate", "burst"), [(20, 2), (20, 5), (20, 20), (20, 200), (100, 10), (100, 1000), (5, 5)])
def test_ninety_percent_of_the_rate_limit_is_used_with_few_refusals(rate, burst, latency_s, says_wait):
    warm_up_s = 5 + 4 * latency_s + 40 / rate + burst / 200
    endpoint = Endpoint(rate, burst, latency_s, says_wait, jitter_s=0.01)
    simulated(endpoint, warm_up_s + 40)
    answered = sum(moment > warm_up_s for moment in endpoint.answered)
    refused = sum(moment > warm_up_s for moment in endpoint.refused)
    assert answered >= 0.9 * min(rate, 200 / latency_s) * 40
    assert refused < max(20, 0.02 * (answered + refused))


class Refusing(Endpoint):
    """Refuses a fraction of the calls at random between two moments, whatever their rate."""

    def refuse(self, fraction, start_s=0.0, end_s=math.inf):
        self.chance, self.fraction, self.span_s = random.Random(1), fraction, (start_s, end_s)
        return self

    def wait_s(self):
        start_s, end_s = self.span_s
        is_refused = start_s <= asyncio.get_running_loop().time() < end_s and self.chance.random() < self.fraction
        return 1.0 if is_refused else super().wait_s()


@pytest.mark.every(3)
@pytest.mark.parametrize(("rate", "latency_s"), [(math.inf, 0.2), (math.inf, 2.0), (50, 0.2), (5, 0.2)])
@pytest.mark.parametrize(("fraction", "seconds"), [(1, 20), (1, 120), (0.5, 20), (0.1, 20)])
def test_the_former_rate_is_reached_60_s_after_a_burst_of_refusals(rate, latency_s, fraction, seconds):
    end_s = 30 + seconds
    endpoint = Refusing(rate, 5, latency_s, "never").refuse(fraction, 30, end_s)
    simulated(endpoint, end_s + 90, most=40)
    before = sum(15 < moment <= 30 for moment in endpoint.answered) / 15
    after = sum(moment > end_s + 60 for moment in endpoint.answered) / 30
    assert after >= 0.8 * before


@pytest.mark.every(3)
@pytest.mark.parametrize(("most", "latency_s"), [(10, 0.05), (10, 2.0), (50, 0.2), (200, 2.0)])
def test_one_percent_of_random_refusals_hardly_slows_a_run_down(latency_s, most):
    endpoint = Refusing(latency_s=latency_s, says_wait="never").refuse(0.01)
    simulated(endpoint, 90, most=most)
    assert sum(moment > 30 for moment in endpoint.answered) >= 0.8 * 60 * most / latency_s


@pytest.mark.parametrize(
    ("burst", "least", "most"), [(1, 0.7, 0.15), (5, 0.8, 0.02), (20, 0.8, 0.02), (200, 0.8, 0.02)]
)
def test_most_of_a_limit_that_says_whole_seconds_is_used(burst, least, most):
    endpoint = Endpoint(20, burst, 0.2, "in whole seconds")
    simulated(endpoint, 60)
    answered = sum(moment > 10 for moment in endpoint.answered)
    refused = sum(moment > 10 for moment in endpoint.refused)
    assert answered >= least * 20 * 50
    assert refused < most * (answered + refused)


@pytest.mark.parametrize(("latency_s", "seconds"), [(0.1, 3), (1.0, 7), (20.0, 10)])
def test_without_refusals_the_limit_is_reached_in_seconds_even_if_calls_are_slow(latency_s, seconds):
    assert simulated(Endpoint(latency_s=latency_s), seconds) == 200
    assert simulated(Endpoint(latency_s=latency_s), seconds / 10) < 100


def test_a_fixed_concurrency_is_never_exceeded():
    endpoint = Endpoint(latency_s=0.1)
    assert simulated(endpoint, 5, start=7, most=7) == endpoint.most_at_once == 7


@pytest.mark.parametrize("why", ["is_refused", "is_unavailable"])
def test_calls_wait_as_long_as_several_requests_ask_for(why):
    async def main():
        loop = asyncio.get_running_loop()
        limit = Limiter(8, 8, clock=loop.time).lane("")
        answered = await entered(limit)
        limit.leave(answered, is_answered=True)
        tickets = [await entered(limit) for _ in range(8)]
        for ticket in tickets:
            limit.leave(ticket, Failure(7.5, **{why: True}))
        if why == "is_unavailable":  # one call shows whether these requests fail, or all
            limit.leave(await entered(limit), Failure(is_unavailable=True))
        await entered(limit)
        return loop.time()

    assert 7.5 <= run(main()) < 8.5


def test_one_request_that_has_to_wait_does_not_delay_the_others():
    async def main():
        loop = asyncio.get_running_loop()
        limit = Limiter(4, 4, clock=loop.time).lane("")
        limit.leave(await entered(limit), is_answered=True)
        limit.leave(await entered(limit), Failure(60.0, is_refused=True))
        await entered(limit)
        return loop.time()

    assert run(main()) < 1


def test_the_load_shows_the_failure_and_the_wait_of_the_last_request():
    async def main():
        loop = asyncio.get_running_loop()
        limits = LocalLimits(loop.time, shared=False)
        limit = limits.limit("endpoint", 4, 4)
        ticket = await entered(limit)
        limit.leave(await entered(limit), is_answered=True)
        assert limits.load().waits_s == 0
        limit.leave(ticket, Failure(60.0, is_refused=True))
        ticket.retries, ticket.delay_s, ticket.reason = 3, 60.0, "rate_limit"
        waiting = asyncio.create_task(limit.enter(ticket))
        await passes(10.0)
        load = limits.load()
        await entered(limit)
        assert limits.load().waits_s == 0
        waiting.cancel()
        return load

    load = run(main())
    assert load.waits_s == pytest.approx(50.0) and load.failing == {"rate_limit": 1}


def test_an_answer_with_retry_after_delays_calls_and_keeps_the_limit():
    async def main():
        loop = asyncio.get_running_loop()
        limiter = Limiter(4, 10, clock=loop.time)
        limit = limiter.lane("")
        limit.leave(await entered(limit), is_answered=True)
        limit.close_for(0.5)
        assert not limit.try_enter().has_place
        assert limiter.endpoint.limit(loop.time()) == 4
        await entered(limit)
        return loop.time()

    assert 0.5 <= run(main()) < 1


def test_callers_are_served_in_order():
    async def main():
        limit = Limiter(1, 1, clock=asyncio.get_running_loop().time).lane("")
        order = []

        async def call(number):
            ticket = await entered(limit)
            order.append(number)
            await passes(0.1)
            limit.leave(ticket, is_answered=True)

        await asyncio.gather(*map(call, range(10)))
        return order

    assert run(main()) == list(range(10))


def test_calls_of_jobs_that_have_begun_come_before_those_of_new_jobs():
    async def main():
        limiter = Limiter(1, 1, clock=asyncio.get_running_loop().time)
        order = []

        async def call(name, lane, opens_job):
            ticket = await entered(limiter.lane(lane), opens_job=opens_job)
            order.append(name)
            await passes(0.1)
            limiter.lane(lane).leave(ticket, is_answered=True)

        waiting = [
            ("a1", "a", True),
            ("a2", "a", True),
            ("b1", "b", True),
            ("judge", "b", False),
            ("turn", "a", False),
        ]
        await asyncio.gather(*(call(*each) for each in waiting))
        return order

    assert run(main()) == ["a1", "judge", "turn", "a2", "b1"]


@pytest.mark.parametrize(("has_answered", "is_down"), [(True, True), (False, False)])
def test_an_outage_of_one_model_does_not_hold_back_another_at_its_endpoint(has_answered, is_down):
    async def main():
        limiter = Limiter(4, 4, clock=asyncio.get_running_loop().time)
        target, judge = limiter.lane("target"), limiter.lane("judge")

        async def call(limit, failure=None):
            ticket = await entered(limit)
            await passes(0.1)
            limit.leave(ticket, failure, is_answered=failure is None)

        for failure in [*([None] if has_answered else []), *[Failure()] * 8]:
            await asyncio.gather(call(target), call(judge, failure))
        assert (judge.lane.down_since is not None) is is_down and target.lane.down_since is None
        waiting = [asyncio.create_task(call(judge, Failure())) for _ in range(20)]
        started = asyncio.get_running_loop().time()
        await asyncio.gather(*(call(target) for _ in range(30)))
        for each in waiting:
            each.cancel()
        return asyncio.get_running_loop().time() - started

    # Calls that fail quickly reduce the concurrency, but not for long.
    assert run(main()) < (0.1 * 30 / 3 + 0.3 if is_down else 0.1 * 50)


def test_an_endpoint_that_accepts_no_connection_is_waited_for_only_for_a_moment():
    async def main():
        loop = asyncio.get_running_loop()
        limit = Limiter(4, 4, clock=loop.time).lane("m")
        limit.leave(await entered(limit), Failure(is_unreached=True))
        assert not limit.try_enter().has_place

        async def call():
            ticket = limit.ticket(600, opens_job=True)
            ticket.retries = 3
            while await limit.enter(ticket):
                limit.leave(ticket, Failure(is_unreached=True))

        await asyncio.gather(*(call() for _ in range(50)))
        return loop.time()

    assert 10 <= run(main()) < 13


@pytest.mark.parametrize("moment", ["while it waits", "just as its turn came"])
def test_a_cancelled_caller_frees_its_place(moment):
    async def main():
        limiter = Limiter(2, 2, clock=asyncio.get_running_loop().time)
        limit = limiter.lane("")
        first, second = [await entered(limit) for _ in range(2)]
        waiting = [asyncio.create_task(entered(limit)) for _ in range(5)]
        await let_others_run()
        if moment == "just as its turn came":
            limit.leave(first, is_answered=True)
            limit.leave(second, is_answered=True)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if moment == "while it waits":
            limit.leave(first, is_answered=True)
            limit.leave(second, is_answered=True)
        assert (limiter.endpoint.in_flight, limiter.endpoint.waiting) == (0, 0)
        return limit.try_enter().has_place and limit.try_enter().has_place

    assert run(main()) is True


def test_callers_after_a_cancelled_one_still_enter():
    async def main():
        limiter = Limiter(1, 1, clock=asyncio.get_running_loop().time)
        limit = limiter.lane("")
        ticket = await entered(limit)
        first, second = (asyncio.create_task(entered(limit)) for _ in range(2))
        await let_others_run()
        first.cancel()
        await let_others_run()
        limit.leave(ticket, is_answered=True)
        await second
        return limiter.endpoint.in_flight

    assert run(main()) == 1


@pytest.mark.parametrize("kept_out_by", ["the limit", "the server"])
def test_randomly_cancelled_callers_leak_no_places(kept_out_by):
    async def main():
        limiter = Limiter(3, 3, clock=asyncio.get_running_loop().time)
        limit = limiter.lane("")
        chance = random.Random(7)
        if kept_out_by == "the server":
            limit.close_for(0.5)

        async def call():
            ticket = await entered(limit)
            try:
                await passes(chance.random() * 0.1)
            finally:
                limit.leave(ticket, Failure() if chance.random() < 0.3 else None, is_answered=chance.random() < 0.5)

        async def impatient():
            try:
                async with asyncio.timeout(chance.random()):
                    await call()
            except TimeoutError:
                pass

        await asyncio.gather(*(impatient() for _ in range(200)))
        return limiter.endpoint.in_flight, limiter.endpoint.waiting

    assert run(main()) == (0, 0)


def chat(name, **settings):
    settings = {"base_url": "http://127.0.0.1:9/v1", "api_key": "key-of-the-tests", "model": "m", **settings}
    return OpenAI(name=name, provider="openai", **settings)


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (chat("b", model="other"), True),
        (chat("b", api_key="another-key"), False),
        (chat("b", base_url="http://127.0.0.1:8/v1"), False),
        (Mock(name="b", provider="mock"), False),
    ],
)
def test_targets_share_a_limit_when_they_share_an_endpoint_and_a_key(other, shared):
    targets = OpenTargets(RunSpec(run_id="r", targets=(chat("a"), other)), LocalLimits())
    endpoints = {targets.get(name).responder.endpoint for name in ("a", "b")}
    assert (len(endpoints) == 1) is shared


@pytest.mark.parametrize(
    ("settings", "workers", "expected"),
    [
        (chat("a"), None, (10, 200)),
        (chat("a"), 3, (3, 3)),
        (chat("a", workers=500), None, (500, 500)),
        (chat("a", workers=5), 7, (7, 7)),
        (Http(name="a", provider="http", url="http://127.0.0.1:9"), None, (10, 200)),
        (Cli(name="a", provider="cli", command_template="true"), None, (os.cpu_count(), os.cpu_count())),
        (Mock(name="a", provider="mock"), None, (os.cpu_count(), os.cpu_count())),
    ],
)
def test_concurrency_is_configured_or_depends_on_the_kind_of_target(settings, workers, expected):
    assert concurrency_of(settings, workers) == expected


async def call(responder):
    with suppress(TargetFailure):
        await responder.respond(SampleRequest("hello"))


async def call_without_pause(responder):
    while True:
        await call(responder)


async def call_at_rate(responder, rate):
    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in count():
            await asyncio.sleep(start + number / rate - time.monotonic())
            group.create_task(call(responder))


async def use_of(server, seconds):
    """Return the answers a second and the fraction of refused calls in the next seconds."""
    start, answered, refused = time.monotonic(), server.counts.by_status[200], server.counts.over_cap
    await asyncio.sleep(seconds)
    answered, refused = server.counts.by_status[200] - answered, server.counts.over_cap - refused
    return answered / (time.monotonic() - start), refused / max(1, answered + refused)


@asynccontextmanager
async def started(*callers):
    tasks = [asyncio.create_task(caller) for caller in callers]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_two_targets_share_the_limit_of_a_real_server():
    """150 requests a second for a few seconds: the simulation above has the narrow bounds.

    Without a limit the 80 callers would ask ten times as often as they may, and nine of ten calls would be refused. A
    busy machine delays calls, which then arrive together and are refused: one of three periods must meet the bounds,
    or the last one those of a client that makes 150 calls a second on this machine.
    """
    rate, period_s = 150, 2.0

    async def main(server):
        models = (chat("a", base_url=server.url), chat("b", base_url=server.url, model="other"))
        targets = OpenTargets(RunSpec(run_id="r", targets=models), LocalLimits())
        async with started(*(call_without_pause(targets.get(name).responder) for name in "ab" for _ in range(40))):
            await use_of(server, period_s)
            for _ in range(3):
                answers, refused = await use_of(server, period_s)
                if is_met := answers >= 0.5 * rate and refused <= 0.15:
                    break
        await targets.aclose()
        if not is_met:
            unlimited = chat("c", base_url=server.url).open(".")
            async with started(call_at_rate(unlimited, rate)):
                possible, unavoidable = await use_of(server, period_s)
            await unlimited.aclose()
            assert answers >= 0.5 * possible and refused <= 0.15 + unavoidable

    with FaultyServer("yes", requests_per_s=rate, burst=15, latency_s=0.05, keep=0) as server:
        asyncio.run(main(server))


@pytest.mark.parametrize(("own", "of_judge"), [(5, 5), (5, 50), (None, 5)])
def test_a_target_and_its_judge_share_the_limit_of_their_endpoint(project, own, of_judge):
    verdict = '{"reasoning": "fine", "hits": [], "misses": [], "score": 1.0}'
    with FaultyServer(lambda request: "yes" if request.prompt == "q" else verdict, latency_s=0.02) as server:
        settings = {"provider": "openai", "model": "m", "base_url": server.url}
        workers = {} if own is None else {"workers": own}
        project.targets({"name": "default", **settings, **workers}, {"name": "judge", **settings, "workers": of_judge})
        project.dataset(*(["q"] * 40), evaluators=[{"type": "llm_judge", "name": "j"}])
        assert project.eval("--out", "out", "--quiet").code == 0
    assert server.counts.requests == 80 and server.counts.most_at_once == 5
