"""`agentv generate`: write rubrics for cases without them, and create cases from rows."""

import asyncio
import os
import sys
from contextlib import aclosing, nullcontext, suppress
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import msgspec

from agentv.cli import output
from agentv.datasets.foreign.field_map import check_fields, parse_map
from agentv.datasets.foreign.records import SAMPLE
from agentv.datasets.loader import InMemoryCases
from agentv.errors import EXIT_FINDINGS, EXIT_INTERRUPTED, AgentvError, UsageError, plural
from agentv.extensions.generate.command import EvalsArguments, RubricsArguments
from agentv.extensions.generate.generator import (
    GenerationResult,
    ProjectModel,
    RowTemplates,
    RubricFile,
    cases_without_rubrics,
    free_id,
    generate_cases,
    generate_rubrics,
    one_dataset,
    read_rows,
)
from agentv.model.values import to_json
from agentv.runs.writer import ResultWriter


def rubrics(args: RubricsArguments) -> None:
    """Write rubrics into a dataset file."""
    source, cases = one_dataset(args.file, output.discard if args.quiet else output.note)
    target = RubricFile(source)
    patterns = args.cases
    selection = [case for case in cases if not patterns or case.id in patterns or _matches(case.id, patterns)]
    if not selection:
        raise UsageError(f"No case in {args.file} matches {', '.join(patterns)}")
    open_cases = list(cases_without_rubrics(selection))
    # Raises if text cannot be inserted into the file, before any call is paid for.
    target.render({case.id: [{"id": "x", "expected_outcome": "x"}] for case in open_cases})
    of_cases = f"{len(open_cases):,} of {plural(len(selection), 'case')}"
    if args.dry_run:
        for case in open_cases:
            output.echo(case.id)
        output.message(f"Would write rubrics for {of_cases}. Nothing was called.")
        return
    if not open_cases:
        output.message(f"Nothing to do: {plural(len(selection), 'case')} checked, none needs rubrics.")
        return

    async def generate() -> GenerationResult:
        async with aclosing(_model(source.folder, args)) as model:
            return await generate_rubrics(model, open_cases, target.write, output.message)

    result = asyncio.run(generate())
    output.message(f"Wrote rubrics for {result.made:,} of {plural(len(open_cases), 'case')} in {args.file}")
    _exit(result.interrupted, result.failed, "the same command")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _model(folder: str, args: RubricsArguments | EvalsArguments) -> ProjectModel:
    return ProjectModel(folder, args.target, args.targets_file, workers=args.workers, cache=args.cache)


def evals(args: EvalsArguments) -> None:
    """Create a dataset from rows."""
    templates = RowTemplates(
        fields=parse_map(args.fields or "", needs_input=False),
        id=args.id_template,
        input=args.input_template,
        expected_outcome=args.outcome_template,
        expected_output=args.output_template,
    )
    rows = _rows(args, templates)
    existing, ids = _existing(args.out, args.rows, args.resume)
    open_rows = {number: row for number, row in rows.items() if number not in existing}
    if args.dry_run:
        output.message(f"Would write {plural(len(open_rows), 'case')}. Nothing was called.")
        return
    writer = _CaseWriter(args.out, args.rows, open_rows, ids)

    async def generate() -> GenerationResult:
        folder = os.path.dirname(args.out) or "."
        async with nullcontext() if templates.are_complete else aclosing(_model(folder, args)) as model:
            return await generate_cases(model, [*open_rows.items()], templates, writer.add, output.message)

    try:
        result = asyncio.run(generate())
    finally:
        writer.close()
    before = f", in addition to {plural(len(existing), 'case')} that existed" if existing else ""
    case_count = result.made - writer.failed
    output.message(f"Wrote {plural(case_count, 'case')} from {plural(len(rows), 'row')} to {args.out}{before}")
    again = "the same command" if args.resume else "the same command with --resume"
    _exit(result.interrupted, result.failed + writer.failed, again)


def _exit(interrupted: bool, failed: int, again: str) -> None:
    """Exit with an error code if the generation is incomplete; `again` completes it."""
    if interrupted:
        output.message(f"Interrupted. Finished work is saved; to continue, run {again}.")
        sys.exit(EXIT_INTERRUPTED)
    if failed:
        output.error(f"{failed:,} failed. To retry, run {again}.", "Incomplete")
        sys.exit(EXIT_FINDINGS)


def _rows(args: EvalsArguments, templates: RowTemplates) -> dict[int, dict[str, Any]]:
    """Read the rows by number, and check that the templates fit them before any call."""
    if not args.out.lower().endswith((".jsonl", ".ndjson")):
        hint = "To get YAML, convert the result: agentv convert A.jsonl B.yaml"
        raise UsageError(f"--out must be a .jsonl file, got {args.out}", hint=hint)
    if not (rows := dict(islice(read_rows(args.rows), args.limit))):
        raise UsageError(f"{args.rows} has no rows")
    check_fields(templates.fields, islice(rows.values(), SAMPLE), args.rows)
    try:
        templates.render(next(iter(rows.values())))
    except ValueError as error:
        raise UsageError(str(error)) from None
    return rows


class _Metadata(msgspec.Struct):
    source: str = ""
    row: int = 0


class _Line(msgspec.Struct):
    id: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def _existing(out: str, rows: str, resume: bool) -> tuple[set[int], set[str]]:
    """Return the rows that already have a case in the file, and the ids in use."""
    if not os.path.exists(out):
        return set(), set()
    if not resume:
        raise UsageError(f"{out} already exists", hint="Add the missing cases with --resume, or choose another file")
    decoder = msgspec.json.Decoder(_Line)
    existing_lines = []
    with open(out, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.endswith(b"\n") and line.strip():
                try:
                    existing_lines.append(decoder.decode(line))
                except msgspec.DecodeError as error:
                    raise UsageError(f"{out}, line {number}: not a case generated from rows", str(error)) from None
    mine = {line.metadata.row for line in existing_lines if line.metadata.source == os.path.basename(rows)}
    return mine, {line.id for line in existing_lines}


class _CaseWriter:
    """Writes cases in the order of their rows; a case that is early waits for the ones before it."""

    def __init__(self, out: str, rows: str, open_rows: dict[int, dict[str, Any]], ids: set[str]) -> None:
        with suppress(FileExistsError):
            os.makedirs(os.path.dirname(out) or ".")
        self._file = ResultWriter(out)
        self._source = os.path.basename(rows)
        self._rows = open_rows
        self._ids = ids
        self._waiting: dict[int, dict[str, Any]] = {}
        self._order = list(open_rows)
        self.failed = 0

    def add(self, number: int, case: dict[str, Any]) -> None:
        self._waiting[number] = case
        while self._order and self._order[0] in self._waiting:
            first = self._order.pop(0)
            self._write(first, self._waiting.pop(first))

    def close(self) -> None:
        """Write the cases that still wait for rows that failed."""
        for number in sorted(self._waiting):
            self._write(number, self._waiting[number])
        self._file.close()

    def _write(self, number: int, case: dict[str, Any]) -> None:
        id = case.pop("id", "") or str(self._rows[number].get("id") or f"row-{number}")
        id = free_id(" ".join(id.split()), self._ids)
        origin = {"source": self._source, "row": number}
        line = {"id": id, **case, "metadata": {**case.get("metadata", {}), **origin}}
        try:
            InMemoryCases([line])
        except AgentvError as error:
            # The headline names the first case; the row number is more useful.
            self.failed += 1
            output.message(f"Row {number}: {'. '.join(filter(None, (error.detail or error.headline, error.hint)))}")
            return
        self._ids.add(id)
        self._file.write(to_json(line) + b"\n")
