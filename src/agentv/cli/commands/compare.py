"""`agentv compare`: compare runs case by case."""

import sys
from pathlib import Path
from typing import cast

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
    options = options_of(CompareOptions, args)
    joined: JoinedCases | None = None
    compared: Comparison | Matrix
    if len(loaded) > 2:
        if args.margin is not None or fail_on == "any-loss" or args.cases:
            names = "--margin, --case and --fail-on any-loss"
            raise UsageError(f"{names} need exactly two runs", hint="Compare the runs in pairs")
        compared = compare_many(loaded, options, all_pairs=args.all_pairs)
    else:
        joined = JoinedCases(loaded[0], loaded[1])
        compared = correct_selection(compare_joined(joined, options), loaded[0], loaded[1])
    code = _exit_code(args, compared, fail_on)
    if args.html is not None:
        _write_html(args.html, compared, joined, code)
    _print(args, compared, code)
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


def _print(args: CompareArguments, compared: Comparison | Matrix, code: int) -> None:
    if args.as_json:
        data = (
            matrix_data(compared, code)
            if isinstance(compared, Matrix)
            else comparison_data(compared, code, as_list=False)
        )
        output.echo_json_parts(data)
    elif args.as_markdown:
        text = matrix_markdown(compared) if isinstance(compared, Matrix) else comparison_markdown(compared)
        sys.stdout.buffer.write(text.encode())
    else:
        lines = matrix_lines(compared) if isinstance(compared, Matrix) else comparison_lines(compared)
        print_lines(lines, sys.stdout, sys.stdout.isatty())


def _write_html(file: str, compared: Comparison | Matrix, joined: JoinedCases | None, code: int) -> None:
    from agentv.report.comparisons.comparison_page import write_comparison, write_matrix  # late: rarely needed

    with whole_file(Path(file), is_private=False) as stream:
        if isinstance(compared, Matrix):
            write_matrix(compared, code, stream)
        elif joined is not None:
            write_comparison(compared, joined, code, stream)
    output.message(f"Wrote {file}")


def write_page(file: str, title: str, text: str) -> None:
    """Write a report in Markdown as an HTML page."""
    from agentv.report.comparisons.comparison_page import markdown_page  # late: rarely needed

    with file_errors(f"Cannot write {file}"):
        Path(file).write_text(markdown_page(title, text), encoding="utf-8", newline="\n")
    output.message(f"Wrote {file}")
