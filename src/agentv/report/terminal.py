"""The end of a run as people see it: per target the mean with its interval and everything it stands on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

import msgspec

from agentv.model.manifest import EarlyStop, PartSummary, RunSummary, TargetSummary
from agentv.report.figures import (
    aligned,
    bars,
    can_show_bars,
    counted,
    duration,
    fitted,
    fitting,
    interval,
    job_name,
    number,
    one_line,
    percent,
    percent_interval,
    signed,
    signed_interval,
    usd,
)
from agentv.runs.summary import CaseNote, TargetDetails

_LONGEST_NAME = 40
_LONGEST_REASON = 100
_FIGURES_WIDTH = 40
_SPARE = ("cost", "passed", "errors", "95 % interval")

Line = tuple[str, str]
"""Text, and how it looks on a terminal; an empty style where it looks like the rest."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown when a run is over. `notes` are lines before the figures, `commands` what to type next."""

    summary: RunSummary
    details: Mapping[str, TargetDetails]
    duration_ms: float | None = None
    notes: Sequence[str] = ()
    commands: Sequence[str] = ()


def print_ending(ending: Ending, stream: TextIO, interactive: bool) -> None:
    """The summary: coloured and as wide as a terminal, or as plain lines."""
    width = width_of(stream) if interactive else None
    print_lines(summary_lines(ending, can_show_bars(stream.encoding), width), stream, interactive)


def width_of(stream: TextIO) -> int | None:
    """The columns of a terminal; None for anything else, where lines may be as long as they are."""
    if not stream.isatty():
        return None
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted):
        return int(wanted)
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or None
    return None


def print_lines(lines: Sequence[Line], stream: TextIO, interactive: bool) -> None:
    """Lines, coloured on a terminal, plain elsewhere. One that is too long goes on below: no figure is cut off."""
    if not interactive:
        stream.write(fitting("".join(f"{text}\n" for text, _ in lines), stream.encoding))
        stream.flush()  # what follows may go another way to the same place
        return
    from rich import console, text  # late: only a terminal needs it, and it takes 50 ms

    terminal = console.Console(file=stream, highlight=False, soft_wrap=False)
    for line, style in lines:
        terminal.print(text.Text(line, style=style))


def summary_lines(ending: Ending, drawn: bool, width: int | None = None) -> list[Line]:
    """All that is shown, line by line. `drawn` says whether the stream can show bars, `width` how wide it is."""
    lines: list[Line] = [(note, "") for note in ending.notes]
    if lines:
        lines.append(("", ""))
    lines += _overview(ending, width)
    for name, summary in ending.summary.targets.items():
        lines += [("", ""), *_target(name, summary, ending.details.get(name), drawn, width)]
    if ending.commands:
        lines += [("", ""), ("Next", "bold"), *((f"  {command}", "cyan") for command in ending.commands)]
    return lines


def _overview(ending: Ending, width: int | None) -> list[Line]:
    """One row a target, so that several can be compared at a glance. What has no room stands below, with each."""
    rows = [["target", "mean", "95 % interval", "scored", "passed", "errors", "cost"]]
    for name, target in ending.summary.targets.items():
        details = ending.details.get(name)
        passed = details.passed if details else round((target.pass_rate or 0) * target.scored)
        costs = [cost for cost in (target.cost_usd, target.judge_cost_usd) if cost is not None]
        rows.append(
            [
                one_line(name, _LONGEST_NAME if width is None else max(12, min(_LONGEST_NAME, width - _FIGURES_WIDTH))),
                number(target.mean),
                interval(target.ci95),
                f"{target.scored} of {target.jobs}",
                f"{percent(target.pass_rate)} ({passed} of {target.scored})" if target.scored else percent(None),
                str(target.errors),
                usd(sum(costs) if costs else None),
            ]
        )
    head, *body = fitted(rows, width, _SPARE).lines
    took = "" if ending.duration_ms is None else f" in {duration(ending.duration_ms)}"
    return [(f"Run {ending.summary.run_id}{took}", "bold"), ("", ""), (head, "dim"), *((row, "") for row in body)]


def _target(
    name: str, target: TargetSummary, details: TargetDetails | None, drawn: bool, width: int | None
) -> Iterator[Line]:
    yield one_line(name, _LONGEST_NAME), "bold"
    errors = "error" if target.errors == 1 else "errors"
    left_out = {errors: target.errors, "unscored": target.unscored, "skipped": target.skipped}
    counts = ", ".join(f"{count} {what}" for what, count in left_out.items() if count)
    every = f"{target.cases} cases" if target.jobs == target.cases else f"{target.jobs} jobs of {target.cases} cases"
    yield f"  scored      {target.scored} of {every}" + (f"; left out: {counts}" if counts else ""), ""
    if target.early_stop is not None:
        yield f"  {early_stop_line(target.early_stop)}", "bold"
    yield f"  mean        {number(target.mean)} (95 % interval {interval(target.ci95)}, n = {target.scored})", ""
    if details is not None and details.case_mean is not None:
        yield f"  by case     {number(details.case_mean)} (each case's mean first, as in comparisons)", ""
    if details is not None and target.scored:
        share = f"{percent(target.pass_rate)}, {details.passed} of {target.scored}"
        yield f"  passed      {share} (95 % interval {percent_interval(details.pass_ci95)})", ""
        yield from ((f"  {name:<11} {text}", "") for name, text in trials_shown(target))
        yield f"  scores    0 {bars(details.bins, drawn)} 1", ""
    yield from _use(target, details)
    yield from _parts("evaluators", target.evaluators)
    yield from _parts("prompts", target.prompts)
    if details is not None:
        yield from _errors(target, details, width)
        yield from _cases("worst", details.worst, "score", width)
        yield from _cases("slowest", details.slowest, "time", width)


def trials_shown(target: TargetSummary) -> Iterator[tuple[str, str]]:
    """The chances of as many trials as there are: that one passes, and that all do. Nothing of cases tried once."""
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
    """What was to be known, whether it is, and what that spared."""
    what = {"mean": "the mean", "pass_rate": "the pass rate", "difference": "the mean"}[found.measure]
    against = one_line(found.rule, _LONGEST_NAME) if found.measure == "difference" else f"{found.value:g}"
    seen = f"e-value {found.e_value:.3g} after {found.n:,} scores"
    if found.measure == "difference":
        seen = f"difference {signed(found.estimate)}, 95 % {signed_interval(found.ci95)}, {seen}"
    if found.answer is None:
        return f"not known   whether {what} is above or below {against} ({seen})"
    spared = f"; {found.not_needed:,} jobs were not needed" if found.not_needed else ""
    that = "that of " if found.measure == "difference" else ""
    return f"known       {what} is {found.answer} {that}{against} ({seen}){spared}"


def _use(target: TargetSummary, details: TargetDetails | None) -> Iterator[Line]:
    """Cost and time, with the number of jobs that they are known of."""
    if target.cost_usd is not None:
        known = f" (of {details.priced} jobs)" if details else ""
        yield f"  cost        {usd(target.cost_usd)}{known}", ""
    if target.judge_cost_usd is not None:
        known = f" (of {details.judge_priced} jobs)" if details else ""
        yield f"  judges      {usd(target.judge_cost_usd)}{known}", ""
    if target.duration_ms is not None and details is not None and details.timed:
        mean = duration(target.duration_ms / details.timed)
        yield f"  time        {mean} a job, {duration(target.duration_ms)} in all (of {details.timed} jobs)", ""


def _parts(title: str, parts: Mapping[str, PartSummary]) -> Iterator[Line]:
    if not parts:
        return
    yield f"  {title}", ""
    rows = [
        [
            "  ",
            one_line(name, _LONGEST_NAME),
            number(found.mean),
            f"(95 % interval {interval(found.ci95)}, n = {found.n})",
        ]
        for name, found in parts.items()
    ]
    yield from ((row, "") for row in aligned(rows))


def _errors(target: TargetSummary, details: TargetDetails, width: int | None) -> Iterator[Line]:
    if not target.errors:
        return
    yield f"  errors      {target.errors} of {target.jobs - target.skipped}: {counted(details.error_classes)}", "red"
    rows = [["  ", name, _named(note), one_line(note.reason, _LONGEST_REASON)] for name, note in details.errors.items()]
    yield from ((_cut(row, width), "red") for row in aligned(rows))


def _cases(title: str, notes: Sequence[CaseNote], measure: str, width: int | None) -> Iterator[Line]:
    if not notes:
        return
    yield f"  {title}", ""
    rows = []
    for note in notes:
        figure = number(note.score) if measure == "score" else duration(note.duration_ms)
        rows.append(["  ", figure, _named(note), one_line(note.reason, _LONGEST_REASON)])
    yield from ((_cut(row, width), "yellow" if measure == "score" else "") for row in aligned(rows))


def _cut(line: str, width: int | None) -> str:
    """A line that ends in somebody's words, as far as there is room for them."""
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def _named(note: CaseNote) -> str:
    return job_name(one_line(note.eval_id, _LONGEST_NAME), note.prompt, note.trial)
