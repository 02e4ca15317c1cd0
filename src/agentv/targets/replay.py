"""The replay target: answers that an earlier run or a recording already has."""

from __future__ import annotations

from typing import ClassVar

from agentv.targets.base import COMMON_ALIASES, Target


class Replay(Target, frozen=True, kw_only=True, rename={"source": "from"}):
    """`from` is a run's folder, a file of results, or a recording."""

    aliases: ClassVar[dict[str, str]] = {**COMMON_ALIASES, "path": "from", "recording": "from"}

    source: str

    def complaints(self) -> list[str]:
        """A blank source."""
        return [] if self.source.strip() else ["'from' is blank"]
