"""The names that promptfoo finds in a variable before it renders it: by pattern, not by parsing the template."""

from __future__ import annotations

import re

_TAG = re.compile(r"\{\{\s*([^{}\s|]+)\s*(\|)?|\{%\s*(?:if|for)\s+([^{}\s]+)")
_LOOP = re.compile(r"\{%\s*for\s+([A-Za-z0-9_]+)\s+in\s+([A-Za-z0-9_]+)\s*%\}")
_ROOT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE_ENDS = dict.fromkeys(map(ord, "\r\u2028\u2029"), "\n")


def template_roots(text: str) -> frozenset[str]:
    """Return the first names of the expressions that promptfoo recognizes, such as `user` of `{{ user.name }}`.

    It does not know what `set` and most loops define: a variable that uses such a name is sent as it is.
    """
    text = _without_comments(text).translate(_LINE_ENDS)
    marks = _NextMarks(text)
    names = set()
    position = 0
    while (tag := _TAG.search(text, position)) is not None:
        end = _end_of(tag, text, marks)
        position = tag.start() + 1 if end is None else end
        if end is not None:
            names.add(tag[1] or tag[3])
    for loop in _LOOP.finditer(text):
        names.discard(loop[1])
        names.add(loop[2])
    return frozenset(root[0] for root in map(_ROOT.match, names) if root is not None)


def _without_comments(text: str) -> str:
    parts, position = [], 0
    while (start := text.find("{#", position)) >= 0 and (end := text.find("#}", start + 2)) >= 0:
        parts.append(text[position:start])
        position = end + 2
    return "".join((*parts, text[position:]))


def _end_of(tag: re.Match[str], text: str, marks: _NextMarks) -> int | None:
    """Return where a tag ends; None if it has more than a name and filters, or ends in another line."""
    end = tag.end()
    if tag[3] is not None:
        close = marks.after("%}", end)
        return close + 2 if close < marks.after("\n", end) else None
    close = marks.after("}", end + 1) if tag[2] else end
    return close + 2 if text.startswith("}}", close) else None


class _NextMarks:
    """Finds marks in a text, each part of which is searched once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._places: dict[str, int] = {}

    def after(self, mark: str, start: int) -> int:
        """Return the place of the next mark; the length of the text if there is none. `start` never decreases."""
        place = self._places.get(mark, -1)
        if place < start:
            place = self._text.find(mark, start)
            self._places[mark] = place = len(self._text) if place < 0 else place
        return place
