"""Describe records as spans in the GenAI conventions of OpenTelemetry: one trace per job.

    test CASE                     the job: `test.case.name`, its verdict and score
    ├── chat MODEL                the call to the target, or `invoke_agent TARGET`; an event for each evaluator's result
    │   └── execute_tool NAME     a tool call of the answer
    └── chat MODEL                a call of a judge

A record has the time of its end and the durations of calls, so the start of a span is as accurate as these are.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from agentv.extensions.otel.message_parts import input_parts, output_parts
from agentv.model.call_trace import own_span_id
from agentv.model.manifest import RunManifest
from agentv.model.result import EvaluatorResult, ExecutionMetrics, Result
from agentv.model.values import to_json
from agentv.registry import TARGETS


class SpanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A span without the types of the SDK. Times are nanoseconds; `error` is its message, if it failed."""

    trace_id: str
    id: str
    parent: str | None
    name: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: tuple[dict[str, Any], ...] = ()
    is_client: bool = False
    error: str | None = None


class SpanTarget(msgspec.Struct, frozen=True):
    """What the spans of a target's calls say about it."""

    provider: str
    operation: str
    model: str | None = None


class RunFacts(msgspec.Struct, frozen=True):
    """What the spans of a run have in common. With `has_content`, they include the texts of messages."""

    run_id: str
    experiment: str | None
    targets: dict[str, SpanTarget]
    has_content: bool = False


def facts_of(manifest: RunManifest | None, run_id: str, *, has_content: bool) -> RunFacts:
    """Return the facts of a run; a run of another tool may have no manifest."""
    if manifest is None:
        return RunFacts(run_id, None, {}, has_content)
    targets = {entry.name: _called(entry.provider, entry.settings) for entry in manifest.targets}
    return RunFacts(run_id, manifest.options.get("experiment"), targets, has_content)


def _kind_and_name(provider: str) -> tuple[Any, str]:
    """Return the kind of a provider, if it is registered, and its name in the conventions."""
    canonical = TARGETS.canonical(provider) or provider
    try:
        kind = TARGETS.find(canonical)
        return kind, kind.telemetry_name(canonical)
    except (KeyError, AttributeError):  # a class in a file of the project, which is not imported
        return None, provider


def _called(provider: str, settings: Mapping[str, Any]) -> SpanTarget:
    kind, name = _kind_and_name(provider)
    is_model = kind is not None and kind.is_api and kind.reports_calls
    model = settings.get("model")
    return SpanTarget(name, "chat" if is_model else "invoke_agent", model if isinstance(model, str) else None)


def spans_of_record(record: Result, facts: RunFacts, input: Any = None) -> list[SpanRecord]:
    """Return the spans of a record, the outermost first. `input` are the messages of the case, if they are known."""
    return list(_JobSpans(record, facts).spans(input))


class _JobSpans:
    """Builds the spans of one record."""

    def __init__(self, record: Result, facts: RunFacts) -> None:
        self._record = record
        self._facts = facts
        self._metrics = record.execution_metrics or ExecutionMetrics()
        trace_id = None if record.cached or record.carried_from is not None else self._metrics.trace_id
        key = to_json([facts.run_id, *map(str, record.key)])
        self._trace_id = trace_id or hashlib.sha256(key).hexdigest()[:32]
        self._end = _time(record.timestamp)
        judges = [_nanoseconds(call.get("duration_ms")) for _, call in judge_calls(record.evaluator_results)]
        self._answered = max(0, self._end - max(judges, default=0))
        self._start = max(0, self._answered - _nanoseconds(self._metrics.duration_ms))

    def spans(self, input: Any) -> Iterator[SpanRecord]:
        record, root = self._record, self._id("job")
        error = record.error
        yield self._span(
            id=root,
            parent=None,
            name=f"test {record.eval_id}",
            start=self._start,
            end=self._end,
            attributes=self._job_attributes(),
            error=None if error is None else error.message,
        )
        if record.attempts != 0:
            yield self._call(root, input)
            yield from self._tools()
        for number, (evaluator, call) in enumerate(judge_calls(record.evaluator_results)):
            yield self._judge(root, number, evaluator, call)

    def _span(self, attributes: dict[str, Any], **fields: Any) -> SpanRecord:
        """Return a span of the record's trace, with the attributes that are known."""
        return SpanRecord(trace_id=self._trace_id, attributes=_known(attributes), **fields)

    def _id(self, *parts: object) -> str:
        return hashlib.sha256(to_json([self._trace_id, *map(str, parts)])).hexdigest()[:16]

    def _job_attributes(self) -> dict[str, Any]:
        record, facts = self._record, self._facts
        return {
            "test.suite.name": record.dataset,
            "test.case.name": record.eval_id,
            "test.case.result.status": {"pass": "pass", "fail": "fail"}.get(record.verdict or ""),
            "gen_ai.conversation.id": record.conversation_id,
            "error.type": None if record.error is None else record.error.error_class,
            "agentv.run.id": facts.run_id,
            "agentv.experiment": facts.experiment,
            "agentv.dataset.path": record.dataset_path,
            "agentv.target": record.target,
            "agentv.prompt": record.prompt,
            "agentv.trial": record.trial,
            "agentv.status": record.status,
            "agentv.score": record.score,
            "agentv.verdict": record.verdict,
            "agentv.tags": list(record.tags) or None,
        }

    def _call(self, root: str, input: Any) -> SpanRecord:
        record, metrics, facts = self._record, self._metrics, self._facts
        called = facts.targets.get(record.target) or SpanTarget("unknown", "invoke_agent")
        is_chat = called.operation == "chat"
        failed = record.error if record.error is not None and record.error.stage == "target" else None
        content: dict[str, Any] = {}
        if facts.has_content:
            content["gen_ai.input.messages"] = input_parts(input)
            content["gen_ai.output.messages"] = output_parts(record, metrics.stop_reason or "stop")
        return self._span(
            id=own_span_id(self._trace_id),
            parent=root,
            name=f"{called.operation} {(called.model if is_chat else None) or record.target}",
            start=self._start,
            end=self._answered,
            is_client=True,
            attributes={
                "gen_ai.operation.name": called.operation,
                "gen_ai.provider.name": called.provider,
                "gen_ai.request.model": called.model,
                "gen_ai.agent.name": None if is_chat else record.target,
                "gen_ai.response.finish_reasons": None if metrics.stop_reason is None else [metrics.stop_reason],
                "error.type": None if failed is None else failed.error_class,
                "agentv.cost_usd": metrics.cost_usd,
                "agentv.attempts": record.attempts,
                "agentv.cached": record.cached or None,
                **_usage(msgspec.to_builtins(metrics.token_usage)),
                **content,
            },
            events=tuple(evaluation_events(record.evaluator_results)),
            error=None if failed is None else failed.message,
        )

    def _tools(self) -> Iterator[SpanRecord]:
        """Yield the tool calls one after another; their own times are known only if the target reports durations."""
        at = self._start
        calls = [call for message in self._record.output_messages for call in message.get("tool_calls") or ()]
        for number, call in enumerate(item for item in calls if isinstance(item, dict)):
            ended = min(self._answered, at + _nanoseconds(call.get("duration_ms")))
            content: dict[str, Any] = {}
            if self._facts.has_content:
                content["gen_ai.tool.call.arguments"] = _text(call.get("input"))
                content["gen_ai.tool.call.result"] = _text(call.get("output"))
            yield self._span(
                id=self._id("tool", number),
                parent=own_span_id(self._trace_id),
                name=f"execute_tool {call.get('tool')}",
                start=at,
                end=ended,
                attributes={
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": str(call.get("tool")),
                    "gen_ai.tool.call.id": call.get("id"),
                    **content,
                },
            )
            at = ended

    def _judge(self, root: str, number: int, evaluator: str, call: Mapping[str, Any]) -> SpanRecord:
        provider, model = str(call.get("provider") or "unknown"), call.get("model")
        operation = "embeddings" if "embeddings" in call else "chat"
        failure = call.get("error")
        return self._span(
            id=self._id("judge", number),
            parent=root,
            name=f"{operation} {model or call.get('target')}",
            start=self._answered,
            end=self._answered + _nanoseconds(call.get("duration_ms")),
            is_client=True,
            attributes={
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": _kind_and_name(provider)[1],
                "gen_ai.request.model": model,
                "agentv.evaluator": evaluator,
                "agentv.judge": call.get("target"),
                "agentv.cost_usd": call.get("cost_usd"),
                "error.type": None if failure is None else "_OTHER",
                **_usage(call.get("token_usage")),
            },
            error=None if failure is None else str(failure),
        )


def judge_calls(results: Iterable[EvaluatorResult]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the calls of judges, each with the name of its evaluator."""
    for result in results:
        calls = (result.evaluator_provider_request or {}).get("calls", ())
        yield from ((result.name, call) for call in calls if isinstance(call, dict))
        yield from judge_calls(result.evaluator_results)


def evaluation_events(results: Iterable[EvaluatorResult], prefix: str = "") -> Iterator[dict[str, Any]]:
    """Yield the attributes of a `gen_ai.evaluation.result` event for each evaluator. An error has no score."""
    for result in results:
        name = f"{prefix}{result.name}"
        error = result.error
        explanation = result.reasoning or "; ".join(result.misses) or "; ".join(result.hits) or None
        attributes = {
            "gen_ai.evaluation.name": name,
            "gen_ai.evaluation.score.value": result.score,
            "gen_ai.evaluation.score.label": result.verdict,
            "gen_ai.evaluation.explanation": explanation if error is None else error.message,
            "error.type": None if error is None else error.error_class,
        }
        yield _known(attributes)
        yield from evaluation_events(result.evaluator_results, f"{name}/")


def _usage(usage: Any) -> dict[str, Any]:
    if not isinstance(usage, dict):
        return {}
    names = {
        "input": "gen_ai.usage.input_tokens",
        "output": "gen_ai.usage.output_tokens",
        "cached": "gen_ai.usage.cache_read.input_tokens",
        "cache_write": "gen_ai.usage.cache_creation.input_tokens",
        "reasoning": "gen_ai.usage.reasoning.output_tokens",
    }
    return {names[key]: count for key, count in usage.items() if key in names and isinstance(count, int)}


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are known, in the types that attributes can have."""
    return {name: _attribute(value) for name, value in values.items() if value is not None}


def _attribute(value: Any) -> Any:
    if isinstance(value, list):
        return [_attribute(item) for item in value]
    return value if isinstance(value, str | bool | int | float) else str(value)


def _time(timestamp: str) -> int:
    """Return the time of a record in nanoseconds; 1970 for a record of another tool without a valid one."""
    try:
        at = datetime.fromisoformat(timestamp)
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return max(0, int(at.timestamp() * 1000)) * 1_000_000
    except (ValueError, OverflowError):
        return 0


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else to_json(value).decode()


def _nanoseconds(milliseconds: Any) -> int:
    return round(milliseconds * 1e6) if isinstance(milliseconds, int | float) and milliseconds > 0 else 0
