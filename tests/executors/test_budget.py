"""Budgets: jobs in flight reserve their expected cost, whatever jobs cost, fail and take."""

import asyncio
import random
import sys
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import virtual_time
from agentv.executors.budget import Budget
from agentv.executors.budget_file import Allowance, BudgetFile, BudgetShare, ShardSpending


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

    async def work_all(self):
        await asyncio.gather(*(self.work() for _ in range(self.workers)))
        self.budget.close()

    def run(self):
        virtual_time.run(self.work_all())
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
    assert everything_ran or market.paid >= budget - 1e-6


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


def test_ten_cents_are_ten_calls_of_one_cent():
    market = Market(Budget(0.1), 1, 20, steady(0.01)).run()
    assert market.finished == 10 and market.refused


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


needs_locks = pytest.mark.skipif(sys.platform == "win32", reason="shards share a budget through POSIX locks")


def shard_of(key, number, limit_usd=1.0, run_id=None, spent_usd=0.0):
    return BudgetShare(key, number, run_id or f"run-{number}", limit_usd, spent_usd)


@needs_locks
@settings(max_examples=6, deadline=None)
@given(
    shards=st.integers(2, 5),
    workers=st.integers(1, 60),
    calls=st.integers(1, 4),
    spread=st.floats(0, 0.01),
)
def test_shards_together_stay_within_their_budget(shards, workers, calls, spread):
    draw, key = varied(0.005, 0.005 + spread, calls), uuid4().hex
    budgets = [Budget(1.0, shard_of(key, number)) for number in range(shards)]
    markets = [Market(budget, workers, 400, draw, seed=number) for number, budget in enumerate(budgets)]

    async def everyone():
        await asyncio.gather(*(market.work_all() for market in markets))

    virtual_time.run(everyone())
    paid = sum(market.paid for market in markets)
    assert all(market.refused for market in markets)
    assert 1.0 - 1e-6 <= paid <= 1.05 + min(shards * workers, 8) * max(market.dearest for market in markets)


@needs_locks
def test_a_shard_may_spend_what_others_leave(tmp_path):
    first, second = (BudgetFile(shard_of("k", number), tmp_path) for number in (1, 2))
    assert first.update(0.0, 0.0, 0).usd == 1.0
    assert second.update(0.0, 0.0, 0).usd == 0.0  # the first one may have spent it
    assert first.update(0.2, 0.2, 4).usd == pytest.approx(0.7)
    allowed = second.update(0.0, 0.0, 0)
    assert allowed.usd == pytest.approx(0.3) and allowed.others_run and allowed.others_usd == pytest.approx(0.4)
    first.release(0.3)
    allowed = second.update(0.1, 0.0, 0)
    assert allowed.usd == pytest.approx(0.7) and not allowed.others_run
    assert second.update(0.7, 0.0, 0).is_used_up
    assert second.spending() == ShardSpending(1.0, 2)


@needs_locks
def test_a_killed_shard_keeps_what_it_has_spent_and_not_what_it_reserved(tmp_path):
    killed, other = (BudgetFile(shard_of("k", number), tmp_path) for number in (1, 2))
    killed.update(0.3, 0.5, 5)
    [owned] = tmp_path.glob("k.[0-9]*")
    owned.unlink()  # as if its process had ended
    assert other.update(0.0, 0.0, 0) == Allowance(pytest.approx(0.7), 0.3)
    resumed = BudgetFile(shard_of("k", 1, spent_usd=0.4), tmp_path)
    resumed.update(0.0, 0.0, 0)
    assert other.spending() == ShardSpending(0.4, 2)


@needs_locks
@pytest.mark.parametrize(("number", "run_id", "usd"), [(2, "b", 0.5), (1, "a", 0.5), (1, "c", 0.0)])
def test_a_shard_that_runs_again_begins_a_new_budget(tmp_path, number, run_id, usd):
    first = BudgetFile(shard_of("k", 1, run_id="a"), tmp_path)
    first.update(0.5, 0.0, 0)
    first.release(0.5)
    spent_usd = 0.5 if run_id == "a" else 0.0
    later = BudgetFile(shard_of("k", number, run_id=run_id, spent_usd=spent_usd), tmp_path)
    later.update(0.0, 0.0, 0)
    assert later.spending().usd == usd
