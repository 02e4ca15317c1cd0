"""The facts about a target, each with its label and text. All tables and lists of figures are made from them."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from agentv.errors import plural
from agentv.report.figures import counted, duration, interval, number, percent, percent_interval, usd
from agentv.report.summary_text import answer_notes, bias_note, early_stop_line, noise_notes, trial_notes
from agentv.runs.target_summary import TargetDetails, TargetSummary

TableName = Literal["terminal", "markdown", "list"]

TABLES: dict[TableName, tuple[str, ...]] = {
    "terminal": ("mean", "ci95", "scored", "passed+", "errors", "total_cost_usd"),
    "markdown": ("mean+", "ci95", "passed", "pass_rate_ci95", "scored+", "errors+", "total_cost_usd", "duration_ms"),
    "list": ("mean", "ci95", "passed", "scored", "errors", "total_cost_usd"),
}
"""The columns of each table by the keys of their facts; `+` adds the note. `list`: lists of runs, and notebooks."""

_ROUNDING = 1e-9


class Fact(msgspec.Struct, frozen=True):
    """A figure: its key in JSON, its label, its value and its text. `note` has details that follow the text."""

    key: str
    label: str
    value: Any
    text: str
    note: str = ""


def column_labels(table: TableName) -> list[str]:
    """Return the labels of a table's columns."""
    empty = TargetSummary(cases=0, jobs=0, scored=0, errors=0, unscored=0, skipped=0)
    labels = {fact.key: fact.label for fact in target_facts(empty, None)}
    return [labels[key.rstrip("+")] for key in TABLES[table]]


def columns(table: TableName, target: TargetSummary, details: TargetDetails | None = None) -> dict[str, str]:
    """Return the texts of a table's columns by key."""
    facts = {fact.key: fact for fact in target_facts(target, details)}
    texts = {}
    for column in TABLES[table]:
        fact = facts[column.rstrip("+")]
        texts[fact.key] = fact.text + fact.note if column.endswith("+") else fact.text
    return texts


def target_facts(target: TargetSummary, details: TargetDetails | None) -> Iterator[Fact]:
    """Yield the facts that are columns of tables."""
    passed = details.passed if details else round((target.pass_rate or 0) * target.scored)
    classes = f" ({counted(details.error_classes)})" if target.errors and details else ""
    costs = [cost for cost in (target.cost_usd, target.judge_cost_usd) if cost is not None]
    total = sum(costs) if costs else None
    yield Fact("mean", "mean", target.mean, number(target.mean), bias_note(target))
    yield Fact("ci95", "95 % interval", target.ci95, interval(target.ci95))
    of_scored = f" ({_passed_count(target, passed)})" if target.scored else ""
    yield Fact("passed", "passed", target.pass_rate, percent(target.pass_rate), of_scored)
    rate_interval = target.pass_rate_ci95
    yield Fact("pass_rate_ci95", "95 % interval", rate_interval, percent_interval(rate_interval))
    yield Fact("scored", "scored", target.scored, f"{target.scored:,} of {target.jobs:,}", _scored_note(target))
    yield Fact("errors", "errors", target.errors, f"{target.errors:,}", classes)
    yield Fact("cost_usd", "cost", target.cost_usd, usd(target.cost_usd))
    yield Fact("total_cost_usd", "cost", total, usd(total))
    yield Fact("duration_ms", "time", target.duration_ms, duration(target.duration_ms))


def _passed_count(target: TargetSummary, passed: int) -> str:
    """Return the number of passes. For drawn cases, whose pass rate is weighted, it is not that rate."""
    is_weighted = abs((target.pass_rate or 0.0) - passed / target.scored) > _ROUNDING
    return f"{passed:,} of {target.scored:,}{' drawn' if is_weighted else ''}"


def _scored_note(target: TargetSummary) -> str:
    cases = [plural(target.cases, "case")] if target.jobs != target.cases else []
    further = {"unscored": target.unscored, "not run": target.skipped}
    parts = [*cases, *(f"{count:,} {what}" for what, count in further.items() if count)]
    return f" ({', '.join(parts)})" if parts else ""


def detail_facts(target: TargetSummary, details: TargetDetails | None) -> Iterator[Fact]:
    """Yield the facts of a target for the lines below the table of a terminal."""
    yield Fact("scored", "scored", target.scored, _scored_text(target))
    yield from (Fact(label, label, None, text) for label, text in answer_notes(target))
    if target.early_stop is not None:
        label, _, text = early_stop_line(target.early_stop).partition(" ")
        yield Fact("early_stop", label, target.early_stop, text.lstrip())
    basis = f"95 % interval {interval(target.ci95)}, n = {target.scored}{bias_note(target)}"
    yield Fact("mean", "mean", target.mean, f"{number(target.mean)} ({basis})")
    if details is not None and details.case_mean is not None:
        text = f"{number(details.case_mean)} (mean of the case means, as in comparisons)"
        yield Fact("case_mean", "by case", details.case_mean, text)
    if details is not None and target.scored:
        share = f"{percent(target.pass_rate)}, {_passed_count(target, details.passed)}"
        text = f"{share} (95 % interval {percent_interval(target.pass_rate_ci95)})"
        yield Fact("passed", "passed", target.pass_rate, text)
        yield from (Fact("trials", label, None, text) for label, text in trial_notes(target))
        yield Fact("bins", "scores", details.bins, "")
    yield from (Fact("variance", label, None, text) for label, text in noise_notes(target))
    yield from _usage_facts(target, details)


def _scored_text(target: TargetSummary) -> str:
    errors = [plural(target.errors, "error")] if target.errors else []
    rest = {"unscored": target.unscored, "skipped": target.skipped}
    not_scored = ", ".join([*errors, *(f"{count:,} {what}" for what, count in rest.items() if count)])
    total = plural(target.cases, "case")
    if target.jobs != target.cases:
        total = f"{plural(target.jobs, 'job')} of {total}"
    return f"{target.scored} of {total}" + (f"; not scored: {not_scored}" if not_scored else "")


def _usage_facts(target: TargetSummary, details: TargetDetails | None) -> Iterator[Fact]:
    """Yield cost and time, with the number of jobs for which they are known."""
    for key, label, cost, jobs, estimate in (
        ("cost_usd", "cost", target.cost_usd, details.priced if details else None, target.estimated_cost_usd),
        ("judge_cost_usd", "judges", target.judge_cost_usd, details.judge_priced if details else None, None),
    ):
        if cost is not None:
            notes = [] if jobs is None else [plural(jobs, "job")]
            notes += [] if estimate is None else [f"{usd(estimate)} of it estimated"]
            yield Fact(key, label, cost, usd(cost) + (f" ({', '.join(notes)})" if notes else ""))
    if target.duration_ms is not None and details is not None and details.timed:
        mean, total = duration(target.duration_ms / details.timed), duration(target.duration_ms)
        text = f"{mean} per job, {total} in total ({plural(details.timed, 'job')})"
        yield Fact("duration_ms", "time", target.duration_ms, text)


def card_facts(target: TargetSummary, details: TargetDetails | None, *, is_damaged: bool) -> list[tuple[str, str]]:
    """Return the label and text of each fact on the card of the page."""
    trials = target.trials[-1] if target.trials else None
    facts: list[tuple[str, str | None]] = []
    if trials is not None:
        for label, share, bounds in (
            (f"pass@{trials.k}", trials.pass_at_k, trials.pass_at_k_ci95),
            (f"pass^{trials.k}", trials.pass_hat_k, trials.pass_hat_k_ci95),
        ):
            within = "" if bounds is None else f", {percent_interval(bounds)}"
            facts.append((label, f"{percent(share)} of {trials.n:,}{within}"))
    not_needed = target.early_stop.not_needed if target.early_stop is not None else 0
    errors = target.ci95_with_errors
    case_mean = details.case_mean if details else None
    facts += [
        ("scored", f"{target.scored:,} of {target.jobs:,}"),
        ("cases", None if target.cases == target.jobs else f"{target.cases:,}"),
        ("by case", None if case_mean is None else number(case_mean)),
        ("errors", f"{target.errors:,} (not scored)" if target.errors else None),
        ("with errors", f"{interval(errors)} (errors as 0 and 1)" if errors else None),
        ("unscored", _positive(target.unscored)),
        ("missing" if is_damaged else "not run", _positive(target.skipped - not_needed)),
        ("not needed", _positive(not_needed)),
    ]
    return [(label, text) for label, text in [*facts, *_card_usage(target, details)] if text is not None]


def _card_usage(target: TargetSummary, details: TargetDetails | None) -> Sequence[tuple[str, str | None]]:
    jobs = target.jobs - target.skipped

    def known(text: str, n: int | None) -> str:
        """Add how many jobs a figure is known for, unless it is all of them."""
        return text if n in (None, jobs) else f"{text} ({n:,} of {jobs:,} jobs)"

    cost, judges, estimate = target.cost_usd, target.judge_cost_usd, target.estimated_cost_usd
    timed = details.timed if details else 0
    per_job = f"{duration((target.duration_ms or 0) / timed)} per job" if timed else None
    return [
        ("cost", None if cost is None else known(usd(cost), details.priced if details else None)),
        ("estimated", f"{usd(estimate)} of the cost" if estimate else None),
        ("judges", None if judges is None else known(usd(judges), details.judge_priced if details else None)),
        ("time", None if per_job is None else known(per_job, timed)),
    ]


def _positive(count: int) -> str | None:
    return f"{count:,}" if count > 0 else None
