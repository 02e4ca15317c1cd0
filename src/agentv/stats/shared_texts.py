"""Find cases that share long texts, such as questions about the same document, and are probably correlated."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOST_CASES = 2_000
_MOST_STARTS = 100
_FEWEST = 4
_FRACTION = 0.1
_SENTENCE = r"(?:^|[.!?\u3002\uff01\uff1f\n]\s*)"  # compiled when a long text is found

LENGTH = 200
"""The characters of a long text."""

HINT = "Set `cluster` in the cases, for example to the name of the document"


class SharedTexts:
    """Counts cases whose text has 200 characters in common with another case, from the start of a sentence.

    Texts in more than half of the cases are instructions, and do not count. Only the first 2,000 cases are read. Cases
    without a long text need not be added if `cases` counts them.
    """

    def __init__(self) -> None:
        self.cases = 0
        self._groups: dict[int, set[int]] = {}

    @property
    def is_full(self) -> bool:
        """Whether further cases would be ignored."""
        return self.cases >= _MOST_CASES

    def add(self, texts: Iterable[str]) -> None:
        """Add the texts of a case without a cluster."""
        if self.is_full:
            return
        number, self.cases = self.cases, self.cases + 1
        for text in texts:
            if len(text) < LENGTH:
                continue
            for _, match in zip(range(_MOST_STARTS), re.finditer(_SENTENCE, text), strict=False):
                part = text[match.end() : match.end() + LENGTH]
                if len(part) == LENGTH:
                    self._groups.setdefault(hash(part), set()).add(number)

    def warning(self) -> str | None:
        """Return a warning if many cases share texts; None otherwise."""
        cases = min(self.cases, _MOST_CASES)
        shared = {number for group in self._groups.values() if 1 < len(group) <= cases / 2 for number in group}
        if len(shared) < max(_FEWEST, _FRACTION * cases):
            return None
        return (
            f"{len(shared):,} of {cases:,} cases share long texts with others, but have no `cluster`: their "
            "scores are probably correlated, and verdicts and intervals are too certain"
        )
