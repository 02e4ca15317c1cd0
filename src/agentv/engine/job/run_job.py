"""Run one job: answer, score, record. A failure becomes part of the record."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from agentv.datasets.files import FileFinder
from agentv.engine.answers.given import given_answer
from agentv.engine.answers.live import live_answer
from agentv.engine.calls.open_targets import OpenTarget, OpenTargets
from agentv.engine.job.answer import Answer, metrics_of
from agentv.engine.job.artifacts import JobFiles, StreamLogs
from agentv.engine.job.conversation import turn_check
from agentv.engine.job.record import JobOutcome, failed, make_record
from agentv.engine.job.request import Question
from agentv.engine.job.spec import MOST_AT_ONCE, RunSpec
from agentv.engine.job.trace import summarise_trace
from agentv.engine.job.workspace import JobWorkspace, Workspaces
from agentv.engine.scoring.grading import failed_result, grade
from agentv.engine.scoring.scorer import Answerer, Scorer
from agentv.evaluators.code.judge_host import JudgeHost
from agentv.executors.base import Limits
from agentv.model.case import Origin
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.execution import Verdicts
from agentv.model.job import Job
from agentv.model.judgement import Judgement
from agentv.model.message import message_to_data
from agentv.model.response import Response, TargetFailure
from agentv.model.result import EvaluatorResult, Result
from agentv.runs.redaction import Redactor
from agentv.settings.environment import environment_of
from agentv.support.transform import apply_transform

Checks = list[tuple[EvaluatorSpec, EvaluatorResult]]


class JobContext:
    """What the jobs of one run share in one process: open targets, evaluators, files. Built from the run's spec."""

    def __init__(self, spec: RunSpec, limits: Limits) -> None:
        redactor = Redactor(spec.secrets)
        files = spec.files
        self.spec = spec
        self.targets = OpenTargets(spec, limits)
        self.environment = environment_of(spec.home)
        self.host = JudgeHost(self.environment, tuple(sorted(self.targets.names)))
        self.scorer = Scorer(self.targets, spec.judge)
        self.prompts = None if files.prompts_folder is None else JobFiles(files.prompts_folder, redactor)
        self.traces = None if files.traces_folder is None else JobFiles(files.traces_folder, redactor)
        self.workspaces = Workspaces(files.workspaces_folder, self.environment)
        self.logs = StreamLogs(files.logs_folder, redactor)
        self._finders: dict[str, Callable[[str], str]] = {}
        for name in (*spec.answering, *spec.users, *spec.judges):
            self.targets.get(name)
        for name in spec.embedders:
            self.targets.get(name, embeddings=True)

    @property
    def capacity(self) -> int:
        """Enough jobs to fill every endpoint's limit and every batch; each costs a few kilobytes."""
        called = {*self.spec.answering, *self.spec.judges}
        most = self.spec.most_given or sum(self.targets.get(name).most for name in called)
        return max(1, min(MOST_AT_ONCE, most, self.spec.jobs))

    @property
    def missing(self) -> tuple[str, ...]:
        """The calls that are not in what is replayed."""
        return self.targets.missing

    def run(self, job: Job) -> Awaitable[Result]:
        """Return the record of one job, whatever happens in it."""
        return run_job(job, self)

    async def aclose(self) -> None:
        """Close the targets, and end what evaluators have running."""
        try:
            await self.host.aclose()
        finally:
            await self.targets.aclose()

    def find_file(self, origin: Origin) -> Callable[[str], str]:
        """Return what finds files as a dataset finds its own."""
        find = self._finders.get(origin.base_dir)
        if find is None:
            finder = FileFinder(origin.base_dir or ".", origin.root or ".")
            find = self._finders[origin.base_dir] = lambda value: finder.find(value).path
        return find

    def verdicts_of(self, job: Job) -> Verdicts | None:
        """Return the scores from which on the job's answer passes or is borderline."""
        return job.case.execution.verdicts or self.spec.defaults.verdicts

    def prepare_call(self, job: Job, target: OpenTarget, request: Question) -> None:
        """Open the log of a call, and write its prompt down where prompts are kept."""
        request.open_log = self.logs.opener(job, request)
        if self.prompts is not None:
            self.prompts.write_prompt(job, request, target.responder)


def run_job(job: Job, context: JobContext) -> Awaitable[Result]:
    """Answer a job, score the answer, and return its record."""
    request = Question(job.case, prompt_id=job.prompt, trial=job.trial)
    if job.answer is None:
        workspace = context.workspaces.of(job, context.targets.get(job.target).settings)
        if workspace is not None:
            request.job_workspace = workspace
            return _in_workspace(job, request, workspace, context)
    return _answer_and_score(job, request, context)


async def _in_workspace(job: Job, request: Question, workspace: JobWorkspace, context: JobContext) -> Result:
    try:
        result = await _answer_and_score(job, request, context)
    finally:
        problem = await workspace.close(request.timeout_s)
    # The answer and its score stand, whatever happened to the folder afterwards.
    return msgspec.structs.replace(result, file_changes=workspace.changes, error=result.error or problem)


async def _answer_and_score(job: Job, request: Question, context: JobContext) -> Result:
    if job.answer is None:
        answer = await live_answer(job, request, context)
    else:
        answer = given_answer(job, job.answer, request)
    if answer.failure is not None:
        outcome = failed(answer, answer.failure)
    else:
        outcome = await _score(job, answer, context)
    result = make_record(job, outcome, context.spec.run_id)
    if context.traces is not None and job.answer is None:
        context.traces.write_trace(job, answer, result)
    return result


async def _score(job: Job, answer: Answer, context: JobContext) -> JobOutcome:
    """Score an answer with the evaluators of its turns and of its case."""
    response, spec = answer.response, context.spec
    assert response is not None
    transform = None if answer.text is not None else context.targets.get(job.target).settings.transform
    try:
        text = answer.text if answer.text is not None else _transformed(response, transform, job, context)
    except ValueError as error:
        failure = TargetFailure("invalid_response", f"The answer cannot be transformed: {error}")
        bare = Answer(request=answer.request, response=None, attempts=answer.attempts, conversation=answer.conversation)
        return failed(bare, failure)
    checks: Checks = []
    if answer.replies and spec.evaluators is None:
        checks = await _check_turns(job, answer, context)
    specs = job.case.evaluators if spec.evaluators is None else spec.evaluators
    judgement = _judgement(answer, response, text, context)
    results = await _scores(job, specs, judgement, answer.kept, context)
    if checks:
        specs = (*(each for each, _ in checks), *specs)
        results = (*(result for _, result in checks), *results)
    return JobOutcome(
        answer,
        grade(results, specs, context.verdicts_of(job)),
        results,
        text,
        _messages(response, text, spec.include_trace),
    )


async def _scores(
    job: Job,
    specs: tuple[EvaluatorSpec, ...],
    judgement: Judgement,
    kept: dict[str, EvaluatorResult],
    context: JobContext,
) -> tuple[EvaluatorResult, ...]:
    """Return the results of evaluators in their order: kept ones, those that need not wait, and the rest."""
    scorer, verdicts = context.scorer, context.verdicts_of(job)
    found = [
        (kept.get(spec.name) if kept else None) or scorer.score_plainly(spec, judgement, verdicts) for spec in specs
    ]
    if None not in found:
        return tuple(result for result in found if result is not None)
    waiting = [spec for spec, result in zip(specs, found, strict=True) if result is None]
    waited = iter(await scorer.score_all(waiting, judgement, _answerer(job, context)))
    return tuple(result or next(waited) for result in found)


async def _check_turns(job: Job, answer: Answer, context: JobContext) -> Checks:
    """Score the replies to single turns with the evaluators of those turns, named by the number of the turn."""
    checks: Checks = []
    settings = context.targets.settings(job.target)
    transform = None if settings is None else settings.transform
    for number, reply in enumerate((reply for reply in answer.replies if reply.turn is not None), 1):
        assert reply.turn is not None
        if not reply.turn.evaluators:
            continue
        request = copy.copy(reply.question)
        request.case = msgspec.structs.replace(job.case, expected_output=reply.turn.expected_output)
        for spec in reply.turn.evaluators:
            name = turn_check(number, spec)
            result = answer.kept.get(name)
            if result is None:
                try:
                    text = _transformed(reply.response, transform, job, context)
                    judgement = _judgement(
                        msgspec.structs.replace(answer, request=request), reply.response, text, context
                    )
                    result = await context.scorer.score(spec, judgement, _answerer(job, context, number))
                except ValueError as error:
                    result = failed_result(spec, f"The answer cannot be transformed: {error}")
            checks.append((spec, msgspec.structs.replace(result, name=name)))
    return checks


def _transformed(response: Response, transform: Any, job: Job, context: JobContext) -> str:
    """Return the answer's text, cleaned by its target's transform. Raises ValueError."""
    text = response.text
    if transform is None:
        return text
    return apply_transform(text, transform, context.find_file(job.case.place.origin))


def _answerer(job: Job, context: JobContext, turn: int | None = None) -> Answerer:
    keep = None if context.prompts is None else partial(context.prompts.write_judge_prompt, job)
    parts = (job.target, job.prompt, str(job.trial), None if turn is None else f"turn-{turn}")
    return Answerer(job.target, context.verdicts_of(job), keep_prompt=keep, job="/".join(filter(None, parts)))


def _judgement(answer: Answer, response: Response, text: str, context: JobContext) -> Judgement:
    request, whole = answer.request, response is answer.response
    origin = request.case.place.origin
    judgement = Judgement(
        request,
        response,
        candidate_answer=text,
        workdir=origin.base_dir or ".",
        find_file=context.find_file(origin),
        trace_summary=answer.trace if whole else summarise_trace(response.messages, response.tool_errors),
        execution_metrics=answer.metrics if whole else metrics_of(response),
        file_changes=answer.file_changes if request.job_workspace is None else request.job_workspace.changes,
        environment=context.environment,
        host=context.host,
    )
    judgement.has_trace = answer.has_trace or not whole
    return judgement


def _messages(response: Response, text: str, always: bool) -> tuple[dict[str, Any], ...]:
    """Return the messages for the record, when they say more than the answer's text, or always."""
    messages = response.messages
    is_text = len(messages) == 1 and messages[0].content == text and not messages[0].tool_calls
    return () if is_text and not always else tuple(map(message_to_data, messages))
