"""Split the effect of a skill: how often an agent reached for it, and the difference where it did and where it did not.

The agent chooses when to load the skill. The second part is therefore not a randomised comparison, and has no verdict.
"""

from typing import Any

import msgspec
import numpy as np

from agentv.comparison.joined_cases import JoinedCases
from agentv.stats.distributions import Interval
from agentv.stats.intervals import wilson
from agentv.stats.paired_comparison import Paired


class Share(msgspec.Struct, frozen=True):
    """A count of a total, with Wilson's interval."""

    count: int
    total: int

    @property
    def value(self) -> float | None:
        """The fraction; None without a total."""
        return self.count / self.total if self.total else None

    @property
    def ci95(self) -> Interval | None:
        """The interval of the fraction."""
        return None if self.value is None else wilson(self.value, self.total)

    def to_data(self) -> dict[str, Any]:
        """Return the fraction as JSON."""
        return {"count": self.count, "total": self.total, "value": self.value, "ci95": self.ci95}


Loads = dict[tuple[str, str], Share]
"""The answers to each case that loaded the skill, by dataset and id."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """How often the skill was loaded, and the differences by it.

    `loaded` and `not_loaded` compare the cases whose answers all loaded the skill, or none of them. The answers to
    `mixed` cases differ, and those cases are in neither.
    """

    answers: Share
    cases: int
    mixed: int = 0
    loaded: Paired | None = None
    not_loaded: Paired | None = None

    @property
    def ci95(self) -> Interval | None:
        """The interval of the fraction of answers. Answers to the same case are not independent: cases are counted."""
        return None if self.answers.value is None else wilson(self.answers.value, self.cases)

    def to_data(self) -> dict[str, Any]:
        """Return the split as JSON."""
        return {
            "answers": {**self.answers.to_data(), "ci95": self.ci95, "cases": self.cases},
            "when_loaded": _data(self.loaded),
            "when_not_loaded": _data(self.not_loaded),
            "mixed_cases": self.mixed,
            "randomised": False,
        }


def _data(paired: Paired | None) -> dict[str, Any] | None:
    return None if paired is None else {"n": paired.n, "mean_delta": paired.mean_delta, "ci95": paired.ci95}


def split_by_reach(joined: JoinedCases, loads: Loads) -> Reach | None:
    """Return the split of a comparison without and with the skill; None if no answer has a case of both arms."""
    shares = [loads.get(_case_of(joined, row), Share(0, 0)) for row in range(len(joined.index))]
    if not sum(share.total for share in shares):
        return None
    total = Share(sum(share.count for share in shares), sum(share.total for share in shares))
    rows = {
        "loaded": [row for row, share in enumerate(shares) if share.total and share.count == share.total],
        "not_loaded": [row for row, share in enumerate(shares) if share.total and not share.count],
    }
    parts = {name: joined.columns.rows(np.asarray(own)).compare(0, test=False) for name, own in rows.items() if own}
    mixed = len(shares) - sum(map(len, rows.values()))
    return Reach(answers=total, cases=len(shares), mixed=mixed, **parts)


def _case_of(joined: JoinedCases, row: int) -> tuple[str, str]:
    side = joined.sides[1]
    dataset, id, *_ = side.run.cases.key(int(side.first[int(joined.index[row][1])]))
    return dataset or "", id or ""
