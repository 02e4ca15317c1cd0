"""Compare an old and a new model on the same cases: quality, cost, time, refusals and other failures, tool calls."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from agentv.comparison.behaviour.trajectory import first_divergence
from agentv.comparison.comparison import Comparison, FailOn, worst_exit_code
from agentv.comparison.comparison_json import comparison_data, paired_data
from agentv.comparison.run_comparison import CompareOptions, compare_runs
from agentv.comparison.scores import RunScores
from agentv.model.message import StoredCall, stored_tool_calls
from agentv.model.result import EvaluatorResult, Result
from agentv.model.values import cluster_of
from agentv.runs.store import RunStore
from agentv.stats.means import Estimate, paired_difference
from agentv.stats.paired_comparison import Paired, compare_paired

FORMAT_CHECKS = frozenset({"is_json", "json_schema", "field_accuracy"})
"""Types of evaluators that fail if an answer does not have the required format."""

_REFUSED = frozenset({"refusal", "content_filter", "safety", "prohibited_content", "recitation", "blocklist"})
"""Stop reasons of APIs for an answer that was refused or blocked."""

_REFUSAL = re.compile(
    r"^\W*(?:(?:i'?m|i am|we'?re|we are) (?:(?:very |so |really )?sorry|afraid|unable|not able)|sorry\b|i apologi[sz]e"
    r"|unfortunately,? (?:i|we)|as an ai\b|i (?:cannot|can'?t|can not|won'?t|will not|must decline|have to decline))"
    r"[^.!?]{0,120}?\b(?:can'?t|cannot|can not|unable|not able|won'?t|will not|decline|refuse|help|assist|comply"
    r"|provide|fulfil|answer|do that)\b",
    re.IGNORECASE,
)
_READ = 300

CaseKey = tuple[str, str, str | None]
"""Dataset, id and prompt of a case."""


class RateChange(msgspec.Struct, frozen=True, kw_only=True):
    """How many answers have a property: `before` of `of_before` with the old model, `after` of `of_after` with the new.

    `paired` compares the rates over the cases that both have.
    """

    name: str
    before: int
    of_before: int
    after: int
    of_after: int
    paired: Paired | None


class TokenChange(msgspec.Struct, frozen=True, kw_only=True):
    """Mean tokens per answer, over the cases where both models report them."""

    name: str
    n: int
    before: float
    after: float
    difference: Estimate


class ToolChange(msgspec.Struct, frozen=True, kw_only=True):
    """The answers with tool calls in either run, and those whose calls differ, by the tool where they first do."""

    answers: int
    with_calls: int
    differing: int
    first_at: dict[str, int]


class JudgeBridge(msgspec.Struct, frozen=True, kw_only=True):
    """The same answers scored by the old judge and by the new one.

    `comparison` is that of the models by the new judge. `shift` is the new judge's score minus the old one's on the
    same answers, `shifts` that for the old and the new model's answers. `total` is what a comparison of the old setup
    with the new one shows: the change of the model and of the judge together.
    """

    comparison: Comparison
    shift: Paired | None
    shifts: tuple[Paired | None, Paired | None]
    total: Paired | None


class SwapFigures(msgspec.Struct, frozen=True, kw_only=True):
    """An old and a new model on the same cases, scored by the old judge; `bridge` is set if the judge changes too."""

    names: tuple[str, str]
    comparison: Comparison
    rates: tuple[RateChange, ...]
    tokens: tuple[TokenChange, ...]
    tools: ToolChange
    bridge: JudgeBridge | None = None

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparison by the old judge and, if it changes, by the new one."""
        return self.comparison, *(() if self.bridge is None else (self.bridge.comparison,))

    def exit_code(self, on: FailOn) -> int:
        """Return the exit code of a gate, which every judge must pass."""
        return worst_exit_code(side.exit_code(on) for side in self.comparisons)


def compare_models(
    run: RunScores, names: tuple[str, str], options: CompareOptions, rescored: RunScores | None = None
) -> SwapFigures:
    """Compare two targets of one run. `rescored` has the same answers, scored by the new judge."""
    old, new = (RunScores(run.path, name, name) for name in names)
    tally = _Tally(names)
    for result in RunStore.open(run.path).records():
        tally.add(result)
    return SwapFigures(
        names=names,
        comparison=compare_runs(old, new, options),
        rates=tuple(tally.rates()),
        tokens=tuple(tally.tokens()),
        tools=tally.tools(),
        bridge=None if rescored is None else _bridge(run, rescored, names, options),
    )


def _bridge(run: RunScores, rescored: RunScores, names: tuple[str, str], options: CompareOptions) -> JudgeBridge:
    """Separate the change of the measure from the change of the model."""
    anyway = msgspec.structs.replace(options, allow_changed_measure=True, cases=(), changes=0, margin=None)
    before, after = ([RunScores(side.path, name, name) for name in names] for side in (run, rescored))
    first, second = (compare_runs(old, new, anyway).paired for old, new in zip(before, after, strict=True))
    return JudgeBridge(
        comparison=compare_runs(after[0], after[1], options),
        shift=compare_runs(run, rescored, anyway).paired,
        shifts=(first, second),
        total=compare_runs(before[0], after[1], anyway).paired,
    )


def is_refusal(result: Result) -> bool:
    """Return whether an answer was refused or blocked: by its error class or stop reason, or by how it begins."""
    if result.error is not None:
        return result.error.error_class == "refused"
    metrics = result.execution_metrics
    if metrics is not None and (metrics.stop_reason or "").lower() in _REFUSED:
        return True
    text = (result.candidate_answer or "")[:_READ].replace("\u2019", "'")
    return _REFUSAL.match(text) is not None


def _format_failure(result: Result) -> bool | None:
    """Return whether an answer has the wrong format; None if no evaluator checks it."""
    if result.error is not None and result.error.error_class == "invalid_response":
        return True
    checks = list(_format_checks(result.evaluator_results))
    return any(score < 1 for score in checks) if checks else None


def _format_checks(results: Iterable[EvaluatorResult]) -> Iterable[float]:
    for result in results:
        yield from _format_checks(result.evaluator_results)
        if result.type.replace("-", "_") in FORMAT_CHECKS and result.score is not None:
            yield result.score


class _Column:
    """The values of one property by case, for the old and the new model."""

    def __init__(self) -> None:
        self.values: tuple[dict[CaseKey, list[float]], dict[CaseKey, list[float]]] = ({}, {})

    def add(self, side: int, case: CaseKey, value: float) -> None:
        self.values[side].setdefault(case, []).append(value)

    @property
    def shared(self) -> list[CaseKey]:
        """The cases that both models have."""
        first, second = self.values
        return [case for case in first if case in second]

    def means(self, side: int) -> list[float]:
        """Return the means of the shared cases of a side."""
        return [sum(values) / len(values) for values in (self.values[side][case] for case in self.shared)]

    def count(self, side: int) -> tuple[int, int]:
        """Return the sum and the number of the values of a side."""
        values = [value for scores in self.values[side].values() for value in scores]
        return round(sum(values)), len(values)


class _Tally:
    """Collects the properties of all answers of both models."""

    def __init__(self, names: tuple[str, str]) -> None:
        self._sides = {name: side for side, name in enumerate(names)}
        self._columns: dict[str, _Column] = {}
        self._tokens: dict[str, _Column] = {}
        self._talks: dict[CaseKey, tuple[str, str]] = {}
        self._calls: dict[tuple[CaseKey, int], tuple[int, list[StoredCall]]] = {}
        self._compared = self._with_calls = self._differing = 0
        self._first_at: Counter[str] = Counter()

    def add(self, result: Result) -> None:
        if (side := self._sides.get(result.target)) is None:
            return
        case = (result.dataset, result.eval_id, result.prompt)
        if (cluster := cluster_of(result)) is not None:
            self._talks[case] = (result.dataset, f"conversation {cluster}")
        metrics = result.execution_metrics
        properties = {
            "refusals": is_refusal(result),
            "truncated": metrics is not None and metrics.is_cut_off,
            "errors": result.status == "error",
            "format failures": _format_failure(result),
        }
        for name, value in properties.items():
            if value is not None:
                self._columns.setdefault(name, _Column()).add(side, case, float(value))
        usage = metrics.token_usage if metrics is not None and not result.cached else None
        counts = {} if usage is None else {"input tokens": usage.input, "output tokens": usage.output}
        for name, count in counts.items():
            self._tokens.setdefault(name, _Column()).add(side, case, float(count))
        if result.candidate_answer is not None:
            self._add_calls(side, case, result)

    def _add_calls(self, side: int, case: CaseKey, result: Result) -> None:
        calls = stored_tool_calls(result.output_messages)
        other = self._calls.pop((case, result.trial), None)
        if other is None or other[0] == side:
            self._calls[case, result.trial] = side, calls
            return
        first, second = (calls, other[1]) if side == 0 else (other[1], calls)
        self._compared += 1
        self._with_calls += bool(first or second)
        if (divergence := first_divergence(first, second)) is not None:
            self._differing += 1
            self._first_at[divergence.tool] += 1

    def _clusters(self, column: _Column) -> list[int] | None:
        """Return the clusters of the shared cases: conversations, and the prompts of a case; None without any."""
        numbers: dict[tuple[str, str], int] = {}
        keys = (self._talks.get(case, case[:2]) for case in column.shared)
        clusters = [numbers.setdefault(key, len(numbers)) for key in keys]
        return clusters if len(numbers) < len(clusters) else None

    def rates(self) -> Iterable[RateChange]:
        for name, column in self._columns.items():
            first, second = column.means(0), column.means(1)
            (before, of_before), (after, of_after) = column.count(0), column.count(1)
            yield RateChange(
                name=name,
                before=before,
                of_before=of_before,
                after=after,
                of_after=of_after,
                paired=compare_paired(first, second, self._clusters(column)) if first else None,
            )

    def tokens(self) -> Iterable[TokenChange]:
        for name, column in self._tokens.items():
            first, second = column.means(0), column.means(1)
            if first:
                difference = paired_difference(first, second, self._clusters(column)).estimate
                before, after = (sum(values) / len(values) for values in (first, second))
                yield TokenChange(name=name, n=len(first), before=before, after=after, difference=difference)

    def tools(self) -> ToolChange:
        return ToolChange(
            answers=self._compared,
            with_calls=self._with_calls,
            differing=self._differing,
            first_at=dict(self._first_at.most_common()),
        )


def swap_data(figures: SwapFigures, exit_code: int, recommendation: str) -> dict[str, Any]:
    """Return the figures as JSON."""
    bridge = figures.bridge
    return {
        "old": figures.names[0],
        "new": figures.names[1],
        "recommendation": recommendation,
        "exit_code": exit_code,
        "quality": comparison_data(figures.comparison, exit_code),
        "rates": [{**msgspec.structs.asdict(change), "paired": paired_data(change.paired)} for change in figures.rates],
        "tokens": [
            {**msgspec.structs.asdict(change), "difference": change.difference._asdict()} for change in figures.tokens
        ],
        "tool_calls": msgspec.to_builtins(figures.tools),
        "bridge": None
        if bridge is None
        else {
            "quality": comparison_data(bridge.comparison, exit_code),
            "judge_shift": paired_data(bridge.shift),
            "judge_shift_old_model": paired_data(bridge.shifts[0]),
            "judge_shift_new_model": paired_data(bridge.shifts[1]),
            "total": paired_data(bridge.total),
        },
    }
