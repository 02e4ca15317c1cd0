"""What evaluators ask of models: whom, through the run's own limits and layers, and a note of every call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from agentv.engine.calls.open_targets import CallOutcome, OpenTargets
from agentv.engine.job.request import Question
from agentv.engine.preflight import judges_of
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorFailure, Verdicts
from agentv.model.job import CallOverrides
from agentv.model.message import Message, message_to_data
from agentv.model.response import Responder, Response
from agentv.model.result import TokenUsage, sum_usage
from agentv.targets.target import ModelApi, Target

LONGEST_TEXT = 8000
MOST_CALLS = 50

_NO_SUCH_FORM = frozenset({400, 404, 415, 422, 501})
"""How servers refuse a form of answer that they do not know."""
_AS_IT_IS = CallOverrides()

KeepPrompt = Callable[[str, Question, Responder], None]
"""Takes the name of an evaluator, what it asks, and the target that it asks."""


class ScoringContext(msgspec.Struct, frozen=True, gc=False):
    """The answer's target, the limits of its verdicts, and the name of its job, which tells apart equal calls.

    `judge` is named by the entry around this one. `keep_prompt` receives what judges are sent.
    """

    target: str = ""
    verdicts: Verdicts | None = None
    judge: str | tuple[str, ...] | None = None
    keep_prompt: KeepPrompt | None = None
    job: str = ""


_NO_CONTEXT = ScoringContext()


class Judging:
    """The judges of a run. Remembers which of them refuse a form of answer, so that each is asked for it once.

    `asked` is what messages call those who are asked.
    """

    def __init__(self, targets: OpenTargets, said: str | None, asked: str = "judge") -> None:
        self.targets = targets
        self.said = said
        self.asked = asked
        self._formless: set[tuple[str, str | None]] = set()

    def judges(self, own: str | tuple[str, ...] | None, answered_by: str) -> tuple[str, ...]:
        """Who judges the answers of a target by an entry; `own` is whom the entry names."""
        settings = self.targets.settings(answered_by)
        of_target = None if settings is None else settings.judge_target
        return judges_of(self.said, own, of_target, self.targets.names)

    async def call(self, call: JudgeCall, question: Question, wanted: CallOverrides) -> CallOutcome:
        """One call, in the form that is wanted unless the judge's endpoint refuses that; then without, from now on."""
        formless = (call.target, wanted.model)
        if formless in self._formless:
            wanted = msgspec.structs.replace(wanted, schema=None)
        answered = await self._called(call, question, wanted)
        failure = answered.failure
        if failure is None or call.schema is None or failure.status not in _NO_SUCH_FORM:
            return answered
        answered = await self._called(call, question, msgspec.structs.replace(wanted, schema=None))
        if answered.failure is None and not self.targets.is_replaying:
            # A replay asks as it was asked then, and when this was found out is not known any more.
            self._formless.add(formless)
        return answered

    async def _called(self, call: JudgeCall, question: Question, wanted: CallOverrides) -> CallOutcome:
        live = self.targets.variant(call.target, wanted)
        if call.keep is not None:
            call.keep(question, live.responder)
        call.settings = live.settings
        has_form = getattr(live.settings, "response_format", None) == wanted.schema
        call.schema = wanted.form if has_form else None
        return await live.call(question)


class JudgeCall(msgspec.Struct, eq=False):
    """One call that was begun, and how it ended; `texts` is the number of texts to embed."""

    target: str
    messages: tuple[Message, ...]
    sample: int = 1
    keep: Callable[[Question, Responder], None] | None = None
    settings: Target | None = None
    schema: str | None = None
    answered: CallOutcome | None = None
    texts: int = 0

    def goes_on(self, other: JudgeCall) -> bool:
        """Whether it asks what another call asked, or that and more."""
        return self.messages[: len(other.messages)] == other.messages

    @property
    def response(self) -> Response | None:
        return self.answered.response if self.answered is not None else None

    def is_like(self, other: JudgeCall) -> bool:
        """Whether both ask the same of the same, as the same sample."""
        return (self.target, self.sample, self.messages) == (other.target, other.sample, other.messages)

    @property
    def cost_usd(self) -> float | None:
        """What this run paid for it: an answer of an earlier run is paid for."""
        if self.response is None:
            return None
        return 0.0 if self.response.cached else self.response.cost_usd

    def to_data(self) -> dict[str, Any]:
        """For the record, without the messages."""
        data: dict[str, Any] = {"target": self.target}
        settings, response = self.settings, self.response
        if settings is not None:
            data["provider"] = settings.provider
        if self.texts:
            data["embeddings"] = self.texts
        elif isinstance(settings, ModelApi):
            data |= {"model": settings.model, "temperature": settings.temperature, "seed": settings.seed}
            data["answer_schema"] = self.schema
        data["sample"] = self.sample
        if response is not None:
            known = {"token_usage": response.usage, "cost_usd": self.cost_usd, "duration_ms": response.duration_ms}
            data |= {name: msgspec.to_builtins(value) for name, value in known.items() if value is not None}
            data |= {"model": response.model} if response.model is not None else {}
            data |= {"cached": True} if response.cached else {}
            data["reply"] = f"{self.texts} vectors" if self.texts else shortened(response.text)
        elif self.answered is not None and self.answered.failure is not None:
            failure = self.answered.failure
            data["error"] = {"class": failure.error_class, "message": shortened(failure.message)}
        if self.answered is not None and self.answered.attempts > 1:
            data["attempts"] = self.answered.attempts
        return data


class JudgeCalls:
    """The calls that one evaluator makes while it scores one answer; `evaluator` is its name."""

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
        self._asking = f"{evaluator}@{context.job}"
        self._judges = judges
        self._calls: list[JudgeCall] = []

    async def ask(
        self, target: str | None, messages: tuple[Message, ...], wanted: CallOverrides = _AS_IT_IS
    ) -> Response:
        """One answer. Raises EvaluatorFailure when there is none."""
        name = self._judging.said or target or (self._judges[0] if self._judges else None)
        if name is None:
            raise EvaluatorFailure("No judge: name one with --judge, `target` of the evaluator or `judge_target`")
        if name not in self._judging.targets.names:
            raise EvaluatorFailure(f"There is no target '{name}' to ask")
        call = JudgeCall(name, messages, wanted.sample, self._keep)
        self._calls.append(call)
        asked = EvalCase(f"judge:{self._case.id}", input=messages, place=self._case.place)
        question = Question(asked, prompt_id=self._asking, trial=wanted.sample)
        question.repeat = sum(each.is_like(call) for each in self._calls[:-1])
        call.answered = await self._judging.call(call, question, wanted)
        if call.response is None:
            failure = call.answered.failure
            assert failure is not None
            raise EvaluatorFailure(f"The {self._judging.asked} '{name}' failed ({failure.error_class}): {failure}")
        return msgspec.structs.replace(call.response, cost_usd=call.cost_usd)

    async def embed(self, target: Any, texts: tuple[str, ...]) -> Response:
        """Vectors of texts, from the target that an entry names. Raises EvaluatorFailure when there are none."""
        messages = tuple(Message("user", text) for text in texts)
        live = self._judging.targets.get(target, embeddings=True)
        call = JudgeCall(str(target), messages, settings=live.settings, texts=len(texts))
        self._calls.append(call)
        call.answered = await live.call(Question(EvalCase("embeddings", input=messages)))
        if call.response is None:
            raise EvaluatorFailure(f"{target} made no embeddings: {call.answered.failure}")
        return call.response

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of all calls that say how many they took."""
        return sum_usage([call.response.usage for call in self._calls if call.response and call.response.usage])

    @property
    def cost_usd(self) -> float | None:
        """The cost of all calls; None when there were none, or when that of one is unknown."""
        costs = [call.cost_usd for call in self._calls if call.response is not None]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if costs and len(known) == len(costs) else None

    @property
    def request(self) -> dict[str, Any] | None:
        """What was asked and answered, for the record. A call names an earlier one whose messages it begins with."""
        if not self._calls:
            return None
        # In an order that does not hang on which of them was answered first.
        ordered = sorted(self._calls, key=lambda call: (call.sample, call.target))
        calls: list[dict[str, Any]] = []
        for call in ordered[:MOST_CALLS]:
            before = next((index for index, other in enumerate(ordered[: len(calls)]) if call.goes_on(other)), None)
            known = 0 if before is None else len(ordered[before].messages)
            data = call.to_data() | ({} if before is None else {"messages_of": before})
            added = [_shortened_value(message_to_data(message)) for message in call.messages[known:]]
            calls.append(data | ({"messages": added} if added else {}))
        left_out = len(self._calls) - len(calls)
        return {"calls": calls, **({"calls_left_out": left_out} if left_out else {})}


def shortened(text: str) -> str:
    """A text that fits into a record: of a long one the beginning and the end, and how much is left out."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def _shortened_value(value: Any) -> Any:
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, dict):
        return {name: _shortened_value(item) for name, item in value.items()}
    return [_shortened_value(item) for item in value] if isinstance(value, list | tuple) else value
