"""The targets that answer in a run: those of the targets file, those that a program gives, or a recording for all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from agentv.engine.runs import run_path
from agentv.errors import AgentvError
from agentv.model.run import TargetEntry
from agentv.model.values import digest
from agentv.targets.base import Target
from agentv.targets.loading import Targets
from agentv.targets.replay import Replay, replaying


class RunTargets:
    """Settings by name. With `replay` a recording answers for every target, whose own variables may then be unset."""

    def __init__(self, file: Targets, given: Mapping[str, Target], replay: str | None = None) -> None:
        self._file = file
        self._given = given
        self._replay = None if replay is None else os.path.abspath(run_path(replay))
        self.names = (*given, *(name for name in file.names if name not in given))

    def get(self, name: str) -> Target:
        """The settings of a target, or of what answers in its place."""
        if self._replay is not None:
            return self._replaying(name, self._replay)
        return self._given.get(name) or self._file.get(name)

    def reachable(self, needed: Iterable[str]) -> tuple[Target, ...]:
        """The targets that jobs need, and all others that can be read: an evaluator may ask one of those."""
        needed = tuple(dict.fromkeys(needed))
        found = [self.get(name) for name in needed]
        for name in self.names:
            if name not in needed:
                try:
                    found.append(self.get(name))
                except AgentvError:
                    continue  # its variables are unset, and nobody has asked for it
        return tuple(found)

    def entry(self, name: str) -> TargetEntry:
        """What a manifest says of a target."""
        if self._replay is not None:
            settings = {"from": self._replay}
            return TargetEntry(name=name, provider="replay", fingerprint=digest(settings), settings=settings)
        if name in self._given:
            return TargetEntry(name=name, provider=self._given[name].provider, fingerprint="")
        return TargetEntry(
            name=name,
            provider=self._file.get(name).provider,
            fingerprint=self._file.fingerprint(name),
            settings=self._file.public(name),
        )

    def fingerprint(self, name: str) -> str:
        """A hash of what shapes a target's answers; empty for one that has no settings to hash."""
        return self.entry(name).fingerprint if name in self.names else ""

    def _replaying(self, name: str, source: str) -> Replay:
        if name in self._given:
            own = self._given[name]
            return Replay(
                name=name, provider="replay", source=source, transform=own.transform, judge_target=own.judge_target
            )
        return replaying(name, source, self._file.raw(name))
