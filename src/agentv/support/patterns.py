"""Patterns that users write: globs over paths, and regular expressions with a time limit.

In a glob, `*` and `?` stay inside a folder, `**` crosses folders, `{a,b}` and `[…]` as usual. A regular expression that
backtracks without end costs its case and not the run: Python's engine holds the interpreter while it searches, so only
a signal can stop it, and only in the main thread of a system that has one. Elsewhere there is no limit.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from functools import lru_cache
from types import FrameType

_TOKEN = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[!?\]?[^\]]*\]|\{|\}|,|\\.|.", re.DOTALL)
_PLAIN = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matches(pattern: str, path: str) -> bool:
    """Whether a `/`-separated relative path fits the pattern."""
    return _compiled(pattern).fullmatch(path) is not None


def has_magic(text: str) -> bool:
    """Whether a text is a pattern rather than a plain path."""
    return any(char in text for char in "*?[{")


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    regex, depth = "", 0
    for token in _TOKEN.findall(pattern.replace("\\", "/")):
        if token in _PLAIN:
            regex += _PLAIN[token]
        elif token == "{":
            depth += 1
            regex += "(?:"
        elif token == "}" and depth:
            depth -= 1
            regex += ")"
        elif token == "," and depth:
            regex += "|"
        elif token[0] == "[" and len(token) > 2:
            regex += _set(token[1:-1])
        else:
            regex += re.escape(token)
    try:
        return re.compile(regex + ")" * depth, re.DOTALL)
    except re.error:
        return re.compile(re.escape(pattern))


def _set(inside: str) -> str:
    """One character of a set, `!` before it for one of all others; never a slash."""
    sign = "^" if inside[0] in "!^" else ""
    characters = re.sub(r"[\\\[\]^&~|]|--", lambda found: re.escape(found[0]), inside[len(sign) :])
    return f"(?!/)[{sign}{characters}]"


def upward(folder: str, root: str) -> list[str]:
    """A folder and its parents up to the root; the folder alone when the root is not above it."""
    folder, root = os.path.realpath(folder), os.path.realpath(root)
    found = [folder]
    while found[-1] != root and os.path.dirname(found[-1]) != found[-1]:
        found.append(os.path.dirname(found[-1]))
    return found if found[-1] == root else [folder]


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
