"""A discrete-event simulation of a run against one endpoint: only the rules of `load_control`, and a virtual clock.

Run as a program, it writes the table of docs/explanation/load-control.md, and its summary in siege.md.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from agentv.executors.executor import MOST_LENT
from agentv.executors.lane import Failure, Ticket
from agentv.executors.load_control import Endpoint

TIMEOUT_S, LATENCY_S, RETRIES, OUTAGE_S = 1.0, 0.1, 2, 30.0
KINDS = ("timeout", "reset", "500", "503", "429", "HTML page", "invalid JSON")
WORKERS = {"1": (1, 1), "4": (4, 4), "50": (50, 50), "adaptive": (10, 200)}


FAILED = Failure()


async def repeat_request(ticket):
    """Stand for the repetition of an answered request, which the simulation makes itself."""


@dataclass(frozen=True)
class Kind:
    """How calls of a kind fail: after how many seconds, and what is reported."""

    seconds: float
    failure: Failure = FAILED
    is_final: bool = False


FAILURES = {
    "timeout": Kind(TIMEOUT_S),
    "reset": Kind(0.002),
    "500": Kind(LATENCY_S),
    "503": Kind(LATENCY_S, Failure(is_unavailable=True)),
    "429": Kind(LATENCY_S, Failure(is_refused=True)),
    "HTML page": Kind(LATENCY_S),
    "invalid JSON": Kind(LATENCY_S, is_final=True),
}


@dataclass
class Server:
    """Fails calls of bad jobs, calls in an outage, by chance, above a rate, or above a number of slots."""

    kind: str = "reset"
    bad: frozenset[int] = frozenset()
    outage: tuple[float, float] = (0.0, 0.0)
    outage_kind: str = ""
    chance: float = 0.0
    rate: float = 0.0
    burst: float = 1.0
    slots: int = 0
    latency: Callable[[float], float] = lambda now: LATENCY_S
    calls: list[tuple[int, float, bool]] = field(default_factory=list)
    in_flight: int = 0
    permits: float = 0.0
    filled_at: float = 0.0
    draws: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self):
        self.permits = self.burst
        self.outage_kind = self.outage_kind or ("503" if self.kind == "invalid JSON" else self.kind)

    def is_down(self, now):
        return self.outage[0] <= now < self.outage[1]

    def call(self, job, now) -> tuple[float, Kind | None]:
        """Return the duration of a call, and how it fails, if it does."""
        self.in_flight += 1
        seconds, failure = self._outcome(job, now)
        self.calls.append((job, now + seconds, failure is None))
        return seconds, failure

    def _outcome(self, job, now):
        if self.is_down(now):
            failure = FAILURES[self.outage_kind]
            return failure.seconds, failure
        if self.rate:
            self.permits = min(self.burst, self.permits + (now - self.filled_at) * self.rate)
            self.filled_at = now
            if self.permits < 1:
                return 0.01, Kind(0.01, Failure(is_refused=True))
            self.permits -= 1
        if job in self.bad or self.draws.random() < self.chance or (self.slots and self.in_flight > self.slots):
            failure = FAILURES[self.kind]
            return failure.seconds, failure
        latency_s = self.latency(now) * self.draws.uniform(0.8, 1.2)
        if self.is_down(now + latency_s) and self.outage_kind in ("reset", "timeout"):
            return max(self.outage[0] - now, latency_s), FAILURES[self.outage_kind]
        return latency_s, None


@dataclass
class Ended:
    """How a simulated run ended."""

    seconds: float
    errors: set[int]
    unfinished: set[int]
    server: Server

    @property
    def lost(self):
        """Healthy jobs that are errors or unfinished."""
        return (self.errors | self.unfinished) - self.server.bad

    @property
    def most_calls(self):
        """The most calls of a bad job that failed outside the outage, which begins after the last answer before it."""
        server = self.server
        start, end = server.outage
        start = max((at for _, at, is_ok in server.calls if is_ok and at < start), default=0.0) if end else start
        end += TIMEOUT_S if end and server.outage_kind == "timeout" else 0.0
        counts = Counter(job for job, at, _ in server.calls if job in server.bad and not start <= at < end)
        return max(counts.values(), default=0)

    @property
    def repeats(self):
        """The number of repeated requests."""
        return sum(job < 0 for job, _, _ in self.server.calls)


class Simulation:
    """Runs jobs one call each. A job that waits for a retry lends its slot to another, as in an executor.

    The clock of the rules shows `uptime_s` when the run starts.
    """

    uptime_s = 0.0

    def __init__(self, server: Server, jobs: int, workers: tuple[int, int], max_outage_s: float = 600.0) -> None:
        self.server, self.max_outage_s = server, max_outage_s
        self.endpoint = Endpoint(*workers)
        self.lane = self.endpoint.lane("")
        self.jobs = iter(range(jobs))
        self.slots = workers[1]
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.numbers: dict[Ticket, int] = {}
        self.active = self.lent = 0
        self.ended, self.errors, self.unfinished = 0, set(), set()
        self.total = jobs
        self.draws = random.Random(1)
        self.wakes = float("inf")

    @property
    def clock(self):
        """The time that the rules see."""
        return self.uptime_s + self.now

    def at(self, moment, function):
        heapq.heappush(self.events, (moment, next(self.order), function))

    def run(self) -> Ended:
        self.turn()
        while self.ended < self.total:
            assert self.events, f"nothing happens: {self.ended} of {self.total} ended"
            self.now, _, function = heapq.heappop(self.events)
            assert self.now < 20_000
            function()
            self.turn()
        return Ended(self.now, self.errors, self.unfinished, self.server)

    def turn(self):
        """Let jobs begin and calls start, as far as they may."""
        self.end(self.endpoint.settle(self.clock))
        while self.active < self.slots + min(self.lent, MOST_LENT):
            job = next(self.jobs, None)
            if job is None:
                break
            self.active += 1
            ticket = Ticket(self.lane, self.max_outage_s, opens_job=True)
            ticket.retries = RETRIES
            self.numbers[ticket] = job
            self.endpoint.add(ticket, self.clock)
        while (ticket := self.endpoint.next(self.clock)) is not None:
            self.start(ticket)
        wake_at = self.endpoint.wake_at(self.clock) - self.uptime_s
        if wake_at < float("inf") and (wake_at < self.wakes or self.wakes <= self.now):
            self.wakes = max(wake_at, self.now + 1e-6)
            self.at(self.wakes, lambda: None)

    def start(self, ticket: Ticket):
        if ticket.place == "lent":
            self.lent -= 1
        ticket.place = None
        job = self.numbers[ticket] if not ticket.repeats else -1
        seconds, failure = self.server.call(job, self.now)
        self.at(self.now + seconds, lambda: self.finish(ticket, failure))

    def finish(self, ticket: Ticket, failure: Kind | None):
        self.server.in_flight -= 1
        if ticket.repeats:
            if failure is None:
                self.end(self.endpoint.answered(ticket))
            else:
                self.endpoint.failed(ticket, failure.failure, self.clock)
            self.wait(ticket)
        elif failure is None or failure.is_final:
            self.end(self.endpoint.answered(ticket))
            self.lane.sample = self.lane.sample if failure else repeat_request
            if failure is not None:
                self.errors.add(self.numbers[ticket])
            self.done()
        else:
            self.endpoint.failed(ticket, failure.failure, self.clock)
            longest_s = 1.0 if ticket.is_isolated else 2.0 ** max(0, len(ticket.counted) - 1)
            ticket.delay_s = self.draws.random() * longest_s
            self.wait(ticket)

    def wait(self, ticket):
        self.endpoint.add(ticket, self.clock)
        if ticket.failed_number:
            self.lent += 1
            ticket.place = "lent"
        if ticket.is_error:
            self.end([ticket])

    def end(self, tickets):
        for ticket in tickets:
            if ticket.place == "lent":
                self.lent -= 1
            (self.errors if ticket.is_error else self.unfinished).add(self.numbers[ticket])
            self.done()

    def done(self):
        self.active -= 1
        self.ended += 1


def ideal_s(jobs: int, bad: int, kind: str, workers: int, outage_s: float = 0.0) -> float:
    """Return the time of a run under perfect knowledge, in which each bad job makes retries + 1 calls."""
    seconds = FAILURES[kind].seconds
    work_s = (jobs - bad) * LATENCY_S + bad * seconds * (RETRIES + 1)
    chain_s = seconds * (RETRIES + 1) if bad else LATENCY_S
    return max(work_s / workers, chain_s) + outage_s


def places(where: str, jobs: int) -> frozenset[int]:
    """Return the bad jobs: one in so many, the first 20, 20 in a row, or the last 20."""
    if where.startswith("1 in "):
        share = int(where[5:])
        return frozenset(range(share // 2, jobs, share))
    first = {"first 20": 0, "20 in a row": jobs // 2 - 10, "last 20": jobs - 20}[where]
    return frozenset(range(first, first + 20))


def jobs_of(where: str, workers: str) -> int:
    """Return the number of jobs in a cell."""
    return 200 if where in PLACES else 60 if workers == "1" else 120


@cache
def simulate_cell(kind: str, where: str, workers: str, *, outage: bool) -> tuple[Ended, float]:
    """Simulate a cell of the table; return how it ended, and the ideal time."""
    jobs = jobs_of(where, workers)
    bad = places(where, jobs)
    usual_s = ideal_s(jobs, len(bad), kind, WORKERS[workers][1])
    ended = Simulation(Server(kind, bad), jobs, WORKERS[workers]).run()
    if outage:  # not before the first answer: without one, the address may be wrong
        start_s = max(usual_s / 2, min(at for _, at, is_ok in ended.server.calls if is_ok) + LATENCY_S)
        ended = Simulation(Server(kind, bad, (start_s, start_s + OUTAGE_S)), jobs, WORKERS[workers]).run()
    return ended, ideal_s(jobs, len(bad), kind, WORKERS[workers][1], OUTAGE_S if outage else 0.0)


SHARES = ("1 in 50", "1 in 20", "1 in 8", "1 in 3")
PLACES = ("first 20", "20 in a row", "last 20")
DOCS = Path(__file__).resolve().parents[1] / "docs" / "explanation"
START, END = "<!-- written by tests/load_simulation.py -->\n", "<!-- end -->\n"


def table() -> str:
    """Return the table of all cells: seconds, of the ideal seconds, without and with an outage."""
    header = f"| fails | kind | {' | '.join(f'{name} workers' for name in WORKERS)} |".replace(
        "adaptive workers", "adaptive"
    )
    lines = [header, "|---|---|" + "---|" * len(WORKERS)]
    for where in (*SHARES, *PLACES):
        for kind in KINDS:
            cells = [
                " · ".join(f"{ended.seconds:.1f} of {ideal:.1f}" for ended, ideal in both)
                for name in WORKERS
                for both in [[simulate_cell(kind, where, name, outage=outage) for outage in (False, True)]]
            ]
            lines.append(f"| {where} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summary() -> str:
    """Return the run of each kind and share that is closest to the time allowed, of all workers and outages."""
    lines = [f"| kind | {' | '.join((*SHARES, *PLACES))} |", "|---" * (1 + len(SHARES + PLACES)) + "|"]
    for kind in KINDS:
        cells = []
        for where in (*SHARES, *PLACES):
            runs = [simulate_cell(kind, where, name, outage=outage) for name in WORKERS for outage in (False, True)]
            assert not any(ended.lost for ended, _ in runs)
            ended, ideal = max(runs, key=lambda run: run[0].seconds / (1.3 * run[1] + 5))
            cells.append(f"{ended.seconds:.1f} of {1.3 * ideal + 5:.1f}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


TABLES = {"load-control.md": table, "siege.md": summary}


def page_with(name: str, rows: str) -> str:
    """Return a page with these rows as its table."""
    before, rest = (DOCS / name).read_text(encoding="utf-8").split(START)
    return before + START + "\n" + rows + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    for name, rows in TABLES.items():
        (DOCS / name).write_text(page_with(name, rows()), encoding="utf-8")
