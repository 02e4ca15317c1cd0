"""The part of a project that cases are checked against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from agentv.engine.cases.case_survey import CaseSurvey
from agentv.model.evaluator import EvaluatorSpec
from agentv.settings.environment import references


class ProjectFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a project that cases are checked against: its targets, and what the command overrides.

    `judge_target` and `transform` return those settings of a target. Without `has_targets` there is no usable targets
    file, and target names are not checked. If the run is sandboxed, code that runs in the process of agentv is refused.
    `is_batched` returns whether a target is in batch mode. `survey` collects what the cases would use.
    """

    known: tuple[str, ...]
    may_judge: tuple[str, ...]
    judge: str | None = None
    judge_target: Callable[[str], str | None] = lambda _: None
    transform: Callable[[str], Any] = lambda _: None
    evaluators: tuple[EvaluatorSpec, ...] | None = None
    has_targets: bool = True
    is_sandboxed: bool = False
    is_batched: Callable[[str], bool] = lambda _: False
    survey: CaseSurvey | None = None

    def with_targets(self, settings: Mapping[str, Mapping[str, Any]]) -> ProjectFacts:
        """Return the facts with the targets that a dataset brings along.

        One with `use_target` has the judge of the target at its end. A variable may lead to a target with a judge.
        """
        if not settings:
            return self
        others = {name: own["use_target"] for name, own in settings.items() if "use_target" in own}
        variables = tuple(other for other in others.values() if any(references(other)))

        def judge_target(name: str) -> str | None:
            for _ in others:  # a circle is an error of its own
                name = name if settings.get(name, {}).get("judge_target") else others.get(name, name)
            own = settings.get(name, {}).get("judge_target")
            return own or (name if name in variables else self.judge_target(name))

        names, may_judge = (*self.known, *settings), (*self.may_judge, *settings, *variables)
        return msgspec.structs.replace(self, known=names, may_judge=may_judge, judge_target=judge_target)
