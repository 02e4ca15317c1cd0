"""`agentv plan`: estimate how many cases the next run needs, or choose a subset of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from agentv.cli.analysis_options import PlanArguments
from agentv.cli.options import options_of
from agentv.comparison.case_subset import Subset, choose_subset
from agentv.comparison.sample_size import DIFFERENCES, TRIALS, Plan, PlanOptions, plan
from agentv.comparison.scores import RunScores
from agentv.datasets.selection import write_case_list
from agentv.engine.named_runs import named_run
from agentv.errors import UsageError, plural
from agentv.model.values import to_json
from agentv.report.figures import aligned, number, one_line, usd


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
        raise UsageError("plan takes one or two runs", hint="Compare more runs with `agentv compare`")
    found = plan(
        [RunScores(path, run, target) for run, (path, target) in zip(runs, map(named_run, runs), strict=True)],
        args.differences or DIFFERENCES,
        args.trials or TRIALS,
        options_of(PlanOptions, args),
    )
    if args.as_json:
        sys.stdout.buffer.write(to_json(found) + b"\n")
        return
    click.echo("\n".join(_lines(found)))


def _lines(found: Plan) -> list[str]:
    spread = found.spread
    first = found.needs[0]
    cases = f"{plural(first.cases, 'paired case')} with {plural(first.trials, 'trial')} each"
    lines = [
        f"Detecting a difference of {first.difference:g} with {found.power:.0%} power needs {cases}",
        f"The {plural(spread.cases, 'case')} of this run can detect {_detectable(found.could_show[first.trials])}",
        "",
    ]
    rows = [["difference", *(plural(count, "trial") for count in found.could_show)]]
    for difference in dict.fromkeys(need.difference for need in found.needs):
        needs = [need for need in found.needs if need.difference == difference]
        cells = [f"{need.cases:,}" + ("" if need.cost_usd is None else f" ({usd(need.cost_usd)})") for need in needs]
        rows.append([f"{difference:g}", *cells])
    lines += aligned(rows)
    lines += ["", "Cases needed" + ("" if spread.cost_usd is None else ", and the cost of one run with them")]
    if spread.within is None:
        # If one of two runs has trials, name the other.
        one = spread.correlation is None and len(spread.asked_once) == 1
        which = f" in {one_line(spread.asked_once[0], 500)}" if one else ""
        lines.append(f"The effect of trials is unknown, because no case{which} has several: run with --trials 3")
    if spread.correlation is not None:
        assumed = f"Assumes a correlation of {spread.correlation:g} between the scores of a case (--correlation)"
        lines.append(f"{assumed}; pass two runs to measure it")
    if spread.design_effect > 1.005:
        lines.append(f"Conversations increase the number of cases by a factor of {spread.design_effect:.2f}")
    return lines


def _detectable(difference: float | None) -> str:
    return "no difference reliably" if difference is None else f"differences of {number(difference)} or more"


def _print_subset(args: PlanArguments, size: int) -> None:
    """Choose a subset, write it to the file of --out, and print how well it predicts the mean of all cases."""
    found = choose_subset([run for given in args.runs for run in _variants(given)], size)
    if args.out is not None:
        write_case_list(args.out, found.cases)
    if args.as_json:
        sys.stdout.buffer.write(to_json(found) + b"\n")
    else:
        click.echo("\n".join(_subset_lines(found, args.out)))


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
