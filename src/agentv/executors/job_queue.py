"""The worker's side of an executor that runs jobs in other processes: queue jobs, run some of them at a time."""

from __future__ import annotations

import asyncio
import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from io import BytesIO
from types import FunctionType
from typing import Any

from agentv.errors import UsageError
from agentv.executors.base import TURN_S, Worker
from agentv.model.job import Job
from agentv.model.result import Result

NumberedJob = tuple[int, Job]
NumberedResult = tuple[int, Result]


class JobQueue:
    """Starts jobs in the order they were added, at most `share` at a time.

    `deliver` receives results. `fail` receives an exception that is not a job's failure.
    """

    def __init__(
        self, worker: Worker, deliver: Callable[[NumberedResult], None], fail: Callable[[BaseException], None]
    ) -> None:
        self._share = 1
        self._worker = worker
        self._deliver = deliver
        self._fail = fail
        self._queued: deque[NumberedJob] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, jobs: Iterable[NumberedJob]) -> None:
        """Queue jobs; start as many as may run."""
        self._queued.extend(jobs)
        self._start()

    def begin(self, share: int) -> None:
        """Run at most this many jobs at a time from now on."""
        self._share = share
        self._start()

    def _start(self) -> None:
        for _ in range(min(self._share - len(self._tasks), len(self._queued))):
            task = asyncio.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def _work(self) -> None:
        resumed = time.monotonic()
        while self._queued and len(self._tasks) <= self._share:
            number, job = self._queued.popleft()
            self._deliver((number, await self._worker.run(job)))
            if time.monotonic() - resumed > TURN_S:
                await asyncio.sleep(0)
                resumed = time.monotonic()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def aclose(self) -> tuple[str, ...]:
        """Cancel the jobs that run, let them clean up, close the worker; return what replays did not have."""
        self._queued.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._worker.aclose()
        return self._worker.missing


class _Pickler(pickle.Pickler):
    """Refuses what only exists in the program that the user started: a worker has another `__main__`."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType | type) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"'{obj.__qualname__}' is defined in __main__")
        return NotImplemented


def pack(message: Any) -> bytes:
    """Return a message as bytes. Raises UsageError when something in it cannot be sent to another process."""
    buffer = BytesIO()
    try:
        _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(message)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        hint = "Define functions and classes at the top level of a module that workers can import, or use the executor "
        raise UsageError("The run cannot be sent to another process", str(error), f"{hint}'local'") from error
    return buffer.getvalue()


def portable(error: BaseException) -> BaseException:
    """Return an exception that another process can read: itself, or its traceback as text when it is the user's."""
    if type(error).__module__.partition(".")[0] in ("agentv", "builtins"):
        return error
    return RuntimeError("".join(traceback.format_exception(error)))
