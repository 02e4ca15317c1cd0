"""Sentences about the figures of a run, shared by the terminal, Markdown, HTML and JSON output."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentv.errors import plural
from agentv.model.manifest import CaseDraw, EarlyStop, SpanCounts, VarianceSummary
from agentv.report.figures import cell, number, one_line, percent, percent_interval, signed, signed_interval
from agentv.runs.summary import RunSummary
from agentv.runs.target_summary import TargetSummary

if TYPE_CHECKING:
    from agentv.runs.failure_groups import FailureGroup, FailureGroups

LONGEST_NAME = 40
MOST_NAMES = 5


def headlines(summary: RunSummary) -> list[str]:
    """Return one sentence for each target; with several targets, each starts with the name."""
    draw = [draw_line(summary.draw)] if isinstance(summary.draw, CaseDraw) else []
    pairs = [(name, headline(target, is_drawn=bool(draw))) for name, target in summary.targets.items()]
    if len(pairs) < 2:
        return [text for _, text in pairs] + draw
    return [f"{one_line(name, LONGEST_NAME)}: {text[0].lower()}{text[1:]}" for name, text in pairs] + draw


def draw_line(draw: CaseDraw) -> str:
    """State which cases `--cases-budget` drew, and what the figures are about."""
    drew = f"Drew {draw.cases:,} of {plural(draw.population, 'case')}"
    if not draw.with_history:
        why = "the baseline has no score of them" if draw.baseline else "there is no --baseline"
        return f"{drew} at random, because {why} (seed {draw.seed})"
    runs = plural(len(draw.baseline), "run")
    part = "" if draw.with_history == draw.population else f" of {draw.with_history:,} of them"
    return f"{drew}, by the scores{part} in {runs} (seed {draw.seed}); means and rates are weighted estimates for all"


def headline(target: TargetSummary, *, is_drawn: bool = False) -> str:
    """Return the pass rate with its denominator, and the number of jobs that it leaves out."""
    noun = "case" if target.jobs == target.cases else "job"
    left_out = {"errored": target.errors, "unscored": target.unscored, "not run": target.skipped}
    if target.early_stop is not None and target.early_stop.not_needed:
        del left_out["not run"]
        left_out["not needed"] = target.skipped
    rest = [f"{count:,} of {target.jobs:,} {what}" for what, count in left_out.items() if count]
    if not target.scored:
        return "; ".join([f"No {noun} was scored", *rest])
    of = plural(target.scored, noun) + (" scored" if rest else "")
    rate = _rounded(target.pass_rate or 0.0)
    passed = f"about {rate} of all cases, estimated from the {of}" if is_drawn else f"{rate} of the {of}"
    return "; ".join([f"Passed {passed}", *rest])


def _rounded(share: float) -> str:
    """Format a fraction so that only all and none read as 100 % and 0 %."""
    text = f"{share * 100:.1f}".removesuffix(".0")
    return {"100": "more than 99.9", "0": "less than 0.1"}.get(text, text) + " %" if 0 < share < 1 else f"{text} %"


def answer_notes(target: TargetSummary) -> Iterator[tuple[str, str]]:
    """Yield how many answers were cut off, came from fallback targets, or may have manipulated the judge."""
    answers = plural(target.scored + target.unscored + target.errors, "answer")
    if target.truncated:
        yield "truncated", f"{target.truncated:,} of {answers} ended at a token or turn limit"
    if target.fallbacks:
        yield "fallbacks", f"{target.fallbacks:,} of {answers} came from a fallback target"
    if target.suspicious:
        names = ", ".join(one_line(name, LONGEST_NAME) for name in target.suspicious_cases[:MOST_NAMES])
        more = ", …" if target.suspicious > MOST_NAMES else ""
        yield (
            "suspicious",
            f"{target.suspicious:,} of {answers} may have made the judge repeat a verdict: {names}{more}",
        )


def trial_notes(target: TargetSummary) -> Iterator[tuple[str, str]]:
    """Yield pass@k and pass^k for the largest number of trials; nothing for single trials."""
    if not target.trials:
        return
    rates = target.trials[-1]
    for name, share, bounds in (
        (f"pass@{rates.k}", rates.pass_at_k, rates.pass_at_k_ci95),
        (f"pass^{rates.k}", rates.pass_hat_k, rates.pass_hat_k_ci95),
    ):
        within = "" if bounds is None else f"95 % interval {percent_interval(bounds)}, "
        yield name, f"{percent(share)} ({within}n = {rates.n:,} with {rates.k} scored trials)"


def bias_note(target: TargetSummary) -> str:
    """Return why the mean of a target is biased, to follow other remarks; empty if it is not."""
    return "; biased: the run stopped early" if target.early_stop is not None and target.early_stop.biased else ""


def early_stop_line(stop: EarlyStop) -> str:
    """Describe the outcome of early stopping."""
    what = {"mean": "the mean", "pass_rate": "the pass rate", "difference": "the mean"}[stop.measure]
    if stop.population is not None:
        what += " of all cases"
    if stop.answer == "narrow" or stop.e_value is None:
        return _width_line(stop, what)
    against = one_line(stop.rule, LONGEST_NAME) if stop.measure == "difference" else f"{stop.value:g}"
    evidence = f"e-value {stop.e_value:.3g} after {plural(stop.n, 'score')}"
    if stop.measure == "difference":
        evidence = f"difference {signed(stop.estimate)}, 95 % {signed_interval(stop.ci95)}, {evidence}"
    if stop.answer is None:
        return f"undecided   whether {what} is above or below {against} ({evidence})"
    skipped = f"; {plural(stop.not_needed, 'job')} not needed" if stop.not_needed else ""
    that = "that of " if stop.measure == "difference" else ""
    return f"decided     {what} is {stop.answer} {that}{against} ({evidence}){skipped}"


def _width_line(stop: EarlyStop, what: str) -> str:
    """Describe the outcome of `--until`."""
    width = (stop.ci95[1] - stop.ci95[0]) / 2
    if stop.answer is None:
        return f"undecided   {what} is known within ±{width:.3f} after {plural(stop.n, 'score')}, not ±{stop.value:g}"
    skipped = f"; {plural(stop.not_needed, 'job')} not needed" if stop.not_needed else ""
    return f"decided     {what} is known within ±{stop.value:g} after {plural(stop.n, 'score')}{skipped}"


def noise_notes(target: TargetSummary) -> Iterator[tuple[str, str]]:
    """Yield the sources of a target's noise, what would reduce it, and the difference that a second run could show."""
    if target.variance is not None:
        yield "variance", _components(target.variance)
        if advice := noise_advice(target.variance):
            yield "advice", advice
    if target.scored:
        yield "detectable", _detectable(target)


def _components(variance: VarianceSummary) -> str:
    parts = []
    if variance.case is not None and variance.trial is not None:
        trials = f"{plural(variance.cases, 'case')}, {variance.trials:.3g} trials each"
        parts.append(f"{number(variance.case)} between cases, {number(variance.trial)} between trials ({trials})")
    if variance.judge is not None:
        votes = f"{plural(variance.answers, 'answer')}, {variance.votes:.3g} votes each"
        parts.append(f"{number(variance.judge)} between judge calls ({votes})")
    return "; ".join(parts)


_WORTHWHILE = 0.1
"""The smallest reduction of an interval, as a fraction of its width, for which more trials are suggested."""


def noise_advice(variance: VarianceSummary) -> str:
    """Return what would shrink the interval of the mean; empty if that is unknown or nothing varies.

    The variance of a mean over n cases with K trials is (case + trial / K) / n.
    """
    if variance.case is None or variance.trial is None or variance.case + variance.trial == 0:
        return ""
    trials = max(2, round(variance.trials))
    now, then = (variance.case + variance.trial / count for count in (variance.trials, 2 * trials))
    gain = 1 - math.sqrt(then / now)
    if gain < _WORTHWHILE:
        return "Most of the noise is between cases: add cases, not trials."
    if variance.judge is not None and variance.judge / variance.votes > variance.trial / 2:
        return "Most of the noise between trials comes from the judge: add votes, or make its criteria clearer."
    ratio = variance.trial / variance.case if variance.case else math.inf
    how = "more than" if ratio > 1.5 else "as much as" if ratio > 2 / 3 else "almost as much as" if ratio > 0.4 else ""
    start = f"Trials of the same case vary {how} cases" if how else "Trials of the same case add noise"
    cases = now / then - 1
    return (
        f"{start}: {2 * trials} trials instead of {trials} would shrink the interval by about {gain:.0%}; "
        f"so would {cases:.0%} more cases."
    ).replace("%", " %")


def _detectable(target: TargetSummary) -> str:
    is_single = target.jobs == target.cases
    # Of several jobs per case, it is not known which cases have a score, unless all do.
    cases = target.scored if is_single else target.cases if target.scored == target.jobs else None
    if (difference := target.minimum_detectable_difference) is None:
        which = "the scored cases" if cases is None else plural(cases, "case")
        return f"{which}: too few to show any difference to a second run"
    which = "the scored cases" if cases is None else "this 1 case" if cases == 1 else f"these {cases:,} cases"
    return f"a second run on {which} would reliably show differences above about {difference:.2g}"


def span_notes(counts: SpanCounts | None) -> Iterator[str]:
    """Yield how many spans arrived, and what happened to those that are not part of an answer."""
    if counts is None or counts == SpanCounts():
        return
    yield f"Received {plural(counts.received, 'span')} for {plural(counts.calls, 'call')}; {counts.used:,} used."
    if counts.grpc_connections:
        yield (
            f"An exporter tried to send spans with gRPC ({plural(counts.grpc_connections, 'connection')}), which is "
            "not supported. Set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf for the agent."
        )
    if counts.unreadable_requests:
        yield (
            f"{plural(counts.unreadable_requests, 'request')} could not be read, so spans are lost: the data "
            "was damaged, too large, or not OTLP over http://."
        )
    if counts.calls_without_spans:
        yield (
            f"No spans arrived for {counts.calls_without_spans:,} of {plural(counts.calls, 'call')}: check that the "
            "agent continues the trace in the `traceparent` header, and sends its spans to the port of --trace-port "
            "(default: 4318)."
        )
    if counts.late:
        cases = f" (in {', '.join(counts.late_cases)})" if counts.late_cases else ""
        yield (
            f"{plural(counts.late, 'span')} arrived after the answer was scored{cases}, so its tool calls may be "
            "incomplete. Raise `trace_wait` of the target, or let the agent export more often "
            "(OTEL_BSP_SCHEDULE_DELAY)."
        )
    if counts.repeated:
        yield f"{plural(counts.repeated, 'span')} arrived more than once, and counted once."
    if counts.unmatched:
        yield (
            f"{plural(counts.unmatched, 'span')} had no trace of this run, and matched no case: let the agent continue "
            "the trace of the `traceparent` header (for a command: of TRACEPARENT) instead of starting its own."
        )
    if counts.discarded:
        yield f"{plural(counts.discarded, 'span')} of calls that failed or were stopped are not used."
    if counts.rejected:
        yield f"{plural(counts.rejected, 'span')} were rejected: more than 10,000 spans or 32 MB in one call."


MOST_GROUPS = 10
_LONGEST_NAME = 40
_LONGEST_WORDING = 80
_LONGEST_SEQUENCE = 60


def failure_headline(summary: FailureGroups, noun: str = "result") -> str:
    """State how many results did not pass, and how many of these are errors."""
    errors = f", {plural(summary.errors, 'error')} among them" if summary.errors else ""
    return f"{summary.failures:,} of {plural(summary.results, noun)} did not pass{errors}"


def failure_lines(summary: FailureGroups) -> Iterator[str]:
    """Yield a line for each of the largest groups, and one for the rest."""
    width = len(f"{summary.groups[0].count:,}") if summary.groups else 0
    for group in summary.groups[:MOST_GROUPS]:
        yield f"{group.count:>{width},}  {group_text(group)}"
    if rest := summary.groups[MOST_GROUPS:]:
        yield f"{sum(group.count for group in rest):,} more in {plural(len(rest), 'smaller group')}; use --json for all"


def group_text(group: FailureGroup) -> str:
    """Describe a group in one line, with examples."""
    return f"{group_cause(group)}: {_examples(group)}"


def group_cause(group: FailureGroup) -> str:
    """Describe what the failures of a group have in common."""
    return ", ".join(filter(None, (cause_text(group), _tag(group), _wording(group), _tools(group))))


def cause_text(group: FailureGroup) -> str:
    """Return the error class or evaluator of a group."""
    name = one_line(group.cause, _LONGEST_NAME)
    return f"error {name}" if group.kind == "error" else name


def failure_markdown(summary: FailureGroups) -> Iterator[str]:
    """Yield a Markdown table of the largest groups."""
    largest = summary.groups[:MOST_GROUPS]
    yield from ("| failures | cause | tag | wording | tool calls | for example |", "|---|---|---|---|---|---|")
    for group in largest:
        tag = "" if group.tag is None else f"{cell(group.tag, _LONGEST_NAME)} ({_tag_rate(group)})"
        wording = "" if group.wording is None else cell(group.wording, _LONGEST_WORDING)
        tools = "" if group.tools is None else f"{cell(group.tools[0], _LONGEST_SEQUENCE)} ({group.tools[1]:,})"
        cause, examples = cell(cause_text(group), _LONGEST_NAME), cell(_examples(group), 3 * _LONGEST_NAME)
        yield f"| {group.count:,} of {summary.failures:,} | {cause} | {tag} | {wording} | {tools} | {examples} |"
    if len(summary.groups) > len(largest):
        rest = summary.groups[len(largest) :]
        yield from ("", f"… and {sum(group.count for group in rest):,} more in {plural(len(rest), 'smaller group')}.")


def _tag(group: FailureGroup) -> str:
    return "" if group.tag is None else f"tag {one_line(group.tag, _LONGEST_NAME)} ({_tag_rate(group)})"


def _tag_rate(group: FailureGroup) -> str:
    return f"{group.tag_failures or 0:,} of {group.tag_results or 0:,} fail"


def _wording(group: FailureGroup) -> str:
    return "" if group.wording is None else f"wording like “{one_line(group.wording, _LONGEST_WORDING)}”"


def _tools(group: FailureGroup) -> str:
    if group.tools is None:
        return ""
    sequence, count = group.tools
    return f"tool calls {one_line(sequence, _LONGEST_SEQUENCE)} ({count:,} of {group.count:,})"


def _examples(group: FailureGroup) -> str:
    return ", ".join(one_line(id, _LONGEST_NAME) for id in group.examples)
