"""Find cases that share long texts, such as questions about the same document, and are probably correlated."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LENGTH = 200
_MOST_CASES = 2_000
_MOST_STARTS = 100
_FEWEST = 4
_FRACTION = 0.1
_SENTENCE = re.compile(r"(?:^|[.!?\u3002\uff01\uff1f\n]\s*)")

HINT = "Set `cluster` in the cases, for example to the name of the document"


class SharedTexts:
    """Counts cases whose text has 200 characters in common with another case, from the start of a sentence.

    Texts in more than half of the cases are instructions, and do not count. Only the first 2,000 cases are read.
    """

    def __init__(self) -> None:
        self._cases = 0
        self._groups: dict[int, set[int]] = {}

    @property
    def is_full(self) -> bool:
        """Whether further cases would be ignored."""
        return self._cases >= _MOST_CASES

    def add(self, texts: Iterable[str]) -> None:
        """Add the texts of a case without a cluster."""
        if self.is_full:
            return
        number, self._cases = self._cases, self._cases + 1
        for text in texts:
            if len(text) < _LENGTH:
                continue
            for _, match in zip(range(_MOST_STARTS), _SENTENCE.finditer(text), strict=False):
                part = text[match.end() : match.end() + _LENGTH]
                if len(part) == _LENGTH:
                    self._groups.setdefault(hash(part), set()).add(number)

    def warning(self) -> str | None:
        """Return a warning if many cases share texts; None otherwise."""
        shared = {number for group in self._groups.values() if 1 < len(group) <= self._cases / 2 for number in group}
        if len(shared) < max(_FEWEST, _FRACTION * self._cases):
            return None
        return (
            f"{len(shared):,} of {self._cases:,} cases share long texts with others, but have no `cluster`: their "
            "scores are probably correlated, and verdicts and intervals are too certain"
        )
