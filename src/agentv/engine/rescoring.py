"""Scores the answers of an earlier run again: no target is called, and only what changed about evaluators is run."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import msgspec

from agentv.engine.answers.carried import Asked, Earlier
from agentv.engine.answers.stored import StoredAnswer, StoredAnswers, StoredCase
from agentv.engine.early_stop import Stopping, StopRule, parse_rule
from agentv.engine.job.run_job import Worker
from agentv.engine.job.spec import Job, RunSpec
from agentv.engine.run import Observer, Running
from agentv.engine.run_options import RescoreOptions
from agentv.engine.run_plan import Cases, Checked, Plan
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.engine.scoring.grading import regraded
from agentv.engine.session import Session
from agentv.errors import AgentvError, UsageError
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.execution import Verdicts
from agentv.model.manifest import RunLink, RunManifest, RunSummary, TargetEntry, TargetSummary
from agentv.model.response import TargetFailure
from agentv.model.result import EvaluatorResult, Result
from agentv.runs.folder import RunFolder
from agentv.runs.store import brief_records
from agentv.support.transform import apply_transform
from agentv.targets.target import Target

JUDGEMENTS_AT_ONCE = 64


class RescorePlan(Plan, frozen=True, kw_only=True):
    """The jobs are those that the earlier run has records of."""

    answers: StoredAnswers
    stored: bool = False

    def jobs_of(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]:
        """One for each answer to the case."""
        places = self.answers.places_of(case)
        return [Job(case, place.target, place.prompt, place.trial, fingerprint) for place in places]

    def counts_of(self, case: EvalCase) -> dict[str, int]:
        """How many answers of each target there are."""
        return dict(Counter(place.target for place in self.answers.places_of(case)))

    def targets_of(self, case: EvalCase) -> tuple[str, ...]:
        """Who answered."""
        return tuple(dict.fromkeys(place.target for place in self.answers.places_of(case)))

    def prints_of(self, case: EvalCase) -> tuple[str, str]:
        """For cases out of the run's folder those of then: files are part of them that may be gone."""
        kept = self.answers.stored_case(case) if self.stored else None
        return case.fingerprints if kept is None else (kept.input_fingerprint, kept.fingerprint)


class Rescoring(Running):
    """The run in progress: scores where others ask."""

    def __init__(
        self, session: RescoreSession, folder: RunFolder, worker: Worker, checked: Checked, observer: Observer
    ) -> None:
        self._session = session
        self._evaluators = EvaluatorFiles()
        super().__init__(folder, session.plan, worker, checked, session.options, observer)

    def _workers(self) -> int:
        most = JUDGEMENTS_AT_ONCE
        if self._options.budget_usd is not None:
            # What only waits for its turn at a judge would still be asked when the budget is used up.
            asked = map(self._worker.targets.get, self._checked.judges)
            most = min(most, sum(live.limiter.most for live in asked) or most)
        return min(most, self._checked.total) or 1

    async def _work(self, job: Job) -> Result:
        answers = self._session.answers
        answer = answers.of(job)
        if not answer.is_scorable:
            return self._carry(job, answer.record, "has no answer that could be scored")
        problem = self._session.changed_question(job)
        if problem:
            self._observer.decided(job, problem)
            return self._worker.unscored(job, problem)
        try:
            text = self._session.text_of(job, answer, self._worker)
            kept, why = self._kept(job, answer, text)
            if self._is_whole(job, answer.record, kept):
                return self._carry(job, answer.record, why)
            self._observer.decided(job, why)
            return await self._worker.rescored(job, answer, text, self._session.transform_of(job), kept)
        except (TargetFailure, ValueError) as failure:
            return self._worker.unscored(job, str(failure))

    def _carry(self, job: Job, record: Result, why: str) -> Result:
        """The record as it is, in this run."""
        self._observer.decided(job, why)
        return msgspec.structs.replace(
            record,
            run_id=self._worker.run_id,
            dataset=job.case.dataset,
            dataset_path=job.case.path,
            carried_from=record.carried_from or self._session.answers.run_id,
        )

    def _cost_of(self, result: Result) -> float:
        """What was asked now: the answer was paid in the earlier run, and so were the verdicts that still hold."""
        before = {found.name: _requests(found) for found in self._session.answers.before(result).evaluator_results}
        ran = [found for found in result.evaluator_results if _requests(found) != before.get(found.name)]
        return math.fsum(map(self._judge_cost, ran))

    def _kept(self, job: Job, answer: StoredAnswer, text: str) -> tuple[dict[str, EvaluatorResult], str]:
        """The results that hold still, and which evaluators run and why."""
        stored = self._session.answers.stored_case(job.case)
        specs = self._plan.checks_of(job.case)
        whole = self._session.whole_change(job, answer, stored, text)
        if whole or stored is None:
            return {}, f"every evaluator runs: {whole}" if specs else "there is no evaluator"
        prints = self._evaluators.each(job.case, specs)
        limits, before = self._worker.verdicts_of(job), self._session.verdicts_then(stored)
        found = {result.name: result for result in answer.record.evaluator_results}
        kept: dict[str, EvaluatorResult] = {}
        reasons = []
        for spec in specs:
            result = found.get(spec.name)
            reason = self._session.change(spec, result, stored, prints, job.target)
            if reason or result is None:
                reasons.append(f"{spec.name} ({reason})")
            else:
                kept[spec.name] = regraded(result, spec, limits, before)
        return kept, f"runs {', '.join(reasons)}" if reasons else "no evaluator changed"

    def _is_whole(self, job: Job, record: Result, kept: dict[str, EvaluatorResult]) -> bool:
        """Whether nothing at all would be different: the same evaluators, none of them run again."""
        specs = self._plan.checks_of(job.case)
        same = tuple(kept[spec.name] for spec in specs if spec.name in kept) == record.evaluator_results
        return bool(specs) and same and len(kept) == len(specs) and record.status == "ok"


class RescoreSession(Session):
    """A rescoring that is about to be: answers and cases found, nothing scored yet."""

    options: RescoreOptions

    def __init__(
        self,
        options: RescoreOptions,
        cases: Cases,
        answers: StoredAnswers,
        evaluators: tuple[EvaluatorSpec, ...] | None = None,
    ) -> None:
        self.answers = answers
        manifest = answers.manifest
        self._then = {entry.name: entry for entry in manifest.targets} if manifest is not None else {}
        judges = manifest.judges if manifest is not None else ()
        self._judges_then = {entry.name: entry for entry in (*self._then.values(), *judges)}
        self._stopped_early = _stopped_early(answers)
        self._stand_ins: dict[str, Target] = {}
        super().__init__(options, cases, evaluators=evaluators)

    def check(self) -> Checked:
        """Reads everything once; raises when no answer belongs to any of the cases."""
        checked = super().check()
        if not checked.total:
            known = f"The run has cases of: {', '.join(self.answers.datasets) or 'no dataset that it names'}"
            hint = "Name the datasets that were run: agentv rescore RUN PATHS…"
            raise UsageError(f"No answer in {self.options.run} belongs to a case of these datasets", known, hint)
        return checked

    def _asked(self, checked: Checked) -> tuple[str, ...]:
        return (*checked.embedders, *checked.judges)

    def left_out(self, checked: Checked) -> int:
        """How many records have no case here; of an earlier try of the same job, the last record counts."""
        return self.answers.jobs - checked.total

    def text_of(self, job: Job, answer: StoredAnswer, worker: Worker) -> str:
        """The answer's text, cleaned as its target says now; as it was, where nothing is known of the target."""
        target = self._stand_in(job.target)
        if (target is None or not answer.ours) and answer.record.candidate_answer is not None:
            return answer.record.candidate_answer
        return apply_transform(answer.response.text, self.transform_of(job), worker.finder_of(job))

    def transform_of(self, job: Job) -> Any:
        """How answers of the job's target are cleaned now."""
        return self._transform_now(job.target)

    def changed_question(self, job: Job) -> str:
        """Why an answer is none to the question of now; empty when it is."""
        stored = self.answers.stored_case(job.case)
        source = self.answers.path
        if job.prompt is not None and job.prompt not in {prompt.id for prompt in job.case.prompts}:
            return f"The case has no prompt '{job.prompt}' any more"
        if stored is None or not stored.input_fingerprint:
            return ""
        if self.plan.prints_of(job.case)[0] == stored.input_fingerprint:
            return ""
        return f"The question changed since it was answered; ask again: agentv eval --changed-since {source}"

    def whole_change(self, job: Job, answer: StoredAnswer, stored: StoredCase | None, text: str) -> str:
        """What makes every score of a case another one; empty when nothing does."""
        if self.options.every_evaluator:
            return "asked for"
        if stored is None:
            return "the earlier run does not say how it scored"
        if answer.record.fingerprint != (job.fingerprint or job.case.fingerprint):
            return "the case changed"
        return "" if text == answer.record.candidate_answer else "the answer is cleaned differently"

    def change(
        self,
        spec: EvaluatorSpec,
        result: EvaluatorResult | None,
        stored: StoredCase,
        prints: dict[str, str],
        target: str,
    ) -> str:
        """Why an evaluator has to run; empty when its result holds still."""
        if result is None:
            return "new"
        if result.score is None:
            return "was an error"
        if stored.evaluator_fingerprints.get(spec.name) != prints[spec.name]:
            return "changed"
        asked = Asked.by((result,))
        if asked.judges and self.options.judge is not None and asked.judges != {self.options.judge}:
            return f"was judged by {', '.join(sorted(asked.judges))}"
        if asked.judges and self.options.judge is None and self._judge_then(target) != self._judge_now(target):
            return "has another judge"
        changed = [name for name in sorted(asked.all) if self._is_another(name)]
        return f"its judge {changed[0]} changed" if changed else ""

    def _is_another(self, judge: str) -> bool:
        then = self._judges_then.get(judge)
        return then is None or bool(self._targets.change(then))

    def verdicts_then(self, stored: StoredCase) -> Verdicts | None:
        """The limits that a case was graded by."""
        if stored.verdicts is not None or self.answers.manifest is None:
            return stored.verdicts
        limits = self.answers.manifest.defaults.get("verdicts")
        return None if limits is None else msgspec.convert(limits, Verdicts)

    def _judge_then(self, target: str) -> Any:
        entry = self._then.get(target)
        return entry.settings.get("judge_target") if entry is not None else None

    def _judge_now(self, target: str) -> str | None:
        settings = self._stand_in(target)
        return settings.judge_target if settings is not None else None

    def _transform_now(self, target: str) -> Any:
        settings = self._stand_in(target)
        return settings.transform if settings is not None else None

    def _stand_in(self, name: str) -> Target | None:
        """What the targets file says of cleaning and judging a target's answers; nothing else of it is needed."""
        if name not in self._file.names:
            return None
        if name not in self._stand_ins:
            self._stand_ins[name] = self._file.unfilled(name)
        return self._stand_ins[name]

    def _plan(self) -> Plan:
        return RescorePlan(
            cases=self.cases,
            known=tuple(dict.fromkeys((*self._targets.names, *self.answers.targets))),
            evaluators=self._evaluators,
            trials=(self.answers.manifest.options if self.answers.manifest else {}).get("trials"),
            judge=self.options.judge,
            judge_target=self._judge_now,
            transform=self._transform_now,
            answers=self.answers,
            stored=not self.cases.sources,
        )

    def _worker(self, run_id: str, checked: Checked, folder: RunFolder) -> Worker:
        worker = Worker(self._spec(run_id, checked, folder))
        worker.open(checked.judges, checked.embedders)
        return worker

    def _spec(self, run_id: str, checked: Checked, folder: RunFolder) -> RunSpec:
        spec = super()._spec(run_id, msgspec.structs.replace(checked, jobs={}, users=()), folder)
        readable = {target.name for target in spec.targets}
        stand_ins = [self._stand_in(name) for name in checked.jobs if name not in readable]
        return msgspec.structs.replace(spec, targets=(*spec.targets, *filter(None, stand_ins)))

    def _running(
        self,
        folder: RunFolder,
        worker: Worker,
        checked: Checked,
        observer: Observer,
        earlier: Earlier | None,  # noqa: ARG002
        stopping: Stopping | None,  # noqa: ARG002  # all that was drawn is scored
    ) -> Running:
        return Rescoring(self, folder, worker, checked, observer)

    def _stopping(self) -> Stopping | None:
        """The rule of a run that looked whether it may stop, and its order: intervals must know of both."""
        found = next((target.early_stop for target in self._stopped_early.values()), None)
        manifest = self.answers.manifest
        if found is None or manifest is None:
            return None
        rule = StopRule(found.rule, found.measure, found.value)
        if found.measure == "difference":
            try:
                rule = parse_rule(found.rule)
            except UsageError as error:
                message = f"The run was stopped by its difference from {found.rule}, which is not there"
                raise UsageError(message, error.detail, "Put that run back, or name it as it was named then") from None
        return Stopping(rule, manifest.seed or 0, self.plan)

    def _caught_up(self, summary: RunSummary, stopping: Stopping, folder: RunFolder) -> RunSummary:
        """With the jobs that were not needed then, where all answers are scored, and the bets on the new scores."""
        targets = dict(summary.targets)
        whole = sum(target.jobs for target in targets.values()) == self.answers.jobs
        then = self._stopped_early
        spared = {name: target.early_stop.not_needed for name, target in then.items() if whole and target.early_stop}
        stopping.rescored((record for _, record in brief_records(folder.path)), spared)
        for name, count in spared.items():
            found = targets[name]
            jobs, skipped = found.jobs + count, found.skipped + count
            targets[name] = msgspec.structs.replace(found, cases=then[name].cases, jobs=jobs, skipped=skipped)
        return msgspec.structs.replace(summary, targets=targets)

    def _entry(self, name: str) -> TargetEntry:
        return self._then.get(name) or TargetEntry(name=name, provider="unknown", fingerprint="")

    def _change(self, then: TargetEntry) -> str:  # noqa: ARG002
        return ""  # it is not asked

    def _manifest(self, checked: Checked, run_id: str) -> RunManifest:
        answers = self.answers
        link = RunLink(run_id=answers.run_id, path=answers.path, digest=answers.digest)
        manifest = super()._manifest(checked, run_id)
        if self.cases.sources and not manifest.paths and answers.manifest is not None:
            manifest = msgspec.structs.replace(manifest, paths=answers.manifest.paths)
        if self._stopped_early and answers.manifest is not None:
            then = answers.manifest
            manifest = msgspec.structs.replace(manifest, seed=then.seed, stopped_early=then.stopped_early)
        return msgspec.structs.replace(manifest, rescored_from=link)

    def _check_unchanged(self, earlier: RunManifest, checked: Checked) -> None:
        super()._check_unchanged(earlier, checked)
        link = earlier.rescored_from
        if link is not None and link.digest != self.answers.digest:
            raise UsageError("The run in progress cannot go on: the answers that it scores changed since it began")


def _stopped_early(answers: StoredAnswers) -> dict[str, TargetSummary]:
    """The figures of targets in a run that looked whether it may stop."""
    try:
        targets = RunFolder(answers.path).read_summary().targets
    except AgentvError:
        return {}
    return {name: target for name, target in targets.items() if target.early_stop is not None}


def _requests(result: EvaluatorResult) -> Any:
    """What an evaluator and its members asked, and what they paid; each call says how long it took."""
    return (result.evaluator_provider_request, result.cost_usd, [_requests(each) for each in result.evaluator_results])
