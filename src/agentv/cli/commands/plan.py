"""`agentv plan`: prints how many cases and trials it takes to detect a difference."""

from __future__ import annotations

import sys

import click

from agentv.cli.arguments.analysis_options import PlanArguments
from agentv.comparison.planning import DIFFERENCES, TRIALS, Plan, PlanOptions, plan
from agentv.comparison.scores import RunScores
from agentv.engine.named_runs import named_run
from agentv.errors import UsageError
from agentv.model.values import to_json
from agentv.report.figures import aligned, number, one_line, usd


def print_plan(args: PlanArguments) -> None:
    """Print the number of cases that a difference needs."""
    runs = args.runs
    if len(runs) > 2:
        raise UsageError("One run is needed, or two that differ", hint="agentv compare takes more")
    found = plan(
        [RunScores(path, run, target) for run, (path, target) in zip(runs, map(named_run, runs), strict=True)],
        args.differences or DIFFERENCES,
        args.trials or TRIALS,
        PlanOptions(power=args.power, alpha=args.alpha, correlation=args.correlation),
    )
    if args.as_json:
        sys.stdout.buffer.write(to_json(found) + b"\n")
        return
    for line in _lines(found):
        click.echo(line)


def _lines(found: Plan) -> list[str]:
    spread = found.spread
    first = found.needs[0]
    times = "once" if first.trials == 1 else f"{first.trials} times"
    lines = [
        f"To show a difference of {first.difference:g} with a chance of {found.power:.0%}, "
        f"{first.cases:,} paired cases asked {times} are needed",
        f"These {spread.cases:,} cases could show {number(found.could_show[first.trials])}",
        "",
    ]
    trials = list(found.could_show)
    head = ["difference", *(f"{count} trial{'s' if count > 1 else ''}" for count in trials)]
    rows = [head]
    for difference in dict.fromkeys(need.difference for need in found.needs):
        needs = [need for need in found.needs if need.difference == difference]
        cells = [f"{need.cases:,}" + ("" if need.cost_usd is None else f" ({usd(need.cost_usd)})") for need in needs]
        rows.append([f"{difference:g}", *cells])
    lines += aligned(rows)
    lines += ["", "Cases needed" + ("" if spread.cost_usd is None else ", and the cost of one run of them")]
    if spread.within is None:
        # Of two runs one may have trials; then the other is the one to run again.
        whose = (
            f" of {one_line(spread.asked_once[0], 500)}"
            if spread.correlation is None and len(spread.asked_once) == 1
            else ""
        )
        lines.append(
            f"No case{whose} was asked twice, so what trials would do is not known: a run with --trials 3 would tell"
        )
    if spread.correlation is not None:
        lines.append(
            f"Scores of the same case are taken to go together by {spread.correlation:g} (--correlation); "
            "two runs would tell"
        )
    if spread.design_effect > 1.005:
        lines.append(f"Conversations make {spread.design_effect:.2f} times as many cases necessary")
    return lines
