"""Work that logs its steps to a file, so that it can be observed wherever it runs."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.job import Job
from agentv.model.result import ErrorInfo, Result


class ObservableWork(msgspec.Struct, frozen=True, kw_only=True):
    """A spec. `seconds` is how long a job takes; a job named `broken` raises, one named `deadly` ends its process.

    `limit` is how many jobs of all workers may run at the same time; jobs wait until `processes` have begun one.
    """

    log: str
    seconds: float = 0.0
    capacity: int = 4
    limit: int | None = None
    processes: int = 0
    problem: str | None = None
    baggage: Any = None

    def open(self, limits):
        if self.problem == "dies":
            os._exit(5)
        if self.problem is not None:
            raise UsageError(self.problem)
        return ObservableWorker(self, limits)

    def failed(self, job, message):
        return record(job, ErrorInfo("process", message, "target"))

    def steps(self, kind):
        """The ids of jobs for which a step was taken, in order."""
        lines = Path(self.log).read_text().splitlines() if os.path.exists(self.log) else []
        return [line.split()[1] for line in lines if line.startswith(kind + " ")]

    def pids(self):
        lines = Path(self.log).read_text().splitlines() if os.path.exists(self.log) else []
        return {int(line.split()[3]) for line in lines}

    def most_at_once(self):
        """How many jobs ran at the same time, at most."""
        events = []
        for line in Path(self.log).read_text().splitlines():
            kind, _, moment, _ = line.split()
            events.append((float(moment), {"enter": 1, "leave": -1}.get(kind, 0)))
        running = most = 0
        for _, change in sorted(events, key=lambda event: (event[0], event[1])):
            running += change
            most = max(most, running)
        return most


class ObservableWorker:
    missing = ("a call that is not recorded",)

    def __init__(self, spec, limits):
        self.spec = spec
        self.capacity = spec.capacity
        self._limit = None if spec.limit is None else limits.limit("the endpoint", spec.limit, spec.limit)
        self._file = os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _note(self, kind, job):
        os.write(self._file, f"{kind} {job.case.id} {time.monotonic()} {os.getpid()}\n".encode())

    async def run(self, job):
        self._note("begin", job)
        try:
            ticket = None if self._limit is None else self._limit.try_enter(opens_job=True)
            if ticket is not None and not ticket.has_place:
                await self._limit.enter(ticket)
            self._note("enter", job)
            while self.spec.processes and len(self.spec.pids()) < self.spec.processes:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.005 if job.case.id == "broken" else self.spec.seconds)
            self._note("leave", job)
            if ticket is not None:
                self._limit.leave(ticket, is_answered=True)
            if job.case.id == "broken":
                raise RuntimeError("broken")
            if job.case.id == "deadly":
                os._exit(3)
            return record(job)
        finally:
            self._note("end", job)

    async def aclose(self):
        os.close(self._file)


def record(job, error=None):
    status = "ok" if error is None else "error"
    return Result(
        timestamp="",
        run_id="r",
        eval_id=job.case.id,
        dataset="",
        dataset_path="",
        target=job.target,
        trial=1,
        status=status,
        score=None if error else 1.0,
        verdict=None if error else "pass",
        error=error,
    )


def jobs(ids):
    return (Job(EvalCase(str(each), "", "question", "answer"), "t") for each in ids)


def ids(results):
    return Counter(result.eval_id for result in results)
