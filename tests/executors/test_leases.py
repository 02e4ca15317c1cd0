"""Leases of endpoint permits: never more than the limit, and none lost with a worker."""

import asyncio

import pytest

from agentv.executors.leases import Endpoint, LeasedLimits, LimitHub
from agentv.executors.outage import CallReport


class Hub(LimitHub):
    """A hub that counts messages, as links of workers would carry them."""

    def __init__(self):
        super().__init__()
        self.messages = 0

    def worker(self, name):
        def call(method, *arguments):
            self.messages += 1
            return getattr(self, method)(name, *arguments)

        return LeasedLimits(call, cores=2)


def limit_of(hub, name, most=3):
    return hub.worker(name).limit("endpoint", most, most)


async def use(limit, calls, running):
    for _ in range(calls):
        if not limit.try_enter():
            await limit.enter()
        running.append(running[-1] + 1)
        await asyncio.sleep(0)
        running.append(running[-1] - 1)
        limit.leave()


def test_workers_together_never_hold_more_permits_than_the_limit():
    async def main():
        hub, running = Hub(), [0]
        limits = [limit_of(hub, name) for name in "abc"]
        await asyncio.gather(*(use(limit, 50, running) for limit in limits for _ in range(4)))
        return running

    running = asyncio.run(main())
    assert len(running) == 1 + 2 * 600 and max(running) == 3


def test_a_single_worker_needs_few_messages():
    async def main():
        hub = Hub()
        limit = limit_of(hub, "a")
        await use(limit, 1000, [0])
        return hub.messages

    assert asyncio.run(main()) < 100


def test_a_worker_gets_permits_that_another_one_keeps_for_its_next_call():
    async def main():
        hub = Hub()
        first, second = limit_of(hub, "a", 1), limit_of(hub, "b", 1)
        stop = False

        async def greedy():
            while not stop:
                await use(first, 1, [0])

        busy = asyncio.create_task(greedy())
        await asyncio.wait_for(use(second, 20, [0]), 30)
        stop = True
        await busy

    asyncio.run(main())


def test_the_permits_of_a_lost_worker_are_free_again():
    async def main():
        hub = Hub()
        lost, other = limit_of(hub, "a", 2), limit_of(hub, "b", 2)
        await lost.enter()
        await lost.enter()
        waiting = asyncio.create_task(other.enter())
        await asyncio.sleep(0)
        hub.lose("a")
        await asyncio.wait_for(waiting, 30)

    asyncio.run(main())


def test_a_permit_granted_to_a_lost_worker_is_free_again():
    async def main():
        hub = LimitHub()
        endpoint = Endpoint("endpoint", 1, 1)
        await hub.take("a", endpoint, 1)
        late = asyncio.create_task(hub.take("b", endpoint, 1))
        await asyncio.sleep(0)
        hub.lose("b")
        hub.lose("a")
        await late
        assert (await asyncio.wait_for(hub.take("c", endpoint, 1), 30))[0] == 1

    asyncio.run(main())


def test_a_refusal_closes_the_endpoint_for_all_workers():
    async def main():
        hub = Hub()
        first, second = limit_of(hub, "a"), limit_of(hub, "b")
        await first.enter()
        first.leave(CallReport(ok=False, refused=True, retry_after_s=60))
        waiting = asyncio.create_task(second.enter())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting, 0.1)
        return hub.load()

    load = asyncio.run(main())
    assert load.waits_s > 50 and load.concurrency < 3


def test_the_limit_grows_while_calls_of_a_worker_are_answered():
    async def main():
        hub = Hub()
        limit = hub.worker("a").limit("endpoint", 2, 100)
        await asyncio.gather(*(use(limit, 100, [0]) for _ in range(20)))
        async with asyncio.timeout(30):
            while hub.load().concurrency < 19:
                await asyncio.sleep(0)

    asyncio.run(main())


def test_calls_fail_when_the_hub_is_gone():
    async def call(*_):
        raise ConnectionError("the hub is gone")

    async def main():
        await LeasedLimits(call, cores=1).limit("endpoint", 1, 1).enter()

    with pytest.raises(ConnectionError):
        asyncio.run(main())
