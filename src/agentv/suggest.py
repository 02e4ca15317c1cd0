"""Did-you-mean: the known name nearest to one that was mistyped."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that `word` was probably meant to be, or None when nothing is near."""
    from difflib import get_close_matches  # late: only a mistake needs it

    by_shape = {_shape(name): name for name in known}
    found = get_close_matches(_shape(word), by_shape, n=1, cutoff=0.75)
    return by_shape[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question to put behind a message, or nothing."""
    name = nearest(word, known)
    return f"Did you mean '{name}'?" if name and name != word else ""


def _shape(name: str) -> str:
    return name.replace("-", "_").lower()
