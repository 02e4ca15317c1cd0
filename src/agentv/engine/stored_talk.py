"""A conversation of an earlier run, taken apart again: which reply was given to which turn, after what was said."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from agentv.engine.conversation import LaterQuestion, Reply, asks
from agentv.engine.question import Question
from agentv.model.message import Message
from agentv.model.response import Response


def replies_in(first: Question, said: Sequence[Message]) -> list[Reply]:
    """The replies in all that was said after the input. Raises ValueError where it does not fit the case's turns."""
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


def last_question(first: Question, replies: Sequence[Reply]) -> Question:
    """What evaluators of the whole conversation take for the question: as text, all that led to the last reply."""
    question = copy.copy(first)
    if replies:
        question.prompt = replies[-1].question.prompt
    return question


def _end_of_reply(said: Sequence[Message], start: int) -> int:
    """A reply goes on until a user speaks."""
    return next((place for place in range(start, len(said)) if said[place].role == "user"), len(said))
