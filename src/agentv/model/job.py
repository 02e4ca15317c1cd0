"""Jobs (one case, target, prompt and trial), their answers, and the judgement that evaluators receive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Literal, Protocol

import msgspec

from agentv.model.case import EvalCase
from agentv.model.environment import Environment
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.message import Message, message_to_data
from agentv.model.response import Request, Response, content_text
from agentv.model.result import EvaluatorResult, ExecutionMetrics, JobKey, Result, TraceSummary
from agentv.model.values import to_json


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An existing answer that is scored without calling the target: from an earlier run, or a canned one.

    `value` is the answer after the target's transform, which is text or data. `kept` holds evaluator results that are
    still valid, by name. `record` is the earlier record of the answer. Without `has_trace`, its tool calls are unknown.
    """

    response: Response
    value: Any
    kept: dict[str, EvaluatorResult] = {}
    record: Result | None = None
    has_trace: bool = True


class Job(msgspec.Struct, frozen=True, gc=False):
    """The unit of work: one answer, scored once. Without an `answer`, the target is called."""

    case: EvalCase
    target: str
    prompt: str | None = None
    trial: int = 1
    fingerprint: str | None = None
    answer: GivenAnswer | None = None

    @property
    def key(self) -> JobKey:
        """Return the identity of the job."""
        return JobKey(self.case.path, self.case.id, self.target, self.prompt, self.trial)


class Decision(msgspec.Struct, frozen=True):
    """Either a finished `record`, or the `job` to run, with its answer if there is one; `why` gives the reason."""

    why: str
    job: Job
    record: Result | None = None


class AnswerSource(Protocol):
    """A source of answers other than live targets."""

    def decide(self, job: Job) -> Decision: ...

    def close(self) -> None:
        return


_NO_FILE = Environment()


class OverrideKey(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A hashable summary of `CallOverrides`; `form` is the title of the schema, or `json`."""

    model: str | None = None
    temperature: float | None = None
    form: str | None = None

    @property
    def key(self) -> str:
        """The overrides as JSON text; empty if there are none."""
        values = (self.model, self.temperature, self.form)
        return "" if values == (None, None, None) else to_json(values).decode()


NO_OVERRIDES = OverrideKey()


class CallOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one call that replace the target's own.

    `schema` is a JSON Schema for the answer, or `json` for any JSON object, for APIs that support them. `sample`
    numbers otherwise identical calls, so that a cache or a recording does not answer one with the response of another.
    """

    model: str | None = None
    temperature: float | None = None
    schema: dict[str, Any] | Literal["json"] | None = None
    sample: int = 1

    @property
    def form(self) -> str | None:
        """The title of the schema, or `json`."""
        return str(self.schema.get("title", "")) if isinstance(self.schema, dict) else self.schema


class Ask(Protocol):
    """Calls a target by name; None means the evaluator's own judge."""

    def __call__(
        self, target: str | None, messages: tuple[Message, ...], overrides: CallOverrides = ...
    ) -> Awaitable[Response]: ...


Embed = Callable[[tuple[str, ...]], Awaitable[Response]]
ScoreMember = Callable[[EvaluatorSpec], Awaitable[tuple[EvaluatorResult, bool]]]
"""Scores the answer with another entry. Returns its result, and whether it failed a gate (`required`, or its own)."""


class Judgement(msgspec.Struct, frozen=True, dict=True):
    """One answer to score, and what evaluators need to score it."""

    request: Request
    response: Response
    candidate_answer: str
    """The text of the answer, after `transform`."""

    workdir: str = "."
    """The dataset's folder."""

    find_file: Callable[[str], str] = str
    """Resolves a path in an evaluator's settings as the dataset does."""

    trace_summary: TraceSummary | None = None
    execution_metrics: ExecutionMetrics | None = None
    file_changes: str | None = None
    """The diff of the workspace."""

    has_trace: bool = True
    """False for an answer from an earlier run whose messages were not stored."""

    environment: Environment = _NO_FILE
    """The secrets that programs must not receive."""

    host: object = None
    """Resources that all judges of a run share."""

    ask: Ask | None = None
    """Calls a model with the run's limits and retries."""

    embed: Embed | None = None
    """Returns vectors of texts from the entry's target."""

    judges: tuple[str, ...] = ()
    """The judges of the current evaluator."""

    score_member: ScoreMember | None = None
    """Scores the same answer with another entry."""

    candidate_data: Any = None
    """The answer as data, if the target or a transform in JavaScript returned data."""

    @property
    def candidate_value(self) -> Any:
        """The answer as data if it is data, otherwise its text."""
        return self.candidate_answer if self.candidate_data is None else self.candidate_data

    def with_value(self, value: Any) -> Judgement:
        """Return the judgement of another answer, which is text or data."""
        data = None if isinstance(value, str) else value
        return msgspec.structs.replace(self, candidate_answer=content_text(value), candidate_data=data)

    @property
    def case(self) -> EvalCase:
        return self.request.case

    @property
    def question(self) -> str:
        return self.request.prompt

    @property
    def expected_outcome(self) -> str:
        return self.case.expected_outcome

    @cached_property
    def reference_answer(self) -> str:
        """The last expected message as text: its content, data as JSON, or its tool calls if it has no content."""
        if not (expected := self.case.expected_output):
            return ""
        last = expected[-1]
        if last.content is not None:
            return content_text(last.content)
        return to_json(message_to_data(last).get("tool_calls", [])).decode()

    @property
    def has_reference(self) -> bool:
        return bool(self.case.expected_output)

    @property
    def context(self) -> tuple[str, ...]:
        return self.case.context

    @cached_property
    def input_messages(self) -> list[dict[str, Any]]:
        return [message_to_data(message) for message in self.request.messages]

    @cached_property
    def expected_messages(self) -> list[dict[str, Any]]:
        return [message_to_data(message) for message in self.case.expected_output]

    @cached_property
    def output_messages(self) -> list[dict[str, Any]]:
        return [message_to_data(message) for message in self.response.messages]

    @property
    def guideline_files(self) -> tuple[str, ...]:
        return self.request.guideline_files

    @property
    def input_files(self) -> tuple[str, ...]:
        return self.request.files

    @property
    def workspace_path(self) -> str | None:
        return self.request.workspace
