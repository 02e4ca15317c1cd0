"""`agentv plan`: estimate how many cases the next run needs, or choose a subset of them."""

from collections.abc import Iterator

import click

from agentv.cli import output
from agentv.cli.options import AT_LEAST_1, PATH, Arguments, Number, argument, declare, flag, option, options_of
from agentv.comparison.sample_size import DIFFERENCE, Need, Plan, PlanOptions, plan
from agentv.comparison.scores import RunScores
from agentv.datasets.selection import write_case_list
from agentv.engine.named_runs import named_run
from agentv.errors import UsageError, plural
from agentv.extensions.plan.case_subset import Subset, choose_subset
from agentv.model.diagnostics import Range
from agentv.report.figures import aligned, interval, number, one_line, usd

_FRACTION = Number(Range(0, 1, exclusive=True))
_GOALS = {
    "difference": "Showing a difference of {value}",
    "margin": "Showing that the second run is worse by less than {value}",
    "min_pass_rate": "Deciding the gate --min-pass-rate {value} by interval",
    "threshold": "Deciding the gate --threshold {value} by interval",
}


class PlanArguments(Arguments):
    """RUN is an earlier run. Its scores supply the variance between cases, and between trials if it has several per
    case. Two runs also supply the correlation between runs, which is otherwise assumed. Nothing is called.

    With --subset, chooses cases instead: a smaller suite for CI whose mean agrees with that of the full one.
    """

    action = "agentv.extensions.plan.command:print_plan"
    examples = (
        "agentv plan RUN --difference 0.03",
        "agentv plan before after --power 0.9",
        "agentv plan before after --margin 0.02",
        "agentv plan RUN --min-pass-rate 0.9",
        "agentv plan RUN --trials 1 --trials 5 --json",
        "agentv plan monday tuesday friday --subset 50 --out ci.jsonl",
    )

    runs: tuple[str, ...] = argument(nargs=-1, required=True, metavar="RUN...", type=str)
    differences: tuple[float, ...] = option(
        "--difference -d X", "Difference to show. Repeatable.", _FRACTION, multiple=True
    )
    margin: float | None = option(
        "--margin M", "Plan for compare --margin M: to show that a run is worse by less than M.", _FRACTION
    )
    min_pass_rate: float | None = option(
        "--min-pass-rate X", "Plan for eval --min-pass-rate X --gate-on interval.", _FRACTION
    )
    threshold: float | None = option("--threshold X", "Plan for eval --threshold X --gate-on interval.", _FRACTION)
    trials: tuple[int, ...] = option("--trials N", "Number of trials per case. Repeatable.", AT_LEAST_1, multiple=True)
    power: float = option("--power X", "Probability of showing a real difference.", _FRACTION, default=0.8)
    correlation: float | None = option(
        "--correlation X",
        "Correlation to assume between the scores of a case in two runs with one trial each. Without it, numbers from "
        "one RUN are ranges over every correlation.",
        Number(Range(-1, 1)),
    )
    subset: int | None = option(
        "--subset N",
        "Choose the N cases whose mean best predicts that of all cases, from any number of runs.",
        AT_LEAST_1,
    )
    out: str | None = option("--out FILE", "Write the cases of --subset to FILE, for eval --cases-from.", PATH)
    as_json: bool = flag("--json", "Print the plan as JSON.")


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
    result = plan(scores, options_of(PlanOptions, args))
    is_default = result.needs[0].goal == "difference" and not args.differences
    output.echo_result(result, _lines(result, is_default), as_json=args.as_json)


def _lines(result: Plan, is_default: bool) -> Iterator[str]:
    """Yield one sentence for each goal, a table of differences and trials, and the assumptions."""
    goals = dict.fromkeys((need.goal, need.value) for need in result.needs)
    headline = ("difference", DIFFERENCE) if is_default else None
    for goal in goals if headline is None else (headline,):
        yield _sentence(next(need for need in result.needs if (need.goal, need.value) == goal), result)
    if is_default:
        yield f"No --difference given: this is for {DIFFERENCE:g}; choose the smallest difference that matters to you"
    spread = result.spread
    if any(need.goal in ("difference", "margin") for need in result.needs):
        first = next(iter(result.could_show))
        ends = result.could_show_range.get(first, (result.could_show[first],) * 2)
        yield f"The {plural(spread.cases, 'given case')} can show {_detectable(*ends)}"
        if is_default or len(result.could_show) > 1:
            yield from ("", *aligned(_table(result)))
            yield from ("", "Cases needed" + ("" if spread.cost_usd is None else ", and the cost of one run with them"))
    yield from _assumptions(result)


def _sentence(need: Need, result: Plan) -> str:
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
    if need.cases_range is not None and need.cases_range[0] < need.cases_range[1]:
        size = f"{need.cases_range[0]:,} to {plural(need.cases_range[1], unit)}"
        condition += f": {need.cases:,} if the correlation between two runs is {result.spread.correlation:g}"
    trials = f" with {plural(need.trials, 'trial')} each"
    return f"{goal} with {result.power:.0%} power needs {size}{trials}{condition}"


def _range(need: Need) -> str:
    """Return the interval of the number of cases in brackets."""
    if need.cases_ci95 is None:
        return ""
    low, high = need.cases_ci95
    return f" (95 % interval {low:,} to {'any number' if high is None else f'{high:,}'})"


def _table(result: Plan) -> list[list[str]]:
    rows = [["", *(plural(count, "trial") for count in result.could_show)]]
    for goal, value in dict.fromkeys((need.goal, need.value) for need in result.needs if need.observed is None):
        needs = [need for need in result.needs if (need.goal, need.value) == (goal, value)]
        rows.append([f"{goal} {value:g}", *map(_cell, needs)])
    return rows


def _cell(need: Need) -> str:
    """Return the number of cases, or its range over the unknown correlation, and the cost of one run with them."""
    ends = sorted({need.cases or 0} if need.cases_range is None else set(need.cases_range))
    cases = " to ".join(f"{count:,}" for count in ends)
    if need.cost_usd is None or not need.cases:
        return cases
    return f"{cases} ({' to '.join(usd(need.cost_usd * count / need.cases) for count in ends)})"


def _assumptions(result: Plan) -> Iterator[str]:
    spread = result.spread
    if all(need.observed is not None for need in result.needs):
        return  # a gate depends on the figures of one run
    if spread.variance_ci95 is None:
        yield "Too few cases for an interval of these numbers: at least 20 are needed, not counting turns"
    if spread.within is None:
        # If one of two runs has trials, name the other.
        one = spread.is_measured and len(spread.asked_once) == 1
        which = f" in {one_line(spread.asked_once[0], 500)}" if one else ""
        yield f"The effect of trials is unknown, because no case{which} has several: run with --trials 3"
    if result.could_show_range:
        yield "Ranges cover every correlation between the scores of a case in two runs; pass two runs to measure it"
    elif not spread.is_measured:
        yield f"Assumes a correlation of {spread.correlation:g} between the scores of a case in two runs"
    if spread.design_effect > 1.005:
        yield f"Conversations increase the number of cases by a factor of {spread.design_effect:.2f}"


def _detectable(least: float | None, most: float | None) -> str:
    """Describe the differences that a number of cases can show, between the ends of the unknown correlation."""
    if least is None:
        return "no difference reliably"
    if least == most:
        return f"differences of {number(least)} or more"
    end = "none" if most is None else f"only {number(most)} or more"
    return f"differences of {number(least)} or more if the correlation between two runs is 1, and {end} if it is 0"


def _print_subset(args: PlanArguments, size: int) -> None:
    """Choose a subset, write it to the file of --out, and print how well it predicts the mean of all cases."""
    subset = choose_subset([run for argument in args.runs for run in _variants(argument)], size)
    if args.out is not None:
        write_case_list(args.out, subset.cases)
    output.echo_result(subset, _subset_lines(subset, args.out), as_json=args.as_json)


def _variants(argument: str) -> Iterator[RunScores]:
    """Yield the scores of a run, or those of each target if it has several."""
    path, target = named_run(argument)
    run = RunScores(path, argument, target)
    if target is not None or len(run.targets) < 2:
        yield run
    else:
        yield from (RunScores(path, f"{argument}:{name}", name) for name in run.targets)


def _subset_lines(subset: Subset, out: str | None) -> Iterator[str]:
    size = len(subset.cases)
    yield f"Chose {size:,} of {plural(subset.total, 'case')} from {plural(len(subset.runs), 'run')}"
    if subset.left_out:
        why = "not every run scored them with the same input and references"
        yield f"{plural(subset.left_out, 'case')} not considered: {why}"
    chance = f"{number(subset.random_error)} for a random subset of {size:,}"
    if subset.error is None:
        yield f"The error on another run is unknown with one run; it is about {chance}. Pass more runs to measure it"
    else:
        checks = f"{plural(subset.checks, 'check')} on {plural(len(subset.runs), 'held-out run')}"
        yield f"The mean of the subset is off by about {number(subset.error)} ({checks}); {chance}"
        if subset.error >= subset.random_error:
            yield f"That is not better than chance: `--sample {size}` is as good. Pass more runs, or choose more cases"
        yield ""
        rows = [["run", "all cases", "subset chosen without the run"]]
        rows += [[one_line(run.label, 60), number(run.mean), number(run.held_out_mean)] for run in subset.runs]
        yield from aligned(rows)
    yield ""
    if out is None:
        yield "Pass --out FILE to save the cases for `agentv eval --cases-from FILE`"
    else:
        yield f"Wrote {out}. Run them with: agentv eval DATASET --cases-from {out}"


plan_command = declare("plan", PlanArguments)
