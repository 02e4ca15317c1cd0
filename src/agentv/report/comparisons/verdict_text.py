"""The verdict of a comparison in words, its caveats, and the methods behind it."""

import math
import shlex
from collections.abc import Iterator, Sequence

from agentv.comparison.comparison import Comparison, Matrix, Side
from agentv.comparison.error_bounds import ErrorBounds
from agentv.errors import plural
from agentv.report.comparisons.change_text import run_notes
from agentv.report.figures import interval, letter, number, p_equals, percent, signed, signed_interval
from agentv.stats.paired_comparison import Paired, mcnemar_exact
from agentv.stats.power import ALPHA, FEWEST_CHANGES

SCORED = {"better": "higher", "worse": "lower"}

NARROW = 0.02
"""An interval that excludes larger differences shows that there is none that matters."""


def is_judged_only(result: Comparison | Matrix) -> bool:
    """Whether a judge scored the runs that labels do not support: then only its scores are higher or lower."""
    return result.judge is not None and not result.judge.supports_claims


def sentence(paired: Paired | None, before: str = "A", after: str = "B", *, judged_only: bool = False) -> str:
    """State which run is better, by how much and with which certainty, or that the cases cannot tell."""
    if paired is None:
        return f"Can't tell: no case was scored in both {before} and {after}."
    if paired.answer != "cannot tell" and paired.ci95 is not None:
        return _claim(paired, after, judged_only)
    if paired.ci95 is not None and (largest := max(map(abs, paired.ci95))) <= NARROW:
        limit = math.ceil(round(1000 * largest, 6)) / 1000
        no = "By the judge's scores, no" if judged_only else "No"
        return f"{no} difference larger than {max(0.001, limit):g}. {_scored(paired, after)}."
    return f"Can't tell yet. {_scored(paired, after)}; {_power(paired)}.{_direction(paired, judged_only)}"


def _direction(paired: Paired, judged_only: bool) -> str:
    """State how many cases changed in the same direction, if only rare changes prevent a claim about the mean."""
    declined = paired.differing - paired.improved
    is_rare = paired.test == "sign flips" and paired.p_value is not None and paired.p_value < ALPHA
    if not is_rare or mcnemar_exact(paired.improved, declined) >= ALPHA:
        return ""
    gain, loss = (paired.improved, "improved", "higher", "failure"), (declined, "got worse", "lower", "gain")
    count, verb, scored, rare = max(gain, loss)
    cases = f"{count:,} of {units(paired)}"
    changed = f"The judge scores {cases} {scored}" if judged_only else f"{cases} {verb}"
    return f" {changed}; the mean could still hide a rare {rare}."


def _scored(paired: Paired, after: str) -> str:
    """State the difference without a claim."""
    by = number(abs(paired.mean_delta))
    scored = "the same" if not float(by) else f"{by} higher" if paired.mean_delta > 0 else f"{by} lower"
    certainty = "" if paired.ci95 is None else f" (95 % {signed_interval(paired.ci95)}, {p_equals(paired.p_value)})"
    return f"{after} scored {scored} on {_cases(paired)}{certainty}"


def _claim(paired: Paired, after: str, judged_only: bool) -> str:
    """State that the second run is better or worse, with an interval whose sign fits the sentence."""
    low, high = paired.ci95 or (0.0, 0.0)
    bounds = interval((low, high) if paired.answer == "better" else (-high, -low))
    certainty = f"95 % {bounds}, {p_equals(paired.p_value)}, {_cases(paired)}"
    claim = f"The judge scores {after} {SCORED[paired.answer]}" if judged_only else f"{after} is {paired.answer}"
    return f"{claim} by {number(abs(paired.mean_delta))} ({certainty})."


def _cases(paired: Paired) -> str:
    clusters = f" in {units(paired)}" if paired.clusters < paired.n else ""
    return plural(paired.n, "shared case") + clusters


def units(paired: Paired | Matrix) -> str:
    """Return the number of independent cases, or of clusters of cases such as conversations."""
    return plural(paired.clusters, "cluster" if paired.clusters < paired.n else "case")


def _power(paired: Paired) -> str:
    """Describe the differences that this number of cases can show."""
    if paired.ci95 is None and paired.clusters > 1:
        return f"one or two of {units(paired)} hold most of the cases, which is too few clusters for an interval"
    detectable = paired.minimum_detectable_difference
    if detectable is None or detectable > 0.995:
        verb = "is" if paired.clusters == 1 else "are"
        return f"{units(paired)} {verb} too few to show any difference reliably"
    return f"with {units(paired)}, only differences above about {detectable:.2g} show reliably"


def verdict(comparison: Comparison) -> str:
    """State the verdict. If there is none, say whether errors or too few cases are the reason."""
    paired = comparison.paired
    text = named_verdict(comparison)
    if paired is None or not text.startswith("Can't tell yet"):
        return text
    return f"{text} Run `agentv plan {' '.join(map(_run_name, comparison.sides))}` to see how many you need."


def _run_name(side: Side) -> str:
    """Return the name of a run for a command: of a pool, the newest one."""
    return shlex.quote(side.runs[-1] if side.runs else side.label)


def named_verdict(comparison: Comparison, names: tuple[str, str] = ("A", "B")) -> str:
    """State the verdict with these names of the runs, without advice."""
    paired, errors = comparison.paired, comparison.errors
    if paired is None:
        return sentence(None, *names)
    judged_only = is_judged_only(comparison)
    if errors is not None and errors.leaves_open(paired.answer):
        more = _more_errored(errors, names)
        if paired.answer == "cannot tell":
            outcome = "failed" if errors.excess > 0 else "passed"
            hidden = f"If these had {outcome}, the difference would be {signed(errors.against.mean_delta)}"
            return f"Can't tell: {more}. Without errors, {_scored(paired, names[1])}. {hidden}."
        claim = _claim(paired, names[1], judged_only)
        return f"Can't tell: {more}. Without errors, {claim} {tipping_sentence(comparison, errors, names)}."
    margin, text = comparison.non_inferiority, sentence(paired, *names, judged_only=judged_only)
    if paired.answer == "worse" and margin is not None and margin.outcome == "shown":
        text = f"{text.removesuffix('.')}, but within the margin of {margin.margin:g}."
    return text + more_errors(errors, names)


def _more_errored(errors: ErrorBounds, names: tuple[str, str]) -> str:
    """State how many more cases errored in one run than in the other."""
    (less, more), (fewer, count) = names, errors.only
    if errors.excess < 0:
        less, more, fewer, count = more, less, count, fewer
    excess = round(abs(errors.excess), 1)
    cases = "case" if excess == 1 else "cases"
    return f"{more} errored in {excess:,g} more {cases} than {less} ({count:,} against {fewer:,})"


def tipping_sentence(result: Comparison | Matrix, errors: ErrorBounds | None, names: Sequence[str]) -> str | None:
    """State how many errors may count against the claim before it is lost; None without a claim or errors."""
    point = None if errors is None else errors.tipping_point
    if point is None:
        return None
    owner = "its" if point.place == 1 else f"{names[0]}'s"
    outcome = f"of {owner} {plural(point.errors, 'error')} would have {'passed' if point.score else 'failed'}"
    which = f"unless more than {point.most:,}" if point.most else "only if none"
    claim = SCORED[point.claim] if is_judged_only(result) else point.claim
    return f"{names[1]} stays {claim} {'even if all' if point.most >= point.errors else which} {outcome}"


def more_errors(errors: ErrorBounds | None, names: tuple[str, str] = ("A", "B")) -> str:
    """State that a run has more errors, if that is shown; empty otherwise."""
    if errors is None or errors.rates.answer == "cannot tell":
        return ""
    less, more = names if errors.rates.mean_delta > 0 else names[::-1]
    low, high = sorted((errors.rates.mean_before, errors.rates.mean_after))
    return f" {more} errors more often: {percent(high)} of trials against {percent(low)} in {less}."


def margin_sentence(comparison: Comparison) -> str | None:
    """State the result of the non-inferiority test; None if there is no margin."""
    tested = comparison.non_inferiority
    if tested is None or not comparison.is_comparable:
        return None
    limit = f"{tested.margin:g}"
    errors = comparison.errors
    paired, why = comparison.paired, f"the interval contains −{limit}"
    if errors is not None and errors.excess:
        why = f"the interval, with the excess of errors counted as 0 or 1, contains −{limit}"
    elif paired is None or paired.ci95 is None:
        why = "there is no interval"
    elif not paired.ci95[0] <= -tested.margin <= paired.ci95[1]:
        why = f"{units(paired)} are too few"
    is_worse = comparison.answer == "worse"
    result = {
        "shown": f"Worse, but within the margin: B is at most {limit} worse than A"
        if is_worse
        else f"No worse than the margin: B is at most {limit} worse than A, or better",
        "refuted": f"Worse than the margin: B is more than {limit} worse than A",
        "inconclusive": f"Can't tell whether B is more than {limit} worse than A: {why}",
    }[tested.outcome]
    if is_judged_only(comparison):
        result = f"By the judge's scores: {result[0].lower()}{result[1:]}"
    has_test = tested.p_value is not None and tested.outcome == "shown"
    return f"{result} (one-sided {p_equals(tested.p_value)})." if has_test else f"{result}."


def method(paired: Paired) -> str:
    """Describe how the interval and the p-value were computed."""
    if paired.test == "mid-p McNemar":
        return "score interval of the difference of proportions (Tango), McNemar's mid-p test"
    if paired.test == "PPI++":
        return "labels of both runs, and the judge's scores of all cases (PPI++ of the difference), t interval"
    if paired.test == "e-value":
        return "interval and p-value by betting on the cases in random order, because a run was stopped early"
    if paired.test == "weighted t":
        return (
            f"difference weighted by the inverse of each case's probability, t interval over {units(paired)}, widened "
            "for rare changes"
        )
    text = f"t interval over {units(paired)}, widened for rare changes that {units(paired)} may not show"
    if paired.test == "none" or paired.resamples is None:
        return text
    ways = f"all {paired.resamples:,} permutations" if paired.resamples > 1 else "no case differs"
    how = ways if paired.exact else f"{paired.resamples:,} random permutations, seed {paired.seed}"
    return f"{text}, permutation test by sign flips ({how})"


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield caveats of the figures."""
    paired, errors = comparison.paired, comparison.errors
    if errors is not None and paired is not None and not errors.leaves_open(paired.answer):
        if (tipping := tipping_sentence(comparison, errors, "AB")) is not None:
            yield tipping
        elif errors.excess:
            worst, best = signed(errors.against.mean_delta), signed(errors.in_favour.mean_delta)
            more = _more_errored(errors, ("A", "B"))
            yield f"{more}; counted against B, the difference is {worst}, in its favour {best}"
    yield from run_notes(comparison)
    yield from comparison.notes
    yield from judge_notes(comparison)
    yield from _stopped_early(comparison.sides, paired)
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


def judge_notes(result: Comparison | Matrix) -> Iterator[str]:
    """Yield why the judge's scores are not called better or worse, or what its labels cannot show."""
    if result.judge is None:
        return
    if not is_judged_only(result):
        if not result.judge.pairs and len(result.sides) == 2:
            before, after = map(_run_name, result.sides)
            yield (
                "The judge agrees with labels, but labels of both runs did not decide: a judge that favours one of "
                f"them would not show. Run `agentv judge label {after} --against {before}`"
            )
        return
    agreement, required = result.judge.agreement, f"{result.judge.required:g}"
    if agreement.kappa is None or agreement.kappa_ci95 is None:
        why = f"{plural(agreement.labels, 'label')}, too few to measure its agreement with people"
    else:
        bounds = interval(agreement.kappa_ci95)
        why = f"kappa is {number(agreement.kappa)} (95 % {bounds}, {plural(agreement.labels, 'label')}), and its lower "
        why += f"end must reach {required}"
    command = f"agentv judge label {_run_name(result.sides[-1])}"
    if result.judge.labelled:
        why += f"; the labels of {plural(result.judge.labelled, 'case')} in both runs are too few to decide"
        command += f" --against {_run_name(result.sides[0])}"
    yield f"The judge ({', '.join(result.judge.judges)}) is not calibrated: {why}. Run `{command}`"


def matrix_notes(matrix: Matrix) -> Iterator[str]:
    """Yield caveats of the figures of several runs."""
    for (i, j), errors in matrix.errors.items():
        names = letter(i), letter(j)
        if errors is not None and matrix.is_open(i, j):
            yield f"Can't tell {names[1]} from {names[0]}: {_more_errored(errors, names)}"
        elif (tipping := tipping_sentence(matrix, errors, names)) is not None:
            yield f"{tipping}, compared with {names[0]}"
    yield from run_notes(matrix)
    yield from matrix.notes
    yield from judge_notes(matrix)
    yield from _stopped_early(matrix.sides, None)


def _stopped_early(sides: Sequence[Side], paired: Paired | None) -> Iterator[str]:
    for index, side in enumerate(sides):
        if side.stopped_early:
            caution = "these intervals are slightly too narrow"
            if paired is not None and paired.test == "e-value":
                caution = "the interval above accounts for that; those in the tables are slightly too narrow"
            yield f"{letter(index)} was stopped early, so its mean is biased: {caution}"
