"""Score the answers of an earlier run again: no target is called, and only evaluators that changed are run."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import msgspec

from agentv.datasets.files import FileFinder
from agentv.engine.answers.carried import CalledTargets
from agentv.engine.answers.stored import StoredAnswer, StoredAnswers
from agentv.engine.calls.open_targets import concurrency_of
from agentv.engine.cost import evaluator_cost
from agentv.engine.early_stop import EarlyStopping, StopRule, parse_rule
from agentv.engine.job.answer import Answer, failed, make_record
from agentv.engine.job.request import Question
from agentv.engine.preflight import ProjectFacts
from agentv.engine.prepare import Evaluators, check_files, check_prices
from agentv.engine.run_options import EvalOptions, RescoreOptions
from agentv.engine.run_plan import Cases, Fingerprints, RunPlan, check, named_evaluators
from agentv.engine.run_project import Project
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.engine.scoring.grading import regraded
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec, Verdicts
from agentv.model.job import Decision, GivenAnswer, Job
from agentv.model.manifest import TargetEntry, TargetSummary
from agentv.model.response import TargetFailure
from agentv.model.result import EvaluatorResult, Result
from agentv.runs.store import StoredCase
from agentv.support.transform import apply_transform
from agentv.targets.target import Target

JUDGEMENTS_AT_ONCE = 64
"""Stored answers that are scored at the same time."""


class StoredJobs:
    """The jobs that an earlier run has records of. `from_folder` when the cases come out of its folder, too."""

    def __init__(self, answers: StoredAnswers, *, from_folder: bool) -> None:
        self.stored = answers
        self._from_folder = from_folder

    def counts(self, case: EvalCase) -> dict[str, int]:
        return dict(Counter(key.target for key in self.stored.jobs_of(case)))

    def jobs(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]:
        return [Job(case, *key[2:], fingerprint) for key in self.stored.jobs_of(case)]

    def fingerprints(self, case: EvalCase) -> Fingerprints:
        """Return those of the earlier run for cases out of its folder: files are part of them that may be gone."""
        kept = self.stored.stored_case(case) if self._from_folder else None
        return case.fingerprints if kept is None else (kept.input_fingerprint, kept.fingerprint)


class RescoredAnswers:
    """Decides for each stored answer whether its record holds, and which evaluators run again."""

    def __init__(
        self,
        options: RescoreOptions,
        project: Project,
        answers: StoredAnswers,
        jobs: StoredJobs,
        evaluators: tuple[EvaluatorSpec, ...] | None,
    ) -> None:
        manifest = answers.manifest
        self._options = options
        self._project = project
        self.stored = answers
        self._jobs = jobs
        self._evaluators = evaluators
        self._files = EvaluatorFiles()
        self._finders: dict[str, FileFinder] = {}
        self._settings: dict[str, Target | None] = {}
        self._targets = {entry.name: entry for entry in manifest.targets} if manifest is not None else {}
        judges = manifest.judges if manifest is not None else ()
        self._judges = {entry.name: entry for entry in (*self._targets.values(), *judges)}
        self.early_stopped = _early_stopped(answers)

    def entry(self, name: str) -> TargetEntry:
        """Return a target as the earlier run described it."""
        return self._targets.get(name) or TargetEntry(name=name, provider="unknown", fingerprint="")

    def settings(self, name: str) -> Target | None:
        """Return what the targets file says today of a target that answered; variables in it may be unset."""
        if name not in self._settings:
            file = self._project.file
            self._settings[name] = file.unfilled(name) if name in file.names else None
        return self._settings[name]

    def judge_target(self, name: str) -> str | None:
        """Return the judge that a target names today."""
        settings = self.settings(name)
        return settings.judge_target if settings is not None else None

    def transform(self, name: str) -> Any:
        """Return how a target's answers are cleaned today."""
        settings = self.settings(name)
        return settings.transform if settings is not None else None

    def decide(self, job: Job) -> Decision:
        """Decide what is scored of a stored answer."""
        stored = self.stored.of(job)
        if not stored.is_scorable:
            return self._kept_whole(job, stored.record, "has no answer that could be scored")
        problem = self._changed_question(job)
        if problem:
            return Decision(problem, job, self._unscored(job, problem))
        try:
            response, text = stored.response, self._text_of(job, stored)
        except (TargetFailure, ValueError) as failure:
            return Decision(str(failure), job, self._unscored(job, str(failure)))
        kept, why = self._kept_results(job, stored, text)
        # Whether nothing at all would be different: the same evaluators, none of them run again.
        specs = named_evaluators(job.case, self._evaluators)
        same = tuple(kept[spec.name] for spec in specs if spec.name in kept) == stored.record.evaluator_results
        if specs and same and len(kept) == len(specs) and stored.record.status == "ok":
            return self._kept_whole(job, stored.record, why)
        given = GivenAnswer(response=response, text=text, kept=kept, record=stored.record, has_trace=stored.has_trace)
        return Decision(why, msgspec.structs.replace(job, answer=given))

    def close(self) -> None:
        """Leave the earlier run open: its owner closes it."""

    def cost_of(self, result: Result) -> float:
        """Return what was paid now: the answer was paid in the earlier run, and so were the results that still hold."""
        before = {found.name: _requests(found) for found in self.stored.before(result).evaluator_results}
        ran = [found for found in result.evaluator_results if _requests(found) != before.get(found.name)]
        return math.fsum(evaluator_cost(found, self._project.target) for found in ran)

    def _kept_whole(self, job: Job, record: Result, why: str) -> Decision:
        kept = msgspec.structs.replace(
            record,
            dataset=job.case.dataset,
            dataset_path=job.case.path,
            carried_from=record.carried_from or self.stored.run_id,
        )
        return Decision(why, job, kept)

    def _unscored(self, job: Job, message: str) -> Result:
        """Return the record of a job whose stored answer cannot be scored: an error, and why."""
        failure = TargetFailure("invalid_response", message)
        answer = Answer(request=Question(job.case), response=None, attempts=0)
        return make_record(job, failed(answer, failure), "")

    def _changed_question(self, job: Job) -> str:
        """Return why a stored answer does not answer the question of today; empty when it does."""
        stored = self.stored.stored_case(job.case)
        if job.prompt is not None and job.prompt not in {prompt.id for prompt in job.case.prompts}:
            return f"The case has no prompt '{job.prompt}' any more"
        if stored is None or not stored.input_fingerprint:
            return ""
        if self._jobs.fingerprints(job.case)[0] == stored.input_fingerprint:
            return ""
        path = self.stored.path
        return f"The question changed since it was answered; ask again: agentv eval --changed-since {path}"

    def _text_of(self, job: Job, stored: StoredAnswer) -> str:
        """Return the answer's text, cleaned as its target says today; unchanged where the target is unknown."""
        known = self.settings(job.target) is not None and stored.ours
        if not known and stored.record.candidate_answer is not None:
            return stored.record.candidate_answer
        origin = job.case.place.origin
        finder = self._finders.get(origin.base_dir)
        if finder is None:
            finder = self._finders[origin.base_dir] = FileFinder(origin.base_dir or ".", origin.root or ".")
        return apply_transform(stored.response.text, self.transform(job.target), lambda name: finder.find(name).path)

    def _kept_results(self, job: Job, answer: StoredAnswer, text: str) -> tuple[dict[str, EvaluatorResult], str]:
        """Return the evaluator results that still hold, and which evaluators run and why."""
        stored = self.stored.stored_case(job.case)
        specs = named_evaluators(job.case, self._evaluators)
        change = self._case_change(job, answer, stored, text)
        if change or stored is None:
            return {}, f"every evaluator runs: {change}" if specs else "there is no evaluator"
        fingerprints = self._files.each(job.case, specs)
        limits = job.case.execution.verdicts or self._project.defaults.verdicts
        found = {result.name: result for result in answer.record.evaluator_results}
        kept: dict[str, EvaluatorResult] = {}
        reasons = []
        for spec in specs:
            result = found.get(spec.name)
            same = stored.evaluator_fingerprints.get(spec.name) == fingerprints[spec.name]
            reason = self._change(result, job.target, same=same)
            if reason or result is None:
                reasons.append(f"{spec.name} ({reason})")
            else:
                kept[spec.name] = regraded(result, spec, limits, self._verdicts_then(stored))
        return kept, f"runs {', '.join(reasons)}" if reasons else "no evaluator changed"

    def _case_change(self, job: Job, answer: StoredAnswer, stored: StoredCase | None, text: str) -> str:
        """Return what makes every score of a case invalid; empty when nothing does."""
        if self._options.every_evaluator:
            return "asked for"
        if stored is None:
            return "the earlier run does not say how it scored"
        if answer.record.fingerprint != (job.fingerprint or job.case.fingerprint):
            return "the case changed"
        return "" if text == answer.record.candidate_answer else "the answer is cleaned differently"

    def _change(self, result: EvaluatorResult | None, target: str, *, same: bool) -> str:
        """Return why an evaluator has to run; empty when its result still holds."""
        if result is None:
            return "new"
        if result.score is None:
            return "was an error"
        if not same:
            return "changed"
        called, judge = CalledTargets.by((result,)), self._options.judge
        if called.judges and judge is not None and called.judges != {judge}:
            return f"was judged by {', '.join(sorted(called.judges))}"
        if (
            called.judges
            and judge is None
            and self.entry(target).settings.get("judge_target") != self.judge_target(target)
        ):
            return "has another judge"
        for name in sorted(called.all):
            then = self._judges.get(name)
            if then is None or self._project.change(then):
                return f"its judge {name} changed"
        return ""

    def _verdicts_then(self, stored: StoredCase) -> Verdicts | None:
        """Return the limits that a case was graded by."""
        if stored.verdicts is not None or self.stored.manifest is None:
            return stored.verdicts
        limits = self.stored.manifest.defaults.get("verdicts")
        return None if limits is None else msgspec.convert(limits, Verdicts)


def _early_stopped(answers: StoredAnswers) -> dict[str, TargetSummary]:
    """Return the targets of a run that checked whether it may stop."""
    summary = answers.store.summary()
    targets = summary.targets.items() if summary is not None else ()
    return {name: target for name, target in targets if target.early_stop is not None}


def _requests(result: EvaluatorResult) -> Any:
    """Return what an evaluator and its members asked, and what they paid; each call has its own duration."""
    return (result.evaluator_provider_request, result.cost_usd, [_requests(each) for each in result.evaluator_results])


def prepare_rescore(
    options: RescoreOptions, cases: Cases, answers: StoredAnswers, evaluators: Evaluators = None
) -> RunPlan:
    """Prepare to score the answers of an earlier run again. Raises when no answer belongs to any of the cases."""
    project = Project(options, cases.sources, cases.sink.warning)
    source = StoredJobs(answers, from_folder=not cases.sources)
    rescored = RescoredAnswers(options, project, answers, source, evaluators)
    check_files(options, project, cases, None)
    known = tuple(dict.fromkeys((*project.names, *answers.targets)))
    facts = ProjectFacts(
        known=known,
        may_judge=known,
        judge=options.judge,
        judge_target=rescored.judge_target,
        transform=rescored.transform,
        evaluators=evaluators,
    )
    checked = check(cases, source, facts, whole=not options.narrows)
    check_prices(options, project, (*checked.embedders, *checked.judges))
    if not checked.total:
        known_datasets = f"The run has cases of: {', '.join(answers.datasets) or 'no dataset that it names'}"
        hint = "Name the datasets that were run: agentv rescore RUN PATHS…"
        raise UsageError(f"No answer in {options.run} belongs to a case of these datasets", known_datasets, hint)
    targets = project.reachable((), (*checked.judges, *checked.embedders))
    readable = {target.name for target in targets}
    stand_ins = (rescored.settings(name) for name in checked.jobs if name not in readable)
    return RunPlan(
        options=options,
        project=project,
        cases=cases,
        source=source,
        checked=checked,
        evaluators=evaluators,
        targets=(*targets, *(target for target in stand_ins if target is not None)),
        entry=rescored.entry,
        answers=rescored,
        rescored=rescored,
        early_stop=_early_stop_of(rescored, cases, source),
        most_given=_judgements_at_once(options, project, tuple(checked.judges)),
    )


def _early_stop_of(rescored: RescoredAnswers, cases: Cases, source: StoredJobs) -> EarlyStopping | None:
    """Return the rule of a run that checked whether it may stop, and its order: intervals depend on both."""
    found = next((target.early_stop for target in rescored.early_stopped.values()), None)
    manifest = rescored.stored.manifest
    if found is None or manifest is None:
        return None
    rule = StopRule(found.rule, found.measure, found.value)
    if found.measure == "difference":
        try:
            rule = parse_rule(found.rule)
        except UsageError as error:
            message = f"The run was stopped by its difference from {found.rule}, which is not there"
            raise UsageError(message, error.detail, "Put that run back, or name it as it was named then") from None
    return EarlyStopping(rule, manifest.seed or 0, cases, source)


def _judgements_at_once(options: EvalOptions, project: Project, judges: tuple[str, ...]) -> int:
    if options.budget_usd is None:
        return JUDGEMENTS_AT_ONCE
    # With a budget, no more than the judges take at once: what waits for its turn would still be called afterwards.
    limits = (concurrency_of(project.target(name), options.workers, project.defaults.workers)[1] for name in judges)
    return min(JUDGEMENTS_AT_ONCE, sum(limits) or JUDGEMENTS_AT_ONCE)
