"""`agentv generate`: rubrics for cases that have none, and cases out of rows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agentv.cli import output
from agentv.cli.options import AT_LEAST_1, targets_option
from agentv.errors import EXIT_FINDINGS, EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from agentv.generation.generator import Done


_target_option = click.option("--target", "-t", metavar="NAME", help="Who writes; without it, the target `judge`.")
_workers_option = click.option("--workers", type=AT_LEAST_1, metavar="N", help="Calls at once.")
_cache_option = click.option("--cache", is_flag=True, help="Ask nothing that was answered before.")
_quiet_option = click.option("--quiet", "-q", is_flag=True, help="Hide notes.")
_dry_option = click.option("--dry-run", is_flag=True, help="Call nobody and write nothing; say what would be made.")


@click.group(
    "generate",
    epilog="Examples:  agentv generate rubrics evals/dataset.yaml --target gpt  ·  "
    "agentv generate evals tickets.csv --out evals/tickets.jsonl --input '{{ question }}'",
)
def command() -> None:
    """Write rubrics for cases that have none, and cases out of rows.

    \b
    agentv generate rubrics FILE            fills in what is missing; nothing else in the file changes
    agentv generate evals ROWS --out FILE   one case a row, by templates or by a model
    """


@command.command(
    "rubrics",
    epilog="Examples:  agentv generate rubrics evals/dataset.yaml  ·  "
    "agentv generate rubrics evals/dataset.jsonl --target gpt --case refund-*  ·  "
    "agentv generate rubrics evals/dataset.yaml --dry-run",
)
@click.argument("file", type=click.Path())
@_target_option
@targets_option
@click.option("--case", "cases", multiple=True, metavar="ID", help="Only these cases; an id or a glob.")
@_workers_option
@_cache_option
@_dry_option
@_quiet_option
def rubrics(file: str, **given: Any) -> None:
    """Write rubrics into FILE for cases that have an expected outcome and no rubrics.

    Lines are added and none is changed: comments, order, indentation, anchors, line ends and a byte order mark stay. A
    case that has rubrics is never touched. The file is replaced whole, every few seconds and at the end; after an
    interruption the same command does what is left.
    """
    from fnmatch import fnmatchcase

    from agentv.generation.generator import RubricFile, cases_without_rubrics, generate_rubrics, one_dataset

    source, cases = one_dataset(file, output.silent if given["quiet"] else output.note)
    target = RubricFile(source)
    wanted = [
        case
        for case in cases
        if not given["cases"] or any(case.id == each or fnmatchcase(case.id, each) for each in given["cases"])
    ]
    if not wanted:
        raise UsageError(f"No case in {file} matches {', '.join(given['cases'])}")
    open_cases = list(cases_without_rubrics(wanted))
    _check_room(target, [case.id for case in open_cases])
    if given["dry_run"]:
        for case in open_cases:
            click.echo(case.id)
        output.say(f"{len(open_cases)} of {len(wanted)} cases would get rubrics. Nothing was called.")
        return
    if not open_cases:
        output.say(f"All {len(wanted)} cases have rubrics, or no expected outcome to write them from.")
        return
    done = _run_rubrics(source.folder, open_cases, target.replace, generate_rubrics, given)
    output.say(f"{done.made} of {len(open_cases)} cases without rubrics have some now, in {file}")
    _end(done, "the same command")


def _check_room(target: Any, ids: list[str]) -> None:
    """Raises now what would be raised when paid answers are there: a file that text cannot be put into."""
    target.write({id: [{"id": "x", "expected_outcome": "x"}] for id in ids})


def _run_rubrics(folder: str, cases: Any, keep: Any, generate: Any, given: dict[str, Any]) -> Done:
    import asyncio

    from agentv.generation.model_client import Model

    async def run() -> Done:
        async with Model(
            folder, given["target"], given["targets_file"], workers=given["workers"], cache=given["cache"]
        ) as model:
            found: Done = await generate(model, cases, keep, output.say)
            return found

    return asyncio.run(run())


@command.command(
    "evals",
    epilog="Examples:  agentv generate evals faq.csv --out evals/faq.jsonl --input '{{ question }}' "
    "--expected-outcome 'Answers as our FAQ does' --expected-output '{{ answer }}'  ·  "
    "agentv generate evals tickets.jsonl --out evals/tickets.jsonl --target gpt",
)
@click.argument("rows", type=click.Path(exists=True, dir_okay=False))
@click.option("--out", required=True, metavar="FILE", type=click.Path(dir_okay=False), help="The .jsonl file to write.")
@click.option("--id", "id_template", metavar="TEMPLATE", help="Default: the row's own id, else row-1, row-2 …")
@click.option("--input", "input_template", metavar="TEMPLATE", help="What is asked, such as '{{ question }}'.")
@click.option("--expected-outcome", "outcome_template", metavar="TEMPLATE", help="What a good answer does.")
@click.option("--expected-output", "output_template", metavar="TEMPLATE", help="The reference answer.")
@click.option("--limit", type=AT_LEAST_1, metavar="N", help="At most so many rows.")
@click.option("--resume", is_flag=True, help="Add to the file what is missing in it.")
@_target_option
@targets_option
@_workers_option
@_cache_option
@_dry_option
@_quiet_option
def evals(rows: str, out: str, **given: Any) -> None:
    """Make a dataset out of ROWS, a .csv, .tsv or .jsonl file: one case a row.

    Columns are the variables of the templates. What no template says, a model writes: `input`, `expected_outcome`, and
    `expected_output` where the row holds one. With templates for the first two nobody is asked. Each case is checked as
    a dataset's is, written the moment it is there, and says in `metadata` which row it is from.
    """
    from agentv.cli.generate_cases import make_cases

    done, total = make_cases(rows, out, given)
    if done is None:
        output.say(f"{total} rows would become cases. Nothing was called.")
        return
    already = f", {done.there_already} were there" if done.there_already else ""
    output.say(f"{done.made} of {total} rows are cases in {out} now{already}")
    _end(done, "the same command" if given["resume"] else "the same command with --resume")


def _end(done: Done, again: str) -> None:
    if done.interrupted:
        output.say(f"Interrupted: what is done is kept; {again} goes on")
        sys.exit(EXIT_INTERRUPTED)
    if done.failed:
        output.say(output.styled("Ended:", "red") + f" {len(done.failed)} failed; {again} tries them again")
        sys.exit(EXIT_FINDINGS)
