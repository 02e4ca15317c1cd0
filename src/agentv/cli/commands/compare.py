"""`agentv compare` and `agentv plan`: compare runs, and estimate how many cases the next run needs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import click

from agentv.cli.analysis_options import CompareArguments, PlanArguments
from agentv.cli.options import options_of
from agentv.comparison.comparison import Comparison, FailOn, Matrix, comparison_data, matrix_data
from agentv.comparison.run_comparison import CompareOptions, compare_many, compare_runs
from agentv.comparison.sample_size import DIFFERENCES, TRIALS, Plan, PlanOptions, plan
from agentv.comparison.scores import RunScores
from agentv.engine.named_runs import lasting_name, named_run
from agentv.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNDECIDED, UsageError, plural
from agentv.model.values import to_json
from agentv.report.comparison_text import comparison_lines, comparison_markdown, matrix_lines, matrix_markdown
from agentv.report.figures import aligned, number, one_line, usd
from agentv.report.terminal import print_lines


def compare(args: CompareArguments) -> None:
    """Compare the runs, print the result and exit with its exit code."""
    if args.as_json and args.as_markdown:
        raise click.UsageError("--json and --markdown cannot be combined")
    default = "regression" if args.margin is None else "inconclusive"
    fail_on = cast("FailOn", args.fail_on or default)
    loaded = _loaded(tuple(map(lasting_name, args.runs)))
    if len(loaded) > 2:
        if args.margin is not None or fail_on == "any-loss":
            raise UsageError("--margin and --fail-on any-loss need exactly two runs", hint="Compare the runs in pairs")
        matrix = compare_many(loaded, seed=args.seed, allow_changed_measure=args.allow_changed_measure)
        code = _exit_code(matrix, fail_on)
        data, markdown = partial(matrix_data, matrix, code), partial(matrix_markdown, matrix)
        _print(args, data, markdown, partial(matrix_lines, matrix))
    else:
        found = compare_runs(loaded[0], loaded[1], options_of(CompareOptions, args))
        code = _exit_code(found, fail_on)
        data, markdown = partial(comparison_data, found, code), partial(comparison_markdown, found)
        _print(args, data, markdown, partial(comparison_lines, found))
    sys.exit(code)


def _exit_code(found: Comparison | Matrix, fail_on: FailOn) -> int:
    """Return the exit code of a comparison. Runs that were scored or asked differently decide nothing."""
    is_undecided = not found.is_comparable or (isinstance(found, Comparison) and not found.common)
    if is_undecided and fail_on != "never":
        return EXIT_UNDECIDED
    return EXIT_FINDINGS if found.fails(fail_on) else EXIT_OK


def _print(
    args: CompareArguments,
    data: Callable[[], dict[str, Any]],
    markdown: Callable[[], str],
    lines: Callable[[], list[tuple[str, str]]],
) -> None:
    if args.as_json:
        sys.stdout.buffer.write(to_json(data()) + b"\n")
    elif args.as_markdown:
        sys.stdout.buffer.write(markdown().encode())
    else:
        print_lines(lines(), sys.stdout, sys.stdout.isatty())


def _loaded(runs: tuple[str, ...]) -> list[RunScores]:
    """Return the scores of each run; for a single run, those of each of its targets, or else of its prompts."""
    named = [named_run(run) for run in runs]
    if len(named) > 1:
        return [RunScores(path, run, target) for run, (path, target) in zip(runs, named, strict=True)]
    (path, target), (run,) = named[0], runs
    whole = None if target is not None else RunScores(path, run)
    names = [] if whole is None else whole.targets if len(whole.targets) > 1 else whole.prompts
    if len(names) < 2:
        raise UsageError("compare needs two runs, or one run with several targets or prompts")
    return [RunScores(path, f"{run}:{name}", name) for name in names]


def print_plan(args: PlanArguments) -> None:
    """Print the number of cases needed to detect a difference."""
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
