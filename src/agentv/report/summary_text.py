"""Sentences about the figures of a run, shared by the terminal, Markdown, HTML and JSON output."""

from __future__ import annotations

import math
from collections.abc import Iterator

from agentv.errors import plural
from agentv.model.manifest import EarlyStop, VarianceSummary
from agentv.report.figures import number, one_line, percent, percent_interval, signed, signed_interval
from agentv.runs.summary import RunSummary
from agentv.runs.target_summary import TargetSummary

LONGEST_NAME = 40
MOST_NAMES = 5


def headlines(summary: RunSummary) -> list[str]:
    """Return one sentence for each target; with several targets, each starts with the name."""
    found = [(name, headline(target)) for name, target in summary.targets.items()]
    if len(found) < 2:
        return [text for _, text in found]
    return [f"{one_line(name, LONGEST_NAME)}: {text[0].lower()}{text[1:]}" for name, text in found]


def headline(target: TargetSummary) -> str:
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
    return "; ".join([f"Passed {_rounded(target.pass_rate or 0.0)} of the {of}", *rest])


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
        shown = ", ".join(one_line(name, LONGEST_NAME) for name in target.suspicious_cases[:MOST_NAMES])
        more = ", …" if target.suspicious > MOST_NAMES else ""
        yield (
            "suspicious",
            f"{target.suspicious:,} of {answers} may have made the judge repeat a verdict: {shown}{more}",
        )


def trial_notes(target: TargetSummary) -> Iterator[tuple[str, str]]:
    """Yield pass@k and pass^k for the largest number of trials; nothing for single trials."""
    if not target.trials:
        return
    found = target.trials[-1]
    for name, share, bounds in (
        (f"pass@{found.k}", found.pass_at_k, found.pass_at_k_ci95),
        (f"pass^{found.k}", found.pass_hat_k, found.pass_hat_k_ci95),
    ):
        within = "" if bounds is None else f"95 % interval {percent_interval(bounds)}, "
        yield name, f"{percent(share)} ({within}n = {found.n:,} with {found.k} scored trials)"


def bias_note(target: TargetSummary) -> str:
    """Return why the mean of a target is biased, to follow other remarks; empty if it is not."""
    return "; biased: the run stopped early" if target.early_stop is not None and target.early_stop.biased else ""


def early_stop_line(found: EarlyStop) -> str:
    """Describe the outcome of early stopping."""
    what = {"mean": "the mean", "pass_rate": "the pass rate", "difference": "the mean"}[found.measure]
    if found.population is not None:
        what += " of all cases"
    against = one_line(found.rule, LONGEST_NAME) if found.measure == "difference" else f"{found.value:g}"
    seen = f"e-value {found.e_value:.3g} after {plural(found.n, 'score')}"
    if found.measure == "difference":
        seen = f"difference {signed(found.estimate)}, 95 % {signed_interval(found.ci95)}, {seen}"
    if found.answer is None:
        return f"undecided   whether {what} is above or below {against} ({seen})"
    skipped = f"; {plural(found.not_needed, 'job')} not needed" if found.not_needed else ""
    that = "that of " if found.measure == "difference" else ""
    return f"decided     {what} is {found.answer} {that}{against} ({seen}){skipped}"


def noise_notes(target: TargetSummary) -> Iterator[tuple[str, str]]:
    """Yield the sources of a target's noise, what would reduce it, and the difference that a second run could show."""
    if target.variance is not None:
        yield "variance", _components(target.variance)
        advice = noise_advice(target.variance)
        if advice:
            yield "advice", advice
    if target.scored:
        yield "detectable", _detectable(target)


def _components(found: VarianceSummary) -> str:
    parts = []
    if found.case is not None and found.trial is not None:
        trials = f"{plural(found.cases, 'case')}, {found.trials:.3g} trials each"
        parts.append(f"{number(found.case)} between cases, {number(found.trial)} between trials ({trials})")
    if found.judge is not None:
        votes = f"{plural(found.answers, 'answer')}, {found.votes:.3g} votes each"
        parts.append(f"{number(found.judge)} between judge calls ({votes})")
    return "; ".join(parts)


_WORTHWHILE = 0.1
"""The smallest reduction of an interval, as a fraction of its width, for which more trials are suggested."""


def noise_advice(found: VarianceSummary) -> str:
    """Return what would shrink the interval of the mean; empty if that is unknown or nothing varies.

    The variance of a mean over n cases with K trials is (case + trial / K) / n.
    """
    if found.case is None or found.trial is None or found.case + found.trial == 0:
        return ""
    trials = max(2, round(found.trials))
    now, then = (found.case + found.trial / count for count in (found.trials, 2 * trials))
    gain = 1 - math.sqrt(then / now)
    if gain < _WORTHWHILE:
        return "Most of the noise is between cases: add cases, not trials."
    if found.judge is not None and found.judge / found.votes > found.trial / 2:
        return "Most of the noise between trials comes from the judge: add votes, or make its criteria clearer."
    ratio = found.trial / found.case if found.case else math.inf
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
    found = target.minimum_detectable_difference
    if found is None:
        which = "the scored cases" if cases is None else plural(cases, "case")
        return f"{which}: too few to show any difference to a second run"
    which = "the scored cases" if cases is None else "this 1 case" if cases == 1 else f"these {cases:,} cases"
    return f"a second run on {which} would reliably show differences above about {found:.2g}"
