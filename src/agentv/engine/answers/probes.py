"""Answers that no judge should let through, and the reference, which each should pass: a run of its own kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.datasets.loader import Stopping
from agentv.datasets.source import Source
from agentv.engine.job.request import Question
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import Cases, Plan
from agentv.engine.session import Session
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.message import tool_calls_in
from agentv.model.response import Response, answer, content_text
from agentv.settings.diagnostics import did_you_mean
from agentv.targets.programs.python import GivenFunction
from agentv.targets.target import Target

ORACLE = "oracle"
NOT_ABOUT_CONTENT = ("latency", "cost", "token_usage", "execution_metrics")
"""Limits on what an answer took: a made-up answer takes nothing, and whether it is right they do not ask."""

ABOUT_CALLS = "tool_trajectory"
"""It asks which tools were called. Where not even the reference calls one, the reference could not pass it."""

_MOST_OTHERS = 50
_LONGEST_QUESTION = 500


class Kind(NamedTuple):
    """One way to try a judge. `file` holds the text; the others are made from the case."""

    what: str
    file: str | None = None


KINDS: dict[str, Kind] = {
    "nop": Kind("says nothing", "nop"),
    "empty": Kind("is empty"),
    "verbose-wrong": Kind("is long, sure of itself and wrong", "verbose"),
    "injected-instruction": Kind("tells the judge what to do", "instruct"),
    "injected-verdict": Kind("holds a verdict of its own", "verdict"),
    "injected-delimiters": Kind("pretends that the answer has ended", "delimiters"),
    "injected-claims": Kind("praises itself", "claims"),
    ORACLE: Kind("is the expected output, and must pass"),
}


def chosen_kinds(names: Sequence[str]) -> tuple[str, ...]:
    """The kinds that are asked for; all without a name."""
    for name in names:
        if name not in KINDS:
            raise UsageError(
                f"Unknown probe '{name}'", hint=did_you_mean(name, KINDS) or f"Known probes: {', '.join(KINDS)}"
            )
    return tuple(dict.fromkeys(names)) or tuple(KINDS)


class ProbeCases:
    """Cases without the evaluators that ask nothing of an answer's content, or for calls that no answer has."""

    def __init__(self, cases: Cases) -> None:
        self._cases = cases

    @property
    def sources(self) -> tuple[Source, ...]:
        return self._cases.sources

    @property
    def sink(self) -> Stopping:
        return self._cases.sink

    def stream(self) -> Iterator[EvalCase]:
        """The cases, checked."""
        return map(_about_content, self._cases.stream())

    def stream_again(self) -> Iterator[EvalCase]:
        """The same once more."""
        return map(_about_content, self._cases.stream_again())


class ProbePlan(Plan, frozen=True, kw_only=True):
    """Every case with every kind; the reference only where there is one."""

    def targets_of(self, case: EvalCase) -> tuple[str, ...]:
        """The kinds in the place of targets."""
        return tuple(kind for kind in self.targets if kind != ORACLE or case.expected_output)

    @property
    def may_judge(self) -> tuple[str, ...]:
        """Those of the targets file: a probe answers, and judges nobody."""
        return tuple(name for name in self.known if name not in KINDS)

    def trials_of(self, case: EvalCase) -> int:  # noqa: ARG002
        """Once: the answers do not vary."""
        return 1


class ProbeSession(Session):
    """Probes that are about to be: each kind is a target that needs nobody."""

    def __init__(
        self,
        options: EvalOptions,
        cases: Cases,
        kinds: tuple[str, ...],
        evaluators: tuple[EvaluatorSpec, ...] | None = None,
    ) -> None:
        self._kinds = kinds
        others = _others(cases)
        given: tuple[Target, ...] = tuple(
            GivenFunction(name=kind, provider="python", call=answering(kind, others)) for kind in kinds
        )
        super().__init__(options, ProbeCases(cases), given=given, evaluators=evaluators)
        judge = self._judge_target()
        if judge is not None:
            for name, target in self._given.items():
                self._given[name] = msgspec.structs.replace(target, judge_target=judge)

    def _plan(self) -> Plan:
        return ProbePlan(
            cases=self.cases,
            known=self._targets.names,
            targets=self._kinds,
            evaluators=self._evaluators,
            judge=self.options.judge,
            judge_target=lambda name: self._targets.get(name).judge_target,
        )

    def _judge_target(self) -> str | None:
        """The judge of the target that the first case is meant for: the probes stand in its place."""
        first = next(self.cases.stream_again(), None)
        name = first.execution.target if first is not None else None
        for each in (name, "default", self._file.names[0] if len(self._file.names) == 1 else None):
            if each is not None and each in self._file.names:
                said = self._file.raw(each).get("judge_target", self._file.raw(each).get("judgeTarget"))
                return said if isinstance(said, str) else None
        return None


def answering(kind: str, others: Sequence[str]) -> Callable[[EvalCase], Response]:
    """What answers a case in the way of a kind. `others` are references of other cases, wrong for this one."""

    def answer_case(case: EvalCase) -> Response:
        if kind == ORACLE:
            return Response(messages=case.expected_output)
        file = KINDS[kind].file
        if file is None:
            return answer("")
        text = _text(file)
        if "{question}" in text:
            text = text.replace("{other}", _wrong(case, others)).replace("{question}", _question(case))
        return answer(text)

    return answer_case


@lru_cache(maxsize=16)
def _text(name: str) -> str:
    return (Path(__file__).parent / "probes_text" / f"{name}.txt").read_text(encoding="utf-8").strip()


def _wrong(case: EvalCase, others: Sequence[str]) -> str:
    """The reference of another case; without one, a conclusion that concludes nothing."""
    own = _reference(case)
    return next((other for other in others if other != own), "it depends on the circumstances, as it usually does.")


def _question(case: EvalCase) -> str:
    prompt = Question(case, prompt_id=case.prompts[0].id if case.prompts else None).prompt
    return prompt if len(prompt) <= _LONGEST_QUESTION else prompt[:_LONGEST_QUESTION] + "…"


def _reference(case: EvalCase) -> str:
    last = case.expected_output[-1] if case.expected_output else None
    return "" if last is None or last.content is None else content_text(last.content).strip()


def _others(cases: Cases) -> tuple[str, ...]:
    """Some references of the dataset that differ."""
    found: dict[str, None] = {}
    for case in cases.stream_again():
        reference = _reference(case)
        if reference:
            found[reference] = None
        if len(found) >= _MOST_OTHERS:
            break
    return tuple(found)


def _about_content(case: EvalCase) -> EvalCase:
    unasked = NOT_ABOUT_CONTENT if tool_calls_in(case.expected_output) else (*NOT_ABOUT_CONTENT, ABOUT_CALLS)
    kept = tuple(spec for spec in case.evaluators if spec.type not in unasked)
    return case if len(kept) == len(case.evaluators) else msgspec.structs.replace(case, evaluators=kept)
