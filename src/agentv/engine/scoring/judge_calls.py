"""Judge calls of evaluators: choose the judge, call it with the run's limits and retries, and record the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from agentv.engine.calls.open_targets import OpenTarget, OpenTargets
from agentv.engine.calls.payments import job_account
from agentv.engine.calls.wrappers import OutageFailure
from agentv.engine.checks.preflight import judges_of
from agentv.engine.job.request import CaseRequest
from agentv.errors import end_of, start_of
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorFailure, Verdicts
from agentv.model.job import CallOverrides
from agentv.model.message import Message, message_to_data, tool_calls_in
from agentv.model.response import Responder, Response, TargetFailure
from agentv.model.result import EvaluatorResult, TokenUsage, sum_usage
from agentv.targets.response_formats import FORMAT_REJECTED, RecordedInAnotherFormat, response_formats
from agentv.targets.target import ModelApi, Target

MAX_TEXT = 8000
MAX_CALLS = 50

_UNCLEAR = frozenset({500})
"""Statuses that may also mean that a server does not support a response format."""
_NO_OVERRIDES = CallOverrides()

KeepPrompt = Callable[[str, CaseRequest, Responder], None]
"""Receives the name of an evaluator, its request to a judge, and the judge."""


class ScoringContext(msgspec.Struct, frozen=True, gc=False):
    """The context of scoring an answer: its target, verdict limits and job, which distinguishes identical calls.

    `judge` is the judge named by the enclosing evaluator. `keep_prompt` receives the prompts sent to judges. `outages`
    are the messages of judge calls that failed because their endpoint has been down for too long.
    """

    target: str = ""
    verdicts: Verdicts | None = None
    judge: str | tuple[str, ...] | None = None
    keep_prompt: KeepPrompt | None = None
    job: str = ""
    outages: list[str] = msgspec.field(default_factory=list)


_NO_CONTEXT = ScoringContext()


class FormatSupport(msgspec.Struct):
    """The response formats to try at an endpoint, best first, and what the calls so far have shown.

    `is_certain` if the first of them was accepted. `suspicions` counts calls that only succeeded in another format,
    after an error that may have had another cause.
    """

    formats: list[str | None]
    is_certain: bool = False
    suspicions: int = 0

    def accepts(self, form: str | None) -> bool:
        """Whether a call in this format has succeeded."""
        return self.is_certain and form == self.formats[0]

    def learn(self, used: str | None, is_rejected: bool) -> None:
        """Take note that a call succeeded in a format; `is_rejected` if the formats before it were clearly rejected."""
        if used == self.formats[0]:
            self.is_certain = True
        if self.is_certain or used not in self.formats[1:]:
            return
        self.suspicions += 1
        if is_rejected or self.suspicions > 1:
            self.formats = self.formats[self.formats.index(used) :]
            self.is_certain = True


class Judging:
    """The judges of a run. Remembers the response formats that their endpoints accept.

    `judge` is the judge named by the command. `noun` is the word for a judge in error messages.
    """

    def __init__(self, targets: OpenTargets, judge: str | None, noun: str = "judge") -> None:
        self.targets = targets
        self.judge = judge
        self.noun = noun
        self._support: dict[tuple[str, str | None, str | None], FormatSupport] = {}

    def judges(self, own: str | tuple[str, ...] | None, answered_by: str) -> tuple[str, ...]:
        """Return the judges of a target's answers; `own` are those named by the evaluator."""
        settings = self.targets.settings(answered_by)
        of_target = None if settings is None else settings.judge_target
        return judges_of(self.judge, own, of_target, self.targets.names)

    async def call(self, call: JudgeCall, request: CaseRequest, overrides: CallOverrides) -> None:
        """Call a judge with an answer schema; if its endpoint rejects that, in the next format, now and later."""
        formats = response_formats(self.targets.get(call.target).settings, overrides)
        support = self._known(call.target, formats)
        steps = [candidate for candidate in formats if candidate.form in support.formats]
        is_rejected = True
        for step in steps:
            may_fall_back = step is not steps[-1]
            is_open = may_fall_back and not support.accepts(step.form) and not self.targets.is_replaying
            unclear = _UNCLEAR if is_open else frozenset()
            failure = await self._call(call, request, step, unclear)
            if failure is None:
                call.fell_back = step is not formats[0]
                if not self.targets.is_replaying:
                    # A replay must repeat every call of the recorded run, so it does not skip the rejected ones.
                    support.learn(step.form, is_rejected)
                return
            if not may_fall_back or failure.status not in FORMAT_REJECTED | unclear:
                return
            is_rejected = is_rejected and failure.status in FORMAT_REJECTED

    def _known(self, target: str, formats: list[CallOverrides]) -> FormatSupport:
        live, overrides = self.targets.get(target), formats[0]
        model = overrides.model or getattr(live.settings, "model", None)
        key = (live.responder.endpoint, model, overrides.form)
        if key not in self._support:
            self._support[key] = FormatSupport([candidate.form for candidate in formats])
        return self._support[key]

    async def _call(
        self, call: JudgeCall, request: CaseRequest, overrides: CallOverrides, final: frozenset[int]
    ) -> TargetFailure | None:
        live = self.targets.variant(call.target, overrides)
        if call.keep is not None:
            call.keep(request, live.responder)
        call.schema = overrides.form if isinstance(overrides.schema, dict) else None
        call.json_only = overrides.schema == "json"
        return await call.send(live, request, final)


class JudgeCall(msgspec.Struct, eq=False):
    """One call and its outcome; `texts` is the number of texts to embed."""

    target: str
    messages: tuple[Message, ...]
    sample: int = 1
    keep: Callable[[CaseRequest, Responder], None] | None = None
    settings: Target | None = None
    schema: str | None = None
    json_only: bool = False
    fell_back: bool = False
    response: Response | None = None
    failure: TargetFailure | None = None
    attempts: int = 0
    texts: int = 0

    async def send(
        self, target: OpenTarget, request: CaseRequest, final: frozenset[int] = frozenset()
    ) -> TargetFailure | None:
        """Call a target, and keep its response or failure; return the failure. Statuses in `final` are not retried."""
        before, self.settings, self.failure = self.failure, target.settings, None
        try:
            response = await target.responder.respond(request, final)
            self.response = response if before is None else before.added_to(response)
        except TargetFailure as failure:
            self.failure = failure.add_use(before)
        self.attempts += 0 if isinstance(self.failure, RecordedInAnotherFormat) else request.attempt
        return self.failure

    def extends(self, other: JudgeCall) -> bool:
        """Whether its messages begin with those of another call."""
        return self.messages[: len(other.messages)] == other.messages

    def repeats(self, other: JudgeCall) -> bool:
        """Whether it is identical to another call."""
        return (self.target, self.sample, self.messages) == (other.target, other.sample, other.messages)

    @property
    def cost_usd(self) -> float | None:
        """The cost to this run: a cached response was paid for earlier, a failed call may have been paid for."""
        if self.response is None:
            return None if self.failure is None else self.failure.cost_usd
        return 0.0 if self.response.cached else self.response.cost_usd

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of the response, or of a failed call that was paid for."""
        outcome = self.response or self.failure
        return None if outcome is None else outcome.usage

    def to_data(self) -> dict[str, Any]:
        """Return the data for the record, without the messages."""
        data: dict[str, Any] = {"target": self.target}
        settings, response = self.settings, self.response
        if settings is not None:
            data["provider"] = settings.provider
        if self.texts:
            data["embeddings"] = self.texts
        elif isinstance(settings, ModelApi):
            data |= {"model": settings.model, "temperature": settings.temperature, "seed": settings.seed}
            data["answer_schema"] = self.schema
            if self.fell_back:
                data["response_format"] = "json_object" if self.json_only else "text"
        data["sample"] = self.sample
        if response is not None:
            data |= _given(token_usage=response.usage, cost_usd=self.cost_usd, duration_ms=response.duration_ms)
            data |= {"estimated_cost_usd": response.estimated_usd} if response.estimated_usd else {}
            data |= {"model": response.model} if response.model is not None else {}
            data |= {"cached": True} if response.cached else {}
            data |= {"answered_by": response.answered_by} if response.answered_by is not None else {}
            if any(message.tool_calls for message in response.messages):
                data["tool_calls"] = [
                    _shortened_value(msgspec.to_builtins(tool_call)) for tool_call in tool_calls_in(response.messages)
                ]
            data["reply"] = f"{self.texts} vectors" if self.texts else shortened(response.text)
        elif self.failure is not None:
            data |= _given(token_usage=self.usage, cost_usd=self.cost_usd)
            data |= {"estimated_cost_usd": self.failure.estimated_usd} if self.failure.estimated_usd else {}
            data["error"] = {"class": self.failure.error_class, "message": shortened(self.failure.message)}
        if self.attempts > 1:
            data["attempts"] = self.attempts
        return data


class JudgeCalls:
    """The calls made by one evaluator while it scores one answer."""

    def __init__(
        self,
        judging: Judging,
        case: EvalCase,
        evaluator: str,
        judges: tuple[str, ...],
        context: ScoringContext = _NO_CONTEXT,
    ) -> None:
        self._keep = None if context.keep_prompt is None else partial(context.keep_prompt, evaluator)
        self._judging = judging
        self._case = case
        self._prompt_id = f"{evaluator}@{context.job}"
        self._judges = judges
        self._calls: list[JudgeCall] = []
        self._account = job_account.get()
        self._outages = context.outages

    async def ask(
        self, target: str | None, messages: tuple[Message, ...], overrides: CallOverrides = _NO_OVERRIDES
    ) -> Response:
        """Call a judge and return its response. Raises EvaluatorFailure if the call fails."""
        job_account.set(self._account)  # a program may call from another task
        name = self._judging.judge or target or (self._judges[0] if self._judges else None)
        if name is None:
            raise EvaluatorFailure("No judge is configured: pass --judge NAME, or set `target` or `judge_target`")
        if name not in self._judging.targets.names:
            raise EvaluatorFailure(f"Unknown judge '{name}'")
        call = JudgeCall(name, messages, overrides.sample, self._keep)
        self._calls.append(call)
        case = EvalCase(f"judge:{self._case.id}", input=messages, place=self._case.place)
        request = CaseRequest(case, prompt_id=self._prompt_id, trial=overrides.sample)
        request.repeat = sum(other.repeats(call) for other in self._calls[:-1])
        await self._judging.call(call, request, overrides)
        if call.response is None:
            failure = call.failure
            assert failure is not None
            self._note_outage(name, failure)
            raise EvaluatorFailure(f"The {self._judging.noun} '{name}' failed ({failure.error_class}): {failure}")
        return msgspec.structs.replace(call.response, cost_usd=call.cost_usd)

    async def embed(self, target: Any, texts: tuple[str, ...]) -> Response:
        """Return embeddings of texts from a target. Raises EvaluatorFailure if the call fails."""
        messages = tuple(Message("user", text) for text in texts)
        live = self._judging.targets.get(target, embeddings=True)
        call = JudgeCall(str(target), messages, texts=len(texts))
        self._calls.append(call)
        await call.send(live, CaseRequest(EvalCase("embeddings", input=messages)))
        if call.response is None:
            self._note_outage(str(target), call.failure)
            raise EvaluatorFailure(f"Target '{target}' returned no embeddings: {call.failure}")
        return call.response

    def _note_outage(self, name: str, failure: TargetFailure | None) -> None:
        if isinstance(failure, OutageFailure):
            self._outages.append(f"the judge '{name}' does not answer: {failure.message}")

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of all calls that report them."""
        return sum_usage([call.usage for call in self._calls if call.usage is not None])

    @property
    def cost_usd(self) -> float | None:
        """The cost of all calls; None if none was paid for, or if the cost of a response is unknown."""
        costs = [call.cost_usd for call in self._calls if call.response is not None or call.cost_usd is not None]
        known_costs = [cost for cost in costs if cost is not None]
        return sum(known_costs) if costs and len(known_costs) == len(costs) else None

    @property
    def request(self) -> dict[str, Any] | None:
        """The calls for the record. A call that extends an earlier one refers to it instead of repeating messages."""
        if not self._calls:
            return None
        # In an order that does not depend on which was answered first.
        ordered = sorted(self._calls, key=lambda call: (call.sample, call.target))
        calls: list[dict[str, Any]] = []
        for call in ordered[:MAX_CALLS]:
            before = next((index for index, other in enumerate(ordered[: len(calls)]) if call.extends(other)), None)
            overlap = 0 if before is None else len(ordered[before].messages)
            data = call.to_data() | ({} if before is None else {"messages_of": before})
            added = [_shortened_value(message_to_data(message)) for message in call.messages[overlap:]]
            calls.append(data | ({"messages": added} if added else {}))
        left_out = len(self._calls) - len(calls)
        return {"calls": calls, **({"calls_left_out": left_out} if left_out else {})}


def _given(**values: Any) -> dict[str, Any]:
    """Return the values that are known, as plain data."""
    return {name: msgspec.to_builtins(value) for name, value in values.items() if value is not None}


def format_notes(results: Iterable[EvaluatorResult], judges: set[str]) -> Iterator[str]:
    """Yield a note for each of the judges that was not called with the JSON Schema, and remove it from the set."""
    for result in results:
        for call in (result.evaluator_provider_request or {}).get("calls", ()):
            name, used = call["target"], call.get("response_format")
            if used is not None and name in judges:
                judges.remove(name)
                yield f"Judge '{name}' does not accept a JSON Schema for its response; using {used} instead."
        yield from format_notes(result.evaluator_results, judges)


def shortened(text: str) -> str:
    """Shorten a long text for the record: keep the beginning and end, and the number of characters left out."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    # Cut between words: half a secret would not be recognized.
    start, end = start_of(text, half), end_of(text, half)
    return f"{start}\n[… {len(text) - len(start) - len(end):,} characters left out …]\n{end}"


def _shortened_value(value: Any) -> Any:
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, dict):
        return {name: _shortened_value(item) for name, item in value.items()}
    return [_shortened_value(item) for item in value] if isinstance(value, list | tuple) else value
