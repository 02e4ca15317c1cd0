"""Answers that a job brings along: of an earlier run, or canned ones. No target is called."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentv.engine.job.answer import Answer, Reply, answer_to
from agentv.engine.job.conversation import LaterQuestion, asks, is_conversation, last_question
from agentv.engine.job.request import Question
from agentv.model.job import GivenAnswer, Job
from agentv.model.message import Message
from agentv.model.response import Response, TargetFailure


def given_answer(job: Job, given: GivenAnswer, request: Question) -> Answer:
    """Return the answer of a job; a failure when a stored conversation does not fit the turns of the case."""
    replies: tuple[Reply, ...] = ()
    if is_conversation(job.case):
        try:
            replies = tuple(split_into_replies(request, given.response.messages))
        except ValueError as error:
            failure = TargetFailure("invalid_response", str(error))
            return Answer(request=request, response=None, failure=failure, attempts=0)
        request = last_question(request, replies)
    answer = answer_to(request, given.response, 1)
    record = given.record
    if record is None:
        return msgspec.structs.replace(answer, text=given.text)
    return msgspec.structs.replace(
        answer,
        text=given.text,
        attempts=record.attempts,
        cached=record.cached,
        metrics=record.execution_metrics,
        trace=answer.trace or record.trace_summary,
        has_trace=given.has_trace,
        replies=replies,
        conversation=record.conversation,
        file_changes=record.file_changes,
        kept=given.kept,
    )


def split_into_replies(first: Question, said: Sequence[Message]) -> list[Reply]:
    """Split all that was said after the input into replies. Raises ValueError where it does not fit the turns."""
    replies: list[Reply] = []
    place = 0
    if asks(first):
        place = _end_of_reply(said, 0)
        replies.append(Reply(first, Response(messages=tuple(said[:place]))))
    for turn in first.case.turns:
        place += len(turn.input)
        end = _end_of_reply(said, place)
        question = LaterQuestion(first, said[:place], len(replies))
        replies.append(Reply(question, Response(messages=tuple(said[place:end])), turn))
        place = end
    while first.case.user is not None and place < len(said):
        end = _end_of_reply(said, place + 1)
        question = LaterQuestion(first, said[: place + 1], len(replies))
        replies.append(Reply(question, Response(messages=tuple(said[place + 1 : end]))))
        place = end
    if place != len(said) or not all(reply.response.messages for reply in replies):
        raise ValueError("The stored conversation does not fit the turns of the case")
    return replies


def _end_of_reply(said: Sequence[Message], start: int) -> int:
    """A reply lasts until a user speaks."""
    return next((place for place in range(start, len(said)) if said[place].role == "user"), len(said))
