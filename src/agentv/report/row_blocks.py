"""Rows of the page: results as columns with numbered names, and the fields of a record that are not in them."""

from __future__ import annotations

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
        usages = [each.token_usage for each in metrics]
        targets, datasets, prompts = names["targets"], names["datasets"], names["prompts"]
        errors, tags, missed = names["errors"], names["tagSets"], names["evaluatorSets"]
        return {
            "id": [each.eval_id for each in records],
            "verdict": [_verdict(each) for each in records],
            "score": [each.score for each in records],
            "target": [targets[each.target] for each in records],
            "dataset": [datasets[each.dataset, each.dataset_path] for each in records],
            "prompt": [-1 if each.prompt is None else prompts[each.prompt] for each in records],
            "trial": [each.trial for each in records],
            "duration": [each.duration_ms for each in metrics],
            "cost": [each.cost_usd for each in metrics],
            "input": [each.input if each else None for each in usages],
            "output": [each.output if each else None for each in usages],
            "cached": [each.cached if each else None for each in usages],
            "ended": [milliseconds(each.timestamp) for each in records],
            "error": [-1 if each.error is None else errors[each.error.error_class] for each in records],
            "tags": [tags[each.tags] for each in records],
            "missed": [missed[_missed(each.evaluator_results)] for each in records],
        }

    def names(self, known: dict[str, int] | None = None) -> dict[str, list[Any]]:
        """Return the names by kind, without the first `known` ones."""
        found = {kind: list(names)[(known or {}).get(kind, 0) :] for kind, names in self._names.items()}
        found["datasets"] = [{"name": name, "path": path} for name, path in found["datasets"]]
        return found

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
    missed = [found.name for found in results if found.error is not None or found.verdict not in (None, "pass")]
    return tuple(dict.fromkeys(missed)) if missed else ()


def packed_columns(columns: Columns) -> dict[str, Any]:
    """Return columns as the page reads them: equal values as one, and each time since that of the row before."""
    return equal_as_one({**columns, "ended": _differences(columns["ended"])})


def equal_as_one(columns: Columns) -> dict[str, Any]:
    """Return columns with equal values as one value."""
    block: dict[str, Any] = {}
    for name, values in columns.items():
        is_same = len(values) > 1 and values.count(values[0]) == len(values)
        block[name] = values[0] if is_same else values
    return block


def unpacked_columns(block: dict[str, Any], n: int) -> Columns:
    """Return the columns of a block of `n` rows."""
    columns = {name: value if isinstance(value, list) else [value] * n for name, value in block.items()}
    now, ended = 0, []
    for since in columns["ended"]:
        now += since or 0
        ended.append(None if since is None else now)
    return {**columns, "ended": ended}


def _differences(times: list[int | None]) -> list[int | None]:
    last, found = 0, []
    for time in times:
        found.append(None if time is None else time - last)
        last = last if time is None else time
    return found


def remaining_fields(result: Result) -> dict[str, Any]:
    """Return the fields of a record that are not in the columns or its evaluators; the page restores them."""
    data: dict[str, Any] = msgspec.to_builtins(result)
    for key in (*_IN_COLUMNS, *HASHES):
        data.pop(key, None)
    if milliseconds(result.timestamp) is None:
        data["timestamp"] = result.timestamp
    durations = data.pop("execution_metrics", {}).get("tool_durations")
    if durations:
        data["tool_durations"] = durations
    found = result.evaluator_results
    together = {
        "hits": tuple(hit for each in found for hit in each.hits),
        "misses": tuple(miss for each in found for miss in each.misses),
        "reasoning": " | ".join(f"{each.name}: {each.reasoning}" for each in found if each.reasoning),
    }
    for key, value in together.items():
        if getattr(result, key) == value:
            data.pop(key, None)
    return data


def case_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a stored case that a reader needs."""
    return {key: value for key, value in fields.items() if key not in HASHES}
