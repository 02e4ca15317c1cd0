"""`agentv compare`: is the change real? Two runs case by case, or many in a matrix."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agentv.cli.options import AT_LEAST_0, SHARE
from agentv.errors import EXIT_FINDINGS, EXIT_OK, UsageError

if TYPE_CHECKING:
    from agentv.comparison.comparison import FailOn, Matrix
    from agentv.comparison.scores import RunScores


FAIL_ON = ["regression", "worse", "any-loss", "inconclusive", "never"]


@click.command(
    "compare",
    epilog="Examples:  agentv compare before after  ·  agentv compare RUN:old RUN:new --markdown  ·  "
    "agentv compare before after --margin 0.02  ·  agentv compare a.jsonl b.jsonl --json",
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--threshold", type=SHARE, default=0.1, show_default=True, help="A smaller change of a case is a tie.")
@click.option("--margin", type=SHARE, metavar="M", help="Ask whether B is worse than A by less than M.")
@click.option(
    "--fail-on", type=click.Choice(FAIL_ON),
    help="Exit 1 when B is shown to be worse (regression, the default), has a lower mean (worse), lost a case "
    "(any-loss), or is not shown to be better (inconclusive, the default with --margin).",
)  # fmt: skip
@click.option("--changes", type=AT_LEAST_0, default=5, show_default=True, help="Cases shown with answers.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the permutation test.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown, for a pull request.")
def command(runs: tuple[str, ...], **given: Any) -> None:
    """Compare runs, and say whether the change is real.

    RUN is a run's folder or id, or a file of results, AgentV's too; RUN:target picks one target, and RUN:prompt one
    prompt. Cases are joined by dataset and id, and trials are averaged. A single run is taken apart by its targets, or
    by its prompts where it has one target; more than two runs give a matrix and a ranking, in which the first is the
    one that others must not be worse than.

    \b
    Exit codes: 0 fine   1 what --fail-on names   2 usage, or files that cannot be read
    """
    if given["as_json"] and given["as_markdown"]:
        raise click.UsageError("--json and --markdown are two ways to print the same; give one")
    fail_on: FailOn = given["fail_on"] or ("regression" if given["margin"] is None else "inconclusive")
    loaded = _loaded(runs)
    if len(loaded) > 2:
        sys.exit(_print_matrix(loaded, fail_on, given))
    from agentv.comparison.two_runs import compare_runs

    options = {name: given[name] for name in ("threshold", "margin", "changes", "seed")}
    comparison = compare_runs(loaded[0], loaded[1], **options)
    code = EXIT_FINDINGS if comparison.fails(fail_on) else EXIT_OK
    if given["as_json"]:
        from agentv.comparison.comparison_data import comparison_data

        _print_json(comparison_data(comparison, code))
    elif given["as_markdown"]:
        from agentv.report.comparison_markdown import comparison_markdown

        _print_text(comparison_markdown(comparison))
    else:
        from agentv.report.comparison_text import comparison_lines

        _print_lines(comparison_lines(comparison))
    sys.exit(code)


def _print_matrix(loaded: list[RunScores], fail_on: FailOn, given: dict[str, Any]) -> int:
    from agentv.comparison.many_runs import compare_many

    if given["margin"] is not None or fail_on == "any-loss":
        raise UsageError("--margin and --fail-on any-loss are for two runs", hint="Compare them two by two")
    matrix = compare_many(loaded, seed=given["seed"])
    code = EXIT_FINDINGS if _fails(matrix, fail_on) else EXIT_OK
    if given["as_json"]:
        from agentv.comparison.comparison_data import matrix_data

        _print_json(matrix_data(matrix, code))
    elif given["as_markdown"]:
        from agentv.report.comparison_markdown import matrix_markdown

        _print_text(matrix_markdown(matrix))
    else:
        from agentv.report.comparison_text import matrix_lines

        _print_lines(matrix_lines(matrix))
    return code


def _fails(matrix: Matrix, on: FailOn) -> bool:
    """Whether any other run fails against the first."""
    found = [(each, p) for each, p in zip(matrix.differences[0], matrix.p_adjusted[0], strict=True) if each is not None]
    if on == "worse":
        return any(each.mean_delta < 0 for each, _ in found)
    # Several runs are several questions: what counts as shown is adjusted for that.
    shown = [each.mean_delta for each, p in found if p is not None and p < 0.05]
    if on == "inconclusive":
        return len(shown) < len(found) or min(shown) < 0
    return on == "regression" and any(delta < 0 for delta in shown)


def _loaded(runs: tuple[str, ...]) -> list[RunScores]:
    """The scores of the named runs; of a single one, those of each of its targets, or else of its prompts."""
    from agentv.comparison.scores import RunScores
    from agentv.engine.named_runs import named_run

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


def _print_json(data: dict[str, Any]) -> None:
    from agentv.model.values import to_json

    sys.stdout.buffer.write(to_json(data) + b"\n")


def _print_text(text: str) -> None:
    sys.stdout.buffer.write(text.encode())


def _print_lines(lines: list[tuple[str, str]]) -> None:
    from agentv.report.terminal import print_lines

    print_lines(lines, sys.stdout, sys.stdout.isatty())
