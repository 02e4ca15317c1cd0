"""Globs for paths, and regular expressions with a time limit.

In a glob, `*` and `?` match within a folder and `**` matches across folders; `{a,b}` and `[…]` work as usual.
Python's regular expressions hold the interpreter while they search, so only a signal can stop one that backtracks
endlessly. The time limit therefore applies only in the main thread, and only on systems with interval timers.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import FrameType

_TOKEN = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[!?\]?[^\]]*\]|\{|\}|,|\\.|.", re.DOTALL)
_PLAIN = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matches(pattern: str, path: str) -> bool:
    """Whether a `/`-separated relative path matches a glob."""
    return _compiled(pattern).fullmatch(path) is not None


def has_magic(text: str) -> bool:
    """Whether a text is a glob rather than a plain path."""
    return any(char in text for char in "*?[{")


def braces(pattern: str) -> Iterator[str]:
    """Yield one pattern for each option in `{a,b}`, which `glob` does not expand."""
    start = pattern.find("{")
    end = pattern.find("}", start)
    if start < 0 or end < 0:
        yield pattern
        return
    for option in pattern[start + 1 : end].split(","):
        yield from braces(pattern[:start] + option + pattern[end + 1 :])


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
    """Return the regular expression for the inside of `[…]`, which never matches a slash."""
    sign = "^" if inside[0] in "!^" else ""
    characters = re.sub(r"[\\\[\]^&~|]|--", lambda found: re.escape(found[0]), inside[len(sign) :])
    return f"(?!/)[{sign}{characters}]"


def upward(folder: str, root: str) -> list[str]:
    """Return a folder and its parents up to the root; only the folder if the root is not above it."""
    folder, root = os.path.realpath(folder), os.path.realpath(root)
    folders = [folder, *map(str, Path(folder).parents)]
    return folders[: folders.index(root) + 1] if root in folders else [folder]


LIMIT_SECONDS = 5.0

_REPEATS = re.compile(r"[*+{]")


class SlowPattern(ValueError):
    """A search that exceeded its time limit."""


def search(pattern: re.Pattern[str], text: str, limit_seconds: float = LIMIT_SECONDS) -> re.Match[str] | None:
    """Search for a pattern. Raises SlowPattern if that takes too long."""
    # A single repetition cannot backtrack for long.
    is_fast = len(_REPEATS.findall(pattern.pattern)) < 2
    in_main_thread = threading.current_thread() is threading.main_thread()
    if is_fast or not in_main_thread or not hasattr(signal, "setitimer"):
        return pattern.search(text)
    is_searching = True

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if is_searching:  # the signal may arrive just after the search ended
            raise SlowPattern(f"The search took longer than {limit_seconds:g} s: the pattern backtracks too much")

    before = signal.signal(signal.SIGALRM, stop)
    waiting, _ = signal.setitimer(signal.ITIMER_REAL, limit_seconds)
    try:
        return pattern.search(text)
    finally:
        is_searching = False
        signal.setitimer(signal.ITIMER_REAL, waiting)
        signal.signal(signal.SIGALRM, before)
