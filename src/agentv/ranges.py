"""Numbers that must lie in a range, and what to say of those that do not."""

from __future__ import annotations

import math
from typing import NamedTuple


class Range(NamedTuple):
    """A range of numbers; None where it has no end. `above` and `below` leave an end out."""

    least: float | None = None
    most: float | None = None
    whole: bool = False
    above: bool = False
    below: bool = False

    def read(self, value: object) -> float:
        """The number that was given or typed. Raises ValueError with a sentence that goes on from its name."""
        kind = int if self.whole else float
        try:
            number = value if type(value) is kind else kind(str(value))
        except ValueError:
            raise ValueError(self._complaint(value)) from None
        too_low = self.least is not None and (number < self.least or (self.above and number == self.least))
        too_high = self.most is not None and (number > self.most or (self.below and number == self.most))
        if too_low or too_high or not math.isfinite(number):
            raise ValueError(self._complaint(value))
        return number

    def _complaint(self, value: object) -> str:
        noun = "a whole number" if self.whole else "a number"
        if self.least is not None and self.most is not None:
            between, to = ("between", "and") if self.above and self.below else ("from", "to")
            noun += f" {between} {self.least:g} {to} {self.most:g}"
        elif self.least is not None:
            noun += f" above {self.least:g}" if self.above else f" of at least {self.least:g}"
        return f"must be {noun}, got {str(value)!r}{self._instead(value)}"

    def _instead(self, value: object) -> str:
        """For `80` and `80%` where a share is wanted, the share."""
        try:
            share = float(str(value).removesuffix("%")) / 100
        except ValueError:
            return ""
        return f"; write {share:g} for {share:.0%}" if (self.least, self.most) == (0, 1) and 0 < share <= 1 else ""


SHARE = Range(0, 1)
AT_LEAST_1 = Range(1, whole=True)
