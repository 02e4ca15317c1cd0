"""Get the answer of a job: from a call, a conversation, or the job itself if its answer is provided."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from agentv.engine.calls.open_targets import OpenTarget
from agentv.engine.job.answer import Answer, Reply, answer_to
from agentv.engine.job.request import CaseRequest
from agentv.model.case import NO_DETAILS, USER_TARGET
from agentv.model.job import GivenAnswer, Job
from agentv.model.response import TargetFailure
from agentv.model.result import EvaluatorResult, ExecutionMetrics

if TYPE_CHECKING:
    from agentv.engine.job.job_context import JobContext

TurnCheck = Callable[[Job, "JobContext", Sequence[Reply]], Awaitable[tuple[bool, dict[str, EvaluatorResult]]]]


async def live_answer(
    job: Job, request: CaseRequest, target: OpenTarget, context: JobContext, score_turn: TurnCheck
) -> Answer:
    """Call the target of a job, with a conversation if the case is one. Changes in its workspace are collected.

    `score_turn` returns whether a conversation stops after a turn, and the results of the turn.
    """
    if job.case.details is not NO_DETAILS and job.case.is_conversation:
        from agentv.engine.job.conversation import Conversation, ConversationHooks  # late: few cases are conversations

        user = None if job.case.user is None else context.targets.get(job.case.user.target or USER_TARGET)
        hooks = ConversationHooks(partial(context.prepare_call, job, target), partial(score_turn, job, context))
        answer = await Conversation(job, request, target, user, hooks).play()
    else:
        if context.prompts is not None or target.settings.writes_logs:
            context.prepare_call(job, target, request)
        try:
            response = await target.responder.respond(request)
            answer = answer_to(request, response, request.attempt)
        except TargetFailure as failure:
            answer = failed_answer(request, failure)
    if request.job_workspace is not None:
        try:
            await request.job_workspace.look()
        except TargetFailure as failure:
            if answer.failure is None:
                return Answer(request=request, response=None, failure=failure, attempts=answer.attempts)
    return answer


def failed_answer(request: CaseRequest, failure: TargetFailure) -> Answer:
    """Return the answer of a call that failed."""
    metrics, attempts = _metrics_of(failure), request.attempt
    return Answer(request=request, response=None, failure=failure, attempts=attempts, metrics=metrics)


def _metrics_of(failure: TargetFailure) -> ExecutionMetrics | None:
    """Return what a failed call used, as far as it is known."""
    metrics = (failure.usage, failure.cost_usd, failure.duration_ms)
    if metrics == (None, None, None):
        return None
    return ExecutionMetrics(*metrics, estimated_cost_usd=failure.estimated_usd or None)


def given_answer(job: Job, preset: GivenAnswer, request: CaseRequest) -> Answer:
    """Return the provided answer; a failure if a stored conversation does not match the turns of the case."""
    replies: tuple[Reply, ...] = ()
    if job.case.is_conversation:
        from agentv.engine.job.conversation import final_request, split_into_replies  # late: as above

        try:
            replies = tuple(split_into_replies(request, preset.response.messages))
        except ValueError as error:
            failure = TargetFailure("invalid_response", str(error))
            return Answer(request=request, response=None, failure=failure, attempts=0)
        request = final_request(request, replies)
    answer = answer_to(request, preset.response, 1)
    if (record := preset.record) is None:
        return msgspec.structs.replace(answer, value=preset.value)
    return msgspec.structs.replace(
        answer,
        value=preset.value,
        attempts=record.attempts,
        cached=record.cached,
        metrics=record.execution_metrics,
        trace=answer.trace or record.trace_summary,
        has_trace=preset.has_trace,
        replies=replies,
        conversation=record.conversation,
        file_changes=record.file_changes,
        kept=preset.kept,
    )
