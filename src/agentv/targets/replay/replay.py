"""The replay target: answers that an earlier run or a recording already has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import ClassVar

from agentv.errors import AgentvError
from agentv.model.response import Responder
from agentv.targets.replay.recording import find_recorded, open_recorded
from agentv.targets.target import COMMON_ALIASES, Target


class Replay(Target, frozen=True, kw_only=True, rename={"source": "from"}):
    """The answers of an earlier run or a recording.

    `from` is a run's folder, a file of results, or a recording; `PATH:target` picks one of several targets in it.
    """

    aliases: ClassVar[dict[str, str]] = {**COMMON_ALIASES, "path": "from", "recording": "from"}
    is_live: ClassVar[bool] = False

    source: str

    def open(self, home: str) -> Responder:
        """Reads the file once for where each answer stands."""
        return open_recorded(self.source, self.name, home)

    def open_embeddings(self, home: str) -> Responder:
        """A recording has embeddings beside answers."""
        return self.open(home)

    def files_named(self, home: str, folders: Sequence[str]) -> Iterable[str]:  # noqa: ARG002
        """The file that answers."""
        with suppress(AgentvError):  # opening it will say that it is not there
            return (find_recorded(self.source, home)[0],)
        return ()

    def complaints(self) -> list[str]:
        """A blank source."""
        return [] if self.source.strip() else ["'from' is blank"]
