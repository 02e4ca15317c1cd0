"""Budgets: jobs in flight reserve their expected cost, whatever jobs cost, fail and take."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import virtual_time
from agentv.executors.budget import Budget


class Market:
    """Jobs of several calls, at most `workers` at a time, that cost what `draw` returns."""

    def __init__(self, budget, workers, jobs, draw, failing=0.0, seed=0):
        self.budget, self.workers, self.jobs, self.draw = budget, workers, jobs, draw
        self.failing, self.random = failing, random.Random(seed)
        self.paid, self.dearest, self.finished, self.at_once, self.most_at_once = 0.0, 0.0, 0, 0, 0
        self.refused = False

    async def work(self):
        while self.jobs:
            self.jobs -= 1
            if not await self.budget.start("t"):
                self.refused = True
                return
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
            spent, ok = 0.0, True
            for cost in self.draw(self.random):
                if self.budget.is_exceeded:
                    ok = False
                    break
                await asyncio.sleep(self.random.uniform(0.1, 3))
                self.paid += cost
                self.dearest = max(self.dearest, cost)
                spent += cost
                self.budget.spend(cost)
                if self.random.random() < self.failing:
                    ok = False
                    break
            self.at_once -= 1
            self.finished += ok
            self.budget.end("t", spent, ok=ok)

    def run(self):
        async def everyone():
            await asyncio.gather(*(self.work() for _ in range(self.workers)))

        virtual_time.run(everyone())
        return self


def steady(cost, calls=1):
    return lambda _: [cost] * calls


def varied(low, high, calls):
    return lambda random: [random.uniform(low, high) for _ in range(calls)]


def skewed(random):
    return [random.paretovariate(1.5) / 1000]


@pytest.mark.parametrize(
    "draw",
    [steady(0.01), steady(0.01, 5), varied(0, 0.02, 3), varied(0.009, 0.011, 1)],
    ids=["one call", "five calls", "varied", "similar"],
)
def test_two_hundred_workers_stay_within_five_percent(draw):
    market = Market(Budget(1.0), 200, 5000, draw).run()
    assert 0.9 <= market.paid <= 1.05
    assert market.refused


@settings(max_examples=40)
@given(
    budget=st.floats(0.05, 20),
    workers=st.integers(1, 200),
    calls=st.integers(1, 6),
    low=st.floats(0, 0.02),
    spread=st.floats(0, 0.05),
    failing=st.floats(0, 0.5),
    seed=st.integers(0, 1000),
)
def test_no_budget_is_exceeded_by_much(budget, workers, calls, low, spread, failing, seed):
    market = Market(Budget(budget), workers, 400, varied(low, low + spread, calls), failing, seed).run()
    assert market.paid <= budget * 1.05 + min(workers, 8) * market.dearest
    everything_ran = not market.refused
    assert everything_ran or market.paid >= budget


@settings(max_examples=20)
@given(seed=st.integers(0, 200))
def test_a_few_expensive_jobs_are_no_excuse(seed):
    market = Market(Budget(1.0), 100, 5000, skewed, seed=seed).run()
    assert market.paid <= 1.05 + 2 * market.dearest


def test_one_job_of_each_target_runs_until_a_cost_is_known():
    async def main():
        budget = Budget(10.0)
        assert await budget.start("a") and await budget.start("b")
        second = asyncio.ensure_future(budget.start("a"))
        await asyncio.sleep(1)
        assert not second.done()
        budget.spend(0.001)
        budget.end("a", 0.001, ok=True)
        assert await second

    virtual_time.run(main())


def test_free_jobs_do_not_wait_for_a_cost_for_long():
    market = Market(Budget(1.0), 64, 2000, steady(0.0)).run()
    assert market.finished == 2000 and market.most_at_once == 64


def test_a_large_budget_does_not_slow_a_run_down():
    assert Market(Budget(1000.0), 100, 1000, steady(0.01)).run().most_at_once == 100


def test_a_cancelled_job_gives_its_place_back():
    async def main():
        budget = Budget(1.0)
        assert await budget.start("t")
        waiting = asyncio.ensure_future(budget.start("t"))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        third = asyncio.ensure_future(budget.start("t"))
        budget.end("t", 0.0, ok=False)
        assert await third

    virtual_time.run(main())
