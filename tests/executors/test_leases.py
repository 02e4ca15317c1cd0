"""Workers of a run share the limits of endpoints: never more than the limit, and nothing is lost with a worker."""

import asyncio

import pytest

from agentv.executors.leases import LeasedLimits, LimitHub


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


async def enter(limit):
    ticket = limit.try_enter()
    if not ticket.has_place:
        await limit.enter(ticket)
    return ticket


async def use(limit, calls, running):
    for _ in range(calls):
        ticket = await enter(limit)
        running.append(running[-1] + 1)
        await asyncio.sleep(0)
        running.append(running[-1] - 1)
        limit.leave(ticket, is_answered=True)


def test_workers_together_never_make_more_calls_than_the_limit():
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


def test_a_worker_gets_calls_that_another_one_keeps_using():
    async def main():
        hub, running = Hub(), [0]
        first, second = limit_of(hub, "a", 1), limit_of(hub, "b", 1)
        stop = False

        async def greedy():
            while not stop:
                await use(first, 1, [0])

        busy = asyncio.create_task(greedy())
        await asyncio.wait_for(use(second, 20, running), 200)
        stop = True
        await busy
        return running

    assert asyncio.run(main()) == [0] + [1, 0] * 20


def test_the_calls_of_a_lost_worker_are_free_again():
    async def main():
        hub = Hub()
        lost, other = limit_of(hub, "a", 2), limit_of(hub, "b", 2)
        await enter(lost)
        await enter(lost)
        waiting = asyncio.create_task(enter(other))
        await asyncio.sleep(0)
        assert not waiting.done()
        hub.lose("a")
        return await asyncio.wait_for(waiting, 200)

    assert asyncio.run(main()).has_place


def test_calls_fail_when_the_hub_is_gone():
    async def call(*_):
        raise ConnectionError("the hub is gone")

    async def main():
        await enter(LeasedLimits(call, cores=1).limit("endpoint", 1, 1))

    with pytest.raises(ConnectionError):
        asyncio.run(main())
