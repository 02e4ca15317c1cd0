"""The record of one job: its answer, scores and usage. One line of `results.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

SCHEMA_VERSION = 1

Status = Literal["ok", "unscored", "error"]
Verdict = Literal["pass", "borderline", "fail"]
ErrorClass = Literal[
    "timeout", "rate_limit", "auth", "server", "network", "invalid_response", "refused", "process", "evaluator", "case"
]
Stage = Literal["setup", "target", "evaluator", "teardown"]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Probability = Annotated[float, msgspec.Meta(gt=0, le=1)]
"""A score from 0 to 1. Records with other values are rejected when read."""
_LIMITS = frozenset({"length", "max_tokens", "max_turns"})
Ending = Literal["script", "goal_met", "gave_up", "stop", "max_turns"]


class JobKey(NamedTuple):
    """The identity of a job within its run."""

    dataset_path: str
    eval_id: str
    target: str
    prompt: str | None
    trial: int

    def __str__(self) -> str:
        prompt = "" if self.prompt is None else f", prompt {self.prompt}"
        return f"{self.eval_id} in {self.dataset_path}, target {self.target}{prompt}, trial {self.trial}"


def written_version() -> int:
    """Return the schema version. A default factory, because plain defaults are not written."""
    return SCHEMA_VERSION


class TokenUsage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Input and output tokens. `cached` input tokens were read from a cache, `cache_write` ones were written to it;
    `reasoning` tokens are part of the output. None means unknown."""

    input: int
    output: int
    cached: int | None = None
    reasoning: int | None = None
    cache_write: int | None = None

    @property
    def total_with_cached(self) -> int:
        """The tokens, with those from a cache added to the input."""
        return self.input + self.output + (self.cached or 0)


def sum_usage(usages: Iterable[TokenUsage | None]) -> TokenUsage | None:
    """Add up the tokens of several calls. Counts that no call reports stay unknown."""
    if not (reported := [usage for usage in usages if usage is not None]):
        return None
    totals: dict[str, Any] = {}
    for name in TokenUsage.__struct_fields__:
        counts = [count for usage in reported if (count := getattr(usage, name)) is not None]
        totals[name] = sum(counts) if counts else None
    return TokenUsage(**totals)


class ErrorInfo(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename={"error_class": "class"}):
    """A failure: its class, message, and the stage of the job.

    `suspicious` if the answer may have caused it: the judge gave two different verdicts, or repeated one from the
    answer.
    """

    error_class: ErrorClass
    message: str
    stage: Stage
    suspicious: bool = False


class TraceSummary(msgspec.Struct, frozen=True, gc=False):
    """The number of tool calls in an answer, in total and by tool."""

    event_count: int
    tool_names: tuple[str, ...] = ()
    tool_calls_by_name: dict[str, int] = {}
    error_count: int = 0


class ExecutionMetrics(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens, cost and time of a job, as far as they are known."""

    token_usage: TokenUsage | None = None
    """The tokens of all calls."""

    cost_usd: float | None = None
    """The cost of all calls."""

    duration_ms: float | None = None
    """The time that the answer took."""

    tool_durations: dict[str, list[float]] = {}
    """Milliseconds by tool."""

    stop_reason: str | None = None
    """Why the answer ended, if not normally: `length` if it was cut off."""

    logprobs: Any = None
    """Token log probabilities as the API returned them, for targets that request them."""

    answered_by: str | None = None
    """The fallback target that answered."""

    provider_data: dict[str, Any] | None = None
    """Other fields that a provider of promptfoo returned with its answer, such as `metadata`."""

    estimated_cost_usd: float | None = None
    """The part of the cost that is estimated, for replies that were cut off: they are paid for, but their tokens are
    unknown.
    """

    trace_id: str | None = None
    """The trace whose spans describe the answer, for targets with `traces`."""

    @property
    def is_cut_off(self) -> bool:
        """Whether a limit of tokens or turns ended the answer."""
        return self.stop_reason in _LIMITS


class ConversationSummary(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The number of turns in one job and how they ended; `user_metrics` is the usage of the simulated user."""

    turns: int
    ended: Ending | None = None
    user_metrics: ExecutionMetrics | None = None


class EvaluatorResult(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The result of one evaluator: a score, or an error without one. A composite includes its members' results."""

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
    candidate_answer: str | None = None
    """The text that was scored, if a `transform` made it from the answer of the record."""

    @property
    def is_untransformed(self) -> bool:
        """Whether there is no score because the answer could not be transformed: an error of the job at any weight."""
        return self.error is not None and self.error.error_class == "invalid_response"

    @property
    def called_judge(self) -> bool:
        """Whether the evaluator or one of its members called a judge."""
        members = self.evaluator_results
        return self.evaluator_provider_request is not None or any(member.called_judge for member in members)


class Result(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The record of one job. `score` and `verdict` are always written, and null unless the status is ok."""

    schema_version: int = msgspec.field(default_factory=written_version)
    """The version of this format."""

    timestamp: str
    """When the job ended, in UTC."""

    run_id: str
    """The id of the run."""

    eval_id: str
    """The id of the case."""

    dataset: str
    """The name of the dataset."""

    dataset_path: str
    """The file of the dataset."""

    conversation_id: str | None = None
    """The conversation of the case."""

    cluster: str | None = None
    """The cluster of the case."""

    target: str
    """The target that answered."""

    prompt: str | None = None
    """The id of the prompt, if cases run with several."""

    trial: int
    """The number of the trial, from 1."""

    status: Status
    """`ok`, `unscored` or `error`."""

    score: Share | None
    """The weighted mean of the evaluators' scores."""

    verdict: Verdict | None
    """`pass`, `borderline` or `fail`."""

    partial_score: Share | None = None
    """The score of the evaluators that worked, if another one failed."""

    hits: tuple[str, ...] = ()
    """What the evaluators found good."""

    misses: tuple[str, ...] = ()
    """What they missed."""

    reasoning: str | None = None
    """The reasons of judges."""

    candidate_answer: str | None = None
    """The text that was scored."""

    raw_answer: str | None = None
    """The answer before the target's `transform`, if that changed it or failed."""

    output_messages: tuple[dict[str, Any], ...] = ()
    """The messages of the answer, if it is more than one text."""

    evaluator_results: tuple[EvaluatorResult, ...] = ()
    """The outcome of each evaluator."""

    error: ErrorInfo | None = None
    """Why the job has no score."""

    warnings: tuple[str, ...] = ()
    """Problems that affect neither the answer nor its score, such as a failed teardown."""

    trace_summary: TraceSummary | None = None
    """The tool calls of the answer, counted."""

    execution_metrics: ExecutionMetrics | None = None
    """Tokens, cost and time."""

    conversation: ConversationSummary | None = None
    """The turns of a conversation, and how it ended."""

    file_changes: str | None = None
    """The diff of the workspace."""

    attempts: int | None = None
    """The number of calls to the target, retries included."""

    cached: bool = False
    """Whether the answer comes from the cache."""

    carried_from: str | None = None
    """The run that the record was carried over from."""

    fingerprint: str | None = None
    """The fingerprint of the case."""

    probability: Probability | None = None
    """The probability with which `--cases-budget` drew the case. Means weight the case by its inverse."""

    tags: tuple[str, ...] = ()
    """The tags of the case."""

    metadata: dict[str, Any] = {}
    """The metadata of the case."""

    @property
    def key(self) -> JobKey:
        """The job that this record belongs to."""
        return JobKey(self.dataset_path, self.eval_id, self.target, self.prompt, self.trial)

    @property
    def judge_cost_usd(self) -> float | None:
        """The cost of the evaluators and of a simulated user; None if unknown."""
        results, conversation = self.evaluator_results, self.conversation
        is_simple = len(results) == 1 and not (only := results[0]).evaluator_results
        judged = only.cost_usd if is_simple else _known_cost(results)
        if conversation is None:
            return judged
        user = conversation.user_metrics
        return judged if user is None or user.cost_usd is None else user.cost_usd + (judged or 0.0)


def _known_cost(results: tuple[EvaluatorResult, ...]) -> float | None:
    """Return the cost of evaluators. A composite without a cost of its own costs as much as its members."""
    total = None
    for result in results:
        nested = result.evaluator_results
        cost = _known_cost(nested) if nested and result.cost_usd is None else result.cost_usd
        if cost is not None:
            total = cost + (total or 0.0)
    return total


class TransformedAnswer(msgspec.Struct, frozen=True):
    """An answer before a transform, and the text that was scored instead; None if the transform failed.

    `evaluator` names the evaluator whose own transform it is; None for that of the target.
    """

    raw: str
    scored: str | None
    evaluator: str | None = None

    @property
    def texts(self) -> list[tuple[str, str]]:
        """The two texts with their titles, the scored one first."""
        title = "scored text" if self.evaluator is None else f"text scored by {self.evaluator}"
        scored = [] if self.scored is None else [(title, self.scored)]
        return [*scored, ("raw answer", self.raw)]


def transformed_answer(result: Result) -> TransformedAnswer | None:
    """Return the raw and the scored text if a transform changed the answer or failed; None otherwise.

    Of several evaluators with a transform of their own, the first one that did not pass decides.
    """
    raw = result.raw_answer if result.raw_answer is not None else result.candidate_answer
    own = [entry for entry in result.evaluator_results if entry.candidate_answer is not None or entry.is_untransformed]
    if raw is None or (not own and result.raw_answer is None):
        return None
    source = next((entry for entry in own if entry.verdict != "pass"), None)
    if source is None and result.raw_answer is not None:
        return TransformedAnswer(raw, result.candidate_answer)
    source = source or own[0]
    return TransformedAnswer(raw, source.candidate_answer, source.name)


def reason_of(result: Result, before: Result | None = None) -> str:
    """Return why a result did not pass: its error, its misses, or the evaluators' reasoning; empty if unknown.

    With `before`, the reason comes from the evaluators whose scores changed in the same direction as the result's.
    """
    if result.error is not None:
        return result.error.message
    change = 0.0 if before is None else (result.score or 0.0) - (before.score or 0.0)
    earlier = {entry.name: entry.score for entry in before.evaluator_results} if before else {}
    scores = [(entry, earlier.get(entry.name), entry.score) for entry in result.evaluator_results]
    moved = [entry for entry, a, b in scores if a is not None and b is not None and (b - a) * change > 0]
    if result.misses and not moved:
        return result.misses[0]
    sources = moved or [entry for entry in result.evaluator_results if entry.verdict not in (None, "pass")]
    points = (point for entry in sources for point in (entry.hits if change > 0 and moved else entry.misses))
    own = None if moved else result.reasoning
    reasoning = own or next((entry.reasoning for entry in sources if entry.reasoning), None)
    return next(points, None) or reasoning or ", ".join(entry.name for entry in sources)
