"""Convert result rows of AgentV (TypeScript) 2.x to 5.x, in JSON Lines and YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import yaml

from agentv.errors import AgentvError, file_errors
from agentv.extensions.interop.imports.foreign_values import error_class_in
from agentv.model.result import (
    ErrorInfo,
    EvaluatorResult,
    ExecutionMetrics,
    Result,
    Stage,
    Status,
    TokenUsage,
    TraceSummary,
    Verdict,
)
from agentv.model.values import to_json
from agentv.runs.record import RecordError, RecordLines, damaged, first_line, record_from_data
from agentv.support.json_keys import top_level

PASS_FROM, BORDERLINE_FROM = 0.8, 0.6

_SCALARS = (
    ("null", "~nN", r"~|null"),
    ("bool", "tf", r"true|false"),
    ("int", "-0123456789", r"-?(?:0|[1-9][0-9]*)"),
    ("float", "-.0123456789", r"-?(?:0|[1-9][0-9]*)?(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"),
)
_VERDICTS: dict[str | None, Verdict] = {verdict: verdict for verdict in get_args(Verdict)}
_STAGES: dict[str, Stage] = {"repo_setup": "setup", **{stage: stage for stage in get_args(Stage)}}


class _Usage(msgspec.Struct):
    input: float = 0
    output: float = 0
    cached: float | None = None


class _Assertion(msgspec.Struct):
    text: str = ""
    passed: bool = False


class _Figures(msgspec.Struct):
    """Usage of a row: in `trace_summary` or at the top level."""

    token_usage: _Usage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None


class _Trace(_Figures):
    event_count: int = 0
    tool_names: tuple[str, ...] = ()
    tool_calls_by_name: dict[str, int] | None = None
    tool_calls: dict[str, int] | None = None
    error_count: int = 0
    tool_durations: Any = None


class _Scored(_Figures):
    """Fields that rows and their evaluators have in common."""

    score: float | msgspec.UnsetType | None = msgspec.UNSET
    verdict: str | None = None
    hits: tuple[str, ...] | None = None
    misses: tuple[str, ...] | None = None
    assertions: tuple[_Assertion, ...] | None = None
    reasoning: str | None = None
    evaluator_results: tuple[_Evaluator, ...] | None = None
    scores: tuple[_Evaluator, ...] | None = None


class _Evaluator(_Scored):
    name: str | None = None
    type: str | None = None
    weight: float | None = None
    details: Any = None
    evaluator_provider_request: dict[str, Any] | None = None


class _Row(_Scored):
    eval_id: str | int | None = None
    test_id: str | int | None = None
    timestamp: str | None = None
    dataset: str | None = None
    suite: str | None = None
    conversation_id: str | None = None
    target: str | None = None
    candidate_answer: Any = None
    answer: Any = None
    text: Any = None
    output: Any = None
    output_messages: Any = None
    error: Any = None
    execution_status: str | None = None
    failure_stage: str | None = None
    failure_reason_code: str | None = None
    target_error_kind: str | None = None
    sample_index: int | None = None
    trace_summary: _Trace | None = None
    tags: tuple[str, ...] | None = None
    metadata: dict[str, Any] | None = None


class AgentvLines(RecordLines):
    """Rows of AgentV (TypeScript), one JSON object per line."""

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = top_level(first_line(head)).keys()  # logs of Inspect have the id inside
        # The items of OpenAI's hosted evals have the id of their eval, too.
        return not keys.isdisjoint(("eval_id", "test_id")) and "datasource_item" not in keys

    @staticmethod
    def convert(data: dict[str, Any], run_id: str, needs_score: bool = True) -> Result:
        """Convert one row. Raises RecordError if it is not a result."""
        try:
            row = msgspec.convert(data, _Row)
            if row.score is msgspec.UNSET and not needs_score:
                row.score = None
            return _result(row, run_id)
        except (msgspec.ValidationError, ValueError) as error:
            raise RecordError(f"Not a result: {error}") from error


class _PlainLoader(yaml.CSafeLoader):
    """A safe YAML loader with JSON's types: times stay text, and only true and false are booleans."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _name, _first, _pattern in _SCALARS:
    _PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), list(_first))


class AgentvYaml:
    """YAML documents, one per result: rows of AgentV (TypeScript), or our own records as written by `--format yaml`."""

    extensions: tuple[str, ...] = (".yaml", ".yml")
    unit = "document"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        return re.search(rb"^(?:eval_id|test_id):", head, re.M) is not None

    def records(self, path: Path) -> Iterator[Result]:
        try:
            with file_errors(f"Cannot read {path}"), open(path, "rb") as file:
                for number, data in enumerate(yaml.load_all(file, Loader=_PlainLoader), 1):
                    try:
                        yield record_from_data(data, path.stem)
                    except RecordError as error:
                        raise damaged(path, f"document {number}", error) from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # PyYAML reads `-` as a number, and fails
            raise AgentvError(f"Cannot read {path}", str(error)) from error


def _result(row: _Row, run_id: str) -> Result:
    id = row.eval_id if row.eval_id is not None else row.test_id
    if id is None:
        raise ValueError("neither 'eval_id' nor 'test_id', and not the results of another tool that is known")
    error = _error(row)
    score = None if error else _score(row.score)
    status: Status = "error" if error else "ok" if score is not None else "unscored"
    hits, misses = _findings(row)
    output = next((messages for messages in (row.output, row.output_messages) if isinstance(messages, list)), [])
    return Result(
        timestamp=row.timestamp or "",
        run_id=run_id,
        eval_id=str(id),
        dataset=row.dataset or row.suite or "",
        dataset_path="",
        conversation_id=row.conversation_id,
        target=row.target or "default",
        trial=1 + (row.sample_index or 0),
        status=status,
        score=score,
        verdict=_verdict(row, score),
        # An error row repeats the error here.
        hits=() if error else hits,
        misses=() if error else misses,
        reasoning=row.reasoning,
        candidate_answer=_answer(row) if error is None or error.stage == "evaluator" else None,
        output_messages=tuple(message for message in output if isinstance(message, dict)),
        evaluator_results=_evaluators(row),
        error=error,
        trace_summary=_trace(row.trace_summary),
        execution_metrics=_metrics(row),
        tags=row.tags or (),
        metadata=row.metadata or {},
    )


def _error(row: _Row) -> ErrorInfo | None:
    error = row.error.get("message") or row.error if isinstance(row.error, dict) else row.error
    message = str(error) if error else ""
    failed = row.execution_status == "execution_error" if row.execution_status else bool(message)
    if not failed:
        return None
    stage = _STAGES.get(row.failure_stage or "", "target")
    message = message or row.failure_reason_code or "no message"
    words = " ".join(filter(None, (row.target_error_kind, row.failure_reason_code, message)))
    return ErrorInfo("evaluator" if stage == "evaluator" else error_class_in(words), message, stage)


def _score(score: float | msgspec.UnsetType | None) -> float | None:
    if isinstance(score, msgspec.UnsetType):
        raise ValueError("no 'score' and no 'error'")
    if score is not None and not 0 <= score <= 1:
        raise ValueError(f"a score must be from 0 to 1, got {score:g}")
    return score


def _verdict(row: _Scored, score: float | None) -> Verdict | None:
    if score is None:
        return None
    if row.verdict in _VERDICTS:
        return _VERDICTS[row.verdict]
    # Since 4.x the status implies the verdict, by a limit that is not in the row.
    status = getattr(row, "execution_status", None)
    if status in ("ok", "quality_failure"):
        return "pass" if status == "ok" else "fail"
    return "pass" if score >= PASS_FROM else "borderline" if score >= BORDERLINE_FROM else "fail"


def _findings(scored: _Scored) -> tuple[tuple[str, ...], tuple[str, ...]]:
    checks = scored.assertions or ()
    hits = tuple(check.text for check in checks if check.passed)
    misses = tuple(check.text for check in checks if not check.passed)
    return (scored.hits if scored.hits is not None else hits), (scored.misses if scored.misses is not None else misses)


def _answer(row: _Row) -> str | None:
    output = None if isinstance(row.output, list) else row.output
    answer = next((text for text in (row.candidate_answer, row.answer, row.text, output) if text is not None), None)
    return answer if answer is None or isinstance(answer, str) else to_json(answer).decode()


def _evaluators(scored: _Scored) -> tuple[EvaluatorResult, ...]:
    return tuple(map(_evaluator, scored.evaluator_results or scored.scores or ()))


def _evaluator(entry: _Evaluator) -> EvaluatorResult:
    hits, misses = _findings(entry)
    # A failed grader has the score 0 and the verdict `skip` there; here it is an error without a score.
    skipped = entry.verdict == "skip" or entry.score in (None, msgspec.UNSET)
    score = None if skipped else _score(entry.score)
    return EvaluatorResult(
        name=entry.name or entry.type or "evaluator",
        type=(entry.type or entry.name or "evaluator").replace("-", "_"),
        score=score,
        weight=1.0 if entry.weight is None else entry.weight,
        verdict=_verdict(entry, score),
        hits=hits,
        misses=misses,
        reasoning=entry.reasoning,
        details=entry.details,
        error=ErrorInfo("evaluator", entry.reasoning or "skipped", "evaluator") if skipped else None,
        token_usage=_usage(entry.token_usage),
        cost_usd=entry.cost_usd,
        evaluator_provider_request=entry.evaluator_provider_request,
        evaluator_results=_evaluators(entry),
    )


def _usage(usage: _Usage | None) -> TokenUsage | None:
    if usage is None:
        return None
    return TokenUsage(int(usage.input), int(usage.output), None if usage.cached is None else int(usage.cached))


def _trace(trace: _Trace | None) -> TraceSummary | None:
    if trace is None:
        return None
    calls = trace.tool_calls_by_name or trace.tool_calls or {}
    return TraceSummary(
        event_count=trace.event_count,
        tool_names=trace.tool_names or tuple(sorted(calls)),
        tool_calls_by_name=calls,
        error_count=trace.error_count,
    )


def _metrics(row: _Row) -> ExecutionMetrics | None:
    trace = row.trace_summary or _Trace()
    metrics = ExecutionMetrics(
        token_usage=_usage(row.token_usage or trace.token_usage),
        cost_usd=trace.cost_usd if row.cost_usd is None else row.cost_usd,
        duration_ms=trace.duration_ms if row.duration_ms is None else row.duration_ms,
        tool_durations=trace.tool_durations if isinstance(trace.tool_durations, dict) else {},
    )
    return None if metrics == ExecutionMetrics() else metrics
