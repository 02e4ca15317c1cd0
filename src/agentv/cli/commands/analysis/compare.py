"""`agentv compare`: compare runs case by case."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import click

from agentv.cli import output
from agentv.cli.analysis_options import CompareArguments
from agentv.cli.options import options_of
from agentv.comparison.comparison import Comparison, FailOn, Matrix
from agentv.comparison.comparison_json import comparison_data, matrix_data
from agentv.comparison.joined_cases import JoinedCases
from agentv.comparison.run_comparison import CompareOptions, NamedRun, compare_joined, compare_many, read_scores
from agentv.comparison.scores import RunScores
from agentv.engine.gates.gate_options import number_of, parse_max_errors
from agentv.engine.named_runs import lasting_name, named_run
from agentv.errors import EXIT_FINDINGS, UsageError, file_errors, plural
from agentv.report.comparisons.comparison_text import (
    comparison_lines,
    comparison_markdown,
    matrix_lines,
    matrix_markdown,
)
from agentv.report.formats import complete_file
from agentv.report.terminal import print_lines


def compare(args: CompareArguments) -> None:
    """Compare the runs, print the result and exit with its exit code."""
    if args.as_json and args.as_markdown:
        raise click.UsageError("--json and --markdown cannot be combined")
    default = "regression" if args.margin is None else "inconclusive"
    fail_on = cast("FailOn", args.fail_on or default)
    labels = list(map(lasting_name, args.runs))
    named = zip(map(named_run, labels), labels, strict=True)
    loaded = read_scores([NamedRun(path, label, picked) for (path, picked), label in named])
    code = _compare_many(args, loaded, fail_on) if len(loaded) > 2 else _compare_two(args, loaded, fail_on)
    sys.exit(code)


def _compare_many(args: CompareArguments, loaded: list[RunScores], fail_on: FailOn) -> int:
    """Compare three or more runs, print the matrix and return the exit code."""
    if args.margin is not None or fail_on == "any-loss" or args.cases:
        options = "--margin, --case and --fail-on any-loss"
        raise UsageError(f"{options} need exactly two runs", hint="Compare the runs in pairs")
    matrix = compare_many(loaded, seed=args.seed, allow_changed_measure=args.allow_changed_measure)
    code = _exit_code(args, matrix, fail_on)
    if args.html is not None:
        from agentv.report.comparisons.comparison_page import write_matrix  # late: rarely needed

        _write_file(args.html, partial(write_matrix, matrix, code))
    data, markdown = partial(matrix_data, matrix, code), partial(matrix_markdown, matrix)
    _print(args, data, markdown, partial(matrix_lines, matrix))
    return code


def _compare_two(args: CompareArguments, loaded: list[RunScores], fail_on: FailOn) -> int:
    """Compare two runs, print the comparison and return the exit code."""
    options = options_of(CompareOptions, args)
    joined = JoinedCases(loaded[0], loaded[1])
    found = compare_joined(joined, options)
    code = _exit_code(args, found, fail_on)
    if args.html is not None:
        from agentv.report.comparisons.comparison_page import write_comparison  # late: rarely needed
        from agentv.report.comparisons.comparison_view import ComparedRuns

        _write_file(args.html, partial(write_comparison, ComparedRuns(found, joined), code))
    data, markdown = partial(comparison_data, found, code, as_list=False), partial(comparison_markdown, found)
    _print(args, data, markdown, partial(comparison_lines, found))
    return code


def _exit_code(args: CompareArguments, found: Comparison | Matrix, fail_on: FailOn) -> int:
    """Return the exit code of a comparison: 1 also if a later run has more errors than allowed."""
    if args.max_errors is not None:
        limit, is_share = parse_max_errors(args.max_errors)
        for side in found.sides[1:]:
            if side.errors > number_of(limit, is_share, side.records):
                problem = f"{side.label} has {plural(side.errors, 'error')} in {plural(side.records, 'result')}"
                output.echo(f"{problem}; --max-errors is {args.max_errors}", err=True)
                return EXIT_FINDINGS
    return found.exit_code(fail_on)


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


def _write_file(file: str, write: Callable[[BinaryIO], None]) -> None:
    with complete_file(file) as stream:
        write(stream)
    output.message(f"Wrote {file}")


def write_page(file: str, title: str, text: str) -> None:
    """Write a report in Markdown as an HTML page."""
    from agentv.report.comparisons.markdown_page import markdown_page  # late: rarely needed

    with file_errors(f"Cannot write {file}"):
        Path(file).write_text(markdown_page(title, text), encoding="utf-8")
    output.message(f"Wrote {file}")
