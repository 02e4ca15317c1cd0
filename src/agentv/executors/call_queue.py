"""The queue of calls that wait for a place at an endpoint."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import chain, count

from agentv.executors.outage import EndpointDown
from agentv.model.response import FailedCalls

UNLIMITED = float("inf")
_MOST_DISMISSED = 20
"""Jobs that fail together before their first call. The run may stop because of them, which drops the others."""
_RETRY_TURN = 5
"""While requests that have never failed wait, one start of this many is a retry."""

_Call = tuple[int, "asyncio.Future[None]", float]
_numbers = count()


class WaitingCalls:
    """Calls that wait for a place, in order of arrival: of jobs that have begun, of new jobs, and those that failed.

    Judges come before new jobs, so that few jobs are unfinished at a time. Requests that failed come last, and those
    that failed in isolation after the others; but outside outages one start of `_RETRY_TURN` is theirs. An outage is
    therefore probed with requests that have never failed. Each call has the longest outage that it waits for.
    """

    def __init__(self) -> None:
        self._begun: deque[_Call] = deque()
        self._opening: deque[_Call] = deque()
        self._failed: deque[_Call] = deque()
        self._isolated: deque[_Call] = deque()
        self._starts = 0

    def __len__(self) -> int:
        return sum(map(len, self._queues()))

    def add(self, patience_s: float, opens_job: bool, failed: FailedCalls | None = None) -> asyncio.Future[None]:
        """Return a future that is done when the call may start."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if failed is not None:
            queue = self._isolated if failed.is_isolated else self._failed
        else:
            queue = self._opening if opens_job else self._begun
        queue.append((next(_numbers), place, patience_s))
        return place

    def _queues(self, in_outage: bool = True) -> tuple[deque[_Call], ...]:
        """Return the queues in the order in which they are served now."""
        first, then = (self._begun, self._opening), (self._failed, self._isolated)
        return (*then, *first) if not in_outage and self._starts % _RETRY_TURN == _RETRY_TURN - 1 else (*first, *then)

    def next_in_line(self, in_outage: bool = False) -> tuple[int, int] | None:
        """Return what the calls of several lanes are ordered by: the place of the queue, and the number of the call."""
        for place, calls in enumerate(self._queues(in_outage)):
            while calls and calls[0][1].done():
                calls.popleft()
            if calls:
                return place, calls[0][0]
        return None

    @property
    def first_kind(self) -> tuple[bool, FailedCalls | None]:
        """Whether the next call opens a job, and its failed calls."""
        if self._begun:
            return False, None
        if self._opening:
            return True, None
        return False, FailedCalls(0, 0.0, is_isolated=not self._failed)

    def start_next(self, in_outage: bool = False) -> bool:
        """Let the next call start; return whether there was one."""
        next_in_line = self.next_in_line(in_outage)
        if next_in_line is None:
            return False
        self._queues(in_outage)[next_in_line[0]].popleft()[1].set_result(None)
        self._starts += 1
        return True

    def prune(self) -> int:
        """Remove cancelled calls; return the number of calls left."""
        for calls in self._queues():
            waiting = [each for each in calls if not each[1].done()]
            calls.clear()
            calls.extend(waiting)
        return len(self)

    @property
    def least_patience_s(self) -> float:
        """The shortest outage that one of the calls waits for."""
        return min((patience_s for _, _, patience_s in chain(*self._queues())), default=UNLIMITED)

    def dismiss(self, down_for_s: float, longest_s: float = UNLIMITED) -> bool:
        """Fail calls that do not wait for an outage of this length, none longer than `longest_s`; not all new jobs.

        Returns whether there are more of them.
        """
        begun = chain(self._begun, self._failed, self._isolated)
        impatient = [each for each in begun if min(each[2], longest_s) <= down_for_s]
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
        for calls in self._queues():
            for _, place, _ in calls:
                if not place.done():
                    place.set_exception(error)
            calls.clear()
