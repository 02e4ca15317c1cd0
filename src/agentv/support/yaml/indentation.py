"""Hints for YAML whose indentation is wrong."""

from __future__ import annotations

import re

_LINE = re.compile(r"^(?P<indent> *)(?P<item>- +)?(?P<key>[^\s:#'\"\[{][^:#]*)?(?P<colon>:(?=\s|$))?")
_PROBLEMS = ("did not find expected key", "did not find expected '-' indicator", "could not find expected ':'")


def indentation_hint(what: str, lines: list[str], line: int, column: int) -> str:
    """Return a hint if a syntax error is caused by indentation; empty otherwise. Line and column count from 0."""
    bad = _LINE.match(lines[line]) if line < len(lines) else None
    if bad is None:
        return ""
    if "mapping values are not allowed" in what:
        # The parser stops at the colon: the first one of the line means that the key itself is misplaced.
        if not bad["key"] or not bad["colon"] or bad.start("colon") != column or bad["item"]:
            return ""
    elif not any(problem in what for problem in _PROBLEMS):
        return ""
    above = _similar(lines[:line], is_item=bad["item"] is not None)
    if above is None or not bad["key"]:
        return "Check the indentation of this line and of the line before it"
    number, place, name = above
    if place == (bad.start("item") if bad["item"] else bad.start("key")):
        return "Check the indentation of this line and of the line before it"
    noun = "this item" if bad["item"] else f"'{bad['key'].strip()}'"
    return (
        f"Check the indentation: {noun} should probably start in column {place + 1}, like {name} on line {number + 1}"
    )


def _similar(above: list[str], *, is_item: bool) -> tuple[int, int, str] | None:
    """Return line, column and name of the nearest key, or list item, above."""
    for number in range(len(above) - 1, -1, -1):
        found = _LINE.match(above[number])
        if found is None or not found["key"]:
            continue
        if is_item and found["item"]:
            return number, found.start("item"), "the item"
        if not is_item and found["colon"]:
            return number, found.start("key"), f"'{found['key'].strip()}'"
    return None
