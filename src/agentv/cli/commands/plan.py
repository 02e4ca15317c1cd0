"""`agentv plan`: how many cases and trials a difference needs, before they are paid for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agentv.cli.options import AT_LEAST_1, Real
from agentv.errors import UsageError

if TYPE_CHECKING:
    from agentv.comparison.planning import Plan


SHARE = Real(0, 1, min_open=True, max_open=True)


@click.command(
    "plan",
    epilog="Examples:  agentv plan RUN --difference 0.03  ·  agentv plan before after --power 0.9  ·  "
    "agentv plan RUN --trials 1 --trials 5 --json",
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--difference", "-d", "differences", type=SHARE, multiple=True, metavar="X", help="To be shown.")
@click.option("--trials", type=AT_LEAST_1, multiple=True, metavar="N", help="Of each case.")
@click.option("--power", type=SHARE, default=0.8, show_default=True, help="The chance to show it, if it is there.")
@click.option("--alpha", type=SHARE, default=0.05, show_default=True, help="The chance to see one that is not there.")
@click.option(
    "--correlation", type=Real(-1, 1), default=0.5, show_default=True,
    help="With one run: how far scores of the same case are expected to go together in the next.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(runs: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Say how many cases and trials a difference needs.

    RUN is an earlier run, from which the variance is taken: of its cases, and of trials where it has several of each.
    Two runs also tell how far they go together, which is otherwise a guess. Nothing is called.
    """
    from agentv.comparison.planning import DIFFERENCES, TRIALS, plan
    from agentv.comparison.scores import RunScores
    from agentv.engine.named_runs import named_run

    if len(runs) > 2:
        raise UsageError("One run is needed, or two that differ", hint="agentv compare takes more")
    loaded = [RunScores(path, run, target) for run, (path, target) in zip(runs, map(named_run, runs), strict=True)]
    found = plan(
        loaded,
        given["differences"] or DIFFERENCES,
        given["trials"] or TRIALS,
        power=given["power"],
        alpha=given["alpha"],
        correlation=given["correlation"],
    )
    if as_json:
        from agentv.model.values import to_json

        sys.stdout.buffer.write(to_json(found) + b"\n")
        return
    for line in _lines(found):
        click.echo(line)


def _lines(found: Plan) -> list[str]:
    from agentv.report.figures import aligned, number, one_line, usd

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
