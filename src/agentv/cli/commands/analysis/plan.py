"""`agentv plan`: estimate how many cases the next run needs, or choose a subset of them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from agentv.cli import output
from agentv.cli.analysis_options import PlanArguments
from agentv.cli.options import options_of
from agentv.comparison.case_subset import Subset, choose_subset
from agentv.comparison.sample_size import DIFFERENCE, Need, Plan, PlanOptions, plan
from agentv.comparison.scores import RunScores
from agentv.datasets.selection import write_case_list
from agentv.engine.named_runs import named_run
from agentv.errors import UsageError, plural
from agentv.report.figures import aligned, interval, number, one_line, usd

_GOALS = {
    "difference": "Showing a difference of {value}",
    "margin": "Showing that the second run is worse by less than {value}",
    "min_pass_rate": "Deciding the gate --min-pass-rate {value} by interval",
    "threshold": "Deciding the gate --threshold {value} by interval",
}


def print_plan(args: PlanArguments) -> None:
    """Print the number of cases needed to detect a difference, or choose a subset of the cases."""
    if args.subset is not None:
        if args.differences or args.trials:
            raise click.UsageError("--subset cannot be combined with --difference and --trials")
        _print_subset(args, args.subset)
        return
    if args.out is not None:
        raise click.UsageError("--out needs --subset")
    runs = args.runs
    if len(runs) > 2:
        raise UsageError("plan takes one or two runs", hint="To choose a subset from several runs, add --subset N")
    scores = [RunScores(path, run, target) for run, (path, target) in zip(runs, map(named_run, runs), strict=True)]
    found = plan(scores, options_of(PlanOptions, args))
    if args.as_json:
        output.echo_json(found)
    else:
        output.echo("\n".join(_lines(found, is_default=found.needs[0].goal == "difference" and not args.differences)))


def _lines(found: Plan, is_default: bool) -> Iterator[str]:
    """Yield one sentence for each goal, a table of differences and trials, and the assumptions."""
    goals = dict.fromkeys((need.goal, need.value) for need in found.needs)
    headline = ("difference", DIFFERENCE) if is_default else None
    for goal in goals if headline is None else (headline,):
        yield _sentence(next(need for need in found.needs if (need.goal, need.value) == goal), found)
    if is_default:
        yield f"No --difference given: this is for {DIFFERENCE:g}; choose the smallest difference that matters to you"
    spread = found.spread
    if any(need.goal in ("difference", "margin") for need in found.needs):
        first = next(iter(found.could_show))
        yield f"The {plural(spread.cases, 'given case')} can show {_detectable(found.could_show[first])}"
        if is_default or len(found.could_show) > 1:
            yield from ("", *aligned(_table(found)))
            yield from ("", "Cases needed" + ("" if spread.cost_usd is None else ", and the cost of one run with them"))
    yield from _assumptions(found)


def _sentence(need: Need, found: Plan) -> str:
    goal = _GOALS[need.goal].format(value=f"{need.value:g}")
    condition = ""
    if need.observed is not None:
        figure = "pass rate" if need.goal == "min_pass_rate" else "mean"
        condition = f", if the {figure} is {number(need.observed)} as in this run ({interval(need.observed_ci95)})"
    if need.goal == "margin":
        condition = ", if both runs are equally good"
    if need.cases is None:
        return f"{goal} cannot be planned{condition}: no number of cases separates them"
    unit = "case" if need.observed is not None else "paired case"
    size = plural(need.cases, unit) + _range(need)
    trials = f" with {plural(need.trials, 'trial')} each"
    return f"{goal} with {found.power:.0%} power needs {size}{trials}{condition}"


def _range(need: Need) -> str:
    """Return the interval of the number of cases in brackets."""
    if need.cases_ci95 is None:
        return ""
    low, high = need.cases_ci95
    return f" (95 % interval {low:,} to {'any number' if high is None else f'{high:,}'})"


def _table(found: Plan) -> list[list[str]]:
    rows = [["", *(plural(count, "trial") for count in found.could_show)]]
    for goal, value in dict.fromkeys((need.goal, need.value) for need in found.needs if need.observed is None):
        needs = [need for need in found.needs if (need.goal, need.value) == (goal, value)]
        cells = [f"{need.cases:,}" + ("" if need.cost_usd is None else f" ({usd(need.cost_usd)})") for need in needs]
        rows.append([f"{goal} {value:g}", *cells])
    return rows


def _assumptions(found: Plan) -> Iterator[str]:
    spread = found.spread
    if all(need.observed is not None for need in found.needs):
        return  # a gate depends on the figures of one run
    if spread.variance_ci95 is None:
        yield "Too few cases for an interval of these numbers: at least 20 are needed, not counting turns"
    if spread.within is None:
        # If one of two runs has trials, name the other.
        one = spread.is_measured and len(spread.asked_once) == 1
        which = f" in {one_line(spread.asked_once[0], 500)}" if one else ""
        yield f"The effect of trials is unknown, because no case{which} has several: run with --trials 3"
    if not spread.is_measured:
        assumed = f"Assumes a correlation of {spread.correlation:g} between the scores of a case in two runs"
        yield f"{assumed} (--correlation); pass two runs to measure it"
    if spread.design_effect > 1.005:
        yield f"Conversations increase the number of cases by a factor of {spread.design_effect:.2f}"


def _detectable(difference: float | None) -> str:
    return "no difference reliably" if difference is None else f"differences of {number(difference)} or more"


def _print_subset(args: PlanArguments, size: int) -> None:
    """Choose a subset, write it to the file of --out, and print how well it predicts the mean of all cases."""
    found = choose_subset([run for given in args.runs for run in _variants(given)], size)
    if args.out is not None:
        write_case_list(args.out, found.cases)
    if args.as_json:
        output.echo_json(found)
    else:
        output.echo("\n".join(_subset_lines(found, args.out)))


def _variants(given: str) -> Iterator[RunScores]:
    """Yield the scores of a run, or those of each target if it has several."""
    path, target = named_run(given)
    run = RunScores(path, given, target)
    if target is not None or len(run.targets) < 2:
        yield run
    else:
        yield from (RunScores(path, f"{given}:{name}", name) for name in run.targets)


def _subset_lines(found: Subset, out: str | None) -> Iterator[str]:
    size = len(found.cases)
    yield f"Chose {size:,} of {plural(found.total, 'case')} from {plural(len(found.runs), 'run')}"
    if found.left_out:
        why = "not every run scored them with the same input and references"
        yield f"{plural(found.left_out, 'case')} not considered: {why}"
    chance = f"{number(found.random_error)} for a random subset of {size:,}"
    if found.error is None:
        yield f"The error on another run is unknown with one run; it is about {chance}. Pass more runs to measure it"
    else:
        checks = f"{plural(found.checks, 'check')} on {plural(len(found.runs), 'held-out run')}"
        yield f"The mean of the subset is off by about {number(found.error)} ({checks}); {chance}"
        if found.error >= found.random_error:
            yield f"That is not better than chance: `--sample {size}` is as good. Pass more runs, or choose more cases"
        yield ""
        rows = [["run", "all cases", "subset chosen without the run"]]
        rows += [[one_line(run.label, 60), number(run.mean), number(run.held_out_mean)] for run in found.runs]
        yield from aligned(rows)
    yield ""
    if out is None:
        yield "Pass --out FILE to save the cases for `agentv eval --cases-from FILE`"
    else:
        yield f"Wrote {out}. Run them with: agentv eval DATASET --cases-from {out}"
