"""Rewrite the output shown on a documentation page, and keep its `…` where they still match."""

import re
from collections.abc import Callable
from difflib import SequenceMatcher

ANY_LINES = "…"
"""A line that matches any lines. Within a line, it matches any text of the line."""


def matches(expected: str, printed: str) -> bool:
    lines = [r"(?:[^\n]*\n)*" if line == ANY_LINES else re.escape(line) + "\n" for line in expected.splitlines()]
    return re.fullmatch("".join(lines).replace("…", r"[^\n]*"), printed) is not None


def updated(expected: str, printed: str, *, normal: Callable[[str], str] = str) -> str:
    """Return the output to show: lines that still match as they were, and the others as printed.

    `normal` removes what does not count when lines are compared, such as the width of columns.
    """
    old, new = expected.splitlines(), printed.splitlines()
    lines: list[str] = []
    row = column = 0
    for next_row, next_column in [*_pairs(old, new, normal), (len(old), len(new))]:
        lines += _updated_gap(old[row:next_row], new[column:next_column])
        lines += old[next_row : next_row + 1]
        row, column = next_row + 1, next_column + 1
    text = "".join(f"{line}\n" for line in lines)
    return text if matches(normal(text), normal(printed)) else printed


def _pairs(old: list[str], new: list[str], normal: Callable[[str], str]) -> list[tuple[int, int]]:
    """Return the longest list of expected and printed lines that match, in order, as pairs of positions."""
    best: list[list[list[tuple[int, int]]]] = [[[] for _ in range(len(new) + 1)] for _ in range(len(old) + 1)]
    for row in reversed(range(len(old))):
        for column in reversed(range(len(new))):
            skipped = max(best[row + 1][column], best[row][column + 1], key=len)
            if old[row] != ANY_LINES and matches(normal(old[row]) + "\n", normal(new[column]) + "\n"):
                skipped = max([(row, column), *best[row + 1][column + 1]], skipped, key=len)
            best[row][column] = skipped
    return best[0][0]


def _updated_gap(old: list[str], new: list[str]) -> list[str]:
    """Return the lines to show between two lines that match."""
    if ANY_LINES in old:
        first, last = old.index(ANY_LINES), old[::-1].index(ANY_LINES)
        if len(new) < first + last:
            return [ANY_LINES]
        tail = map(_updated_line, old[len(old) - last :], new[len(new) - last :])
        return [*map(_updated_line, old, new[:first]), ANY_LINES, *tail]
    return list(map(_updated_line, old, new)) if len(old) == len(new) else new


def _updated_line(old: str, new: str) -> str:
    """Return a printed line with the words that the page showed as `…`."""
    words, printed = re.findall(r"\s+|\S+", old), re.findall(r"\s+|\S+", new)
    parts = []
    for kind, start, end, new_start, new_end in SequenceMatcher(None, words, printed, autojunk=False).get_opcodes():
        is_open = kind == "replace" and "…" in "".join(words[start:end])
        parts += words[start:end] if is_open else printed[new_start:new_end]
    line = "".join(parts)
    return line if matches(f"{line}\n", f"{new}\n") else new


def updated_python(code: str, printed: list[str]) -> str:
    """Return a Python block whose `# →` comments show what it prints now."""
    lines = iter(printed)
    return re.sub(r"# →.*$", lambda _: f"# → {next(lines)}".rstrip(), code, flags=re.MULTILINE)
