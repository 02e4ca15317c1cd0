"""Answers that no judge should let through, and the reference, which each should pass: a run of its own kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.datasets.formats.dataset_format import Source
from agentv.datasets.loader import Stopping
from agentv.engine.answers.rescored import JUDGEMENTS_AT_ONCE
from agentv.engine.job.request import Question
from agentv.engine.preflight import ProjectFacts
from agentv.engine.prepare import Evaluators, check_files
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import Cases, Fingerprints, RunPlan, check
from agentv.engine.run_project import Project
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.job import Decision, GivenAnswer, Job
from agentv.model.manifest import TargetEntry
from agentv.model.message import tool_calls_in
from agentv.model.response import Response, answer, content_text
from agentv.settings.diagnostics import did_you_mean
from agentv.targets.target import Target

ORACLE = "oracle"
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


class ProbeJobs:
    """Every case with every kind of probe, once; the reference only where the case has one."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self._all = dict.fromkeys(kinds, 1)
        self._without_reference = dict.fromkeys((kind for kind in kinds if kind != ORACLE), 1)

    def counts(self, case: EvalCase) -> dict[str, int]:
        return self._all if case.expected_output else self._without_reference

    def jobs(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]:
        prompts: list[str | None] = [prompt.id for prompt in case.prompts] or [None]
        return [Job(case, kind, prompt, 1, fingerprint) for kind in self.counts(case) for prompt in prompts]

    def fingerprints(self, case: EvalCase) -> Fingerprints:
        return case.fingerprints


class CannedAnswers:
    """The answer of each kind of probe to a case. `others` are references of other cases, wrong for this one."""

    def __init__(self, cases: Cases) -> None:
        self._others = _others(cases)

    def decide(self, job: Job) -> Decision:
        """Give a job its canned answer."""
        response = self.answer(job.target, job.case)
        given = GivenAnswer(response=response, text=response.text)
        return Decision("a probe", msgspec.structs.replace(job, answer=given))

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def answer(self, kind: str, case: EvalCase) -> Response:
        """Return the answer of one kind."""
        if kind == ORACLE:
            return Response(messages=case.expected_output)
        file = KINDS[kind].file
        if file is None:
            return answer("")
        text = _text(file)
        if "{question}" in text:
            text = text.replace("{other}", _wrong(case, self._others)).replace("{question}", _question(case))
        return answer(text)


def probe_targets(project: Project, cases: Cases, kinds: tuple[str, ...]) -> tuple[Target, ...]:
    """Return a target for each kind, judged as the target that the first case is meant for."""
    first = next(cases.stream_again(), None)
    name = first.execution.target if first is not None else None
    file = project.file
    judge: str | None = None
    for each in (name, "default", file.names[0] if len(file.names) == 1 else None):
        if each is not None and each in file.names:
            named = file.raw(each).get("judge_target", file.raw(each).get("judgeTarget"))
            judge = named if isinstance(named, str) else None
            break
    return tuple(Target(name=kind, provider="probe", judge_target=judge) for kind in kinds)


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
    """The case without limits on what an answer took, and without checks of tool calls that no answer makes."""
    has_calls = bool(tool_calls_in(case.expected_output))
    kept = tuple(
        spec
        for spec in case.evaluators
        if (own := spec.evaluator) is None or (own.scores_content and (has_calls or not own.needs.trace))
    )
    return case if len(kept) == len(case.evaluators) else msgspec.structs.replace(case, evaluators=kept)


def prepare_probes(
    options: EvalOptions, cases: Cases, kinds: tuple[str, ...], evaluators: Evaluators = None
) -> RunPlan:
    """Prepare to score canned answers that no judge should let through."""
    project = Project(options, cases.sources, cases.sink.warning)
    probed, source = ProbeCases(cases), ProbeJobs(kinds)
    probes = probe_targets(project, cases, kinds)
    check_files(options, project, cases, None)
    facts = ProjectFacts(
        known=(*kinds, *(name for name in project.names if name not in kinds)),
        may_judge=tuple(name for name in project.names if name not in kinds),
        judge=options.judge,
        judge_target=lambda _: probes[0].judge_target,
        evaluators=evaluators,
    )
    checked = check(probed, source, facts, whole=not options.narrows)
    return RunPlan(
        options=options,
        project=project,
        cases=probed,
        source=source,
        checked=checked,
        evaluators=evaluators,
        targets=(*project.reachable((), (*checked.judges, *checked.embedders)), *probes),
        entry=lambda name: TargetEntry(name=name, provider="probe", fingerprint=""),
        answers=CannedAnswers(cases),
        most_given=JUDGEMENTS_AT_ONCE,
    )
