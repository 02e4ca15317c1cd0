"""`agentv generate`: writes rubrics for cases that have none, and makes cases out of rows."""

from __future__ import annotations

import asyncio
import sys
from fnmatch import fnmatchcase

import click

from agentv.cli import output
from agentv.cli.arguments.generation_options import EvalsArguments, RubricsArguments
from agentv.cli.generate_cases import make_cases
from agentv.errors import EXIT_FINDINGS, EXIT_INTERRUPTED, UsageError
from agentv.generation.generator import Done, RubricFile, cases_without_rubrics, generate_rubrics, one_dataset
from agentv.generation.model_client import Model
from agentv.model.case import EvalCase


def rubrics(args: RubricsArguments) -> None:
    """Write rubrics into a dataset file."""
    source, cases = one_dataset(args.file, output.silent if args.quiet else output.note)
    target = RubricFile(source)
    wanted = [
        case
        for case in cases
        if not args.cases or any(case.id == each or fnmatchcase(case.id, each) for each in args.cases)
    ]
    if not wanted:
        raise UsageError(f"No case in {args.file} matches {', '.join(args.cases)}")
    open_cases = list(cases_without_rubrics(wanted))
    # Raises now, before answers are paid for, if text cannot be inserted into the file.
    target.write({case.id: [{"id": "x", "expected_outcome": "x"}] for case in open_cases})
    if args.dry_run:
        for case in open_cases:
            click.echo(case.id)
        output.say(f"{len(open_cases)} of {len(wanted)} cases would get rubrics. Nothing was called.")
        return
    if not open_cases:
        output.say(f"All {len(wanted)} cases have rubrics, or no expected outcome to write them from.")
        return
    done = asyncio.run(_generate(source.folder, open_cases, target, args))
    output.say(f"{done.made} of {len(open_cases)} cases without rubrics have some now, in {args.file}")
    _end(done, "the same command")


async def _generate(folder: str, cases: list[EvalCase], target: RubricFile, args: RubricsArguments) -> Done:
    async with Model(folder, args.target, args.targets_file, workers=args.workers, cache=args.cache) as model:
        return await generate_rubrics(model, cases, target.replace, output.say)


def evals(args: EvalsArguments) -> None:
    """Make a dataset out of rows."""
    done, total = make_cases(args)
    if done is None:
        output.say(f"{total} rows would become cases. Nothing was called.")
        return
    already = f", {done.there_already} were there" if done.there_already else ""
    output.say(f"{done.made} of {total} rows are cases in {args.out} now{already}")
    _end(done, "the same command" if args.resume else "the same command with --resume")


def _end(done: Done, again: str) -> None:
    if done.interrupted:
        output.say(f"Interrupted: what is done is kept; {again} goes on")
        sys.exit(EXIT_INTERRUPTED)
    if done.failed:
        output.say(output.styled("Ended:", "red") + f" {len(done.failed)} failed; {again} tries them again")
        sys.exit(EXIT_FINDINGS)
