"""`agentv select`: choose the best of many variants, and confirm it on cases that took no part in the choice."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from agentv.cli import output
from agentv.cli.evaluation_options import EvaluatedTargets, SeriesOptions
from agentv.cli.options import AT_LEAST_1, FILE, argument, declare, option, options_of
from agentv.cli.run_series import RunSeries, print_result
from agentv.comparison.comparison import Comparison
from agentv.comparison.comparison_json import comparison_data
from agentv.comparison.run_comparison import CompareOptions, compare_runs
from agentv.comparison.scores import RunScores
from agentv.engine.prepare import prepare
from agentv.engine.resume import folder_of
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_project import open_targets
from agentv.errors import EXIT_OK, EXIT_UNDECIDED, UsageError, file_errors, plural
from agentv.extensions.select.rounds import Schedule, plan_rounds
from agentv.extensions.select.stages import Choice, Stage, check_schedule, run_stages, shuffled_units, stage_name
from agentv.report.comparisons.verdict_text import method, named_verdict
from agentv.report.figures import number, one_line
from agentv.report.terminal import Line
from agentv.runs.folder import short_path
from agentv.targets.targets_file import Variant


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
        data = {"variants": options.targets, "schedule": schedule, "calls": schedule.calls * per_case}
        print_result(args, data, schedule_lines(options.targets, schedule, per_case))
        return
    series = RunSeries.open("select", stage_name(1), args, _command(args))
    choice = run_stages(series, options, schedule, units)
    _print(args, choice, len(options.targets) * sum(map(len, units)) * per_case)


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
    print_result(args, selection_data(choice, comparison, matrix, code), selection_lines(choice, comparison, matrix))
    sys.exit(code)


def _command(args: SelectArguments) -> str:
    """Return the command to resume with: the same cases and variants."""
    words = ["agentv", "select", *args.paths]
    for flag, values in (("--target", args.targets), ("--prompt", args.prompts), ("--filter", args.filters)):
        words += [word for value in values for word in (flag, value)]
    for flag, value in (("--calls", args.calls), ("--trials", args.trials), ("--seed", args.seed)):
        words += [] if value is None else [flag, str(value)]
    return shlex.join(words)


_LONGEST_NAME = 40
_MOST_VARIANTS = 5


def schedule_lines(variants: Sequence[str], schedule: Schedule, per_case: int) -> list[Line]:
    """Return the plan of the rounds."""
    lines: list[Line] = [(f"{plural(len(variants), 'variant')}; the baseline is {_name(variants[0])}", "bold")]
    for place, each in enumerate(schedule.rounds, 1):
        calls = f"{each.calls * per_case:,} calls"
        cases = plural(each.cases, "case")
        lines.append(
            (f"  round {place}       {each.variants} variants on {cases}, {calls}; {each.survivors} go on", "")
        )
    calls = f"{2 * schedule.confirmation * per_case:,} calls"
    lines.append((f"  confirmation  2 variants on {plural(schedule.confirmation, 'other case')}, {calls}", ""))
    lines.append((f"At most {schedule.calls * per_case:,} calls, nothing was called", ""))
    return lines


def selection_lines(choice: Choice, comparison: Comparison | None, matrix: int) -> list[Line]:
    """Return the verdict first, then the confirmation and the rounds."""
    lines: list[Line] = [(_verdict(choice, comparison), "bold"), ("", "")]
    if comparison is not None and comparison.paired is not None and choice.stages:
        chosen_at = choice.stages[-1].means[choice.winner]
        lines.append(
            (f"{_name(choice.winner)} scored {number(chosen_at)} in the rounds, and was chosen for it: only the", "")
        )
        lines.append(
            ("confirmation, on cases that took no part in the choice, is an unbiased estimate of its lead.", "")
        )
        lines.append((f"Method: {method(comparison.paired)}", "dim"))
        lines.append(("", ""))
    for place, stage in enumerate(choice.stages, 1):
        lines += _stage_lines(place, stage)
    if choice.confirmation is not None:
        lines.append((f"Confirmation: {short_path(choice.confirmation)}", ""))
    lines.append((f"{choice.calls:,} calls; all variants on all cases would be {matrix:,}", ""))
    return lines


def _verdict(choice: Choice, comparison: Comparison | None) -> str:
    if comparison is None:
        return f"Keep {_name(choice.baseline)}: the baseline won the rounds, and there is nothing to confirm"
    names = _name(choice.baseline), _name(choice.winner)
    text = named_verdict(comparison, names)
    return f"Choose {names[1]}: {text}" if comparison.answer == "better" else f"{names[1]} won the rounds. {text}"


def _stage_lines(place: int, stage: Stage) -> list[Line]:
    ranking = sorted(stage.means, key=lambda name: -stage.means[name])
    best = ", ".join(f"{_name(name)} {number(stage.means[name])}" for name in ranking[:_MOST_VARIANTS])
    more = f" and {len(ranking) - _MOST_VARIANTS} more" if len(ranking) > _MOST_VARIANTS else ""
    head = f"Round {place}: {len(stage.errors)} variants, {plural(stage.cases, 'case')}; {len(stage.survivors)} went on"
    lines: list[Line] = [(head, ""), (f"  {best}{more}", "dim")]
    if errors := {name: count for name, count in stage.errors.items() if count}:
        lines.append((f"  errors (not scored): {', '.join(f'{_name(n)} {count}' for n, count in errors.items())}", ""))
    return lines


def selection_data(choice: Choice, comparison: Comparison | None, matrix: int, exit_code: int) -> dict[str, Any]:
    """Return the result as JSON."""
    paired = None if comparison is None else comparison.paired
    lead = None if paired is None else {"value": paired.mean_delta, "ci95": paired.ci95, "p_value": paired.p_value}
    return {
        "winner": choice.winner,
        "baseline": choice.baseline,
        "answer": "keep" if comparison is None else comparison.answer,
        "lead": lead,
        "exit_code": exit_code,
        "calls": choice.calls,
        "calls_of_matrix": matrix,
        "rounds": msgspec.to_builtins(choice.stages),
        "confirmation": None if choice.confirmation is None else str(choice.confirmation),
        "comparison": None if comparison is None else comparison_data(comparison, exit_code),
    }


def _name(name: str) -> str:
    return one_line(name, _LONGEST_NAME)


def with_variants(options: EvalOptions, prompts: tuple[str, ...], folder: str) -> EvalOptions:
    """Return options whose targets are all variants, the baseline first. Raises UsageError for fewer than two."""
    names = options.targets
    if prompts:
        file = open_targets(folder, options.targets_file)
        names = tuple(file.pick(options.targets))
        for name in names:
            target = file.get(name)
            if "system_prompt" not in target.__struct_fields__:
                detail = f"Provider '{target.provider}' has no `system_prompt`"
                raise UsageError(f"Target '{name}' cannot have a prompt", detail, "Use a model API or a coding agent")
    variants = tuple(
        Variant(name=f"{name}-{label}", base=name, settings={"system_prompt": text})
        for name in names
        for label, text in _texts(prompts).items()
    )
    targets = tuple(variant.name for variant in variants) or names
    if len(set(targets)) < 2:
        raise click.UsageError("Name at least two variants: --target NAME or --prompt FILE, several times")
    return msgspec.structs.replace(options, targets=tuple(dict.fromkeys(targets)), variants=variants)


def _texts(prompts: tuple[str, ...]) -> dict[str, str]:
    """Return the text of each prompt by the name of its file."""
    texts: dict[str, str] = {}
    for path in prompts:
        if (label := Path(path).stem) in texts:
            raise UsageError(f"Two prompts are called '{label}'", hint="Rename one of the files")
        with file_errors(f"Cannot read {path}"):
            texts[label] = Path(path).read_text(encoding="utf-8")
    return texts


select_command = declare("select", SelectArguments)
