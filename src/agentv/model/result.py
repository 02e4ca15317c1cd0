"""The record of one job: what was answered, how it was scored, what it took. One line of `results.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

SCHEMA_VERSION = 1

Status = Literal["ok", "unscored", "error"]
Verdict = Literal["pass", "borderline", "fail"]
ErrorClass = Literal[
    "timeout", "rate_limit", "auth", "server", "network", "invalid_response", "refused", "process", "evaluator"
]
Stage = Literal["setup", "target", "evaluator", "teardown"]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A score. A record with another number is refused when it is read."""
Ending = Literal["script", "goal_met", "gave_up", "stop", "max_turns"]


class JobKey(NamedTuple):
    """The identity of a job inside its run."""

    dataset_path: str
    eval_id: str
    target: str
    prompt: str | None
    trial: int

    def __str__(self) -> str:
        prompt = "" if self.prompt is None else f", prompt {self.prompt}"
        return f"{self.eval_id} of {self.dataset_path}, target {self.target}{prompt}, trial {self.trial}"


def written_version() -> int:
    """The version of records. A factory, because plain defaults are left out of what is written."""
    return SCHEMA_VERSION


class TokenUsage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens that went in and came out: `cached` of those going in were read from a cache and `cache_write` written to
    one, `reasoning` of those coming out were thought. None where nothing is said about them."""

    input: int
    output: int
    cached: int | None = None
    reasoning: int | None = None
    cache_write: int | None = None


def sum_usage(usages: Sequence[TokenUsage]) -> TokenUsage | None:
    """Tokens of several calls together; what none of them tells stays untold."""
    if not usages:
        return None

    def total(name: str) -> int | None:
        told = [value for usage in usages if (value := getattr(usage, name)) is not None]
        return sum(told) if told else None

    return TokenUsage(
        sum(usage.input for usage in usages),
        sum(usage.output for usage in usages),
        total("cached"),
        total("reasoning"),
        total("cache_write"),
    )


class ErrorInfo(msgspec.Struct, frozen=True, gc=False, rename={"error_class": "class"}):
    """A failure: of which class, in which words, at which stage of the job."""

    error_class: ErrorClass
    message: str
    stage: Stage


class TraceSummary(msgspec.Struct, frozen=True, gc=False):
    """The tool calls of an answer, counted."""

    event_count: int
    tool_names: tuple[str, ...] = ()
    tool_calls_by_name: dict[str, int] = {}
    error_count: int = 0


class ExecutionMetrics(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a job used, as far as it is known. `tool_durations` are milliseconds, by tool.

    `stop_reason` says why an answer ended that did not end by itself: `length` for one that was cut off. `logprobs` are
    there where the target asks its API for them, as the API gives them.
    """

    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    tool_durations: dict[str, list[float]] = {}
    stop_reason: str | None = None
    logprobs: Any = None


class ConversationSummary(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How often the target was asked in one job and how that ended; `user_metrics` is what the simulated user used."""

    turns: int
    ended: Ending | None = None
    user_metrics: ExecutionMetrics | None = None


class EvaluatorResult(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What one evaluator found: a score, or an error and no score. A composite has its members' results inside."""

    name: str
    type: str
    score: Share | None
    weight: float
    verdict: Verdict | None
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    reasoning: str | None = None
    details: Any = None
    error: ErrorInfo | None = None
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    evaluator_provider_request: dict[str, Any] | None = None
    evaluator_results: tuple[EvaluatorResult, ...] = ()


class Result(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One job. `score` and `verdict` are always written, and null unless the status is ok."""

    schema_version: int = msgspec.field(default_factory=written_version)
    timestamp: str
    run_id: str
    eval_id: str
    dataset: str
    dataset_path: str
    conversation_id: str | None = None
    target: str
    prompt: str | None = None
    trial: int
    status: Status
    score: Share | None
    verdict: Verdict | None
    partial_score: Share | None = None
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    reasoning: str | None = None
    candidate_answer: str | None = None
    output_messages: tuple[dict[str, Any], ...] = ()
    evaluator_results: tuple[EvaluatorResult, ...] = ()
    error: ErrorInfo | None = None
    trace_summary: TraceSummary | None = None
    execution_metrics: ExecutionMetrics | None = None
    conversation: ConversationSummary | None = None
    file_changes: str | None = None
    attempts: int | None = None
    cached: bool = False
    carried_from: str | None = None
    fingerprint: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}

    @property
    def key(self) -> JobKey:
        """The job that this record belongs to."""
        return JobKey(self.dataset_path, self.eval_id, self.target, self.prompt, self.trial)
