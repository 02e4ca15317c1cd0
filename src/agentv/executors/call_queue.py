"""The queue of calls that wait for a place at an endpoint."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import chain, count

from agentv.executors.outage import EndpointDown

UNLIMITED = float("inf")
_MOST_DISMISSED = 20
"""Jobs that fail together before their first call. The run may stop because of them, which drops the others."""

_Call = tuple[int, "asyncio.Future[None]", float]
_numbers = count()


class WaitingCalls:
    """Calls that wait for a place: those of jobs that have begun, then the first calls of jobs, in order of arrival.

    Retries and judges come before new jobs, so that few jobs are unfinished at a time. Each call has the longest outage
    that it waits for.
    """

    def __init__(self) -> None:
        self._begun: deque[_Call] = deque()
        self._opening: deque[_Call] = deque()

    def __len__(self) -> int:
        return len(self._begun) + len(self._opening)

    def add(self, patience_s: float, opens_job: bool) -> asyncio.Future[None]:
        """Return a future that is done when the call may start."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._opening if opens_job else self._begun).append((next(_numbers), place, patience_s))
        return place

    @property
    def next_in_line(self) -> tuple[bool, int] | None:
        """What the calls of several lanes are ordered by: whether the next call is the first of its job, its number."""
        for calls in (self._begun, self._opening):
            while calls and calls[0][1].done():
                calls.popleft()
            if calls:
                return calls is self._opening, calls[0][0]
        return None

    @property
    def has_begun_jobs(self) -> bool:
        """Whether one of the calls belongs to a job that has made a call before."""
        return bool(self._begun)

    def start_next(self) -> bool:
        """Let the next call start; return whether there was one."""
        if self.next_in_line is None:
            return False
        (self._begun or self._opening).popleft()[1].set_result(None)
        return True

    def prune(self) -> int:
        """Remove cancelled calls; return the number of calls left."""
        self._begun = deque(each for each in self._begun if not each[1].done())
        self._opening = deque(each for each in self._opening if not each[1].done())
        return len(self)

    @property
    def least_patience_s(self) -> float:
        """The shortest outage that one of the calls waits for."""
        return min((patience_s for _, _, patience_s in chain(self._begun, self._opening)), default=UNLIMITED)

    def dismiss(self, down_for_s: float, longest_s: float = UNLIMITED) -> bool:
        """Fail calls that do not wait for an outage of this length, none longer than `longest_s`; not all new jobs.

        Returns whether there are more of them.
        """
        impatient = [each for each in self._begun if min(each[2], longest_s) <= down_for_s]
        opening = [each for each in self._opening if min(each[2], longest_s) <= down_for_s]
        for _, place, _ in (*impatient, *opening[:_MOST_DISMISSED]):
            if not place.done():
                place.set_exception(EndpointDown(down_for_s))
        self.prune()
        return len(opening) > _MOST_DISMISSED

    def drop_jobs(self) -> None:
        """Cancel the calls whose jobs have not made a call yet."""
        for _, place, _ in self._opening:
            place.cancel()
        self._opening.clear()

    def fail(self, error: Exception) -> None:
        """Fail all calls."""
        for _, place, _ in chain(self._begun, self._opening):
            if not place.done():
                place.set_exception(error)
        self._begun.clear()
        self._opening.clear()
