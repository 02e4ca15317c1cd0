"""Choose the format of a file: the one that fits it best, whatever the order in which formats are registered."""

from collections.abc import Callable, Iterable

import msgspec

from agentv.errors import UsageError

DEFAULT_STRENGTH = 0.5
"""The strength of a format that defines none: its files have keys of their own."""


class Candidate(msgspec.Struct, frozen=True):
    """A format that may fit a file. `fit` returns how well it does: 0 for not at all, up to `strength`."""

    name: str
    strength: float
    fit: Callable[[], float]


def strongest(path: str, candidates: Iterable[Candidate]) -> str | None:
    """Return the name of the format that fits a file best; None if none fits. Raises UsageError if two fit equally."""
    best, names = 0.0, list[str]()
    for candidate in sorted(candidates, key=lambda each: -each.strength):
        if candidate.strength < best:
            break
        if (fit := candidate.fit()) > best:
            best, names = fit, [candidate.name]
        elif fit and fit == best:
            names.append(candidate.name)
    if len(names) > 1:
        first, *others = sorted(names)
        detail = f"It fits {' and '.join([first, *others])} equally well"
        hint = f"If it is a dataset, name its format: agentv convert {path} cases.yaml --from {first}"
        raise UsageError(f"Cannot tell the format of {path}", detail, hint)
    return names[0] if names else None
