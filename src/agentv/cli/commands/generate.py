"""`agentv generate`: writes rubrics for cases that have none, and makes cases out of rows."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from contextlib import aclosing, suppress
from fnmatch import fnmatchcase
from typing import Any

import click
import msgspec

from agentv.cli import output
from agentv.cli.project_options import EvalsArguments, RubricsArguments
from agentv.datasets.loader import GivenCases
from agentv.errors import EXIT_FINDINGS, EXIT_INTERRUPTED, AgentvError, UsageError
from agentv.generation.generator import (
    Done,
    Model,
    RowTemplates,
    RubricFile,
    cases_without_rubrics,
    generate_cases,
    generate_rubrics,
    one_dataset,
    read_rows,
)
from agentv.model.case import EvalCase
from agentv.model.values import to_json
from agentv.runs.writer import ResultWriter


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
    async with aclosing(_model(folder, args)) as model:
        return await generate_rubrics(model, cases, target.replace, output.say)


def _model(folder: str, args: RubricsArguments | EvalsArguments) -> Model:
    return Model(folder, args.target, args.targets_file, workers=args.workers, cache=args.cache)


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


def make_cases(args: EvalsArguments) -> tuple[Done | None, int]:
    """What came of it, or None when nothing was to be done yet; and how many rows there are."""
    rows, out = args.rows, args.out
    templates = RowTemplates(
        id=args.id_template,
        input=args.input_template,
        expected_outcome=args.outcome_template,
        expected_output=args.output_template,
    )
    if not out.lower().endswith((".jsonl", ".ndjson")):
        raise UsageError(f"Cannot write {out}", "Cases are written as .jsonl", "Then: agentv convert A.jsonl B.yaml")
    numbered = [row for row, _ in zip(read_rows(rows), range(args.limit or 1 << 62), strict=False)]
    if not numbered:
        raise UsageError(f"There are no rows in {rows}")
    try:
        templates.rendered(numbered[0][1])
    except ValueError as error:  # a template that does not fit the rows is reported before any call
        raise UsageError(str(error)) from None
    there, ids = _there(out, rows, args.resume)
    left = [(number, row) for number, row in numbered if number not in there]
    if args.dry_run:
        return None, len(left)
    writer = _Writer(out, rows, dict(left), ids)
    folder = os.path.dirname(out) or "."

    async def run() -> Done:
        if templates.are_enough:
            return await generate_cases(None, left, templates, writer.keep, output.say)
        async with aclosing(_model(folder, args)) as model:
            return await generate_cases(model, left, templates, writer.keep, output.say)

    try:
        done = asyncio.run(run())
    finally:
        writer.close()
    failed = (*done.failed, *writer.failed)
    made = done.made - len(writer.failed)
    return msgspec.structs.replace(done, made=made, failed=failed, there_already=len(there)), len(numbered)


class _Metadata(msgspec.Struct):
    source: str = ""
    row: int = 0


class _Line(msgspec.Struct):
    id: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def _there(out: str, rows: str, resume: bool) -> tuple[set[int], set[str]]:
    """The rows that have a case in the file by now, and the ids that are taken."""
    if not os.path.exists(out):
        return set(), set()
    if not resume:
        raise UsageError(f"{out} exists", hint="Add what is missing in it with --resume, or name another file")
    decoder = msgspec.json.Decoder(_Line)
    found = []
    with open(out, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.endswith(b"\n") and line.strip():
                try:
                    found.append(decoder.decode(line))
                except msgspec.DecodeError as error:
                    raise UsageError(f"{out}, line {number}: not a case that was made from rows", str(error)) from None
    mine = {line.metadata.row for line in found if line.metadata.source == os.path.basename(rows)}
    return mine, {line.id for line in found}


class _Writer:
    """Cases in the order of their rows: one that comes early waits for those before it."""

    def __init__(self, out: str, rows: str, left: dict[int, dict[str, Any]], ids: set[str]) -> None:
        folder = os.path.dirname(out)
        with suppress(FileExistsError):
            if folder:
                os.makedirs(folder)
        self._file = ResultWriter(out)
        self._source = os.path.basename(rows)
        self._rows = left
        self._ids = ids
        self._waiting: dict[int, dict[str, Any]] = {}
        self._order = list(left)
        self.failed: list[tuple[str, str]] = []

    def keep(self, number: int, case: dict[str, Any]) -> None:
        self._waiting[number] = case
        while self._order and self._order[0] in self._waiting:
            first = self._order.pop(0)
            self._write(first, self._waiting.pop(first))

    def close(self) -> None:
        """Rows that failed keep nobody waiting any longer."""
        for number in sorted(self._waiting):
            self._write(number, self._waiting[number])
        self._file.close()

    def _write(self, number: int, case: dict[str, Any]) -> None:
        id = self._free(case.pop("id", "") or str(self._rows[number].get("id") or f"row-{number}"))
        line = {"id": id, **case, "metadata": {"source": self._source, "row": number}}
        try:
            GivenCases([line])
        except AgentvError as error:
            # The headline counts the cases that were given, and this is always the first: the row is its place.
            self.failed.append((f"row {number}", error.detail or error.headline))
            output.say(f"Row {number}: {'. '.join(filter(None, (error.detail or error.headline, error.hint)))}")
            return
        self._ids.add(id)
        self._file.write(to_json(line) + b"\n")

    def _free(self, id: str) -> str:
        name, number = re.sub(r"\s+", " ", id).strip(), 2
        found = name
        while found in self._ids:
            found, number = f"{name}-{number}", number + 1
        return found
