"""`agentv select`: choose the best of many variants, and confirm it on cases that took no part in the choice."""

import shlex
import sys

import click

from agentv.cli import output
from agentv.cli.evaluation_options import EvaluatedTargets, SeriesOptions
from agentv.cli.options import AT_LEAST_1, FILE, argument, declare, option, options_of
from agentv.cli.run_series import RunSeries, SeriesStopped
from agentv.comparison.comparison import Comparison
from agentv.comparison.run_comparison import CompareOptions, compare_runs
from agentv.comparison.scores import RunScores
from agentv.engine.prepare import prepare
from agentv.engine.resume import folder_of
from agentv.engine.run_options import EvalOptions
from agentv.errors import EXIT_OK, EXIT_UNDECIDED
from agentv.extensions.select.rounds import Schedule, plan_rounds
from agentv.extensions.select.selection_text import schedule_lines, selection_data, selection_lines
from agentv.extensions.select.stages import Choice, check_schedule, run_stages, shuffled_units, stage_name
from agentv.extensions.select.variants import with_variants
from agentv.report.terminal import print_lines
from agentv.runs.folder import short_path


class SelectArguments(EvaluatedTargets, SeriesOptions):
    """Chooses the best of many variants with few calls. Variants are targets, models (`support:gpt-5-mini` is target
    `support` with another model), and each target with each --prompt. The first is the baseline. In each round, all
    variants left answer a few more cases, and the better half stays. The winner is then compared with the baseline on
    cases that took no part in the choice, so its lead is unbiased.

    \b
    Exit codes: 0 the winner is shown to be better, or is the baseline   2 usage, configuration or dataset error
                3 too many errors   4 budget reached   5 can't tell   130 interrupted
    """

    action = "agentv.extensions.select.command:select"
    examples = (
        "agentv select evals --target current --target gpt-5 --target haiku",
        "agentv select evals --target support --prompt now.md --prompt short.md --prompt polite.md",
        "agentv select evals --target a --target b --target c --calls 500",
        "agentv select evals --target a --target b --target c --dry-run",
    )

    paths: tuple[str, ...] = argument(nargs=-1)
    prompts: tuple[str, ...] = option(
        "--prompt FILE",
        "Text file with a system prompt. Repeat to choose from several; each target answers with each of them.",
        FILE,
        group="Targets",
        multiple=True,
    )
    calls: int | None = option(
        "--calls N", "Maximum number of answers in all rounds together (default: use all cases).", AT_LEAST_1,
        group="Limits",
    )  # fmt: skip


def select(args: SelectArguments) -> None:
    """Run the rounds and the confirmation, print the result and exit with its exit code."""
    if not args.paths:
        raise click.UsageError("Missing argument 'PATHS...'")
    options = with_variants(options_of(EvalOptions, args), args.prompts, folder_of(args.paths)).lasting()
    plan = prepare(options, options.open_cases(*output.listeners(args.quiet)))
    units = shuffled_units(plan, args.seed or 0)
    per_case = plan.checked.most_per_case
    schedule = plan_rounds(
        len(options.targets), sum(map(len, units)), None if args.calls is None else args.calls // per_case
    )
    check_schedule(schedule, args.calls)
    if args.dry_run:
        _print_schedule(args, options, schedule, per_case)
        return
    series = RunSeries.open("select", stage_name(1), args)
    try:
        choice = run_stages(series, options, schedule, units)
    except SeriesStopped as stopped:
        series.stop(_command(args), stopped)
    _print(args, choice, len(options.targets) * sum(map(len, units)) * per_case)


def _print_schedule(args: SelectArguments, options: EvalOptions, schedule: Schedule, per_case: int) -> None:
    if args.as_json:
        output.echo_json({"variants": options.targets, "schedule": schedule, "calls": schedule.calls * per_case})
    else:
        print_lines(schedule_lines(options.targets, schedule, per_case), sys.stdout, sys.stdout.isatty())


def _print(args: SelectArguments, choice: Choice, matrix: int) -> None:
    """Print the choice. `matrix` is the number of answers if all variants answered all cases."""
    comparison: Comparison | None = None
    if choice.confirmation is not None:
        path = choice.confirmation
        before, after = (
            RunScores(path, f"{short_path(path)}:{name}", name) for name in (choice.baseline, choice.winner)
        )
        comparison = compare_runs(before, after, CompareOptions(seed=args.seed or 0, changes=0))
    is_shown = comparison is None or comparison.answer == "better"
    code = EXIT_OK if is_shown else EXIT_UNDECIDED
    if args.as_json:
        output.echo_json(selection_data(choice, comparison, matrix, code))
    else:
        print_lines(selection_lines(choice, comparison, matrix), sys.stdout, sys.stdout.isatty())
    sys.exit(code)


def _command(args: SelectArguments) -> str:
    """Return the command to resume with: the same cases and variants."""
    words = ["agentv", "select", *args.paths]
    for flag, values in (("--target", args.targets), ("--prompt", args.prompts), ("--filter", args.filters)):
        words += [word for value in values for word in (flag, value)]
    for flag, value in (("--calls", args.calls), ("--trials", args.trials), ("--seed", args.seed)):
        words += [] if value is None else [flag, str(value)]
    return shlex.join(words)


select_command = declare("select", SelectArguments)
