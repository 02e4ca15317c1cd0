"""How a case is to be run: the settings that files give and commands override, merged key by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

DEFAULT_TARGET = "default"

Share = Annotated[float, Meta(ge=0, le=1)]


class Verdicts(msgspec.Struct, frozen=True, gc=False, rename={"passing": "pass"}):
    """From which score on a case passes, and from which it is borderline."""

    passing: Share = 0.8
    borderline: Share = 0.6

    @classmethod
    def contradiction(cls, written: Mapping[str, Any]) -> str:
        """What is wrong with limits that are both written; `pass` alone may be below the other's default."""
        if "passing" not in written or written.get("borderline", 0.0) <= written["passing"]:
            return ""
        return f"'borderline' ({written['borderline']:g}) is above 'pass' ({written['passing']:g})"


class Execution(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The effective settings of one case, evaluators aside."""

    target: str | None = None
    targets: tuple[str, ...] = ()
    trials: int | None = None
    timeout_seconds: float | None = None
    verdicts: Verdicts | None = None
    thresholds: dict[str, float] | None = None

    def over(self, base: Execution) -> Execution:
        """These settings where they are given, those of `base` elsewhere; a target here replaces all targets there."""
        merged: dict[str, Any] = {
            name: getattr(self, name) if getattr(self, name) not in (None, ()) else getattr(base, name)
            for name in self.__struct_fields__
        }
        if self.target is not None and not self.targets:
            merged["targets"] = ()
        elif self.targets and self.target is None:
            merged["target"] = None
        return Execution(**merged)

    def __hash__(self) -> int:
        return hash((self.target, self.targets, self.trials, self.timeout_seconds, self.verdicts))


def execution_to_data(execution: Execution) -> dict[str, Any]:
    """The settings as `agentv cases` prints them: the effective target is always there."""
    if _last[0] is not execution:  # the cases of a dataset mostly share theirs
        data: dict[str, Any] = msgspec.to_builtins(execution)
        if not execution.targets:
            data = {"target": execution.target or DEFAULT_TARGET, **data}
        _last[:] = (execution, data)
    return dict(_last[1])


_last: list[Any] = [None, {}]
