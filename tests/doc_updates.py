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
        if next_row < len(old):
            is_same = _is_match(old[next_row], new[next_column], normal)
            lines.append(old[next_row] if is_same else _updated_line(old[next_row], new[next_column]))
        row, column = next_row + 1, next_column + 1
    text = "".join(f"{line}\n" for line in lines)
    return text if matches(normal(text), normal(printed)) else printed


def _is_match(old: str, new: str, normal: Callable[[str], str]) -> bool:
    return old != ANY_LINES and matches(normal(old) + "\n", normal(new) + "\n")


def _pairs(old: list[str], new: list[str], normal: Callable[[str], str]) -> list[tuple[int, int]]:
    """Return the expected and printed lines that match or are similar, in order, as pairs of positions."""
    best: list[list[_Alignment]] = [[(0.0, ())] * (len(new) + 1) for _ in range(len(old) + 1)]
    for row in reversed(range(len(old))):
        for column in reversed(range(len(new))):
            options = [best[row + 1][column], best[row][column + 1]]
            if (weight := _weight(old[row], new[column], normal)) > 0:
                total, pairs = best[row + 1][column + 1]
                options.append((total + weight, ((row, column), *pairs)))
            best[row][column] = max(options, key=lambda alignment: alignment[0])
    return list(best[0][0][1])


_Alignment = tuple[float, tuple[tuple[int, int], ...]]
_LEAST_SIMILAR = 0.6


def _weight(old: str, new: str, normal: Callable[[str], str]) -> float:
    """Return how well two lines fit: 2 if they match, below 1 if they are similar, 0 if they are not."""
    if old == ANY_LINES or not old or not new:
        return 2.0 if old == new == "" else 0.0
    if _is_match(old, new, normal):
        return 2.0
    words = SequenceMatcher(None, normal(old).split(), normal(new).split(), autojunk=False)
    return words.ratio() if words.ratio() >= _LEAST_SIMILAR else 0.0


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
