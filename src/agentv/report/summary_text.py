"""Sentences about the figures of a run, shared by the terminal, Markdown, HTML and JSON output."""

from __future__ import annotations

from collections.abc import Iterator

from agentv.errors import plural
from agentv.model.manifest import EarlyStop, RunSummary, TargetSummary
from agentv.report.figures import one_line, percent, percent_interval, signed, signed_interval

LONGEST_NAME = 40


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
    """Yield how many answers were cut off, and how many came from fallback targets."""
    answers = plural(target.scored + target.unscored + target.errors, "answer")
    if target.truncated:
        yield "truncated", f"{target.truncated:,} of {answers} ended at a token or turn limit"
    if target.fallbacks:
        yield "fallbacks", f"{target.fallbacks:,} of {answers} came from a fallback target"


def trials_shown(target: TargetSummary) -> Iterator[tuple[str, str]]:
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


def early_stop_line(found: EarlyStop) -> str:
    """Describe the outcome of early stopping."""
    what = {"mean": "the mean", "pass_rate": "the pass rate", "difference": "the mean"}[found.measure]
    against = one_line(found.rule, LONGEST_NAME) if found.measure == "difference" else f"{found.value:g}"
    seen = f"e-value {found.e_value:.3g} after {plural(found.n, 'score')}"
    if found.measure == "difference":
        seen = f"difference {signed(found.estimate)}, 95 % {signed_interval(found.ci95)}, {seen}"
    if found.answer is None:
        return f"undecided   whether {what} is above or below {against} ({seen})"
    skipped = f"; {plural(found.not_needed, 'job')} not needed" if found.not_needed else ""
    that = "that of " if found.measure == "difference" else ""
    return f"decided     {what} is {found.answer} {that}{against} ({seen}){skipped}"
