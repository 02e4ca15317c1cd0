"""Run one job: get the answer, score it, make the record. Failures become part of the record."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from agentv.engine.answers.answer_sources import failed_answer, given_answer, live_answer
from agentv.engine.calls.open_targets import OpenTarget
from agentv.engine.calls.wrappers import OutageFailure
from agentv.engine.job.answer import Answer, JobOutcome, Reply, answer_to, failed, make_record, usage_of
from agentv.engine.job.answer import untransformed as untransformed_outcome
from agentv.engine.job.job_context import JobContext
from agentv.engine.job.request import CaseRequest
from agentv.engine.scoring.grades import Checks, Grade, failed_result, grade, grade_groups
from agentv.engine.scoring.judge_calls import ScoringContext
from agentv.engine.scoring.scorer import total_cost
from agentv.executors.executor import UnfinishedJob
from agentv.model.case import NO_DETAILS
from agentv.model.evaluator import EvaluatorSpec, turn_evaluator_name
from agentv.model.job import Job, Judgement
from agentv.model.message import message_to_data
from agentv.model.response import Response, TargetFailure, content_text
from agentv.model.result import EvaluatorResult, Result
from agentv.settings.transform import TransformFailure, apply_transform

Results = list[EvaluatorResult | None]


async def run_job(job: Job, context: JobContext) -> Result | UnfinishedJob:
    """Answer a job, score the answer, and return its record; none if its target or judge has been down for too long."""
    request = CaseRequest(job.case, prompt_id=job.prompt, trial=job.trial)
    details = job.case.details
    if details.case_error is not None:
        return make_record(job, _refused(request), context.spec.run_id)
    if job.answer is not None:
        answer = given_answer(job, job.answer, request)
    else:
        target = context.targets.get(job.target)
        request.opens_job = True
        if context.judge_hold is not None and context.needs_judges(job):
            request.hold = context.judge_hold
        if details is not NO_DETAILS or target.needs_workspace:
            return await _run_in_workspace(job, request, target, context)
        if context.prompts is not None or target.settings.writes_logs:
            context.prepare_call(job, target, request)
        try:
            answer = answer_to(request, await target.responder.respond(request), request.attempt)
        except TargetFailure as failure:
            answer = failed_answer(request, failure)
    result = _scored_record(job, answer, context)
    return await _record_later(job, answer, context, result) if isinstance(result, tuple) else result


async def _run_in_workspace(
    job: Job, request: CaseRequest, target: OpenTarget, context: JobContext
) -> Result | UnfinishedJob:
    """Run a job that may need a workspace, or be a conversation."""
    workspace = context.workspace_of(job, target)
    try:
        if workspace is not None:
            request.job_workspace, request.prepare = workspace, workspace.ready
            await workspace.reserve()
        answer = await live_answer(job, request, target, context, _score_turn)
        result = _scored_record(job, answer, context)
        if isinstance(result, tuple):
            result = await _record_later(job, answer, context, result)
    finally:
        problem = None if workspace is None else await workspace.close(request.timeout_s)
    if workspace is None or isinstance(result, UnfinishedJob):
        return result
    # A failed teardown does not change the answer or its score.
    return msgspec.structs.replace(
        result, file_changes=workspace.changes, warnings=() if problem is None else (problem,)
    )


def _scored_record(job: Job, answer: Answer, context: JobContext) -> Result | UnfinishedJob | tuple[Judgement, Results]:
    """Return the record of an answered job if no evaluator does I/O; this avoids the event loop, slower than scoring.

    Otherwise return the results so far, with None for the remaining evaluators.
    """
    if isinstance(answer.failure, OutageFailure):
        lost_usd, message = answer.failure.cost_usd or 0.0, f"target '{job.target}': {answer.failure.message}"
        return UnfinishedJob(lost_usd, message, target=job.target)
    scored = _score_now(job, answer, context)
    return scored if isinstance(scored, tuple) else _record(job, answer, scored, context)


async def _record_later(
    job: Job, answer: Answer, context: JobContext, scored: tuple[Judgement, Results]
) -> Result | UnfinishedJob:
    """Run the evaluators that do I/O, and return the record."""
    is_stored, returned = context.store_answer(job, answer, scored[0].candidate_value)
    asking = _scoring_context(job, context)
    with context.scoring():
        outcome = await _score_all(job, answer, context, asking, scored)
    if asking.outages and context.spec.stops_at_outage:
        return UnfinishedJob(_lost_usd(outcome, is_stored=is_stored), asking.outages[0], returned)
    return _record(job, answer, outcome, context)


def _record(job: Job, answer: Answer, outcome: JobOutcome, context: JobContext) -> Result:
    result = make_record(job, outcome, context.spec.run_id)
    if context.traces is not None and job.answer is None:
        context.traces.write_trace(job, answer, result)
    return result


def _refused(request: CaseRequest) -> JobOutcome:
    """Return the outcome of a case that cannot be run."""
    case = request.case
    failure = TargetFailure("case", f"{case.path}, line {case.line}: {case.case_error}", stage="setup")
    return failed(Answer(request=request, response=None, attempts=0), failure)


def _score_now(job: Job, answer: Answer, context: JobContext) -> JobOutcome | tuple[Judgement, Results]:
    """Return the outcome of a job if no evaluator does I/O; otherwise the results so far, as `_scored_record` does."""
    if answer.failure is not None:
        return failed(answer, answer.failure)
    response, evaluators = answer.response, context.spec.evaluators
    assert response is not None
    try:
        if (value := answer.value) is None:
            value = _transformed(response, job, context) if context.transforms else response.value
    except TransformFailure as error:
        return untransformed_outcome(answer, response, error)
    judgement = _judgement(answer, response, value, context)
    score, verdicts, prior = context.scorer.score_now, job.case.execution.verdicts or context.verdicts, answer.kept
    specs = job.case.evaluators if evaluators is None else evaluators
    scored = _of_conversation(judgement, answer, job) if answer.replies else judgement
    results: list[Any] = [prior.get(spec.name) or score(spec, scored, verdicts) for spec in specs]
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
    scored_judgement = _of_conversation(judgement, answer, job)
    new_results = iter(await context.scorer.score_all(waiting, scored_judgement, asking) if waiting else ())
    whole = [(spec, result or next(new_results)) for spec, result in zip(specs, results, strict=True)]
    graded, checked = _graded(job, [*turns, whole], context)
    return _outcome(answer, judgement, checked, graded, context)


def _of_conversation(judgement: Judgement, answer: Answer, job: Job) -> Judgement:
    """Return what the evaluators of a case score: for a conversation of AgentV (TypeScript), its transcript."""
    if not answer.replies or job.case.details.aggregation is None:
        return judgement
    lines = [(message.role, content_text(message.content)) for message in job.case.input]
    for reply in answer.replies:
        lines += [(message.role, content_text(message.content)) for message in (reply.turn.input if reply.turn else ())]
        lines.append(("assistant", reply.response.text))
    return judgement.with_value("\n\n".join(f"{role}: {text}" for role, text in lines))


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
    if len(messages) == 1 and not context.spec.include_trace:
        only = messages[0]
        if only.content == text and not only.tool_calls:
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
    transform = context.transforms.get(job.target)
    if transform is None:
        return response.value
    find_file = context.find_file(job.case.place.origin, own=True)
    return apply_transform(response.value, transform, find_file, job.case.variables, response.metadata)


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
        candidate_answer=value if type(value) is str else content_text(value),
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
