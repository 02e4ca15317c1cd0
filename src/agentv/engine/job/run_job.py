"""Run one job: get the answer, score it, make the record. Failures become part of the record."""

from __future__ import annotations

import copy
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.datasets.files import finder_of
from agentv.engine.answers.answer_log import AnswerLog, encode_answer
from agentv.engine.answers.answer_sources import given_answer, live_answer
from agentv.engine.calls.open_targets import MOST_BATCHED, OpenTarget, OpenTargets
from agentv.engine.calls.payments import batch_cost, job_account
from agentv.engine.calls.wrappers import OutageFailure
from agentv.engine.job.answer import Answer, JobOutcome, Reply, failed, make_record, usage_of
from agentv.engine.job.answer import untransformed as untransformed_outcome
from agentv.engine.job.artifacts import JobFiles, StreamLogs
from agentv.engine.job.judge_hold import JudgeHold
from agentv.engine.job.request import CaseRequest
from agentv.engine.job.spec import MOST_AT_ONCE, RunSpec
from agentv.engine.scoring.grades import Checks, Grade, failed_result, grade, grade_groups
from agentv.engine.scoring.judge_calls import ScoringContext
from agentv.engine.scoring.scorer import Scorer, total_cost
from agentv.evaluators.code.judge_host import JudgeHost
from agentv.executors.executor import Limits, UnfinishedJob
from agentv.model.evaluator import EvaluatorSpec, Verdicts, turn_evaluator_name
from agentv.model.job import Job, Judgement
from agentv.model.message import message_to_data
from agentv.model.origin import Origin
from agentv.model.response import Response, TargetFailure, content_text
from agentv.model.result import EvaluatorResult, Result
from agentv.model.workspace_settings import Workspace
from agentv.runs.redaction import Redactor
from agentv.settings.transform import TransformFailure, apply_transform
from agentv.trust.env_file import environment_of

if TYPE_CHECKING:
    from agentv.engine.job.suite_workspace import SuiteWorkspaces
    from agentv.engine.job.workspace import JobWorkspace

Results = list[EvaluatorResult | None]
Runner = Callable[[Job, "JobContext"], Awaitable[Result | UnfinishedJob]]


class JobContext:
    """The state shared by all jobs of a run in one process: open targets, evaluators and files.

    `runner` replaces `run_job`, for example to redact the record.
    """

    def __init__(self, spec: RunSpec, limits: Limits, runner: Runner | None = None) -> None:
        redactor = Redactor(spec.secrets)
        self.redact_line = redactor.redact_line
        self._runner = runner or run_job
        files = spec.files
        self.spec = spec
        self.targets = OpenTargets(spec, limits)
        self.environment = environment_of(spec.home)
        self.host = JudgeHost(self.environment, tuple(sorted(self.targets.names)))
        self.scorer = Scorer(self.targets, spec.judge)
        self.verdicts = spec.defaults.verdicts
        self.prompts = None if files.prompts_folder is None else JobFiles(files.prompts_folder, redactor)
        self.traces = None if files.traces_folder is None else JobFiles(files.traces_folder, redactor)
        self.logs = StreamLogs(files.logs_folder, redactor)
        self.finders: dict[tuple[str, bool], Callable[[str], str]] = {}
        self._suites: SuiteWorkspaces | None = None
        self._answers: AnswerLog | None = None
        for name in (*spec.answering, *spec.users, *spec.judges):
            settings = self.targets.get(name).settings
            if spec.replay is None:
                settings.check_ready(spec.home)
        judges = [self.targets.get(name).alone.limit for name in spec.judges]
        judges += [self.targets.get(name, embeddings=True).alone.limit for name in spec.embedders]
        self.judge_hold = JudgeHold(judges, limits) if judges else None

    @property
    def capacity(self) -> int:
        """The number of concurrent jobs: enough to fill every endpoint's limit and every batch."""
        called = {*self.spec.answering, *self.spec.judges}
        open_targets = [self.targets.get(name) for name in called]
        configured = [self.spec.workers or target.settings.workers or 0 for target in open_targets]
        configured += [MOST_BATCHED for target in open_targets if target.settings.is_batched]
        useful = self.spec.most_given or sum(target.most for target in open_targets)
        return max(1, min(max(MOST_AT_ONCE, *configured, 0), useful, self.spec.jobs))

    @property
    def missing(self) -> tuple[str, ...]:
        """The calls missing from the replay."""
        return self.targets.missing

    def run(self, job: Job) -> Awaitable[Result | UnfinishedJob]:
        """Return the record of one job, even if it fails; none if the budget is used up, or its judge is down."""
        payments = self.targets.payments
        work = self._runner(job, self)
        if payments is None or job.case.details.case_error is not None:
            return work
        settings = self.targets.settings(job.target)
        is_batched = settings is not None and settings.is_batched and job.answer is None
        expected = batch_cost(settings, CaseRequest(job.case, prompt_id=job.prompt)) if is_batched else None
        return payments.run(job.target, work, expected)

    async def aclose(self) -> None:
        """End the processes of evaluators, remove the workspaces of suites, and close the targets."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.targets.aclose)
            if self._answers is not None:
                stack.callback(self._answers.close)
            if self._suites is not None:
                stack.push_async_callback(self._suites.aclose)
            await self.host.aclose()

    def needs_judges(self, job: Job) -> bool:
        """Whether the evaluators of a job may call judges."""
        specs = job.case.evaluators if self.spec.evaluators is None else self.spec.evaluators
        return bool(job.case.turns) or any(spec.evaluator is None or not spec.evaluator.is_plain for spec in specs)

    def scoring(self) -> AbstractContextManager[None]:
        """Return a context for scoring an answer with evaluators that wait."""
        return nullcontext() if self.judge_hold is None else self.judge_hold

    def find_file(self, origin: Origin, *, own: bool) -> Callable[[str], str]:
        """Return a function that finds files as for paths in the dataset; with `own`, as for paths in the project."""
        find = self.finders.get((origin.base_dir, own))
        if find is None:
            finder = finder_of(origin, own=own)
            find = self.finders[origin.base_dir, own] = lambda value: finder.find(value).path
        return find

    def verdicts_of(self, job: Job) -> Verdicts | None:
        """Return the verdict limits of a job: the scores needed to pass or to be borderline."""
        return job.case.execution.verdicts or self.verdicts

    def workspace_of(self, job: Job, target: OpenTarget) -> JobWorkspace | None:
        """Return the workspace of a job: its case's, or an empty one for an agent that needs one; None otherwise."""
        workspace, settings = job.case.details.workspace, target.settings
        if workspace is None and not target.needs_workspace:
            return None
        if not settings.is_live:  # the files would not belong to the answer
            return None
        from agentv.engine.job.workspace import JobWorkspace  # late: few jobs work in a folder

        if self._suites is None:
            from agentv.engine.job.suite_workspace import SuiteWorkspaces  # late: as above

            self._suites = SuiteWorkspaces(self.spec.run_id, self.environment)
        workspace = workspace or Workspace()
        if added := settings.added_files(self.spec.home):
            workspace = msgspec.structs.replace(workspace, files=(*workspace.files, *added))
        return JobWorkspace(job, workspace, self.spec.files.workspaces_folder, self._suites)

    def store_answer(self, job: Job, answer: Answer, value: Any) -> tuple[bool, bytes | None]:
        """Store an answer that a target was called for before its evaluators wait. A workspace cannot be stored.

        Returns whether the answer can be scored later without another call, and the answer if it has to be returned.
        """
        files, settings = self.spec.files, self.targets.settings(job.target)
        folder = files.answers_folder
        is_called = settings is not None and settings.is_live and self.spec.replay is None and not answer.cached
        if job.answer is not None or not is_called:
            return True, None
        if answer.request.job_workspace is not None or (folder is None and not files.returns_answers):
            return False, None
        line, cost_usd = encode_answer(job, answer, value, self.spec.run_id)
        returned = self.redact_line(line) if line is not None and files.returns_answers else None
        if line is not None and folder is not None:
            self._answers = self._answers or AnswerLog(folder, self.redact_line)
            self._answers.write(line)
        if (account := job_account.get()) is not None:
            account.stored_usd, account.answer = cost_usd, returned
        return line is not None, returned

    def prepare_call(self, job: Job, target: OpenTarget, request: CaseRequest) -> None:
        """Open the log of a call, and store its prompt if prompts are kept."""
        if target.settings.writes_logs:
            request.open_log = self.logs.opener(job, request)
        if self.prompts is not None:
            self.prompts.write_prompt(job, request, target.responder)


async def run_job(job: Job, context: JobContext) -> Result | UnfinishedJob:
    """Answer a job, score the answer, and return its record; none if its target or judge has been down for too long."""
    request = CaseRequest(job.case, prompt_id=job.prompt, trial=job.trial)
    if job.case.details.case_error is not None:
        return make_record(job, _refused(request), context.spec.run_id)
    workspace: JobWorkspace | None = None
    try:
        if job.answer is not None:
            answer = given_answer(job, job.answer, request)
        else:
            target = context.targets.get(job.target)
            if context.judge_hold is not None and context.needs_judges(job):
                request.hold = context.judge_hold
            workspace = context.workspace_of(job, target)
            if workspace is not None:
                request.job_workspace, request.prepare = workspace, workspace.ready
                await workspace.reserve()
            answer = await live_answer(job, request, target, context, _score_turn)
        if isinstance(answer.failure, OutageFailure):
            lost_usd, message = answer.failure.cost_usd or 0.0, f"target '{job.target}': {answer.failure.message}"
            return UnfinishedJob(lost_usd, message, target=job.target)
        scored = _score_now(job, answer, context)
        if isinstance(scored, JobOutcome):
            outcome = scored
        else:
            is_stored, returned = context.store_answer(job, answer, scored[0].candidate_value)
            asking = _scoring_context(job, context)
            with context.scoring():
                outcome = await _score_all(job, answer, context, asking, scored)
            if asking.outages and context.spec.stops_at_outage:
                return UnfinishedJob(_lost_usd(outcome, is_stored=is_stored), asking.outages[0], returned)
        result = make_record(job, outcome, context.spec.run_id)
        if context.traces is not None and job.answer is None:
            context.traces.write_trace(job, answer, result)
    finally:
        problem = None if workspace is None else await workspace.close(request.timeout_s)
    if workspace is None:
        return result
    # A failed teardown does not change the answer or its score.
    return msgspec.structs.replace(
        result, file_changes=workspace.changes, warnings=() if problem is None else (problem,)
    )


def _refused(request: CaseRequest) -> JobOutcome:
    """Return the outcome of a case that cannot be run."""
    case = request.case
    failure = TargetFailure("case", f"{case.path}, line {case.line}: {case.case_error}", stage="setup")
    return failed(Answer(request=request, response=None, attempts=0), failure)


def _score_now(job: Job, answer: Answer, context: JobContext) -> JobOutcome | tuple[Judgement, Results]:
    """Return the outcome of a job if no evaluator does I/O; this avoids the event loop, which is slower than scoring.

    Otherwise return the results so far, with None for the remaining evaluators.
    """
    if answer.failure is not None:
        return failed(answer, answer.failure)
    response, evaluators = answer.response, context.spec.evaluators
    assert response is not None
    try:
        value = answer.value if answer.value is not None else _transformed(response, job, context)
    except TransformFailure as error:
        return untransformed_outcome(answer, response, error)
    judgement = _judgement(answer, response, value, context)
    score, verdicts, prior = context.scorer.score_now, job.case.execution.verdicts or context.verdicts, answer.kept
    specs = job.case.evaluators if evaluators is None else evaluators
    results: list[Any] = [prior.get(spec.name) or score(spec, judgement, verdicts) for spec in specs]
    if None in results or (answer.replies and evaluators is None):
        return judgement, results
    return _outcome(answer, judgement, tuple(results), grade(results, specs, verdicts), context)


def _lost_usd(outcome: JobOutcome, *, is_stored: bool) -> float:
    """Return the known cost of calls that have to be made again: of judges, and of an answer that is not stored."""
    metrics = None if is_stored else outcome.answer.metrics
    own = 0.0 if metrics is None else metrics.cost_usd or 0.0
    return own + math.fsum(total_cost(result) or 0.0 for result in outcome.results)


async def _score_all(
    job: Job, answer: Answer, context: JobContext, asking: ScoringContext, scored: tuple[Judgement, Results]
) -> JobOutcome:
    """Return the outcome of a job after running the evaluators that do I/O."""
    judgement, results = scored
    evaluators = context.spec.evaluators
    specs = job.case.evaluators if evaluators is None else evaluators
    turns = await _check_turns(job, answer, context, asking) if answer.replies and evaluators is None else []
    waiting = [spec for spec, result in zip(specs, results, strict=True) if result is None]
    new_results = iter(await context.scorer.score_all(waiting, judgement, asking) if waiting else ())
    whole = [(spec, result or next(new_results)) for spec, result in zip(specs, results, strict=True)]
    graded, checked = _graded(job, [*turns, whole], context)
    return _outcome(answer, judgement, checked, graded, context)


def _graded(job: Job, groups: list[Checks], context: JobContext) -> tuple[Grade, tuple[EvaluatorResult, ...]]:
    """Combine the results of the turns and of the whole conversation."""
    checks = [check for group in groups for check in group]
    results = tuple(result for _, result in checks)
    how, verdicts = job.case.details.aggregation, context.verdicts_of(job)
    if how is not None:
        return grade_groups(groups, how, verdicts), results
    return grade(results, [spec for spec, _ in checks], verdicts), results


def _outcome(
    answer: Answer, judgement: Judgement, results: tuple[EvaluatorResult, ...], graded: Grade, context: JobContext
) -> JobOutcome:
    text, messages = judgement.candidate_answer, judgement.response.messages
    # The record stores messages only if they contain more than the answer's text.
    is_text = len(messages) == 1 and messages[0].content == text and not messages[0].tool_calls
    if is_text and not context.spec.include_trace:
        return JobOutcome(answer, graded, results, text)
    raw = judgement.response.text
    message_data = tuple(map(message_to_data, messages))
    return JobOutcome(answer, graded, results, text, message_data, raw if raw != text else None)


async def _check_turns(job: Job, answer: Answer, context: JobContext, asking: ScoringContext) -> list[Checks]:
    """Score the reply to each turn with that turn's evaluators, whose results are named after the turn.

    Turns after one that ended the conversation score 0.
    """
    replies = [reply for reply in answer.replies if reply.turn is not None]
    turns = [await _check_turn(job, answer, number, context, asking) for number in range(1, len(replies) + 1)]
    if job.case.details.on_turn_failure == "stop":
        for number, turn in enumerate(job.case.turns[len(replies) :], len(replies) + 1):
            turns.append([(spec, _skipped_result(number, spec)) for spec in turn.evaluators])
    return [checks for checks in turns if checks]


def _skipped_result(number: int, spec: EvaluatorSpec) -> EvaluatorResult:
    """Return the result of an evaluator of a turn that was not played."""
    common: dict[str, Any] = {"name": turn_evaluator_name(number, spec), "type": spec.type, "weight": spec.weight}
    return EvaluatorResult(**common, score=0.0, verdict="fail", misses=("skipped because an earlier turn failed",))


async def _score_turn(
    job: Job, context: JobContext, replies: Sequence[Reply]
) -> tuple[bool, dict[str, EvaluatorResult]]:
    """Return whether the last reply fails its turn, and its results. One that cannot be scored does not fail it."""
    answer = Answer(request=replies[-1].request, response=replies[-1].response, replies=tuple(replies))
    number = sum(reply.turn is not None for reply in replies)
    checks = await _check_turn(job, answer, number, context, _scoring_context(job, context))
    graded = grade([result for _, result in checks], [spec for spec, _ in checks], context.verdicts_of(job))
    return graded.status == "ok" and graded.verdict != "pass", {result.name: result for _, result in checks}


async def _check_turn(job: Job, answer: Answer, number: int, context: JobContext, asking: ScoringContext) -> Checks:
    """Score the reply to one turn, by its number."""
    reply = [reply for reply in answer.replies if reply.turn is not None][number - 1]
    assert reply.turn is not None
    checks: Checks = []
    request = copy.copy(reply.request)
    request.case = msgspec.structs.replace(job.case, expected_output=reply.turn.expected_output)
    for spec in reply.turn.evaluators:
        name = turn_evaluator_name(number, spec)
        result = answer.kept.get(name)
        if result is None:
            try:
                value = _transformed(reply.response, job, context)
                judgement = _judgement(msgspec.structs.replace(answer, request=request), reply.response, value, context)
                text = judgement.candidate_answer
                of_turn = msgspec.structs.replace(asking, job=f"{asking.job}/turn-{number}")
                result = await context.scorer.score(spec, judgement, of_turn)
                if text != reply.response.text and result.candidate_answer is None:
                    result = msgspec.structs.replace(result, candidate_answer=text)
            except TransformFailure as error:
                result = failed_result(spec, str(error), error_class="invalid_response")
        checks.append((spec, msgspec.structs.replace(result, name=name)))
    return checks


def _transformed(response: Response, job: Job, context: JobContext) -> Any:
    """Return the answer of a response after its target's transform: text or data. Raises TransformFailure."""
    settings = context.targets.settings(job.target)
    if settings is None or settings.transform is None:
        return response.value
    find_file = context.find_file(job.case.place.origin, own=True)
    return apply_transform(response.value, settings.transform, find_file, job.case.variables, response.metadata)


def _scoring_context(job: Job, context: JobContext) -> ScoringContext:
    keep = None if context.prompts is None else partial(context.prompts.write_judge_prompt, job)
    parts = (job.target, job.prompt, str(job.trial))
    return ScoringContext(job.target, context.verdicts_of(job), keep_prompt=keep, job="/".join(filter(None, parts)))


def _judgement(answer: Answer, response: Response, value: Any, context: JobContext) -> Judgement:
    request, whole = answer.request, response is answer.response
    trace, metrics = (answer.trace, answer.metrics) if whole else usage_of(response)
    origin, own = request.case.place.origin, context.spec.evaluators is not None
    return Judgement(
        request,
        response,
        candidate_answer=content_text(value),
        workdir=origin.work_dir or origin.base_dir or ".",
        find_file=context.finders.get((origin.base_dir, own)) or context.find_file(origin, own=own),
        trace_summary=trace,
        execution_metrics=metrics,
        file_changes=answer.file_changes if request.job_workspace is None else request.job_workspace.changes,
        has_trace=answer.has_trace or not whole,
        environment=context.environment,
        host=context.host,
        candidate_data=None if isinstance(value, str) else value,
    )
