"""Rows of the page: results as columns with numbered names, and the fields of a record that are not in them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from agentv.model.result import EvaluatorResult, ExecutionMetrics, Result, TokenUsage, Verdict
from agentv.runs.record import JobError, JobScore

VERDICTS = ("pass", "borderline", "fail", "error", "unscored")
NAMED_COLUMNS = {
    "targets": "target",
    "datasets": "dataset",
    "prompts": "prompt",
    "errors": "error",
    "tagSets": "tags",
    "evaluatorSets": "missed",
}
"""The lists of names, and the columns whose numbers refer to them."""

_IN_COLUMNS = (
    *("schema_version", "run_id", "eval_id", "dataset", "dataset_path", "target", "prompt", "trial", "tags"),
    *("status", "score", "verdict", "timestamp"),
)
HASHES = ("fingerprint", "input_fingerprint", "evaluators_fingerprint", "evaluator_files")
"""Not useful to a reader, and they do not compress."""

_NO_METRICS = ExecutionMetrics()


class RowEvaluator(msgspec.Struct, gc=False):
    """The outcome of one evaluator, as far as a row needs it."""

    name: str
    verdict: Verdict | None = None
    error: JobError | None = None


class RowMetrics(msgspec.Struct, gc=False):
    """Tokens, cost and time of a job."""

    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None


class RowRecord(JobScore, gc=False, kw_only=True):
    """The fields of a record that its row shows. Decodes several times faster than a Result."""

    timestamp: str
    evaluator_results: tuple[RowEvaluator, ...] = ()
    execution_metrics: RowMetrics | None = None


class Names(dict[Any, int]):
    """Numbers for values that rows refer to; a new value gets the next number."""

    def __missing__(self, value: Any) -> int:
        self[value] = len(self)
        return self[value]


Columns = dict[str, list[Any]]


class RowColumns:
    """Turns records into columns. Names are numbered in the order in which they first appear."""

    def __init__(self) -> None:
        self._names = {kind: Names() for kind in NAMED_COLUMNS}

    def columns(self, records: Sequence[Result | RowRecord]) -> Columns:
        """Return the values of each column; `ended` is in milliseconds since 1970."""
        names = self._names
        metrics = [record.execution_metrics or _NO_METRICS for record in records]
        usages = [item.token_usage for item in metrics]
        targets, datasets, prompts = names["targets"], names["datasets"], names["prompts"]
        errors, tags, missed = names["errors"], names["tagSets"], names["evaluatorSets"]
        return {
            "id": [item.eval_id for item in records],
            "verdict": [_verdict(item) for item in records],
            "score": [item.score for item in records],
            "target": [targets[item.target] for item in records],
            "dataset": [datasets[item.dataset, item.dataset_path] for item in records],
            "prompt": [-1 if item.prompt is None else prompts[item.prompt] for item in records],
            "trial": [item.trial for item in records],
            "duration": [item.duration_ms for item in metrics],
            "cost": [item.cost_usd for item in metrics],
            "input": [item.input if item else None for item in usages],
            "output": [item.output if item else None for item in usages],
            "cached": [item.cached if item else None for item in usages],
            "ended": [milliseconds(item.timestamp) for item in records],
            "error": [-1 if item.error is None else errors[item.error.error_class] for item in records],
            "tags": [tags[item.tags] for item in records],
            "missed": [missed[_missed(item.evaluator_results)] for item in records],
        }

    def names(self, counts: dict[str, int] | None = None) -> dict[str, list[Any]]:
        """Return the names by kind, without the first `counts` ones."""
        result = {kind: list(names)[(counts or {}).get(kind, 0) :] for kind, names in self._names.items()}
        result["datasets"] = [{"name": name, "path": path} for name, path in result["datasets"]]
        return result

    def counts(self) -> dict[str, int]:
        """Return the number of names of each kind."""
        return {kind: len(names) for kind, names in self._names.items()}


_NUMBERS = {verdict: number for number, verdict in enumerate(VERDICTS)}


def _verdict(record: Result | RowRecord) -> int:
    return _NUMBERS[record.verdict or ("error" if record.status == "error" else "unscored")]


def milliseconds(timestamp: str) -> int | None:
    """Return a timestamp in milliseconds since 1970; None if it cannot be read."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def _missed(results: Iterable[EvaluatorResult | RowEvaluator]) -> tuple[str, ...]:
    missed = [result.name for result in results if result.error is not None or result.verdict not in (None, "pass")]
    return tuple(dict.fromkeys(missed)) if missed else ()


def packed_columns(columns: Columns) -> dict[str, Any]:
    """Return columns as the page reads them: equal values as one, and each time since that of the row before."""
    return equal_as_one({**columns, "ended": _differences(columns["ended"])})


def equal_as_one(columns: Columns) -> dict[str, Any]:
    """Return columns with equal values as one value."""
    return {
        name: values[0] if len(values) > 1 and values.count(values[0]) == len(values) else values
        for name, values in columns.items()
    }


def unpacked_columns(block: dict[str, Any], n: int) -> Columns:
    """Return the columns of a block of `n` rows."""
    columns = {name: value if isinstance(value, list) else [value] * n for name, value in block.items()}
    now, ended = 0, []
    for since in columns["ended"]:
        now += since or 0
        ended.append(None if since is None else now)
    return {**columns, "ended": ended}


def _differences(times: list[int | None]) -> list[int | None]:
    last, differences = 0, []
    for time in times:
        differences.append(None if time is None else time - last)
        last = last if time is None else time
    return differences


def remaining_fields(result: Result) -> dict[str, Any]:
    """Return the fields of a record that are not in the columns or its evaluators; the page restores them."""
    data: dict[str, Any] = msgspec.to_builtins(result)
    for key in (*_IN_COLUMNS, *HASHES):
        data.pop(key, None)
    if milliseconds(result.timestamp) is None:
        data["timestamp"] = result.timestamp
    metrics = data.pop("execution_metrics", {})
    data |= {name: metrics[name] for name in ("tool_durations", "stop_reason") if metrics.get(name)}
    evaluations = result.evaluator_results
    together = {
        "hits": tuple(hit for entry in evaluations for hit in entry.hits),
        "misses": tuple(miss for entry in evaluations for miss in entry.misses),
        "reasoning": " | ".join(f"{entry.name}: {entry.reasoning}" for entry in evaluations if entry.reasoning),
    }
    for key, value in together.items():
        if getattr(result, key) == value:
            data.pop(key, None)
    return data


def case_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a stored case that a reader needs."""
    return {key: value for key, value in fields.items() if key not in HASHES}
