"""Patterns of users, searched within a time limit: one that backtracks without end costs its case and not the run.

Python's engine holds the interpreter while it searches, so only a signal can stop it, and only in the main thread of a
system that has one. Elsewhere a search takes as long as it takes.
"""

from __future__ import annotations

import re
import signal
import threading
from types import FrameType

LIMIT_SECONDS = 5.0

_REPEATS = re.compile(r"[*+{]")


class SlowPattern(ValueError):
    """A search that was stopped."""


def search(pattern: re.Pattern[str], text: str, limit_seconds: float = LIMIT_SECONDS) -> re.Match[str] | None:
    """The first place where a pattern matches. Raises SlowPattern when that takes too long to find."""
    if not _may_backtrack(pattern.pattern) or not hasattr(signal, "setitimer"):
        return pattern.search(text)
    if threading.current_thread() is not threading.main_thread():
        return pattern.search(text)
    is_searching = True

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if is_searching:  # a signal that comes as the search ends has nothing to stop any more
            raise SlowPattern(f"The pattern was searched for longer than {limit_seconds:g} s: it backtracks too much")

    before = signal.signal(signal.SIGALRM, stop)
    waiting, _ = signal.setitimer(signal.ITIMER_REAL, limit_seconds)
    try:
        return pattern.search(text)
    finally:
        is_searching = False
        signal.setitimer(signal.ITIMER_REAL, waiting)
        signal.signal(signal.SIGALRM, before)


def _may_backtrack(pattern: str) -> bool:
    """Whether a pattern repeats more than one thing: a single repetition ends soon enough."""
    return len(_REPEATS.findall(pattern)) > 1
