"""The status line of a run in progress."""

from collections import deque

from agentv.errors import plural
from agentv.report.figures import counted, duration, usd
from agentv.runs.summary import Snapshot

_WINDOW_S = 30.0
_LONG_WAIT_S = 5.0
"""Show waits for a rate limit or a retry from this length on, instead of an ETA."""


class Pace:
    """Jobs per second over the last 30 seconds, so that a slow start does not distort the rate."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def rate(self, count: int, now: float) -> float | None:
        """Add a measurement and return the rate; None until it is known."""
        self._seen.append((now, count))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW_S:
            self._seen.popleft()
        since, before = self._seen[0]
        return (count - before) / (now - since) if now > since and count > before else None


def status_line(snapshot: Snapshot, rate: float | None) -> str:
    """Return the status line: done, rate, passes, errors by class, cost, time left, concurrency."""
    count, total = snapshot.done, snapshot.total
    parts = [f"{count}/{total} ({100 * count // total} %)" if total else str(count)]
    if rate is not None:
        parts.append(_rate(rate))
    if snapshot.scored:
        parts.append(f"passed {100 * snapshot.passed / snapshot.scored:.0f} % of {snapshot.scored}")
    if snapshot.errors:
        parts.append(f"{plural(sum(snapshot.errors.values()), 'error')} ({counted(snapshot.errors)})")
    if snapshot.cost_usd is not None:
        parts.append(usd(snapshot.cost_usd))
    if snapshot.text is not None:
        parts.append(snapshot.text)
    if snapshot.failing and count != total:
        parts.append(f"{sum(snapshot.failing.values())} failing ({counted(snapshot.failing)})")
    if snapshot.down is not None and count != total:
        missing = "connection" if snapshot.unreached else "answer"
        users = f" ({', '.join(snapshot.down_targets)})" if snapshot.down_targets else ""
        parts.append(f"waiting for {snapshot.down}{users}: no {missing} for {duration(1000 * snapshot.down_s)}")
    elif snapshot.waits_s >= _LONG_WAIT_S and count != total:
        parts.append(f"waiting {duration(1000 * snapshot.waits_s)} for a rate limit or a retry")
    elif rate and total and total > count:
        parts.append(f"ETA {duration(1000 * max(snapshot.waits_s, (total - count) / rate))}")
    if snapshot.concurrency:
        parts.append(f"concurrency {snapshot.concurrency}")
    return " · ".join(parts)


def _rate(per_second: float) -> str:
    """Return a rate in the unit in which it is at least 1: `35.2/s`, `4/min`, `20/h`."""
    if per_second >= 1:
        return f"{per_second:.1f}/s" if per_second < 100 else f"{per_second:.0f}/s"
    return f"{per_second * 60:.0f}/min" if per_second * 60 >= 1 else f"{per_second * 3600:.0f}/h"
