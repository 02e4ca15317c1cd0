"""Outages and overloads of an endpoint: jobs wait instead of failing. Simulated on a virtual clock."""

import asyncio
import random
from dataclasses import dataclass, field
from functools import cache

import pytest

from agentv.engine.calls.retry import RetryPolicy, RetryWrapper
from agentv.engine.calls.wrappers import LimitWrapper
from agentv.executors.executor import ExecutorOptions, LocalLimits
from agentv.executors.local import LocalExecutor
from agentv.model.case import EvalCase
from agentv.model.job import Job
from agentv.model.response import SampleRequest, TargetFailure, answer
from virtual_time import run

pytestmark = pytest.mark.ci

LATENCY_S = 0.2
POLICY = RetryPolicy(status_codes=(429, 500, 502, 503, 504), timeout_s=60.0)


def failure_of(kind, timeout_s=5.0):
    """Return the time until a failure of this kind, and the failure."""
    return {
        "reset": (0.002, TargetFailure("network", "the connection ended before a response")),
        "503": (0.005, TargetFailure("server", "unavailable", status=503)),
        "500": (0.005, TargetFailure("server", "internal error", status=500)),
        "429": (0.005, TargetFailure("rate_limit", "too many requests", status=429)),
        "hang": (timeout_s, TargetFailure("timeout", f"no response within {timeout_s} s")),
    }[kind]


@dataclass
class Endpoint:
    """Answers after `latency_s`, unless there is an outage, the prompt is bad, all slots are taken, or by chance."""

    latency_s: float = LATENCY_S
    kind: str = "reset"
    outages: tuple[tuple[float, float], ...] = ()
    slots: int | None = None
    chance: float = 0.0
    bad: frozenset[str] = frozenset()
    endpoint: str = "https://api.example.com#key"
    calls: int = 0
    at_once: int = 0
    most_at_once: int = 0
    draws: random.Random = field(default_factory=lambda: random.Random(1))

    def fails(self, request):
        now = asyncio.get_running_loop().time()
        is_down = any(start <= now < end for start, end in self.outages)
        is_full = self.slots is not None and self.at_once > self.slots
        return is_down or is_full or request.case.id in self.bad or self.draws.random() < self.chance

    async def respond(self, request):
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.fails(request):
                delay_s, failure = failure_of(self.kind)
                await asyncio.sleep(delay_s)
                raise failure
            await asyncio.sleep(self.latency_s * self.draws.uniform(0.8, 1.2))
            if any(start <= asyncio.get_running_loop().time() < end for start, end in self.outages):
                raise failure_of(self.kind)[1]
            return answer("yes")
        finally:
            self.at_once -= 1

    async def aclose(self):
        pass


@dataclass
class Work:
    """A spec whose jobs make one call each, through the wrappers of a run."""

    endpoint: Endpoint
    workers: tuple[int, int]
    max_outage_s: float = 600.0
    is_repeatable: bool = True

    def open(self, limits):
        limit = limits.limit(self.endpoint.endpoint, *self.workers)
        limited = LimitWrapper(self.endpoint, limit, self.max_outage_s)
        limited.is_repeatable = self.is_repeatable
        self.responder = RetryWrapper(limited, POLICY, limit, limits.slots)
        self.capacity = self.workers[1]
        self.missing = ()
        return self

    async def run(self, job):
        try:
            await self.responder.respond(SampleRequest("q", case=job.case))
        except TargetFailure as failure:
            return job.case.id, failure
        return job.case.id, None

    async def aclose(self):
        pass


def simulate(endpoint, jobs, workers=(10, 200), **settings):
    """Run jobs; return the time they took and the failures by job."""

    async def main():
        loop = asyncio.get_running_loop()
        executor, ended = LocalExecutor(ExecutorOptions()), []
        executor.limits = LocalLimits(loop.time, shared=False)
        source = (Job(EvalCase(f"c{number}", "", "question", "answer"), "t") for number in range(jobs))
        await executor.run(Work(endpoint, workers, **settings), source, ended.append)
        assert len({job for job, _ in ended}) == len(ended) == jobs
        return loop.time(), {job: failure for job, failure in ended if failure is not None}

    random.seed(1)
    return run(main())


@cache
def undisturbed_s(jobs, workers):
    took_s, failures = simulate(Endpoint(), jobs, workers)
    assert failures == {}
    return took_s


@pytest.mark.every(3)
@pytest.mark.parametrize("kind", ["reset", "503", "500", "429", "hang"])
@pytest.mark.parametrize(
    ("seconds", "jobs", "workers"),
    [(20, 1500, (50, 50)), (2, 1500, (50, 50)), (300, 300, (10, 10)), (20, 2000, (10, 200)), (20, 60, (1, 1))],
)
def test_a_run_outlives_an_outage_without_losing_a_job(kind, seconds, jobs, workers):
    usual_s = undisturbed_s(jobs, workers)
    took_s, failures = simulate(Endpoint(kind=kind, outages=((usual_s / 2, usual_s / 2 + seconds),)), jobs, workers)
    assert failures == {}
    last_attempt_s = {"hang": 5.0, "429": 2.0}.get(kind, 1.0)
    assert took_s <= seconds + 1.5 * usual_s + last_attempt_s


@pytest.mark.parametrize("kind", ["reset", "503"])
@pytest.mark.parametrize("workers", [(10, 200), (50, 50), (200, 200)])
def test_a_server_that_accepts_ten_calls_and_fails_the_rest_answers_every_job(workers, kind):
    endpoint = Endpoint(kind=kind, slots=10)
    took_s, failures = simulate(endpoint, 1000, workers)
    assert failures == {}
    assert took_s <= 1.2 * 1000 * LATENCY_S / 10 + 1
    assert endpoint.calls <= 2 * 1000


@pytest.mark.every(3)
@pytest.mark.parametrize(("latency_s", "jobs"), [(0.2, 6000), (2.0, 1500)])
@pytest.mark.parametrize(("chance", "least"), [(0.1, 0.85), (0.3, 0.65)])
@pytest.mark.parametrize("kind", ["reset", "503"])
def test_calls_that_fail_by_chance_hardly_slow_a_run_down(kind, chance, least, latency_s, jobs):
    workers = 50
    took_s, failures = simulate(Endpoint(latency_s, kind, chance=chance), jobs, (workers, workers))
    assert len(failures) <= 3 + jobs * chance**4 * 2
    assert jobs * latency_s / workers / took_s >= least


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("latency_s", "jobs", "workers"),
    [(0.2, 500, 20), (0.2, 1000, 20), (0.2, 1000, 50), (0.05, 2000, 20), (0.05, 2000, 50)],
)
@pytest.mark.parametrize("kind", ["reset", "500"])
def test_a_short_run_with_failures_takes_little_longer_than_one_backoff(kind, latency_s, jobs, workers):
    took_s, failures = simulate(Endpoint(latency_s, kind, chance=0.1), jobs, (workers, workers))
    assert len(failures) <= 2
    assert (jobs * latency_s / workers + POLICY.initial_delay_s) / took_s >= 0.85


@dataclass
class JudgedWork(Work):
    """The same with a judge at the endpoint: a second call for each answer. Counts answers without a verdict."""

    unjudged: int = 0
    most_unjudged: int = 0

    def open(self, limits):
        limit = limits.limit(self.endpoint.endpoint, *self.workers, "judge")
        self.judge = LimitWrapper(self.endpoint, limit, self.max_outage_s)
        return super().open(limits)

    async def run(self, job):
        request = SampleRequest("q", case=job.case)
        request.opens_job = True
        await self.responder.respond(request)
        self.unjudged += 1
        self.most_unjudged = max(self.most_unjudged, self.unjudged)
        await self.judge.respond(SampleRequest("verdict", case=job.case))
        self.unjudged -= 1
        return job.case.id, None


def test_a_target_and_a_judge_take_turns_at_their_endpoint():
    async def main():
        executor, work = LocalExecutor(ExecutorOptions()), JudgedWork(Endpoint(), (20, 20))
        executor.limits = LocalLimits(asyncio.get_running_loop().time, shared=False)
        await executor.run(work, (Job(EvalCase(f"c{number}"), "t") for number in range(500)), lambda _: None)
        assert work.most_unjudged <= 20
        return asyncio.get_running_loop().time()

    assert 500 * 2 * LATENCY_S / 20 / run(main()) >= 0.95


@pytest.mark.parametrize("workers", [(1, 1), (4, 4), (10, 200)])
@pytest.mark.parametrize("bad", [{"c50"}, {"c49", "c50", "c51", "c52", "c53"}])
def test_prompts_that_always_fail_are_errors_and_do_not_hold_the_run(bad, workers):
    took_s, failures = simulate(Endpoint(kind="500", bad=frozenset(bad)), 400, workers)
    assert set(failures) == bad
    assert took_s < 400 * LATENCY_S / min(workers[1], 100) + 60


def test_a_last_job_that_always_fails_ends_within_two_minutes():
    took_s, failures = simulate(Endpoint(kind="reset", bad=frozenset({"c99"})), 100, (4, 4))
    assert set(failures) == {"c99"} and took_s < 120


def test_after_the_longest_outage_the_jobs_are_errors_that_name_it():
    took_s, failures = simulate(Endpoint(kind="503", outages=((2, 10_000),)), 1000, (10, 10), max_outage_s=60.0)
    assert 60 < took_s < 75 and 850 < len(failures) < 1000
    assert {(failure.error_class, failure.status) for failure in failures.values()} == {("server", 503)}
    assert sum("https://api.example.com has been down for 6" in str(failure) for failure in failures.values()) > 800


def test_an_outage_at_the_start_of_a_run_costs_no_job():
    took_s, failures = simulate(Endpoint(kind="503", outages=((0, 120),)), 400, (10, 10))
    assert failures == {} and took_s < 120 + 1.5 * 40 * LATENCY_S + 10


@pytest.mark.parametrize("kind", ["reset", "500"])
def test_an_endpoint_that_never_answered_fails_fast(kind):
    took_s, failures = simulate(Endpoint(kind=kind, outages=((0, 10_000),)), 20, (4, 4))
    assert len(failures) == 20 and took_s < 60


def test_a_short_answer_between_outages_ends_the_first():
    endpoint = Endpoint(kind="503", outages=((2, 40), (46, 80), (86, 140)))
    took_s, failures = simulate(endpoint, 3000, (20, 20), max_outage_s=70.0)
    assert failures == {} and took_s < 140 + 1.5 * 30
