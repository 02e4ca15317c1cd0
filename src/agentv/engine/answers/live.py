"""Answers from live targets: one call, or a conversation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agentv.engine.calls.open_targets import OpenTarget
from agentv.engine.job.answer import Answer, answer_to
from agentv.engine.job.conversation import Conversation, is_conversation, user_target
from agentv.engine.job.request import Question
from agentv.model.job import Job
from agentv.model.response import TargetFailure

if TYPE_CHECKING:
    from agentv.engine.job.run_job import JobContext


async def live_answer(job: Job, request: Question, target: OpenTarget, context: JobContext) -> Answer:
    """Call the target of a job. What it changed in its workspace is looked at before evaluators change more."""
    if is_conversation(job.case):
        user = None if job.case.user is None else context.targets.get(user_target(job.case.user))
        answer = await Conversation(job, request, target, user, partial(context.prepare_call, job, target)).play()
    else:
        context.prepare_call(job, target, request)
        try:
            response = await target.responder.respond(request)
            answer = answer_to(request, response, request.attempt)
        except TargetFailure as failure:
            answer = Answer(request=request, response=None, failure=failure, attempts=request.attempt)
    if request.job_workspace is not None:
        await request.job_workspace.look()
    return answer
