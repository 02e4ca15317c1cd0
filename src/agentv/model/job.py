"""A job (one case, target, prompt and trial), and the judgement: what evaluators receive of its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Protocol

import msgspec

from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.message import Message, message_to_data
from agentv.model.response import Request, Response, content_text
from agentv.model.result import EvaluatorResult, ExecutionMetrics, JobKey, Result, TraceSummary
from agentv.model.values import to_json
from agentv.settings.environment import Environment


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that exists already, so that no target is called: of an earlier run, or a canned one.

    `text` is the answer after its target's transform. `kept` are results of evaluators that still hold, by name;
    `record` is the earlier record that the answer comes from. Without `has_trace`, its tool calls are unknown.
    """

    response: Response
    text: str
    kept: dict[str, EvaluatorResult] = {}
    record: Result | None = None
    has_trace: bool = True


class Job(msgspec.Struct, frozen=True, gc=False):
    """What is answered and scored exactly once. Without an `answer`, the target is called."""

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
    """A record that needs no work, or the job to run, with its answer where there is one; and why."""

    why: str
    job: Job
    record: Result | None = None


class AnswerSource(Protocol):
    """Where answers come from instead of live targets."""

    def decide(self, job: Job) -> Decision: ...

    def close(self) -> None: ...


_NO_FILE = Environment()


class Variant(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a call wants besides the target's own settings, in few words; `form` is the title of a schema."""

    model: str | None = None
    temperature: float | None = None
    form: str | None = None

    @property
    def key(self) -> str:
        """The same for the same wishes; empty for none."""
        wishes = (self.model, self.temperature, self.form)
        return "" if wishes == (None, None, None) else msgspec.json.encode(wishes).decode()


AS_IT_IS = Variant()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a call wants besides its messages: settings in the place of the target's, and an answer of a certain form.

    `schema` is a JSON Schema that the target holds its answer to where its API can. `sample` tells apart calls that ask
    the same: neither a cache nor a recording answers one with another's answer.
    """

    model: str | None = None
    temperature: float | None = None
    schema: dict[str, Any] | None = None
    sample: int = 1

    @property
    def form(self) -> str | None:
        """The title of the schema, which tells forms apart."""
        return None if self.schema is None else str(self.schema.get("title", ""))


class Ask(Protocol):
    """Asks a target by its name; None is the evaluator's own judge."""

    def __call__(
        self, target: str | None, messages: tuple[Message, ...], wanted: Wanted = ...
    ) -> Awaitable[Response]: ...


Embed = Callable[[tuple[str, ...]], Awaitable[Response]]
ScoreMember = Callable[[EvaluatorSpec], Awaitable[tuple[EvaluatorResult, bool]]]
"""What an entry says of the same answer, and whether that misses a gate: its minimum, or one of its own."""


class Judgement(msgspec.Struct, frozen=True, dict=True):
    """One answer to be scored. `question` is the rendered prompt, `candidate_answer` the text after `transform`.

    `workdir` is the dataset's folder; `find_file` looks up paths in an evaluator's settings as the dataset does.
    `environment` holds the secrets that programs must not get; `host` holds what the judges of a run share.
    `file_changes` is the diff of what the target changed in its workspace. `has_trace` is false for an answer of an
    earlier run whose messages were not kept. For the evaluator at work: `ask(target, messages)` calls a model with the
    run's limits and retries, `judges` are its judges, `embed(texts)` returns vectors from the entry's target, and
    `score_member` scores the same answer with another entry.
    """

    request: Request
    response: Response
    candidate_answer: str
    workdir: str = "."
    find_file: Callable[[str], str] = str
    trace_summary: TraceSummary | None = None
    execution_metrics: ExecutionMetrics | None = None
    file_changes: str | None = None
    has_trace: bool = True
    environment: Environment = _NO_FILE
    host: object = None
    ask: Ask | None = None
    embed: Embed | None = None
    judges: tuple[str, ...] = ()
    score_member: ScoreMember | None = None

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
        """The last expected message: its text, JSON when it is no text, its tool calls when it has no content."""
        expected = self.case.expected_output
        if not expected:
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
