"""Play a conversation: the target answers each turn of a case or simulated user, given all messages before it."""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import minijinja
import msgspec

from agentv.engine.calls.open_targets import OpenTarget
from agentv.engine.job.answer import Answer, Reply, answer_to
from agentv.engine.job.request import CaseRequest
from agentv.model.case import EvalCase, SimulatedUser, Turn
from agentv.model.job import Job
from agentv.model.message import FilePart, Message, Part, TextPart
from agentv.model.response import Response, TargetFailure, add_cost, add_usage, content_text
from agentv.model.result import ConversationSummary, Ending, EvaluatorResult, ExecutionMetrics, sum_usage

MAX_TURNS = 10

_PROMPT = Path(__file__).with_name("simulated_user.md")
_ENDINGS: dict[str, Ending] = {"GOAL MET": "goal_met", "GIVE UP": "gave_up"}
_MARK = re.compile(r"^[ \t]*\[\[ ?(GOAL MET|GIVE UP) ?\]\][ \t]*$", re.MULTILINE | re.IGNORECASE)
_NAMES = {"user": "You", "assistant": "Assistant"}


def user_prompt(user: SimulatedUser, conversation: Sequence[Message]) -> tuple[Message, ...]:
    """Return the prompt for the simulated user: its role, then the conversation without tools and instructions."""
    role = _environment().render_template("user", persona=user.persona, goal=user.goal, stop=user.stop)
    texts = [
        f"@[{_NAMES[message.role]}]:\n{content_text(message.content)}"
        for message in conversation
        if message.role in _NAMES and message.content not in (None, "", ())
    ]
    so_far = "The conversation so far:\n\n" + "\n\n".join(texts) if texts else "Nothing has been said yet: you begin."
    return Message("system", role.strip()), Message("user", f"{so_far}\n\nYour next message:")


def read_user_message(text: str, stop: str | None) -> tuple[str, Ending | None]:
    """Return the simulated user's message without its marks, and how it ends the conversation, if it does."""
    marks = _MARK.findall(text)
    message = _MARK.sub("", text).strip()
    if marks:
        return message, _ENDINGS[marks[-1].upper()]
    return message, "stop" if _contains(message, stop) else None


def _contains(text: str, stop: str | None) -> bool:
    """Whether a message contains the stop phrase."""
    return stop is not None and stop.strip().casefold() in text.casefold()


@cache
def _environment() -> minijinja.Environment:
    template = _PROMPT.read_text(encoding="utf-8")
    # Personas and goals are plain text: they are inserted without escaping, and not rendered again.
    return minijinja.Environment(
        templates={"user": template}, auto_escape_callback=lambda _: False, trim_blocks=True, lstrip_blocks=True
    )


class TurnRequest(CaseRequest):
    """A request later in a conversation: the input and all messages since. `turn` is the number of replies so far."""

    def __init__(self, first: CaseRequest, messages: Sequence[Message], turn: int) -> None:
        super().__init__(first.case, prompt_id=first.prompt_id, trial=first.trial)
        self.job_workspace, self.prepare = first.job_workspace, first.prepare
        self.turn = turn
        self.input = _windowed((*first.input, *messages), first.case.details.window_size)


def _windowed(messages: tuple[Message, ...], window: int | None) -> tuple[Message, ...]:
    """Return the instructions, and the messages of the last exchanges; all messages without a window."""
    if window is None:
        return messages
    others = [message for message in messages if message.role != "system"]
    return (*(message for message in messages if message.role == "system"), *others[-2 * window :])


def prompt_lengths(first: CaseRequest) -> list[int]:
    """Return the characters in the prompt of each call of a job, without the replies, which are not known yet.

    A simulated user is assumed to use all its turns, with empty messages.
    """
    lengths = [len(first.prompt)] if _is_answered(first) else []
    messages: list[Message] = []
    for turn in first.case.turns:
        messages += turn.input
        lengths.append(len(TurnRequest(first, messages, len(lengths)).prompt))
    user = first.case.user
    return lengths + [lengths[-1] if lengths else 0] * ((user.max_turns or MAX_TURNS) if user is not None else 0)


def _is_answered(first: CaseRequest) -> bool:
    """Whether the target answers the input itself; otherwise the input is history before the first turn."""
    return bool(first.input) and (first.input[-1].role in ("user", "tool") or not first.case.is_conversation)


def final_request(first: CaseRequest, replies: Sequence[Reply]) -> CaseRequest:
    """Return the request that evaluators of a whole conversation see: with the prompt of the last reply."""
    request = copy.copy(first)
    if replies:
        request.prompt = replies[-1].request.prompt
    return request


def split_into_replies(first: CaseRequest, messages: Sequence[Message]) -> list[Reply]:
    """Split the messages after the input into replies. Raises ValueError if they do not match the turns."""
    replies: list[Reply] = []
    place = 0

    def add_reply(start: int, turn: Turn | None = None) -> int:
        """Add the reply from `start` up to the next user message; return its end."""
        end = next((at for at in range(start, len(messages)) if messages[at].role == "user"), len(messages))
        request = TurnRequest(first, messages[:start], len(replies)) if start else first
        replies.append(Reply(request, Response(messages=tuple(messages[start:end])), turn))
        return end

    if _is_answered(first):
        place = add_reply(0)
    for turn in first.case.turns:
        if place == len(messages) and first.case.details.on_turn_failure == "stop":
            break
        place = add_reply(place + len(turn.input), turn)
    while first.case.user is not None and place < len(messages):
        place = add_reply(place + 1)
    if place != len(messages) or not all(reply.response.messages for reply in replies):
        raise ValueError("The stored conversation does not match the turns of the case")
    return replies


class ConversationHooks(NamedTuple):
    """`before_call` receives each request; `score` returns whether the last reply fails its turn, and its results."""

    before_call: Callable[[CaseRequest], None]
    score: Callable[[Sequence[Reply]], Awaitable[tuple[bool, dict[str, EvaluatorResult]]]]


class Conversation:
    """One conversation in progress. `user` is the target of the simulated user; `hooks` belong to the job."""

    def __init__(
        self, job: Job, first: CaseRequest, target: OpenTarget, user: OpenTarget | None, hooks: ConversationHooks
    ) -> None:
        self._job = job
        self._first = first
        self._target = target
        self._user = user
        self._hooks = hooks
        self._messages: list[Message] = []
        self._replies: list[Reply] = []
        self._results: dict[str, EvaluatorResult] = {}
        self._retries = 0
        self._turns = 0
        self._user_responses: list[Response] = []
        self._user_failure: TargetFailure | None = None
        self._ending: Ending | None = None

    async def play(self) -> Answer:
        """Return the whole conversation as one answer; after a failure, the part before it."""
        failure: TargetFailure | None = None
        try:
            await self._play()
        except TargetFailure as failed:
            failure = failed
        response = self._merged()
        if failure is not None:
            response = msgspec.structs.replace(
                response,
                usage=add_usage(response.usage, failure.usage),
                cost_usd=add_cost(response.cost_usd, failure.cost_usd),
                estimated_usd=response.estimated_usd + failure.estimated_usd,
            )
        answer = answer_to(final_request(self._first, self._replies), response, 1 + self._retries)
        return msgspec.structs.replace(
            answer,
            failure=failure,
            cached=answer.cached and failure is None,
            trace=answer.trace if failure is None else None,
            replies=tuple(self._replies),
            kept=self._results,
            conversation=ConversationSummary(turns=self._turns, ended=self._ending, user_metrics=self._user_metrics()),
        )

    def _merged(self) -> Response:
        """Merge the replies into one response. Usage and cost are summed, and unknown if one of them is."""
        responses = [reply.response for reply in self._replies]
        usages = [response.usage for response in responses if response.usage is not None]
        last = responses[-1] if responses else Response(messages=())
        return Response(
            messages=tuple(self._messages),
            usage=sum_usage(usages) if len(usages) == len(responses) else None,
            cost_usd=_total([response.cost_usd for response in responses]) if responses else None,
            duration_ms=_duration_ms(responses),
            id=last.id,
            model=last.model,
            stop_reason=last.stop_reason,
            tool_errors=sum(response.tool_errors for response in responses),
            cached=bool(responses) and all(response.cached for response in responses),
            estimated_usd=sum(response.estimated_usd for response in responses),
            answered_by=next((candidate.answered_by for candidate in responses if candidate.answered_by), None),
            calls_unknown=any(response.calls_unknown for response in responses),
            trace_id=last.trace_id,
            provider_data=last.provider_data,
        )

    async def _play(self) -> None:
        if _is_answered(self._first):
            await self._answer(None)
        for turn in self._job.case.turns:
            self._messages += turn.input
            await self._answer(turn)
            if self._job.case.details.on_turn_failure == "stop":
                fails, results = await self._hooks.score(self._replies)
                self._results |= results
                if fails:
                    self._ending = "stop"
                    return
        user = self._job.case.user
        if user is None:
            self._ending = "script"
        elif self._user is not None:
            self._ending = await self._play_user(user, self._user)

    async def _answer(self, turn: Turn | None) -> None:
        """Get the target's reply to all messages so far. Raises TargetFailure."""
        request = self._first
        if self._messages:
            request = TurnRequest(self._first, self._messages, len(self._replies))
        self._hooks.before_call(request)
        self._turns += 1
        try:
            response = await self._target.responder.respond(request)
        except TargetFailure as failure:
            raise self._located(failure, "") from None
        finally:
            self._retries += request.attempt - 1
        self._replies.append(Reply(request, response, turn))
        self._messages += map(_without_files, response.messages)

    async def _play_user(self, user: SimulatedUser, target: OpenTarget) -> Ending:
        for _ in range(user.max_turns or MAX_TURNS):
            if self._replies and _contains(self._replies[-1].response.text, user.stop):
                return "stop"
            text, ending = read_user_message(await self._next_message(user, target), user.stop)
            if text:
                self._messages.append(Message("user", text))
            if ending is not None:
                return ending
            if not text:
                raise self._located(TargetFailure("invalid_response", "empty message"), target.settings.name)
            await self._answer(None)
        return "max_turns"

    async def _next_message(self, user: SimulatedUser, target: OpenTarget) -> str:
        job = self._job
        messages = user_prompt(user, (*self._first.input, *self._messages))
        case = EvalCase(f"user:{job.case.id}", input=messages, place=job.case.place)
        request = CaseRequest(case, prompt_id="/".join(filter(None, (job.target, job.prompt))), trial=job.trial)
        request.turn = len(self._user_responses)
        request.user_turn = sum(message.role == "user" for message in self._messages)
        try:
            response = await target.responder.respond(request)
        except TargetFailure as failure:
            raise self._located(failure, target.settings.name) from None
        self._user_responses.append(response)
        return response.text

    def _located(self, failure: TargetFailure, user: str) -> TargetFailure:
        """Add to a failure where in the conversation it happened."""
        where = f"The simulated user ({user}) failed after turn" if user else "In turn"
        message = f"{where} {self._turns}: {failure.message}"
        located = TargetFailure(failure.error_class, message, status=failure.status, stage=failure.stage)
        if user:
            self._user_failure = failure
            return located
        return located.add_use(failure)

    def _user_metrics(self) -> ExecutionMetrics | None:
        responses, failure = self._user_responses, self._user_failure
        if self._user is None:
            return None
        usage = sum_usage([response.usage for response in responses if response.usage is not None])
        # A cached response was paid for in an earlier run.
        cost_usd = _total([0.0 if response.cached else response.cost_usd for response in responses])
        return ExecutionMetrics(
            token_usage=usage if failure is None else add_usage(usage, failure.usage),
            cost_usd=cost_usd if failure is None else add_cost(cost_usd, failure.cost_usd),
            duration_ms=_duration_ms(responses),
        )


def _total(costs: list[float | None]) -> float | None:
    """Return the sum of costs; None if one of them is unknown."""
    known_costs = [cost for cost in costs if cost is not None]
    return sum(known_costs) if len(known_costs) == len(costs) else None


def _duration_ms(responses: Sequence[Response]) -> float | None:
    durations = [response.duration_ms for response in responses if response.duration_ms is not None]
    return round(sum(durations), 3) if durations else None


def _without_files(message: Message) -> Message:
    """Replace files in a reply by references: they belong to the target and are not read."""
    if not any(isinstance(part, FilePart) for part in message.parts):
        return message
    parts: tuple[Part, ...] = tuple(
        TextPart(f'<file: path="{part.value}">') if isinstance(part, FilePart) else part for part in message.parts
    )
    return Message(message.role, parts, message.tool_calls, message.name)
