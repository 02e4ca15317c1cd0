"""Plays a conversation: each turn of a case, or of a simulated user, is answered with all that was said before it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import minijinja
import msgspec

from agentv.engine.calls.open_targets import OpenTarget
from agentv.engine.job.answer import Answer, Reply, answer_to
from agentv.engine.job.request import Question
from agentv.model.case import USER_TARGET, EvalCase, SimulatedUser, Turn
from agentv.model.job import Job
from agentv.model.message import FilePart, Message, Part, TextPart
from agentv.model.response import Response, TargetFailure, content_text
from agentv.model.result import ConversationSummary, Ending, ExecutionMetrics, sum_usage

MAX_TURNS = 10

_PROMPT = Path(__file__).with_name("simulated_user.md")
_ENDINGS: dict[str, Ending] = {"GOAL MET": "goal_met", "GIVE UP": "gave_up"}
_MARK = re.compile(r"^[ \t]*\[\[ ?(GOAL MET|GIVE UP) ?\]\][ \t]*$", re.MULTILINE | re.IGNORECASE)
_NAMES = {"user": "You", "assistant": "Assistant"}


class Said(msgspec.Struct, frozen=True):
    """What the simulated user says next, and how the conversation ends with it, if it does."""

    text: str
    ending: Ending | None = None


def asked_of(user: SimulatedUser, conversation: Sequence[Message]) -> tuple[Message, ...]:
    """What the model is asked: its part, then what both have said so far, without tools and instructions."""
    part = _environment().render_template("user", persona=user.persona, goal=user.goal, stop=user.stop)
    said = [
        f"@[{_NAMES[message.role]}]:\n{content_text(message.content)}"
        for message in conversation
        if message.role in _NAMES and message.content not in (None, "", ())
    ]
    so_far = "The conversation so far:\n\n" + "\n\n".join(said) if said else "Nothing has been said yet: you begin."
    return Message("system", part.strip()), Message("user", f"{so_far}\n\nYour next message:")


def read_said(text: str, stop: str | None) -> Said:
    """A reply without its marks. One with `stop` in it ends the conversation too."""
    marks = _MARK.findall(text)
    said = _MARK.sub("", text).strip()
    if marks:
        return Said(said, _ENDINGS[marks[-1].upper()])
    return Said(said, "stop" if stops(said, stop) else None)


def stops(text: str, stop: str | None) -> bool:
    """Whether a message has the words in it that end the conversation."""
    return stop is not None and stop.strip().casefold() in text.casefold()


@cache
def _environment() -> minijinja.Environment:
    template = _PROMPT.read_text(encoding="utf-8")
    # Personas and goals are texts, not markup: they go in as they are, and are not rendered again.
    return minijinja.Environment(
        templates={"user": template}, auto_escape_callback=lambda _: False, trim_blocks=True, lstrip_blocks=True
    )


Asking = Callable[[Question], None]
"""Is told of each question before it is asked."""


def user_target(user: SimulatedUser) -> str:
    """The target that plays a simulated user."""
    return user.target or USER_TARGET


class LaterQuestion(Question):
    """A question with a conversation before it: the input, and what was said since. `turn` counts replies so far."""

    def __init__(self, first: Question, said: Sequence[Message], turn: int) -> None:
        super().__init__(first.case, prompt_id=first.prompt_id, trial=first.trial)
        self.job_workspace = first.job_workspace
        self.turn = turn
        self.input = (*first.input, *said)


def prompt_lengths(first: Question) -> list[int]:
    """The characters that each call of a job sends, as far as they are known before it is run: replies are not.

    A simulated user is taken to talk as long as it may, and to say nothing.
    """
    lengths = [len(first.prompt)] if asks(first) else []
    said: list[Message] = []
    for turn in first.case.turns:
        said += turn.input
        lengths.append(len(LaterQuestion(first, said, len(lengths)).prompt))
    user = first.case.user
    return lengths + [lengths[-1] if lengths else 0] * ((user.max_turns or MAX_TURNS) if user is not None else 0)


def asks(first: Question) -> bool:
    """Whether the input is answered by itself; else it is what was said before the first turn."""
    return bool(first.input) and (first.input[-1].role in ("user", "tool") or not first.case.is_conversation)


def last_question(first: Question, replies: Sequence[Reply]) -> Question:
    """Return the question as evaluators of a whole conversation see it: all that led to the last reply, as text."""
    question = copy.copy(first)
    if replies:
        question.prompt = replies[-1].question.prompt
    return question


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


class Conversation:
    """One conversation in progress. `user` plays the simulated user, where the case has one."""

    def __init__(
        self, job: Job, first: Question, target: OpenTarget, user: OpenTarget | None, asking: Asking | None = None
    ) -> None:
        self._job = job
        self._first = first
        self._target = target
        self._user = user
        self._asking = asking
        self._said: list[Message] = []
        self._replies: list[Reply] = []
        self._retries = 0
        self._turns = 0
        self._user_responses: list[Response] = []
        self._ending: Ending | None = None

    async def play(self) -> Answer:
        """Return the whole conversation as one answer, or as much of it as there was before something failed."""
        failure: TargetFailure | None = None
        try:
            await self._play()
        except TargetFailure as failed:
            failure = failed
        response = self._merged()
        answer = answer_to(last_question(self._first, self._replies), response, 1 + self._retries)
        return msgspec.structs.replace(
            answer,
            failure=failure,
            cached=answer.cached and failure is None,
            trace=answer.trace if failure is None else None,
            replies=tuple(self._replies),
            conversation=ConversationSummary(turns=self._turns, ended=self._ending, user_metrics=self._user_metrics()),
        )

    def _merged(self) -> Response:
        """Return everything said after the input as one response; what it took is summed, unknown where a part is."""
        responses = [reply.response for reply in self._replies]
        costs = [response.cost_usd for response in responses if response.cost_usd is not None]
        durations = [response.duration_ms for response in responses if response.duration_ms is not None]
        usages = [response.usage for response in responses if response.usage is not None]
        last = responses[-1] if responses else Response(messages=())
        return Response(
            messages=tuple(self._said),
            usage=sum_usage(usages) if len(usages) == len(responses) else None,
            cost_usd=sum(costs) if costs and len(costs) == len(responses) else None,
            duration_ms=round(sum(durations), 3) if durations else None,
            id=last.id,
            model=last.model,
            stop_reason=last.stop_reason,
            tool_errors=sum(response.tool_errors for response in responses),
            cached=bool(responses) and all(response.cached for response in responses),
        )

    async def _play(self) -> None:
        if asks(self._first):
            await self._answer(None)
        for turn in self._job.case.turns:
            self._said += turn.input
            await self._answer(turn)
        user = self._job.case.user
        if user is None:
            self._ending = "script"
        elif self._user is not None:
            self._ending = await self._talk_with(user, self._user)

    async def _answer(self, turn: Turn | None) -> None:
        """The target's reply to all that was said; raises TargetFailure."""
        question = LaterQuestion(self._first, self._said, len(self._replies)) if self._said else self._first
        if self._asking is not None:
            self._asking(question)
        self._turns += 1
        answered = await self._target.call(question)
        self._retries += answered.attempts - 1
        if answered.response is None:
            assert answered.failure is not None
            raise self._broken(answered.failure, "")
        self._replies.append(Reply(question, answered.response, turn))
        self._said += map(_without_files, answered.response.messages)

    async def _talk_with(self, user: SimulatedUser, live: OpenTarget) -> Ending:
        for _ in range(user.max_turns or MAX_TURNS):
            if self._replies and stops(self._replies[-1].response.text, user.stop):
                return "stop"
            text = await self._next_of(user, live)
            said = read_said(text, user.stop)
            if said.text:
                self._said.append(Message("user", said.text))
            if said.ending is not None:
                return said.ending
            if not said.text:
                raise self._broken(TargetFailure("invalid_response", "it said nothing"), live.settings.name)
            await self._answer(None)
        return "max_turns"

    async def _next_of(self, user: SimulatedUser, live: OpenTarget) -> str:
        job = self._job
        messages = asked_of(user, (*self._first.input, *self._said))
        asked = EvalCase(f"user:{job.case.id}", input=messages, place=job.case.place)
        question = Question(asked, prompt_id="/".join(filter(None, (job.target, job.prompt))), trial=job.trial)
        question.turn = len(self._user_responses)
        question.user_turn = sum(message.role == "user" for message in self._said)
        answered = await live.call(question)
        if answered.response is None:
            assert answered.failure is not None
            raise self._broken(answered.failure, live.settings.name)
        self._user_responses.append(answered.response)
        return answered.response.text

    def _broken(self, failure: TargetFailure, user: str) -> TargetFailure:
        """The same failure, with where in the conversation it happened."""
        where = f"The simulated user ({user}) failed after turn" if user else "In turn"
        return TargetFailure(
            failure.error_class, f"{where} {self._turns}: {failure.message}", status=failure.status, stage=failure.stage
        )

    def _user_metrics(self) -> ExecutionMetrics | None:
        responses = self._user_responses
        if self._user is None:
            return None
        # Of an answer that was paid for in an earlier run, nothing is paid now.
        costs = [0.0 if each.cached else each.cost_usd for each in responses]
        known = [cost for cost in costs if cost is not None]
        durations = [each.duration_ms for each in responses if each.duration_ms is not None]
        return ExecutionMetrics(
            token_usage=sum_usage([each.usage for each in responses if each.usage is not None]),
            cost_usd=sum(known) if len(known) == len(costs) else None,
            duration_ms=round(sum(durations), 3) if durations else None,
        )


def _without_files(message: Message) -> Message:
    """A reply as the next turn's history has it: files that the target names are its own, and nothing is read."""
    if not any(isinstance(part, FilePart) for part in message.parts):
        return message
    parts: tuple[Part, ...] = tuple(
        TextPart(f'<file: path="{part.value}">') if isinstance(part, FilePart) else part for part in message.parts
    )
    return Message(message.role, parts, message.tool_calls, message.name)
