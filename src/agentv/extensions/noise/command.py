"""`agentv noise`: run the same cases twice and measure the noise."""

import sys
from typing import Any

from agentv.cli import output
from agentv.cli.evaluation_options import SeriesOptions
from agentv.cli.options import SHARE, declare, flag, option, options_of
from agentv.cli.run_series import RunSeries, SeriesStopped, print_run_plan
from agentv.comparison.scores import RunScores
from agentv.engine.run_options import EvalOptions
from agentv.errors import EXIT_FINDINGS, EXIT_OK
from agentv.extensions.noise.noise_estimate import NoiseFigures, measure_noise, noise_data
from agentv.extensions.noise.noise_text import noise_lines, noise_notes
from agentv.report.figures import percent
from agentv.report.terminal import print_lines
from agentv.runs.folder import short_path

FIRST, SECOND, RESCORED = "first", "second", "rescored"


class NoiseArguments(SeriesOptions):
    """Nothing changes between the two runs, so every difference is noise: the flip rate (cases that get another
    verdict), the noise floor (how much the mean moves), the smallest change that this suite can detect, and the flaky
    cases. The judge scores the answers of the first run once more, which separates its noise from that of the target.
    The cache is not used. After an interruption, --resume continues.

    \b
    Exit codes: 0 measured   1 more flips than --max-flip-rate   2 usage, configuration or dataset error
                3 no job was scored   4 budget reached   130 interrupted
    """

    action = "agentv.extensions.noise.command:noise"
    examples = (
        "agentv noise evals",
        "agentv noise evals/dataset.yaml --target gpt --trials 3",
        "agentv noise evals --sample 50 --budget-usd 2",
        "agentv noise evals --max-flip-rate 0.05",
    )

    target: str | None = option(
        "--target -t NAME", "Target to run twice (default: the target of the cases).", group="Targets"
    )
    no_rescore: bool = flag("--no-rescore", "Do not call the judge again for the answers of the first run.", "Scoring")
    max_flip_rate: float | None = option(
        "--max-flip-rate X",
        "Fail if more than this fraction of the cases gets another verdict (0 to 1).",
        SHARE,
        group="Scoring",
    )


def noise(args: NoiseArguments) -> None:
    """Make the runs, print the noise and exit with the exit code."""
    eval_options = options_of(EvalOptions, args, targets=() if args.target is None else (args.target,))
    if args.dry_run:
        output.note("This is the plan of one run; `agentv noise` makes two.")
        print_run_plan(eval_options, args)
        return
    series = RunSeries.open("noise", FIRST, args)
    options = series.options(eval_options, FIRST)
    has_judges = False
    try:
        for place, name in enumerate((FIRST, SECOND), 1):
            plan = series.evaluate(name, options, f"Run {place} of 2")
            has_judges = bool(plan.checked.judges)
        if has_judges and not args.no_rescore:
            series.rescore(RESCORED, FIRST, options, "Scoring the answers of the first run again")
    except SeriesStopped as stopped:
        series.stop("agentv noise", stopped)
    _print(args, series, has_rescored=has_judges and not args.no_rescore)


def _print(args: NoiseArguments, series: RunSeries, *, has_rescored: bool) -> None:
    names = (FIRST, SECOND, *((RESCORED,) if has_rescored else ()))
    runs = {name: short_path(series.home / name) for name in names}
    first, second, *rescored = (RunScores(series.home / name, runs[name]) for name in names)
    figures = measure_noise(first, second, *rescored)
    notes = noise_notes(figures, _settings(first))
    code = _exit_code(args, figures)
    if args.as_json:
        output.echo_json(noise_data(figures, code, runs, notes))
    else:
        labels = {f"Run {name}": path for name, path in runs.items()}
        print_lines(noise_lines(figures, labels, notes), sys.stdout, sys.stdout.isatty())
    if code != EXIT_OK:
        limit = percent(args.max_flip_rate)
        output.error(f"The flip rate {percent(figures.flip_rate)} is above --max-flip-rate {limit}", "Gate")
    sys.exit(code)


def _exit_code(args: NoiseArguments, figures: NoiseFigures) -> int:
    if args.max_flip_rate is None or figures.flip_rate is None:
        return EXIT_OK
    return EXIT_FINDINGS if figures.flip_rate > args.max_flip_rate else EXIT_OK


def _settings(run: RunScores) -> dict[str, Any]:
    """Return the settings of the target; empty if there are several."""
    targets = () if run.manifest is None else run.manifest.targets
    return targets[0].settings if len(targets) == 1 else {}


noise_command = declare("noise", NoiseArguments)
