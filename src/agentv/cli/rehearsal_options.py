"""The arguments of the commands that make several runs: noise and swap."""

from __future__ import annotations

import click

from agentv.cli.evaluation_options import TRIALS, ExecutorOptions, JobArguments
from agentv.cli.options import FILE, FOLDER, SHARE, argument, declare, flag, option


class SeriesOptions(ExecutorOptions, JobArguments):
    """Options for several runs of the same cases."""

    seed: int | None = option("--seed N", "Random seed for --sample (default: 0).", int)
    trials: int | None = option("--trials N", "Number of times to run each case in each run.", TRIALS)
    out: str | None = option("--out DIR", "Folder of the runs (default: a new one in .agentv/results).", FOLDER)
    dry_run: bool = flag("--dry-run", "Check the inputs and print the plan of one run; call nothing.")
    resume: bool = flag("--resume", "Continue in the folder given by --out, or in the latest one.")
    as_json: bool = flag("--json", "Print the figures as JSON on stdout.")


class NoiseArguments(SeriesOptions):
    """Nothing changes between the two runs, so every difference is noise: the flip rate (cases that get another
    verdict), the noise floor (how much the mean moves), the smallest change that this suite can detect, and the flaky
    cases. The judge scores the answers of the first run once more, which separates its noise from that of the target.
    The cache is not used. After an interruption, --resume continues.

    \b
    Exit codes: 0 measured   1 more flips than --max-flip-rate   2 usage, configuration or dataset error
                3 no job was scored   4 budget reached   130 interrupted
    """

    action = "agentv.cli.commands.analysis.noise:noise"
    examples = (
        "agentv noise evals",
        "agentv noise evals/dataset.yaml --target gpt --trials 3",
        "agentv noise evals --sample 50 --budget-usd 2",
        "agentv noise evals --max-flip-rate 0.05",
    )

    target: str | None = option("--target -t NAME", "Target to run twice (default: the target of the cases).")
    no_rescore: bool = flag("--no-rescore", "Do not call the judge again for the answers of the first run.")
    max_flip_rate: float | None = option(
        "--max-flip-rate X", "Fail if more than this fraction of the cases gets another verdict (0 to 1).", SHARE
    )


noise_command = declare("noise", NoiseArguments)


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
    action = "agentv.cli.commands.analysis.swap:swap"
    examples = (
        "agentv swap gpt-4 gpt-5 evals",
        "agentv swap support support:gpt-5-mini evals --margin 0.03",
        "agentv swap old new evals --old-judge judge-4 --new-judge judge-5",
        "agentv swap old new evals --trials 3 --html swap.html",
    )

    old: str | None = argument(metavar="[OLD", required=False, type=str)
    new: str | None = argument(metavar="NEW", required=False, type=str)
    paths: tuple[str, ...] = argument(nargs=-1, metavar="PATHS...]")
    judge: str | None = option("--judge NAME", "Same as --old-judge.")
    old_judge: str | None = option("--old-judge NAME", "Judge that scores the answers (default: the configured ones).")
    new_judge: str | None = option("--new-judge NAME", "Judge that scores the same answers as well.")
    margin: float | None = option(
        "--margin M", "Test whether NEW is at most M worse than OLD (non-inferiority).", SHARE
    )
    fail_on: str = option(
        "--fail-on",
        "Exit with 1 if NEW is significantly worse (regression), has a lower mean (worse), or loses a case (any-loss). "
        "With inconclusive, also exit with 5 if it is not shown to be better, or no worse than --margin.",
        click.Choice(["regression", "worse", "any-loss", "inconclusive", "never"]),
        default="regression",
    )
    as_markdown: bool = flag("--markdown --md", "Print the report as Markdown, for a pull request.")
    html: str | None = option("--html FILE", "Also write the report as an HTML page that opens offline.", FILE)


swap_command = declare("swap", SwapArguments)
