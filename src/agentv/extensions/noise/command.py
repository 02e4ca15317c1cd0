"""`agentv noise`: run the same cases twice and measure the noise."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentv.cli import output
from agentv.cli.evaluation_options import SeriesOptions
from agentv.cli.options import SHARE, declare, flag, option, options_of
from agentv.cli.run_series import RunSeries, print_result, print_run_plan
from agentv.comparison.sample_size import FEWEST_CASES
from agentv.comparison.scores import RunScores
from agentv.engine.run_options import EvalOptions
from agentv.errors import EXIT_FINDINGS, EXIT_OK, plural
from agentv.extensions.noise.noise_estimate import FlakyCase, NoiseFigures, ScoreNoise, measure_noise, noise_data
from agentv.report.comparisons.verdict_text import units
from agentv.report.figures import (
    aligned,
    number,
    one_line,
    p_equals,
    percent,
    percent_interval,
    signed,
    signed_interval,
    usd,
)
from agentv.report.terminal import Line, note_lines, table_lines
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
    series = RunSeries.open("noise", FIRST, args, "agentv noise")
    options = series.options(eval_options, FIRST)
    series.evaluate(FIRST, options, "Run 1 of 2")
    plan = series.evaluate(SECOND, options, "Run 2 of 2")
    names = [FIRST, SECOND]
    if plan.checked.judges and not args.no_rescore:
        series.rescore(RESCORED, FIRST, options, "Scoring the answers of the first run again")
        names.append(RESCORED)
    _print(args, series, names)


def _print(args: NoiseArguments, series: RunSeries, names: Sequence[str]) -> None:
    runs = {name: short_path(series.home / name) for name in names}
    first, second, *rescored = (RunScores(series.home / name, runs[name]) for name in names)
    figures = measure_noise(first, second, *rescored)
    notes = noise_notes(figures, _settings(first))
    code = _exit_code(args, figures)
    labels = {f"Run {name}": path for name, path in runs.items()}
    print_result(args, noise_data(figures, code, runs, notes), noise_lines(figures, labels, notes))
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


_LONGEST_NAME = 40
_MOST_CASES = 20
_MOST_SCORES = 6


def noise_lines(figures: NoiseFigures, runs: Mapping[str, str], notes: list[str]) -> list[Line]:
    """Return the noise as lines for a terminal."""
    lines: list[Line] = [(flip_sentence(figures), "bold"), *((text, "") for text in _sentences(figures))]
    lines += note_lines(notes)
    if rows := list(_source_rows(figures)):
        lines += [("", ""), ("Standard deviation of one score if nothing changes", "bold")]
        lines += table_lines([["", "between runs", "by the judge", "by the target", "flipped"], *rows])
    if figures.flaky:
        lines += [("", ""), (f"Flaky cases: {len(figures.flaky):,} of {figures.cases:,}", "bold")]
        lines += [(row, "yellow") for row in aligned([_flaky_row(case) for case in figures.flaky[:_MOST_CASES]])]
        if len(figures.flaky) > _MOST_CASES:
            lines.append((f"and {len(figures.flaky) - _MOST_CASES:,} more; use --json for all", "dim"))
    lines += [("", ""), (_cost(figures), "dim"), *((f"{name}: {path}", "") for name, path in runs.items())]
    return lines


def flip_sentence(figures: NoiseFigures) -> str:
    """State how many cases got another verdict."""
    if figures.flip_rate is None:
        return "Can't tell: no case has a verdict in both runs."
    count, cases = len(figures.flaky), plural(figures.cases, "case")
    flipped = f"{count:,} of {cases} changed {'its' if count == 1 else 'their'} verdict"
    if not count:
        flipped = f"None of {cases} changed its verdict" if figures.cases > 1 else "The only case kept its verdict"
    trials = "" if figures.trials == 1 else f" in {2 * figures.trials} trials"
    although = " although nothing changed" if count else ""
    of = "" if figures.trials == 1 else " for two trials"
    bounds = f"95 % interval {percent_interval(figures.flip_rate_ci95)}"
    return f"{flipped}{trials}{although}: flip rate {percent(figures.flip_rate)}{of} ({bounds})."


def _sentences(figures: NoiseFigures) -> Iterator[str]:
    """Yield the noise floor, the smallest detectable change, the difference of the runs, and the noisiest evaluator."""
    trials = "" if figures.trials == 1 else f" with {figures.trials} trials"
    paired = figures.comparison.paired
    if figures.noise_floor is None and paired is not None:
        yield f"Noise floor: too few to tell ({units(paired)}; at least {FEWEST_CASES} are needed)."
    elif figures.noise_floor == 0:
        yield f"Noise floor: 0; no score of {plural(figures.shared_cases, 'case')} varied."
    elif figures.noise_floor is not None and figures.noise_bound is not None:
        moves = (
            f"the mean of {plural(figures.shared_cases, 'case')}{trials} moves by {number(figures.noise_floor)} (SD)"
        )
        yield f"Noise floor: {moves} between two runs, and by less than {number(figures.noise_bound)} in 95 % of pairs."
    if figures.smallest_detectable_difference is None:
        verb = "is" if figures.shared_cases == 1 else "are"
        few = f"{plural(figures.shared_cases, 'case')} {verb} too few to show any difference"
        yield f"Smallest detectable change: none; {few}."
    else:
        change = f"{number(figures.smallest_detectable_difference)} ({100 * figures.power:.0f} % power)"
        yield f"Smallest detectable change: {change}. Smaller ones look like noise."
    if paired is not None and paired.answer != "cannot tell":
        evidence = f"{signed(paired.mean_delta)}, 95 % {signed_interval(paired.ci95)}, {p_equals(paired.p_value)}"
        yield f"Warning: the runs differ by more than chance explains ({evidence}). Something other than luck changed."
    elif paired is not None:
        bounds = "" if paired.ci95 is None else f" (95 % {signed_interval(paired.ci95)})"
        difference = f"{signed(paired.mean_delta)}{bounds}"
        yield f"The second run differs from the first by {difference}: no more than chance explains."
    yield from _noisiest(figures)


def _noisiest(figures: NoiseFigures) -> Iterator[str]:
    noisiest = next(iter(figures.evaluators), None)
    if noisiest is None or not noisiest.total or (len(figures.evaluators) < 2 and noisiest.judge is None):
        return
    share = noisiest.judge_share
    why = "" if share is None else f"; {percent(share)} of its variance comes from the judge, the rest from the target"
    name = one_line(noisiest.name or "", _LONGEST_NAME)
    yield f"The noisiest evaluator is {name}: its score varies by {number(noisiest.total)} (SD){why}."


def _source_rows(figures: NoiseFigures) -> Iterator[list[str]]:
    """Yield a row for the score of a case and for each evaluator."""
    sources = (figures.score, *(figures.evaluators if len(figures.evaluators) > 1 else ()))
    for noise in sources if figures.score.total is not None else ():
        name = "score of a case" if noise.name is None else one_line(noise.name, _LONGEST_NAME)
        flipped = f"{noise.flipped:,} of {plural(noise.cases, 'case')}"
        yield [name, number(noise.total), _judge(noise), number(noise.target), flipped]


def _judge(noise: ScoreNoise) -> str:
    return "-" if noise.judge is None else f"{number(noise.judge)} ({plural(noise.judged, 'answer')})"


def _flaky_row(case: FlakyCase) -> list[str]:
    is_single = sum(case.verdicts.values()) == len(case.verdicts) == 2
    verdicts = " → ".join(case.verdicts) if is_single else _counts(case.verdicts)
    scores = " → ".join(_scores(run_scores) for run_scores in case.scores)
    prompt = [] if case.prompt is None else [case.prompt]
    name = " · ".join(one_line(part, _LONGEST_NAME) for part in (case.dataset, case.eval_id, *prompt) if part)
    return ["  " + name, scores, verdicts]


def _counts(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())


def _scores(scores: tuple[float, ...]) -> str:
    text = " ".join(f"{score:.2f}" for score in scores[:_MOST_SCORES])
    return (text + " …" if len(scores) > _MOST_SCORES else text) or "-"


def _cost(figures: NoiseFigures) -> str:
    if figures.cost_usd is None and figures.judge_cost_usd is None:
        return "Cost: unknown"
    total = (figures.cost_usd or 0.0) + (figures.judge_cost_usd or 0.0)
    judges = "" if figures.judge_cost_usd is None else f", {usd(figures.judge_cost_usd)} of it for judges"
    return f"Cost: {usd(total)}{judges}"


def noise_notes(figures: NoiseFigures, settings: Mapping[str, object]) -> list[str]:
    """Return caveats: errors, answers from a cache, and answers that never vary. `settings` are those of the target."""
    notes = [
        f"{plural(side.errors, 'error')} in the {name} run (not scored)"
        for name, side in zip(("first", "second"), figures.comparison.sides, strict=True)
        if side.errors
    ]
    if figures.cached_answers:
        count = f"{figures.cached_answers:,} of {plural(2 * figures.answers, 'answer')}"
        notes.append(f"{count} came from a cache, which hides the noise of the target")
    if figures.answers and not figures.has_varied:
        fixed = [f"{name} {settings[name]}" for name in ("temperature", "seed") if settings.get(name) is not None]
        why = f" ({', '.join(fixed)})" if fixed else ""
        notes.append(
            f"The answers are identical in both runs{why}, {figures.answers:,} of {figures.answers:,}: "
            "this target does not seem to vary, and more trials would not help"
        )
    return [*notes, *figures.comparison.notes]


noise_command = declare("noise", NoiseArguments)
