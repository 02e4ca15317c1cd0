"""`agentv compare`: compare runs case by case."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import click

from agentv.cli import output
from agentv.cli.analysis_options import CompareArguments
from agentv.cli.options import options_of
from agentv.comparison.comparison import Comparison, FailOn, Matrix
from agentv.comparison.comparison_json import comparison_data, matrix_data
from agentv.comparison.joined_cases import JoinedCases
from agentv.comparison.run_comparison import CompareOptions, NamedRun, compare_joined, compare_many, read_scores
from agentv.comparison.sampling.selected_variant import correct_selection
from agentv.comparison.scores import RunScores
from agentv.engine.gates.gate_options import number_of, parse_max_errors
from agentv.engine.named_runs import lasting_name, named_run, open_baseline
from agentv.errors import EXIT_FINDINGS, EXIT_UNDECIDED, UsageError, file_errors, plural
from agentv.report.comparisons.comparison_text import (
    comparison_lines,
    comparison_markdown,
    matrix_lines,
    matrix_markdown,
)
from agentv.report.terminal import print_lines
from agentv.runs.folder import whole_file


def compare(args: CompareArguments) -> None:
    """Compare the runs, print the result and exit with its exit code."""
    if args.as_json and args.as_markdown:
        raise click.UsageError("--json and --markdown cannot be combined")
    default = "regression" if args.margin is None else "inconclusive"
    fail_on = cast("FailOn", args.fail_on or default)
    loaded = _read(args)
    code = _compare_many(args, loaded, fail_on) if len(loaded) > 2 else _compare_two(args, loaded, fail_on)
    sys.exit(code)


def _read(args: CompareArguments) -> list[RunScores]:
    """Read the runs, the baseline first."""
    labels = list(map(lasting_name, args.runs))
    runs = [NamedRun(path, label, picked) for (path, picked), label in zip(map(named_run, labels), labels, strict=True)]
    if not args.baselines:
        return read_scores(runs)
    candidates = [RunScores(*run) for run in runs]
    datasets = {entry.name for run in candidates if run.manifest for entry in run.manifest.datasets}
    baseline = open_baseline(args.baselines, [str(run.path) for run in runs if run.picked is None], datasets)
    return [RunScores(*baseline), *candidates]


def _compare_many(args: CompareArguments, loaded: list[RunScores], fail_on: FailOn) -> int:
    """Compare three or more runs, print the matrix and return the exit code."""
    if args.margin is not None or fail_on == "any-loss" or args.cases:
        options = "--margin, --case and --fail-on any-loss"
        raise UsageError(f"{options} need exactly two runs", hint="Compare the runs in pairs")
    allowed = args.allow_changed_measure
    matrix = compare_many(
        loaded,
        seed=args.seed,
        allow_changed_measure=allowed,
        all_pairs=args.all_pairs,
        judge_must_agree=args.judge_must_agree,
    )
    code = _exit_code(args, matrix, fail_on)
    if args.html is not None:
        _write_html(args.html, matrix, code)
    data, markdown = partial(matrix_data, matrix, code), partial(matrix_markdown, matrix)
    _print(args, data, markdown, partial(matrix_lines, matrix))
    return code


def _compare_two(args: CompareArguments, loaded: list[RunScores], fail_on: FailOn) -> int:
    """Compare two runs, print the comparison and return the exit code."""
    options = options_of(CompareOptions, args)
    joined = JoinedCases(loaded[0], loaded[1])
    comparison = correct_selection(compare_joined(joined, options), loaded[0], loaded[1])
    code = _exit_code(args, comparison, fail_on)
    if args.html is not None:
        _write_html(args.html, (comparison, joined), code)
    data, markdown = partial(comparison_data, comparison, code, as_list=False), partial(comparison_markdown, comparison)
    _print(args, data, markdown, partial(comparison_lines, comparison))
    return code


def _exit_code(args: CompareArguments, comparison: Comparison | Matrix, fail_on: FailOn) -> int:
    """Return the exit code: 1 also if a later run has more errors than allowed, 5 if the judge must be calibrated."""
    if args.max_errors is not None:
        limit, is_share = parse_max_errors(args.max_errors)
        for side in comparison.sides[1:]:
            if side.errors > number_of(limit, is_share, side.records):
                problem = f"{side.label} has {plural(side.errors, 'error')} in {plural(side.records, 'result')}"
                output.echo(f"{problem}; --max-errors is {args.max_errors}", err=True)
                return EXIT_FINDINGS
    judge = comparison.judge
    if args.judge_must_agree is not None and judge is not None and not judge.supports_claims:
        output.echo(f"The judge is not calibrated; --judge-must-agree is {judge.required:g}", err=True)
        return EXIT_UNDECIDED
    return comparison.exit_code(fail_on)


def _print(
    args: CompareArguments,
    data: Callable[[], dict[str, Any]],
    markdown: Callable[[], str],
    lines: Callable[[], list[tuple[str, str]]],
) -> None:
    if args.as_json:
        output.echo_json_parts(data())
    elif args.as_markdown:
        sys.stdout.buffer.write(markdown().encode())
    else:
        print_lines(lines(), sys.stdout, sys.stdout.isatty())


def _write_html(file: str, compared: Matrix | tuple[Comparison, JoinedCases], code: int) -> None:
    from agentv.report.comparisons.comparison_page import write_comparison, write_matrix  # late: rarely needed

    with whole_file(Path(file), is_private=False) as stream:
        if isinstance(compared, Matrix):
            write_matrix(compared, code, stream)
        else:
            write_comparison(*compared, code, stream)
    output.message(f"Wrote {file}")


def write_page(file: str, title: str, text: str) -> None:
    """Write a report in Markdown as an HTML page."""
    from agentv.report.comparisons.comparison_page import markdown_page  # late: rarely needed

    with file_errors(f"Cannot write {file}"):
        Path(file).write_text(markdown_page(title, text), encoding="utf-8", newline="\n")
    output.message(f"Wrote {file}")
