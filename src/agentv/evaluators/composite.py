"""The composite: several evaluators whose scores an aggregator makes into one."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import msgspec

from agentv.evaluators.base import (
    RESERVED,
    Evaluator,
    Prompt,
    Seconds,
    Share,
    Weight,
    program_complaints,
    prompt_complaints,
)
from agentv.problems import Problems
from agentv.registry import EVALUATORS
from agentv.settings import read_settings
from agentv.suggest import did_you_mean

AggregatorType = Literal[
    "weighted_average",
    "weighted-average",
    "threshold",
    "code_judge",
    "code-judge",
    "code_grader",
    "code-grader",
    "llm_judge",
    "llm-judge",
    "llm_grader",
    "llm-grader",
]
Entry = str | dict[str, Any]


class Aggregator(msgspec.Struct, frozen=True, kw_only=True):
    """How the members' scores become one. A member without an entry in `weights` keeps its own weight.

    `threshold` is the share of members that must pass.
    """

    aliases: ClassVar[dict[str, str]] = {"path": "script", "command": "script"}

    type: AggregatorType
    weights: dict[str, Weight] = {}
    threshold: Share | None = None
    script: str | list[str] | None = None
    cwd: str | None = None
    timeout_seconds: Seconds = 60.0
    prompt: Prompt | None = None
    target: str | None = None

    @property
    def kind(self) -> str:
        """The type in the one spelling that our own documents use."""
        return self.type.replace("-", "_").replace("grader", "judge")

    def complaints(self) -> list[str]:
        """A setting that the type needs and lacks, or that is wrong in itself."""
        complaints = prompt_complaints(self.prompt)
        if self.script is not None:
            complaints += program_complaints("script", self.script)
        if self.kind == "threshold" and self.threshold is None:
            complaints.append("needs 'threshold', the share of members that must pass")
        if self.kind == "code_judge" and self.script is None:
            complaints.append("needs 'script', the program that makes one score of the members' scores")
        if not all(math.isfinite(weight) for weight in self.weights.values()):
            complaints.append("has a weight that is not finite")
        return complaints


class Composite(Evaluator, frozen=True, kw_only=True):
    """Members are entries like those of a case, composites among them."""

    aliases: ClassVar[dict[str, str]] = {"assertions": "evaluators", "assert": "evaluators"}
    files: ClassVar[tuple[str, ...]] = ("evaluators", "aggregator")

    evaluators: list[Entry]
    aggregator: AggregatorType | Aggregator

    @property
    def aggregation(self) -> Aggregator:
        """The aggregator, also when only its type was written."""
        return Aggregator(type=self.aggregator) if isinstance(self.aggregator, str) else self.aggregator

    def complaints(self) -> list[str]:
        """No members, an aggregator that lacks what its type needs, or weights for members that are not there."""
        complaints = [f"'aggregator': {complaint}" for complaint in self.aggregation.complaints()]
        if not self.evaluators:
            complaints.append("A composite needs at least one member in 'evaluators'")
        names = member_names(self.evaluators)
        for name in self.aggregation.weights:
            if name not in names:
                hint = did_you_mean(name, names) or f"Members: {', '.join(names)}"
                complaints.append(f"'aggregator.weights' names '{name}', which is no member. {hint}")
        return complaints

    @property
    def needs_reference(self) -> bool:
        """Whether any member does."""
        return any(_needs_reference(entry) for entry in self.evaluators if isinstance(entry, dict))


def member_names(entries: list[Entry]) -> list[str]:
    """The name of each member: its own, else its type, then `type-2` and so on; all plain strings are one rubric."""
    names: list[str] = []
    texts_are_in = False
    for entry in entries:
        if isinstance(entry, str) and texts_are_in:
            continue
        texts_are_in = texts_are_in or isinstance(entry, str)
        base = "rubric" if isinstance(entry, str) else str(entry.get("name") or entry.get("metric") or _type_of(entry))
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}-{number}"
        names.append(name)
    return names


def _type_of(entry: dict[str, Any]) -> str:
    written = entry.get("type") or entry.get("name")
    return (EVALUATORS.canonical(written.removeprefix("not-")) or "") if isinstance(written, str) else ""


def _needs_reference(entry: dict[str, Any]) -> bool:
    try:
        kind = EVALUATORS.find(_type_of(entry))
    except KeyError:
        return False
    own = {key: value for key, value in entry.items() if key not in RESERVED}
    settings = read_settings(kind, own, (), Problems())
    return settings is not None and bool(settings.needs_reference)
