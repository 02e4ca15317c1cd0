"""A count of a total, with its interval."""

from typing import Any

import msgspec

from agentv.stats.distributions import Interval
from agentv.stats.intervals import wilson


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
