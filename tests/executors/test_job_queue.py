"""The jobs of one worker: they all run, also if the worker's share shrinks while they do."""

import asyncio

from agentv.executors.crew import JobQueue
from agentv.executors.executor import LocalLimits


class Gated:
    """A worker whose jobs end together, when the gate opens."""

    capacity = 4
    missing = ()

    def __init__(self):
        self.gate = asyncio.Event()

    async def run(self, job):
        await self.gate.wait()
        return job


def test_jobs_run_after_the_share_shrank_while_others_ended_together():
    async def run():
        worker, delivered = Gated(), []
        queue = JobQueue(worker, LocalLimits(), delivered.append, lambda error: None)
        queue.begin(4)
        queue.add((number, f"job {number}") for number in range(12))
        await asyncio.sleep(0)
        queue.begin(2)  # another worker takes half of the calls
        worker.gate.set()
        async with asyncio.timeout(30):
            while len(delivered) < 12:
                await asyncio.sleep(0)
        return delivered

    assert sorted(number for number, _ in asyncio.run(run())) == list(range(12))
