"""The verdict of a comparison in words, its caveats, and the methods behind it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from agentv.comparison.comparison import Comparison, Matrix, Side
from agentv.comparison.error_bounds import ErrorBounds
from agentv.errors import plural
from agentv.report.comparisons.change_text import letter, run_notes
from agentv.report.figures import interval, number, p_equals, percent, signed, signed_interval
from agentv.stats.paired_comparison import PRIOR, Paired
from agentv.stats.power import ALPHA, FEWEST_CHANGES


def sentence(paired: Paired | None, before: str = "A", after: str = "B") -> str:
    """State which run is better, by how much and with which certainty, or that the cases cannot tell."""
    if paired is None:
        return f"Can't tell: no case was scored in both {before} and {after}."
    if paired.answer != "cannot tell" and paired.ci95 is not None:
        return _claim(paired, after)
    return f"Can't tell yet. {_scored(paired, after)}; {_power(paired)}."


def _scored(paired: Paired, after: str) -> str:
    """State the difference without a claim."""
    by = number(abs(paired.mean_delta))
    scored = "the same" if not float(by) else f"{by} higher" if paired.mean_delta > 0 else f"{by} lower"
    certainty = "" if paired.ci95 is None else f" (95 % {signed_interval(paired.ci95)}, {p_equals(paired.p_value)})"
    return f"{after} scored {scored} on {_cases(paired)}{certainty}"


def _claim(paired: Paired, after: str) -> str:
    """State that the second run is better or worse, with an interval whose sign fits the sentence."""
    low, high = paired.ci95 or (0.0, 0.0)
    bounds = interval((low, high) if paired.answer == "better" else (-high, -low))
    certainty = f"95 % {bounds}, {p_equals(paired.p_value)}, {_cases(paired)}"
    return f"{after} is {paired.answer} by {number(abs(paired.mean_delta))} ({certainty})."


def _cases(paired: Paired) -> str:
    clusters = f" in {units(paired)}" if paired.clusters < paired.n else ""
    return plural(paired.n, "shared case") + clusters


def units(paired: Paired | Matrix) -> str:
    """Return the number of independent cases, or of clusters of cases such as conversations."""
    return plural(paired.clusters, "cluster" if paired.clusters < paired.n else "case")


def _power(paired: Paired) -> str:
    """Describe the differences that this number of cases can show."""
    detectable = paired.minimum_detectable_difference
    if detectable is None or detectable > 0.995:
        verb = "is" if paired.clusters == 1 else "are"
        return f"{units(paired)} {verb} too few to show any difference reliably"
    return f"with {units(paired)}, only differences above about {detectable:.2g} show reliably"


def verdict(comparison: Comparison) -> str:
    """State the verdict. If there is none, say whether errors or too few cases are the reason."""
    paired = comparison.paired
    text = named_verdict(comparison)
    if paired is None or paired.answer != "cannot tell" or text.startswith("Can't tell:"):
        return text
    runs = " ".join(shlex.quote(side.label) for side in comparison.sides)
    return f"{text} Run `agentv plan {runs}` to see how many you need."


def named_verdict(comparison: Comparison, names: tuple[str, str] = ("A", "B")) -> str:
    """State the verdict with these names of the runs, without advice."""
    paired, errors = comparison.paired, comparison.errors
    if paired is None:
        return sentence(None, *names)
    if errors is not None and errors.leaves_open(paired.answer):
        only = _errored_only(errors, names)
        without = _claim(paired, names[1]) if paired.answer != "cannot tell" else f"{_scored(paired, names[1])}."
        return f"Can't tell: {only}. Without them, {without} {errors_sentence(errors, names[1])}."
    return sentence(paired, *names) + more_errors(errors, names)


def _errored_only(errors: ErrorBounds, names: tuple[str, str]) -> str:
    """State how many cases errored in one run only."""
    counts = zip(errors.only, names, strict=True)
    return " and ".join(f"{plural(count, 'case')} errored only in {name}" for count, name in counts if count)


def more_errors(errors: ErrorBounds | None, names: tuple[str, str] = ("A", "B")) -> str:
    """State that a run has more errors, if that is shown; empty otherwise."""
    if errors is None or errors.rates.answer == "cannot tell":
        return ""
    less, more = names if errors.rates.mean_delta > 0 else names[::-1]
    low, high = sorted((errors.rates.mean_before, errors.rates.mean_after))
    return f" {more} errors more often: {percent(high)} of trials against {percent(low)} in {less}."


def errors_sentence(errors: ErrorBounds, after: str = "B") -> str:
    """State the difference with errors counted as 0 and as 1."""
    worst, best = signed(errors.against.mean_delta), signed(errors.in_favour.mean_delta)
    return f"If every error counts against {after} the difference is {worst}, in its favour {best}"


def margin_sentence(comparison: Comparison) -> str | None:
    """State the result of the non-inferiority test; None if there is no margin."""
    tested = comparison.non_inferiority
    if tested is None or not comparison.is_comparable:
        return None
    limit = f"{tested.margin:g}"
    errors = comparison.errors
    why = "the interval contains" if errors is None else "the interval, with errors counted as 0 or 1, contains"
    result = {
        "shown": f"No worse than the margin: B is at most {limit} worse than A, or better",
        "refuted": f"Worse than the margin: B is more than {limit} worse than A",
        "inconclusive": f"Can't tell whether B is more than {limit} worse than A: {why} −{limit}",
    }[tested.outcome]
    has_test = tested.p_value is not None and tested.outcome == "shown"
    return f"{result} (one-sided {p_equals(tested.p_value)})." if has_test else f"{result}."


def method(paired: Paired) -> str:
    """Describe how the interval and the p-value were computed."""
    if paired.test == "mid-p McNemar":
        return "score interval of the difference of proportions (Tango), McNemar's mid-p test"
    if paired.test == "e-value":
        return "interval and p-value by betting on the cases in random order, because a run was stopped early"
    found = f"t interval over {units(paired)}, widened for rare changes that {units(paired)} may not show"
    if paired.test == "none" or paired.resamples is None:
        return found
    ways = f"all {paired.resamples:,} permutations" if paired.resamples > 1 else "no case differs"
    how = ways if paired.exact else f"{paired.resamples:,} random permutations, seed {paired.seed}"
    return f"{found}, permutation test by sign flips ({how})"


def probability(comparison: Comparison) -> str | None:
    """State the probability that the second run is better, and its prior; None if it cannot be computed."""
    found = comparison.probability_better
    if found is None:
        return None
    value = "above 99.9 %" if found > 0.999 else "below 0.1 %" if found < 0.001 else percent(found)
    return f"Probability that B is better: {value} (prior: differences are normal with mean 0 and SD {PRIOR:g})"


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield caveats of the figures."""
    paired = comparison.paired
    yield from run_notes(comparison)
    yield from comparison.notes
    yield from _stopped_early(comparison.sides, paired)
    if comparison.errors is not None and paired is not None and not comparison.errors.leaves_open(paired.answer):
        yield errors_sentence(comparison.errors)
    if paired is None or paired.p_value is None or paired.ci95 is None:
        return
    share = "0.1 %" if paired.unseen_losses < 0.001 else percent(paired.unseen_losses)
    missed = f"in up to {share} of cases could be missed with {units(paired)}"
    is_split = (paired.p_value < ALPHA) != (paired.ci95[0] > 0 or paired.ci95[1] < 0)
    if paired.differing < FEWEST_CHANGES and (paired.p_value < ALPHA or is_split):
        yield f"Only {plural(paired.differing, 'case')} changed; a verdict needs at least {FEWEST_CHANGES}"
    elif is_split and paired.p_value < ALPHA and paired.test != "mid-p McNemar":
        kind = "failures" if paired.mean_delta > 0 else "gains"
        yield f"Rare {kind} {missed}, and could outweigh this difference"
    elif is_split:
        yield "The interval and the test disagree: the result is borderline, and more cases are needed"
    elif paired.answer == "better" and paired.test == "sign flips":
        yield f"Rare failures {missed}"


def matrix_notes(matrix: Matrix) -> Iterator[str]:
    """Yield caveats of the figures of several runs."""
    yield from run_notes(matrix)
    yield from matrix.notes
    yield from _stopped_early(matrix.sides, None)
    for (i, j), errors in matrix.errors.items():
        if errors is not None and matrix.is_open(i, j):
            names = letter(i), letter(j)
            yield f"Can't tell {names[1]} from {names[0]}: {_errored_only(errors, names)}"


def _stopped_early(sides: Sequence[Side], paired: Paired | None) -> Iterator[str]:
    for index, side in enumerate(sides):
        if side.stopped_early:
            caution = "these intervals are slightly too narrow"
            if paired is not None and paired.test == "e-value":
                caution = "the interval above accounts for that; those in the tables are slightly too narrow"
            yield f"{letter(index)} was stopped early, so its mean is biased: {caution}"
