"""Rescore the answers of an earlier run: call no target, and run only the evaluators that changed."""

import math
import shlex
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from agentv.engine.answers.answer_sources import given_answer
from agentv.engine.answers.carried_answers import called_targets
from agentv.engine.answers.stored_answers import StoredAnswer, StoredAnswers
from agentv.engine.calls.open_targets import concurrency_of
from agentv.engine.cases.case_survey import CaseSurvey, settle_run_trust, settle_trust
from agentv.engine.checks.project_facts import ProjectFacts
from agentv.engine.cost import evaluator_cost
from agentv.engine.early_stop import EarlyStopping, StopRule, parse_rule
from agentv.engine.job.answer import Answer, failed, make_record, untransformed
from agentv.engine.job.request import CaseRequest
from agentv.engine.prepare import Evaluators, check_options, plan_run
from agentv.engine.run_options import RescoreOptions
from agentv.engine.run_plan import Cases, Fingerprints, JobSource, RunPlan, check, named_evaluators
from agentv.engine.run_project import Project
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.engine.scoring.grades import regraded
from agentv.errors import UsageError
from agentv.model.case import EvalCase, Texts
from agentv.model.evaluator import Verdicts
from agentv.model.job import AnswerSource, Decision, GivenAnswer, Job
from agentv.model.manifest import TargetEntry
from agentv.model.response import TargetFailure, content_text
from agentv.model.result import EvaluatorResult, Result
from agentv.runs.store import StoredCase
from agentv.settings.transform import TransformFailure, apply_transform
from agentv.support.hashes import short
from agentv.targets.target import Target

MAX_CONCURRENT_SCORES = 64
"""Provided answers that are scored concurrently."""


class StoredJobs(JobSource):
    """The jobs recorded in an earlier run. With `from_folder`, the cases come from its run folder as well."""

    def __init__(self, answers: StoredAnswers, *, from_folder: bool) -> None:
        self.stored = answers
        self._from_folder = from_folder

    def counts(self, case: EvalCase) -> dict[str, int]:
        return dict(Counter(key.target for key in self.stored.jobs_of(case)))

    def jobs(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]:
        return [Job(case, *key[2:], fingerprint) for key in self.stored.jobs_of(case)]

    def fingerprints(self, case: EvalCase, texts: Texts | None = None) -> Fingerprints:
        """Return the stored fingerprints of cases from the run folder: files they cover may no longer exist."""
        stored_case = self.stored.stored_case(case) if self._from_folder else None
        if stored_case is None:
            return super().fingerprints(case, texts)
        return stored_case.input_fingerprint, stored_case.fingerprint


class RescoredAnswers(AnswerSource):
    """Decides for each stored answer whether its record is still valid, and which evaluators run again."""

    def __init__(self, options: RescoreOptions, project: Project, jobs: StoredJobs, evaluators: Evaluators) -> None:
        self.stored = jobs.stored
        self._options = options
        self._project = project
        self._jobs = jobs
        self._evaluators = evaluators
        self._files = EvaluatorFiles(own=evaluators is not None)
        self._own_files = EvaluatorFiles(own=True)
        self._settings: dict[str, Target | None] = {}
        manifest, summary = self.stored.manifest, self.stored.store.summary()
        self._targets = {entry.name: entry for entry in manifest.targets} if manifest is not None else {}
        judges = manifest.judges if manifest is not None else ()
        self._judges = {entry.name: entry for entry in (*self._targets.values(), *judges)}
        targets = summary.targets.items() if summary is not None else ()
        self.early_stopped = {name: target for name, target in targets if target.early_stop is not None}
        """The targets for which the run checked whether it could stop early."""

    def entry(self, name: str) -> TargetEntry:
        """Return the entry of a target in the manifest of the earlier run."""
        return self._targets.get(name) or TargetEntry(name=name, provider="unknown", fingerprint="")

    def settings(self, name: str) -> Target | None:
        """Return the current settings of a target, in which variables may be unset; None if it is unknown."""
        if name not in self._settings:
            file = self._project.file
            self._settings[name] = file.unresolved(name) if name in file.names else None
        return self._settings[name]

    def judge_target(self, name: str) -> str | None:
        """Return the judge currently named by a target."""
        return getattr(self.settings(name), "judge_target", None)

    def transform(self, name: str) -> Any:
        """Return the current `transform` of a target."""
        return getattr(self.settings(name), "transform", None)

    def decide(self, job: Job) -> Decision:
        """Decide whether to keep the record of a stored answer or to run some of its evaluators."""
        answer = self.stored.of(job)
        if not answer.is_scorable:
            return self._kept_whole(job, answer.record, "has no answer to score")
        if problem := self._input_change(job):
            return Decision(problem, job, self._unscored(job, problem))
        try:
            response, value = answer.response, self._value_of(job, answer)
        except TransformFailure as failure:
            return Decision(str(failure), job, _untransformed(job, answer, failure))
        except (TargetFailure, ValueError) as failure:
            return Decision(str(failure), job, self._unscored(job, str(failure)))
        prior, why = self._kept_results(job, answer, content_text(value))
        # Keep the whole record if it would not change: the same evaluators, and none of them runs again.
        specs = named_evaluators(job.case, self._evaluators)
        same = tuple(prior[spec.name] for spec in specs if spec.name in prior) == answer.record.evaluator_results
        if specs and same and len(prior) == len(specs) and answer.record.status == "ok":
            return self._kept_whole(job, answer.record, why)
        preset = GivenAnswer(
            response=response, value=value, kept=prior, record=answer.record, has_trace=answer.has_trace
        )
        return Decision(why, msgspec.structs.replace(job, answer=preset))

    def cost_of(self, result: Result) -> float:
        """Return the cost of this run only: reused answers and evaluator results were paid for earlier."""
        before = {entry.name: _requests(entry) for entry in self.stored.before(result).evaluator_results}
        ran = [entry for entry in result.evaluator_results if _requests(entry) != before.get(entry.name)]
        return math.fsum(evaluator_cost(entry, self._project.target) for entry in ran)

    def _kept_whole(self, job: Job, record: Result, why: str) -> Decision:
        carried_record = msgspec.structs.replace(
            record,
            dataset=job.case.dataset,
            dataset_path=job.case.path,
            carried_from=record.carried_from or self.stored.run_id,
        )
        return Decision(why, job, carried_record)

    def _unscored(self, job: Job, message: str) -> Result:
        """Return an error record for a stored answer that cannot be scored."""
        failure = TargetFailure("invalid_response", message)
        answer = Answer(request=CaseRequest(job.case), response=None, attempts=0)
        return make_record(job, failed(answer, failure), "")

    def _input_change(self, job: Job) -> str:
        """Return why a stored answer does not match the current input; empty if it does."""
        stored_case = self.stored.stored_case(job.case)
        if job.prompt is not None and job.prompt not in {prompt.id for prompt in job.case.prompts}:
            return f"The case no longer has a prompt '{job.prompt}'"
        if stored_case is None or not stored_case.input_fingerprint:
            return ""
        if self._jobs.fingerprints(job.case)[0] == stored_case.input_fingerprint:
            return ""
        return f"The input changed since the target answered. Run: agentv eval --changed-since {self.stored.path}"

    def _value_of(self, job: Job, stored: StoredAnswer) -> Any:
        """Return an answer after the target's current transform; as stored if the target is unknown."""
        record, response = stored.record, stored.response
        is_known = self.settings(job.target) is not None and stored.ours
        if not is_known and record.candidate_answer is not None:
            return response.value if record.candidate_answer == response.text else record.candidate_answer
        if not is_known and record.raw_answer is not None and record.error is not None:
            raise TransformFailure(record.error.message)
        find_file = partial(self._own_files.path, job.case.place.origin)
        transform, variables = self.transform(job.target), job.case.variables
        return apply_transform(response.value, transform, find_file, variables, response.metadata)

    def _kept_results(self, job: Job, answer: StoredAnswer, text: str) -> tuple[dict[str, EvaluatorResult], str]:
        """Return the evaluator results that are still valid, and a note on which evaluators run and why."""
        stored_case = self.stored.stored_case(job.case)
        specs = named_evaluators(job.case, self._evaluators)
        change = self._case_change(job, answer, stored_case, text)
        if change or stored_case is None:
            return {}, f"all evaluators run: {change}" if specs else "no evaluators"
        fingerprints = self._files.each(job.case, specs)
        limits = job.case.execution.verdicts or self._project.defaults.verdicts
        results_by_name = {result.name: result for result in answer.record.evaluator_results}
        prior: dict[str, EvaluatorResult] = {}
        reasons = []
        for spec in specs:
            result = results_by_name.get(spec.name)
            same = stored_case.evaluator_fingerprints.get(spec.name) == fingerprints[spec.name]
            reason = self._change(result, job.target, same=same)
            if reason or result is None:
                reasons.append(f"{spec.name} ({reason})")
            else:
                prior[spec.name] = regraded(result, spec, limits, self._verdicts_then(stored_case))
        return prior, f"runs {', '.join(reasons)}" if reasons else "no evaluator changed"

    def _case_change(self, job: Job, answer: StoredAnswer, stored_case: StoredCase | None, text: str) -> str:
        """Return why no score of a case is valid any more; empty if they may be."""
        if self._options.every_evaluator:
            return "requested"
        if stored_case is None:
            return "the earlier run has no evaluator fingerprints"
        if answer.record.fingerprint != (job.fingerprint or job.case.fingerprint):
            return "the case changed"
        return "" if text == answer.record.candidate_answer else "the transform changed"

    def _change(self, result: EvaluatorResult | None, target: str, *, same: bool) -> str:
        """Return why an evaluator has to run; empty if its result is still valid."""
        if result is None:
            return "new"
        if result.score is None:
            return "errored"
        if not same:
            return "changed"
        called, judges = called_targets((result,))
        judge = self._options.judge
        if judges and judge is not None and judges != {judge}:
            return f"was judged by {', '.join(sorted(judges))}"
        judge_name = self.entry(target).settings.get("judge_target")
        if judges and judge is None and judge_name != self.judge_target(target):
            return "has a different judge"
        for name in sorted(called):
            then = self._judges.get(name)
            if then is None or self._project.change(then):
                return f"its judge {name} changed"
        return ""

    def _verdicts_then(self, stored_case: StoredCase) -> Verdicts | None:
        """Return the verdict limits a case was graded with."""
        if stored_case.verdicts is not None or self.stored.manifest is None:
            return stored_case.verdicts
        limits = self.stored.manifest.defaults.get("verdicts")
        return None if limits is None else msgspec.convert(limits, Verdicts)


def _untransformed(job: Job, stored_answer: StoredAnswer, failure: TransformFailure) -> Result:
    """Return the error record for a stored answer that the target's transform cannot handle; the answer is kept."""
    response = stored_answer.response
    preset = GivenAnswer(response=response, value="", record=stored_answer.record, has_trace=stored_answer.has_trace)
    answer = given_answer(job, preset, CaseRequest(job.case, prompt_id=job.prompt, trial=job.trial))
    return make_record(job, untransformed(answer, response, failure), "")


def _requests(result: EvaluatorResult) -> Any:
    """Return the calls and costs of an evaluator and its members; durations make each call distinct."""
    return (result.evaluator_provider_request, result.cost_usd, [_requests(part) for part in result.evaluator_results])


def prepare_rescore(
    options: RescoreOptions, cases: Cases, answers: StoredAnswers, evaluators: Evaluators = None
) -> RunPlan:
    """Prepare to rescore an earlier run. Raises UsageError if none of its answers belong to these cases."""
    settle_trust(cases.sources, options.reading, evaluators, calls=False)
    if not cases.sources:
        settle_run_trust(answers.path, cases.stream_again(), evaluators)
    project = Project(options, cases.sources, cases.sink.warning)
    source = StoredJobs(answers, from_folder=not cases.sources)
    rescored = RescoredAnswers(options, project, source, evaluators)
    names = tuple(dict.fromkeys((*project.names, *answers.records.targets)))
    facts = ProjectFacts(
        known=names,
        may_judge=names,
        judge=options.judge,
        judge_target=rescored.judge_target,
        transform=rescored.transform,
        evaluators=evaluators,
        is_sandboxed=project.is_sandboxed,
        survey=CaseSurvey(evaluators, calls=False),
    )
    check_options(project, cases)
    plan = plan_run(project, cases, source, facts, check(cases, source, facts, whole=not options.narrows))
    if not plan.checked.total:
        datasets = f"The run has results for: {', '.join(answers.records.datasets) or 'unnamed datasets'}"
        hint = "Name the datasets of that run: agentv rescore RUN PATHS…"
        if answers.manifest is not None and answers.manifest.imported_from is not None:
            command = f"agentv rescore {shlex.quote(short(options.run))} --evaluator TYPE"
            hint = f"Give the cases the ids of the results, or score the stored cases: {command}"
        raise UsageError(f"No answer in {options.run} belongs to a case of these datasets", datasets, hint)
    readable = {target.name for target in plan.targets}
    stand_ins = (rescored.settings(name) for name in plan.checked.jobs if name not in readable)
    return msgspec.structs.replace(
        plan,
        targets=(*plan.targets, *(target for target in stand_ins if target is not None)),
        entry=rescored.entry,
        answers=rescored,
        rescored=rescored,
        early_stop=_early_stop_of(rescored, cases, source),
        most_given=_max_concurrent_scores(project, plan.checked.judges),
    )


def _early_stop_of(rescored: RescoredAnswers, cases: Cases, source: StoredJobs) -> EarlyStopping | None:
    """Return the early stopping of the earlier run: its intervals depend on the rule and the random order."""
    stop = next((target.early_stop for target in rescored.early_stopped.values()), None)
    manifest = rescored.stored.manifest
    if stop is None or manifest is None:
        return None
    is_width = stop.e_value is None
    rule = StopRule(stop.rule, stop.measure, stop.value, population=stop.population is None, narrow=is_width)
    if stop.measure == "difference":
        try:
            rule = parse_rule(stop.rule)
        except UsageError as error:
            message = f"The run used --stop-when {stop.rule}, and that run no longer exists"
            raise UsageError(message, error.detail, "Restore it at the same path") from None
    return EarlyStopping(rule, manifest.seed or 0, cases, source)


def _max_concurrent_scores(project: Project, judges: Iterable[str]) -> int:
    options = project.options
    if options.budget_usd is None:
        return MAX_CONCURRENT_SCORES
    # With a budget, start only what the judges can take: queued calls would still be made after the budget is spent.
    limits = (concurrency_of(project.target(name), options.workers, project.defaults.workers)[1] for name in judges)
    return min(MAX_CONCURRENT_SCORES, sum(limits) or MAX_CONCURRENT_SCORES)
