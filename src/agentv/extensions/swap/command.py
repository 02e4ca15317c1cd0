"""`agentv swap`: rehearse a change of model on the same cases."""

import shlex
import sys
from typing import cast

import click

from agentv.cli import output
from agentv.cli.commands.compare import write_page
from agentv.cli.evaluation_options import SeriesOptions
from agentv.cli.options import FILE, SHARE, argument, declare, flag, option, options_of, with_help
from agentv.cli.run_series import RunSeries, print_result, print_run_plan
from agentv.comparison.comparison import FailOn
from agentv.comparison.run_comparison import CompareOptions
from agentv.comparison.scores import RunScores
from agentv.engine.run_options import EvalOptions
from agentv.errors import UsageError
from agentv.extensions.swap.model_swap import compare_models, swap_data
from agentv.extensions.swap.swap_text import recommendation, swap_lines, swap_markdown
from agentv.runs.folder import short_path

ANSWERS, NEW_JUDGE = "answers", "new-judge"


class SwapArguments(SeriesOptions):
    """OLD and NEW are targets, or models: `openai:gpt-5-mini` (a provider and a model), or `support:gpt-5-mini` (the
    settings of target `support` with another model). Both answer the same cases in one run. The report has one
    recommendation, and compares quality, cost, time, tokens, refusals, truncated answers, errors, format failures and
    tool calls.

    If the judge changes too, name both: the same answers are scored by the old judge and by the new one, which
    separates the change of the measure from the change of the model.

    \b
    Exit codes: 0 passed   1 the --fail-on condition is met   2 usage, configuration or dataset error
                3 no job was scored   4 budget reached   5 can't tell   130 interrupted
    """

    has_separator = True
    action = "agentv.extensions.swap.command:swap"
    examples = (
        "agentv swap gpt-4 gpt-5 evals",
        "agentv swap support support:gpt-5-mini evals --margin 0.03",
        "agentv swap old new evals --old-judge judge-4 --new-judge judge-5",
        "agentv swap old new evals --trials 3 --html swap.html",
    )

    old: str | None = argument(metavar="[OLD", required=False, type=str)
    new: str | None = argument(metavar="NEW", required=False, type=str)
    paths: tuple[str, ...] = argument(nargs=-1, metavar="PATHS...]")
    judge = with_help(EvalOptions.judge, "Same as --old-judge.")
    old_judge: str | None = option(
        "--old-judge NAME", "Judge that scores the answers (default: the configured ones).", group="Scoring"
    )
    new_judge: str | None = option("--new-judge NAME", "Judge that scores the same answers as well.", group="Scoring")
    margin: float | None = option(
        "--margin M", "Test whether NEW is at most M worse than OLD (non-inferiority).", SHARE, group="Scoring"
    )
    fail_on: str = option(
        "--fail-on",
        "Exit with 1 if NEW is significantly worse (regression), has a lower mean (worse), or loses a case (any-loss). "
        "With inconclusive, also exit with 5 if it is not shown to be better, or no worse than --margin.",
        click.Choice(["regression", "worse", "any-loss", "inconclusive", "never"]),
        group="Scoring",
        default="regression",
    )
    as_markdown: bool = flag("--markdown --md", "Print the report as Markdown, for a pull request.")
    html: str | None = option("--html FILE", "Also write the report as an HTML page that opens offline.", FILE)


def swap(args: SwapArguments) -> None:
    """Run both models, compare them, print the result and exit with its exit code."""
    if args.as_json and args.as_markdown:
        raise click.UsageError("--json and --markdown cannot be combined")
    names = _names(args)
    eval_options = options_of(EvalOptions, args, targets=names, judge=args.old_judge or args.judge)
    if args.dry_run:
        print_run_plan(eval_options, args)
        return
    bridge = "" if args.new_judge is None else f" --new-judge {shlex.quote(args.new_judge)}"
    series = RunSeries.open("swap", ANSWERS, args, f"agentv swap{bridge}")
    options = series.options(eval_options, ANSWERS)
    series.evaluate(ANSWERS, options, "Running both models")
    if args.new_judge is not None:
        title = "Scoring the same answers with the new judge"
        series.rescore(NEW_JUDGE, ANSWERS, options, title, judge=args.new_judge, every_evaluator=False)
    _print(args, series, (options.targets[0], options.targets[1]))


def _names(args: SwapArguments) -> tuple[str, ...]:
    """Return the targets to compare; none if they are those of the runs to resume."""
    if args.old is None or args.new is None:
        if args.resume and args.old is None:
            return ()
        raise click.UsageError("Name both models and the datasets: agentv swap OLD NEW PATHS...")
    if args.old == args.new:
        raise UsageError(
            "OLD and NEW are the same target", hint="To measure its noise: agentv noise PATHS --target NAME"
        )
    return args.old, args.new


def _print(args: SwapArguments, series: RunSeries, names: tuple[str, str]) -> None:
    answers = RunScores(series.home / ANSWERS, short_path(series.home / ANSWERS))
    has_bridge = (series.home / NEW_JUDGE / "run.json").is_file()
    rescored = RunScores(series.home / NEW_JUDGE, short_path(series.home / NEW_JUDGE)) if has_bridge else None
    figures = compare_models(answers, names, options_of(CompareOptions, args, cases=(), seed=args.seed or 0), rescored)
    code = figures.exit_code(cast("FailOn", args.fail_on))
    if args.html is not None:
        write_page(args.html, f"agentv swap {names[0]} {names[1]}", swap_markdown(figures))
    if args.as_markdown:
        output.echo_bytes(swap_markdown(figures).encode())
    else:
        runs = short_path(series.home)
        data = {**swap_data(figures, code, recommendation(figures)), "runs": runs}
        print_result(args, data, [*swap_lines(figures), ("", ""), (f"Runs: {runs}", "")])
    sys.exit(code)


swap_command = declare("swap", SwapArguments)
