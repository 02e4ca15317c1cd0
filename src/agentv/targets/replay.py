"""The replay target: answers that an earlier run or a recording already has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from agentv.environment import references
from agentv.errors import UsageError
from agentv.model.response import Responder
from agentv.problems import Problems
from agentv.settings import read_settings
from agentv.targets.base import COMMON_ALIASES, Target


class Replay(Target, frozen=True, kw_only=True, rename={"source": "from"}):
    """The answers of an earlier run or a recording.

    `from` is a run's folder, a file of results, or a recording; `PATH:target` picks one of several targets in it.
    """

    aliases: ClassVar[dict[str, str]] = {**COMMON_ALIASES, "path": "from", "recording": "from"}

    source: str

    def open(self, home: str) -> Responder:
        """Reads the file once for where each answer stands."""
        from agentv.targets.recorded import RecordedResponder  # late: only runs need it

        return RecordedResponder(self.source, self.name, home)

    def open_embeddings(self, home: str) -> Responder:
        """A recording has embeddings beside answers."""
        return self.open(home)

    def complaints(self) -> list[str]:
        """A blank source."""
        return [] if self.source.strip() else ["'from' is blank"]


def replaying(name: str, source: str, entry: Mapping[str, Any]) -> Replay:
    """A target's stand-in that answers from `source`. Keys and addresses of the target's own are not needed for that.

    `entry` are its settings as the file has them: what is done with an answer is done with a recorded one too.
    """
    problems = Problems()
    kept = {
        key: entry[key] for key in ("transform", "judge_target") if key in entry and not any(references(entry[key]))
    }
    settings = read_settings(Replay, {"name": name, "provider": "replay", "from": source, **kept}, (), problems)
    for problem in problems.errors:
        raise UsageError(f"Target '{name}': {problem.message}", hint=problem.hint)
    assert settings is not None
    return settings
