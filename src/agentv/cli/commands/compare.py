"""`agentv compare`: compares two runs case by case, or many in a matrix, and prints the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import click

from agentv.cli.arguments.analysis_options import CompareArguments
from agentv.comparison.comparison import FailOn, comparison_data, matrix_data
from agentv.comparison.many_runs import compare_many
from agentv.comparison.scores import RunScores
from agentv.comparison.two_runs import CompareOptions, compare_runs
from agentv.engine.named_runs import named_run
from agentv.errors import EXIT_FINDINGS, EXIT_OK, UsageError
from agentv.model.values import to_json
from agentv.report.comparison_markdown import comparison_markdown, matrix_markdown
from agentv.report.comparison_text import comparison_lines, matrix_lines
from agentv.report.terminal import print_lines


def compare(args: CompareArguments) -> None:
    """Compare the runs, print the result and end with its exit code."""
    if args.as_json and args.as_markdown:
        raise click.UsageError("--json and --markdown are two ways to print the same; give one")
    default = "regression" if args.margin is None else "inconclusive"
    fail_on = cast("FailOn", args.fail_on or default)
    loaded = _loaded(args.runs)
    if len(loaded) > 2:
        if args.margin is not None or fail_on == "any-loss":
            raise UsageError("--margin and --fail-on any-loss are for two runs", hint="Compare them two by two")
        matrix = compare_many(loaded, seed=args.seed)
        code = EXIT_FINDINGS if matrix.fails(fail_on) else EXIT_OK
        _print(args, matrix_data(matrix, code), lambda: matrix_markdown(matrix), lambda: matrix_lines(matrix))
    else:
        options = {name: getattr(args, name) for name in CompareOptions.__struct_fields__}
        found = compare_runs(loaded[0], loaded[1], CompareOptions(**options))
        code = EXIT_FINDINGS if found.fails(fail_on) else EXIT_OK
        _print(args, comparison_data(found, code), lambda: comparison_markdown(found), lambda: comparison_lines(found))
    sys.exit(code)


def _print(
    args: CompareArguments,
    data: dict[str, Any],
    markdown: Callable[[], str],
    lines: Callable[[], list[tuple[str, str]]],
) -> None:
    if args.as_json:
        sys.stdout.buffer.write(to_json(data) + b"\n")
    elif args.as_markdown:
        sys.stdout.buffer.write(markdown().encode())
    else:
        print_lines(lines(), sys.stdout, sys.stdout.isatty())


def _loaded(runs: tuple[str, ...]) -> list[RunScores]:
    """The scores of the named runs; of a single one, those of each of its targets, or else of its prompts."""
    named = [named_run(run) for run in runs]
    if len(named) > 1:
        return [RunScores(path, run, target) for run, (path, target) in zip(runs, named, strict=True)]
    (path, target), (run,) = named[0], runs
    whole = None if target is not None else RunScores(path, run)
    names = [] if whole is None else whole.targets if len(whole.targets) > 1 else whole.prompts
    if len(names) < 2:
        hint = "Or one run with several targets or prompts, which are then compared"
        raise UsageError("Two runs are needed", hint=hint)
    return [RunScores(path, f"{run}:{name}", name) for name in names]
