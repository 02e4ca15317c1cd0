"""One difference between two runs, and the differences between settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any, Literal

import msgspec

from agentv.model.manifest import TargetEntry

ChangeKind = Literal[
    "target",
    "option",
    "prompt",
    "dataset",
    "tool",
    "references",
    "evaluator",
    "judge",
    "verdict limits",
    "version",
    "commit",
]
_SHORT_VALUE = 80
_CALL_SETTINGS = frozenset(("name", "judge_target", "workers", "timeout_seconds", "max_retries", "cache"))


class CaseId(msgspec.Struct, frozen=True):
    """The dataset and id of a case."""

    dataset: str
    eval_id: str


class RunChange(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between two runs, A and B."""

    kind: ChangeKind
    name: str = ""
    """The name of the target, dataset, evaluator or judge."""

    field: str = ""
    """The setting that changed."""

    before: Any = None
    """The value in A; None if it has none."""

    after: Any = None
    """The value in B; None if it has none."""

    diff: str = ""
    """For long values."""

    cases: int | None = None
    """The number of shared cases that it affects."""

    of: int | None = None
    """The number of shared cases."""

    example: str | None = None
    """One of the affected cases."""

    is_measure: bool = False
    """Whether it makes their scores incomparable."""


class ValueChange(msgspec.Struct, frozen=True):
    """A setting with different values."""

    field: str
    before: Any = None
    after: Any = None

    @property
    def diff(self) -> str:
        """A unified diff of long values; empty if they are short, or one of them is missing."""
        return text_diff(self.before, self.after)

    def to_change(self, kind: ChangeKind, **details: Any) -> RunChange:
        """Return the change as one of a run."""
        return RunChange(kind=kind, field=self.field, before=self.before, after=self.after, diff=self.diff, **details)


def changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ValueChange]:
    """Yield the settings that differ; those of nested objects as `outer.inner`."""
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            for inner in changed_values(old, new):
                yield ValueChange(f"{key}.{inner.field}", inner.before, inner.after)
        elif old != new:
            yield ValueChange(key, old, new)


def changed_entries(
    before: TargetEntry | None, after: TargetEntry | None, *, answers_only: bool = False
) -> list[ValueChange]:
    """Return how the settings and files of a target differ; nothing if they are unknown in one of the runs.

    With `answers_only`, settings that do not affect its answers, such as timeouts, are left out.
    """
    if before is None or after is None:
        return []
    same = bool(before.fingerprint) and before.fingerprint == after.fingerprint
    if same and answers_only:
        return []
    left_out = _CALL_SETTINGS if answers_only else ("name",)
    settings = ({"provider": entry.provider, **entry.settings} for entry in (before, after))
    first, second = ({key: value for key, value in data.items() if key not in left_out} for data in settings)
    changes = [*changed_values(first, second), *changed_values(before.files, after.files)]
    if not changes and not same and before.fingerprint and after.fingerprint:
        changes.append(ValueChange("settings"))  # they are not stored for targets given in Python
    return changes


def text_diff(before: Any, after: Any) -> str:
    """Return a unified diff of two long values; empty if they are short, or one of them is missing."""
    if before is None or after is None:
        return ""
    first, second = _lines(before), _lines(after)
    if max(map(len, (*first, *second)), default=0) <= _SHORT_VALUE and max(len(first), len(second)) < 2:
        return ""
    return "\n".join(unified_diff(first, second, "A", "B", lineterm="", n=2))


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    short = msgspec.json.encode(value).decode()
    return [short] if len(short) <= _SHORT_VALUE else msgspec.json.format(short).splitlines()
