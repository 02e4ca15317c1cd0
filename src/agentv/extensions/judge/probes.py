"""Probe judges with canned answers, bad ones that must fail and the reference that must pass, and count mistakes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.engine.answers.rescored_answers import MAX_CONCURRENT_SCORES
from agentv.engine.cases.case_survey import CaseSurvey, settle_trust
from agentv.engine.checks.project_facts import ProjectFacts
from agentv.engine.job.request import CaseRequest
from agentv.engine.prepare import Evaluators, check_options, plan_run
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import Cases, ChangedCases, JobSource, RunPlan, check
from agentv.engine.run_project import Project
from agentv.errors import EXIT_ERRORS, EXIT_FINDINGS, EXIT_OK, UsageError, start_of
from agentv.model.case import EvalCase
from agentv.model.diagnostics import did_you_mean
from agentv.model.job import AnswerSource, Decision, GivenAnswer, Job
from agentv.model.manifest import TargetEntry
from agentv.model.message import tool_calls_in
from agentv.model.response import Response, answer, content_text
from agentv.model.result import EvaluatorResult, Result
from agentv.targets.target import Target

ORACLE = "oracle"
_MAX_REFERENCES = 50
_MAX_PROMPT = 500


class Kind(NamedTuple):
    """One kind of probe. `file` has the text of the answer; answers of other kinds are made from the case."""

    what: str
    file: str | None = None


KINDS: dict[str, Kind] = {
    "nop": Kind("has no content", "nop"),
    "empty": Kind("is empty"),
    "verbose-wrong": Kind("is long, confident and wrong", "verbose"),
    "injected-instruction": Kind("gives the judge instructions", "instruct"),
    "injected-verdict": Kind("contains a verdict", "verdict"),
    "injected-delimiters": Kind("pretends to end the answer", "delimiters"),
    "injected-claims": Kind("praises itself", "claims"),
    ORACLE: Kind("is the expected output and must pass"),
}


def chosen_kinds(names: Sequence[str]) -> tuple[str, ...]:
    """Return the named kinds of probes; all of them by default. Raises UsageError for an unknown one."""
    for name in names:
        if name not in KINDS:
            raise UsageError(
                f"Unknown probe '{name}'", hint=did_you_mean(name, KINDS) or f"Known probes: {', '.join(KINDS)}"
            )
    return tuple(dict.fromkeys(names)) or tuple(KINDS)


class ProbeJobs(JobSource):
    """Cases × kinds of probes; the reference only for cases that have one."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self._all = dict.fromkeys(kinds, 1)
        self._without_reference = dict.fromkeys((kind for kind in kinds if kind != ORACLE), 1)

    def counts(self, case: EvalCase) -> dict[str, int]:
        return self._all if case.expected_output else self._without_reference

    def jobs(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]:
        prompts: list[str | None] = [prompt.id for prompt in case.prompts] or [None]
        return [Job(case, kind, prompt, 1, fingerprint) for kind in self.counts(case) for prompt in prompts]


class CannedAnswers(AnswerSource):
    """Provides the answer of each kind of probe. References of other cases serve as wrong answers."""

    def __init__(self, cases: Cases) -> None:
        self._references = _references(cases)

    def decide(self, job: Job) -> Decision:
        """Return the job with its canned answer."""
        response = self.answer(job.target, job.case)
        preset = GivenAnswer(response=response, value=response.value)
        return Decision("a probe", msgspec.structs.replace(job, answer=preset))

    def answer(self, kind: str, case: EvalCase) -> Response:
        """Return the answer of one kind of probe to a case."""
        if kind == ORACLE:
            return Response(messages=case.expected_output)
        if (file := KINDS[kind].file) is None:
            return answer("")
        text = _text(file)
        if "{question}" in text:
            text = text.replace("{other}", self._wrong(case)).replace("{question}", _prompt(case))
        return answer(text)

    def _wrong(self, case: EvalCase) -> str:
        """Return the reference of another case; if there is none, a sentence that concludes nothing."""
        others = (other for other in self._references if other != _reference(case))
        return next(others, "it depends on the circumstances, as it usually does.")


def probe_targets(project: Project, cases: Cases, kinds: tuple[str, ...]) -> tuple[Target, ...]:
    """Return a target for each kind of probe, with the judge of the first case's target."""
    first = next(cases.stream_again(), None)
    name = (first.execution.target if first is not None else None) or project.default_target
    judge = project.file.unresolved(name).judge_target if name in project.file.names else None
    return tuple(Target(name=kind, provider="probe", judge_target=judge) for kind in kinds)


@lru_cache(maxsize=16)
def _text(name: str) -> str:
    return (Path(__file__).parent / "probes_text" / f"{name}.txt").read_text(encoding="utf-8").strip()


def _prompt(case: EvalCase) -> str:
    prompt = CaseRequest(case, prompt_id=case.prompts[0].id if case.prompts else None).prompt
    return start_of(prompt, _MAX_PROMPT)


def _reference(case: EvalCase) -> str:
    last = case.expected_output[-1] if case.expected_output else None
    return "" if last is None or last.content is None else content_text(last.content).strip()


def _references(cases: Cases) -> tuple[str, ...]:
    """Return some distinct references of the dataset."""
    references: dict[str, None] = {}
    for reference in filter(None, map(_reference, cases.stream_again())):
        references[reference] = None
        if len(references) >= _MAX_REFERENCES:
            break
    return tuple(references)


def _about_content(case: EvalCase) -> EvalCase:
    """Drop evaluators of cost or latency, and of tool calls if the expected output has none."""
    has_calls = bool(tool_calls_in(case.expected_output))
    specs = tuple(
        spec
        for spec in case.evaluators
        if (own := spec.evaluator) is None or (own.scores_content and (has_calls or not own.needs.trace))
    )
    return case if len(specs) == len(case.evaluators) else msgspec.structs.replace(case, evaluators=specs)


def prepare_probes(
    options: EvalOptions, cases: Cases, kinds: tuple[str, ...], evaluators: Evaluators = None
) -> RunPlan:
    """Prepare a run that scores canned answers instead of calling targets."""
    settle_trust(cases.sources, options.reading, evaluators, calls=False)
    project = Project(options, cases.sources, cases.sink.warning)
    probes = probe_targets(project, cases, kinds)
    others = tuple(name for name in project.names if name not in kinds)
    facts = ProjectFacts(
        known=(*kinds, *others),
        may_judge=others,
        judge=options.judge,
        judge_target=lambda _: probes[0].judge_target,
        evaluators=evaluators,
        is_sandboxed=project.is_sandboxed,
        survey=CaseSurvey(evaluators, calls=False),
    )
    check_options(project, cases)
    scored_cases, source = ChangedCases(cases, _about_content), ProbeJobs(kinds)
    checked = check(scored_cases, source, facts, whole=not options.narrows)
    plan = plan_run(project, scored_cases, source, facts, checked)
    return msgspec.structs.replace(
        plan,
        targets=(*plan.targets, *probes),
        entry=lambda name: TargetEntry(name=name, provider="probe", fingerprint=""),
        answers=CannedAnswers(cases),
        most_given=MAX_CONCURRENT_SCORES,
    )


MOST_SHOWN = 20


class ProbeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of probes of one kind by outcome. `judged` includes `misjudged`; the others have no verdict."""

    judged: int
    misjudged: int
    errors: int
    unscored: int


class MisjudgedProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A probe that passed, or a reference answer that did not. `by` names the evaluators that were wrong."""

    kind: str
    eval_id: str
    dataset: str
    score: float
    by: tuple[str, ...]
    reason: str = ""


class ProbeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of all probes. `evaluators` counts misjudged and judged probes by evaluator and kind."""

    kinds: dict[str, ProbeCounts]
    evaluators: dict[str, dict[str, tuple[int, int]]]
    misjudged: tuple[MisjudgedProbe, ...]
    first_error: str = ""

    @property
    def total(self) -> ProbeCounts:
        """The counts of all kinds together."""
        names = ProbeCounts.__struct_fields__
        return ProbeCounts(**{name: sum(getattr(counts, name) for counts in self.kinds.values()) for name in names})

    def exit_code(self, allowed: float) -> int:
        """Return the exit code of the command when up to `allowed` probes may be misjudged."""
        total = self.total
        if total.errors and not total.judged:
            return EXIT_ERRORS
        return EXIT_FINDINGS if total.misjudged > allowed else EXIT_OK


def summarize_probes(results: Iterable[Result], must_pass: frozenset[str]) -> ProbeSummary:
    """Summarize records whose targets are kinds of probes. Kinds in `must_pass` must pass, all others must not."""
    kinds: dict[str, Counter[str]] = {}
    evaluators: dict[str, dict[str, tuple[int, int]]] = {}
    probes: list[MisjudgedProbe] = []
    first_error = ""
    for result in results:
        kind = result.target
        counts = kinds.setdefault(kind, Counter())
        wrong = [entry for entry in result.evaluator_results if _is_wrong(entry.verdict, kind in must_pass)]
        for entry in result.evaluator_results:
            if entry.verdict is not None:
                misjudged, judged = evaluators.setdefault(entry.name, {}).get(kind, (0, 0))
                evaluators[entry.name][kind] = misjudged + (entry in wrong), judged + 1
        if result.status == "error":
            counts["errors"] += 1
            first_error = first_error or (result.error.message if result.error else "")
        elif result.verdict is None or result.score is None:
            counts["unscored"] += 1
        else:
            counts["judged"] += 1
            if _is_wrong(result.verdict, kind in must_pass):
                counts["misjudged"] += 1
                if len(probes) < MOST_SHOWN:
                    probes.append(_misjudged(result, result.score, [entry for entry in wrong if entry.weight > 0]))
    names = ProbeCounts.__struct_fields__
    return ProbeSummary(
        kinds={kind: ProbeCounts(**{name: counts[name] for name in names}) for kind, counts in kinds.items()},
        evaluators=evaluators,
        misjudged=tuple(probes),
        first_error=first_error,
    )


def _is_wrong(verdict: str | None, must_pass: bool) -> bool:
    return verdict is not None and (verdict == "pass") != must_pass


def _misjudged(result: Result, score: float, blamed: list[EvaluatorResult]) -> MisjudgedProbe:
    reasons = (entry.reasoning or next(iter((*entry.hits, *entry.misses)), "") for entry in blamed)
    return MisjudgedProbe(
        kind=result.target,
        eval_id=result.eval_id,
        dataset=result.dataset,
        score=score,
        by=tuple(entry.name for entry in blamed),
        reason=next(filter(None, reasons), ""),
    )
