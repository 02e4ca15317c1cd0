"""Globs for paths, and regular expressions with a time limit.

In a glob, `*` and `?` match within a folder and `**` matches across folders; `{a,b}` and `[…]` work as usual.
Python's regular expressions hold the interpreter while they search, so only a signal can stop one that backtracks
endlessly. Other threads receive no signals, and short attempts at many positions do not look for one: there, a search
is tried in a forked process first.
"""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, partial
from types import FrameType

from agentv.errors import AgentvError
from agentv.lazy_regex import lazy_regex

_TOKEN = lazy_regex(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)
_FOLDERS, _ANYTHING, _WITHIN, _ONE = "**/", "**", "*", "?"
_OPTIONAL = frozenset((_FOLDERS, _ANYTHING, _WITHIN))
MOST_ALTERNATIVES = 1_000


def matches(pattern: str, path: str) -> bool:
    """Whether a `/`-separated relative path matches a glob. Raises AgentvError if it has too many alternatives."""
    return any(_fits(steps, path) for steps in _alternatives(pattern))


def has_magic(text: str) -> bool:
    """Whether a text is a glob rather than a plain path."""
    return any(char in text for char in "*?[{")


def glob_files(pattern: str) -> list[str]:
    """Return the files that match a glob, sorted. Of several links to the same folder, one is followed.

    `*` and `**` match hidden names only if the pattern names a hidden file or folder. Raises AgentvError if it has too
    many alternatives.
    """
    paths: set[str] = set()
    for option in braces(pattern):
        magic = min((index for char in "*?[" if (index := option.find(char)) >= 0), default=len(option))
        start = option.rfind("/", 0, magic) + 1
        rest = option[start:]
        levels = None if "**" in rest else rest.count("/")
        with_hidden = any(part.startswith(".") for part in rest.split("/"))
        steps = _steps(rest)
        files = _files_below(option[:start], levels, with_hidden)
        paths.update(option[:start] + below for below in files if _fits(steps, below))
    return sorted(paths)


def _files_below(folder: str, levels: int | None, with_hidden: bool) -> Iterator[str]:
    """Yield the relative paths of the files below a folder, at most `levels` folders deep."""
    visited: set[tuple[int, int]] = set()
    waiting = [("", 0)]
    while waiting:
        below, level = waiting.pop()
        with suppress(OSError), os.scandir(os.path.join(folder, below) or os.curdir) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.startswith(".") and not with_hidden:
                    continue
                if entry.is_file():
                    yield below + entry.name
                elif (levels is None or level < levels) and _is_new_folder(entry, visited):
                    waiting.append((f"{below}{entry.name}/", level + 1))


def _is_new_folder(entry: os.DirEntry[str], visited: set[tuple[int, int]]) -> bool:
    """Whether an entry is a folder, or a link to a folder that no earlier link led to."""
    if not entry.is_dir() or not entry.is_symlink():
        return entry.is_dir()
    status = entry.stat()
    is_known = (status.st_dev, status.st_ino) in visited
    visited.add((status.st_dev, status.st_ino))
    return not is_known


def braces(pattern: str) -> list[str]:
    """Return one pattern for each option in `{a,b}`. Raises AgentvError if there are too many."""
    patterns: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        start, end, options = _first_options(current)
        if not options:
            patterns.append(current)
        waiting += [current[:start] + option + current[end:] for option in reversed(options)]
        if len(patterns) + len(waiting) > MOST_ALTERNATIVES:
            excerpt = pattern if len(pattern) <= 80 else f"{pattern[:79]}…"
            raise AgentvError(f"The pattern '{excerpt}' has more than {MOST_ALTERNATIVES:,} alternatives in braces")
    return patterns


def _first_options(pattern: str) -> tuple[int, int, list[str]]:
    """Return the position of the first complete pair of braces, and the options in it; none if there is no pair."""
    start = depth = begin = 0
    options: list[str] = []
    for index, char in enumerate(pattern):
        if char == "{":
            depth += 1
            if depth == 1:
                start, begin, options = index, index + 1, []
        elif depth and char in ",}":
            if depth == 1:
                options.append(pattern[begin:index])
                begin = index + 1
            depth -= char == "}"
            if not depth:
                return start, index + 1, options
    return 0, 0, []


@lru_cache(maxsize=512)
def _alternatives(pattern: str) -> tuple[tuple[str | re.Pattern[str], ...], ...]:
    return tuple(map(_steps, braces(pattern.replace("\\", "/"))))


def _steps(pattern: str) -> tuple[str | re.Pattern[str], ...]:
    """Return the steps of a pattern without braces: characters, wildcards, and sets as regular expressions."""
    return tuple(
        _set(token) or token if token[0] == "[" and len(token) > 2 else token for token in _TOKEN.findall(pattern)
    )


def _fits(steps: tuple[str | re.Pattern[str], ...], path: str) -> bool:
    """Whether a path matches all steps. Follows all possibilities at once, in time of at most steps times characters.

    A state is the number of steps done; a negative one is inside the folders of a `**/`.
    """
    states = _with_skipped(steps, {0})
    for char in path:
        after: set[int] = set()
        for state in states:
            step = steps[~state] if state < 0 else steps[state] if state < len(steps) else None
            if step == _FOLDERS:
                number = ~state if state < 0 else state
                after.add(~number)
                if char == "/":
                    after.add(number + 1)
            elif step == _ANYTHING or (step == _WITHIN and char != "/"):
                after.add(state)
            elif step is not None and _is_one(step, char):
                after.add(state + 1)
        states = _with_skipped(steps, after)
    return len(steps) in states


def _is_one(step: str | re.Pattern[str], char: str) -> bool:
    if isinstance(step, str):
        return char == step if step != _ONE else char != "/"
    return step.fullmatch(char) is not None


def _with_skipped(steps: tuple[str | re.Pattern[str], ...], states: set[int]) -> set[int]:
    """Add the states after wildcards that match nothing."""
    for state in list(states):
        while 0 <= state < len(steps) and steps[state] in _OPTIONAL:
            state += 1
            states.add(state)
    return states


def _set(token: str) -> re.Pattern[str] | None:
    """Return the regular expression for `[…]`, which never matches a slash; None for an invalid set."""
    inside = token[1:-1]
    sign = "^" if inside[0] in "!^" else ""
    characters = re.sub(r"[\\\[\]^&~|]|--", lambda match: re.escape(match[0]), inside[len(sign) :])
    try:
        return re.compile(f"(?!/)[{sign}{characters}]")
    except re.error:
        return None


def upward(folder: str, root: str) -> list[str]:
    """Return a folder and its parents up to the root; only the folder if the root is not above it."""
    folders, root = [os.path.realpath(folder)], os.path.realpath(root)
    while folders[-1] != root and (parent := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(parent)
    return folders if folders[-1] == root else folders[:1]


LIMIT_SECONDS = 5.0

_REPEATS = lazy_regex(r"[*+?{]")
_FEW_ALTERNATIVES = 8
_SHORT = 4_000
"""Characters in which a single repetition, which may take quadratic time, is found quickly."""
_LONG = 20_000
"""Characters in which attempts at all positions may take longer than a second."""


class SlowPattern(ValueError):
    """A search that exceeded its time limit."""


def search(pattern: re.Pattern[str], text: str, limit_seconds: float = LIMIT_SECONDS) -> re.Match[str] | None:
    """Search for a pattern. Raises SlowPattern if that takes too long."""
    if _is_fast(pattern.pattern, len(text) <= _SHORT):
        return pattern.search(text)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if sys.platform == "win32" or not in_main_thread or len(text) > _LONG:
        return _search_after_trial(pattern, text, limit_seconds)
    is_searching = True

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if is_searching:  # the signal may arrive just after the search ended
            raise _slow(limit_seconds)

    before = signal.signal(signal.SIGALRM, stop)
    waiting, _ = signal.setitimer(signal.ITIMER_REAL, limit_seconds)
    try:
        return pattern.search(text)
    finally:
        is_searching = False
        signal.setitimer(signal.ITIMER_REAL, waiting)
        signal.signal(signal.SIGALRM, before)


@lru_cache(maxsize=512)
def _is_fast(pattern: str, is_short: bool) -> bool:
    """Whether a search cannot backtrack for long: it has no choices, a few, or one repetition in a short text."""
    if not (repeats := len(_REPEATS.findall(pattern))):
        return pattern.count("|") <= _FEW_ALTERNATIVES
    return repeats == 1 and is_short and "(" not in pattern and "|" not in pattern


def _search_after_trial(pattern: re.Pattern[str], text: str, limit_seconds: float) -> re.Match[str] | None:
    """Search after another process has shown that the search ends in time."""
    from agentv.support.processes.forked_call import CallLimits, LimitExceeded, forked_call  # late: rarely needed

    try:
        forked_call(partial(_try, pattern, text), CallLimits(limit_seconds))
    except LimitExceeded:
        raise _slow(limit_seconds) from None
    return pattern.search(text)


def _try(pattern: re.Pattern[str], text: str) -> bytes:
    pattern.search(text)
    return b""


def _slow(limit_seconds: float) -> SlowPattern:
    return SlowPattern(f"The search took longer than {limit_seconds:g} s: the pattern backtracks too much")
