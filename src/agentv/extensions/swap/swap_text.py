"""A rehearsed change of model in words: one recommendation, then the figures. Lines for a terminal, or Markdown."""

from collections.abc import Callable, Iterator, Sequence

from agentv.comparison.comparison import Comparison
from agentv.errors import plural
from agentv.extensions.swap.model_swap import RateChange, SwapFigures, TokenChange
from agentv.report.comparisons.behaviour_text import regression_lines, regression_markdown
from agentv.report.comparisons.comparison_text import left_out
from agentv.report.comparisons.verdict_text import is_judged_only, named_verdict, notes
from agentv.report.figures import (
    bounds_text,
    cell,
    counted,
    duration,
    interval,
    markdown,
    markdown_table,
    number,
    one_line,
    p_equals,
    signed,
    signed_interval,
    usd,
)
from agentv.report.terminal import Line, note_lines, table_lines
from agentv.stats.paired_comparison import Paired

_LONGEST_NAME = 40
_LONGEST_TOOLS = 120
TOOLS = "tool calls"
_NOTABLE = 1.1
"""A ratio of costs or times from this on is part of the recommendation."""
HEAD = ["", "old (A)", "new (B)", "difference", "95 % interval", "basis"]


def recommendation(figures: SwapFigures) -> str:
    """Return one sentence: switch, do not switch, or what is missing to decide, and what else changes."""
    name = f"'{one_line(figures.names[1], _LONGEST_NAME)}'"
    verdicts = list(map(_verdict, figures.comparisons))
    if len(set(verdicts)) > 1:
        start = f"Can't tell yet: {name} is {verdicts[0]} by the old judge and {verdicts[1]} by the new judge"
    else:
        start = _start(verdicts[0], name, figures)
    also = [*_worse_rates(figures.rates), *_use(figures.comparison)]
    return f"{start}. {'It ' + '; it '.join(also) + '.' if also else ''}".strip()


def _verdict(comparison: Comparison) -> str:
    margin = comparison.non_inferiority
    if comparison.answer == "better" or margin is None or margin.outcome == "inconclusive":
        return comparison.answer
    return "no worse than the margin" if margin.outcome == "shown" else "worse than the margin"


def _start(verdict: str, name: str, figures: SwapFigures) -> str:
    comparison = figures.comparison
    paired, errors = comparison.paired, comparison.errors
    if paired is None:
        return "Can't tell: no case was scored for both models"
    by = f"by {number(abs(paired.mean_delta))} (95 % {_bounds(paired)}, {plural(paired.n, 'case')})"
    if verdict == "better":
        claim = f"the judge scores {name} higher" if is_judged_only(comparison) else f"{name} is better"
        return f"Switch: {claim} {by}"
    if verdict.startswith("no worse"):
        assert comparison.non_inferiority is not None
        source = "by the judge's scores, " if is_judged_only(comparison) else ""
        limit = f"{comparison.non_inferiority.margin:g}"
        return f"Switch if the other figures suit you: {source}{name} is at most {limit} worse"
    if verdict.startswith("worse"):
        claim = f"the judge scores {name} lower" if is_judged_only(comparison) else f"{name} is worse"
        return f"Do not switch: {claim} {by}"
    if errors is not None and errors.leaves_open(paired.answer):
        return named_verdict(comparison, (f"'{one_line(figures.names[0], _LONGEST_NAME)}'", name)).removesuffix(".")
    detectable = paired.minimum_detectable_difference
    shows = "no difference" if detectable is None else f"only differences above about {detectable:.2g}"
    delta = signed(paired.mean_delta) + ("" if paired.ci95 is None else f" (95 % {signed_interval(paired.ci95)})")
    return f"Can't tell yet: the difference in quality is {delta}, and {plural(paired.n, 'case')} show {shows} reliably"


def _bounds(paired: Paired) -> str:
    low, high = paired.ci95 or (0.0, 0.0)
    return interval((low, high) if paired.mean_delta > 0 else (-high, -low))


def _worse_rates(rates: Sequence[RateChange]) -> Iterator[str]:
    """Yield the rates that are shown to have changed."""
    for rate in rates:
        if rate.paired is not None and rate.paired.answer != "cannot tell":
            more = "more" if rate.paired.mean_delta > 0 else "fewer"
            before, after = _share(rate.before, rate.of_before), _share(rate.after, rate.of_after)
            yield f"has {more} {rate.name}, {after} instead of {before}"


def _use(comparison: Comparison) -> Iterator[str]:
    for change, verb in ((comparison.cost, "costs"), (comparison.duration, "takes")):
        ratio = None if change is None else change.ratio
        if ratio is None or ratio.ci95 is None or ratio.ci95[0] <= 1 <= ratio.ci95[1]:
            continue
        if ratio.value >= _NOTABLE or ratio.value <= 1 / _NOTABLE:
            what = "as much" if verb == "costs" else "as long"
            yield f"{verb} {ratio.value:.2g} times {what}"


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,}"


def swap_rows(figures: SwapFigures) -> Iterator[list[str]]:
    """Yield a row for each figure, with the number of cases or answers that it is based on."""
    comparison = figures.comparison
    yield from _quality("mean score", comparison.paired)
    passes, paired = comparison.pass_rate, comparison.paired
    # With scores of 0 and 1 the pass rate is the mean.
    if passes and paired and (passes.mean_before, passes.mean_delta) != (paired.mean_before, paired.mean_delta):
        yield from _quality("pass rate", passes)
    if (cost := comparison.cost) is not None:
        values = [usd(cost.before), usd(cost.after), _with_sign(cost.difference.value, usd)]
        bounds = bounds_text(cost.difference.ci95, lambda end: _with_sign(end, usd))
        yield ["cost per case", *values, bounds, plural(cost.n, "case")]
    if comparison.duration is not None:
        for before, after in comparison.duration.percentiles:
            label = "time, median" if before.share == 0.5 else f"time, p{100 * before.share:.0f}"
            values = [duration(before.value), duration(after.value), _with_sign(after.value - before.value, duration)]
            bounds = "-" if after.ci95 is None else f"new {duration(after.ci95[0])} to {duration(after.ci95[1])}"
            yield [label, *values, bounds, plural(comparison.duration.n, "case")]
    yield from (_token_row(change) for change in figures.tokens)
    yield from (_rate_row(change) for change in figures.rates)
    tools = figures.tools
    if tools.with_calls:
        at = counted(dict(list(tools.first_at.items())[:3]))
        differ = f"{_share(tools.differing, tools.with_calls)} differ"
        yield [TOOLS, "", "", differ, f"first at {at}" if at else "-", plural(tools.answers, "answer")]


def _quality(name: str, paired: Paired | None) -> Iterator[list[str]]:
    if paired is not None:
        values = [number(paired.mean_before), number(paired.mean_after), signed(paired.mean_delta)]
        yield [name, *values, signed_interval(paired.ci95), plural(paired.n, "case")]


def _with_sign(value: float, unsigned: Callable[[float], str]) -> str:
    return f"{'−' if value < 0 else '+'}{unsigned(abs(value))}"


def _token_row(change: TokenChange) -> list[str]:
    values = [f"{change.before:,.0f}", f"{change.after:,.0f}", _count_change(change.difference.value)]
    return [change.name, *values, bounds_text(change.difference.ci95, _count_change), plural(change.n, "case")]


def _count_change(value: float) -> str:
    return f"{value:+,.0f}".replace("-", "−")


def _rate_row(rate: RateChange) -> list[str]:
    paired = rate.paired
    change = "-" if paired is None else _percent_change(paired.mean_delta)
    bounds = bounds_text(None if paired is None else paired.ci95, _percent_change)
    shares = [_share(rate.before, rate.of_before), _share(rate.after, rate.of_after)]
    return [rate.name, *shares, change, bounds, plural(0 if paired is None else paired.n, "case")]


def _percent_change(value: float) -> str:
    return f"{value * 100:+.1f} %".replace("-", "−")


def bridge_sentences(figures: SwapFigures) -> Iterator[str]:
    """Yield the verdict by each judge, and how the new judge shifts the scores of the same answers."""
    if (bridge := figures.bridge) is None:
        return
    for which, comparison in (("old", figures.comparison), ("new", bridge.comparison)):
        if (paired := comparison.paired) is not None:
            change = f"{signed(paired.mean_delta)} (95 % {signed_interval(paired.ci95)}, {p_equals(paired.p_value)})"
            yield f"By the {which} judge: {change}; verdict: {comparison.answer}"
    if (shift := bridge.shift) is not None:
        of_each = ", ".join(
            f"{signed(model_shift.mean_delta)} on those of the {which} model"
            for which, model_shift in zip(("old", "new"), bridge.shifts, strict=True)
            if model_shift is not None
        )
        bounds = f"95 % {signed_interval(shift.ci95)}"
        yield f"Judge shift on the same {plural(shift.n, 'answer')}: {signed(shift.mean_delta)} ({bounds}); {of_each}"
    if (total := bridge.total) is not None:
        yield f"Model and judge together: {signed(total.mean_delta)}, as a chart over time would show it"


def swap_lines(figures: SwapFigures) -> list[Line]:
    """Return the figures as lines for a terminal."""
    lines: list[Line] = [(recommendation(figures), "bold")]
    lines += [*note_lines(notes(figures.comparison)), ("", ""), *table_lines([HEAD, *swap_rows(figures)])]
    lines += [(text, "") for text in left_out(figures.comparison)]
    if bridge := list(bridge_sentences(figures)):
        lines += [("", ""), ("Change of the judge", "bold"), *((text, "") for text in bridge)]
    if figures.comparison.regressions is not None:
        lines += [("", ""), *regression_lines(figures.comparison.regressions)]
    return lines


def _escaped(text: str) -> str:
    return cell(text, _LONGEST_TOOLS)


def swap_markdown(figures: SwapFigures) -> str:
    """Return the figures as Markdown."""
    old, new = (cell(name, _LONGEST_NAME) for name in figures.names)
    lines = [f"### {markdown(recommendation(figures), 1000)}", "", f"Old: {old}, new: {new}", ""]
    lines += [f"> {markdown(note, 500)}\n" for note in notes(figures.comparison)]
    lines += markdown_table(HEAD, (row if row[0] != TOOLS else map(_escaped, row) for row in swap_rows(figures)))
    lines += ["", *(f"- {markdown(text, 500)}" for text in left_out(figures.comparison)), ""]
    if bridge := list(bridge_sentences(figures)):
        lines += ["#### Change of the judge", "", *(f"- {markdown(text, 500)}" for text in bridge), ""]
    if figures.comparison.regressions is not None:
        lines += regression_markdown(figures.comparison.regressions)
    return "\n".join(lines).rstrip() + "\n"
