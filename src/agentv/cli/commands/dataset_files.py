"""`agentv cases` and `validate`: print and check datasets."""

import re
import shlex
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from msgspec import structs

from agentv.cli import output
from agentv.cli.evaluation_options import dataset_paths
from agentv.cli.options import options_of
from agentv.cli.project_options import CasesArguments, ValidateArguments
from agentv.datasets.case.prompts import resolved_data
from agentv.datasets.dataset import Options
from agentv.datasets.detection import MAPPED, detect
from agentv.datasets.foreign.field_guess import CHECK_KEYS, guess_map, map_text, missing_keys, unchecked_names
from agentv.datasets.foreign.field_map import parse_map, value_at
from agentv.datasets.foreign.foreign_format import record_file, rows_of
from agentv.datasets.formats.dataset_format import load_format
from agentv.datasets.loader import case_source
from agentv.engine.checks.findings import Finding, Report
from agentv.engine.checks.validation import validate as validated
from agentv.engine.run_options import EvalOptions
from agentv.errors import EXIT_FINDINGS, EXIT_OK, AgentvError, UsageError, plural
from agentv.model.case import EvalCase, case_to_data
from agentv.model.values import to_json
from agentv.registry import FOREIGN_FORMATS
from agentv.report.figures import one_line, safe_json
from agentv.report.markdown import workflow_command
from agentv.trust.consent import trust_notes
from agentv.trust.inventory import Inventory

_SPOOL_BYTES = 16 * 1024 * 1024
_TABLE_ROWS = 200
_GUESSED_ROWS = 3
_HEADINGS = ("id", "dataset", "input", "target", "evaluators")
_WIDEST = (24, 16, 200, 12, 40)
_INPUT = 2


def print_cases(args: CasesArguments) -> None:
    """Print the selected cases, or a proposed field map."""
    paths = dataset_paths(args.paths, "cases")
    if args.guess:
        for path in paths:
            _print_guess(path)
        return
    source = structs.replace(options_of(EvalOptions, args), paths=paths).open_cases(*output.listeners(args.quiet))
    cases = source.stream()
    if args.count:
        output.echo(sum(1 for _ in cases))
    elif sys.stdout.isatty() and not (args.as_json or args.resolve):
        _print_table(cases)
    else:
        _print_lines(cases, args.resolve)
    if source.sink.skipped and not args.quiet:
        output.note(f"Skipped {plural(source.sink.skipped, 'invalid case')}")


_MISSING = {"input": "the input", "expected_output": "the expected answer"}


def _print_guess(path: str) -> None:
    """Print a proposed field map for the records of a file, with its confidence and the first rows."""
    kind = detect(path) or MAPPED
    rows = rows_of(record_file(path))
    guesses = guess_map(rows)
    if kind != MAPPED and kind in FOREIGN_FORMATS.all_names():
        title = getattr(load_format(kind), "title", kind)
        lost = set() if missing_keys(guesses) else _unread_checks(path)
        if lost.isdisjoint(guess.path for guess in guesses if guess.key in CHECK_KEYS):
            output.echo(f"No map is needed: {path} is read as {title}\nUse it: agentv eval {shlex.quote(path)}")
            return
        output.echo(f"{path} is read as {title}, without {', '.join(sorted(lost))}. A map with more:\n")
    if not rows:
        case_source(path, warn=lambda _: None, note=lambda _: None).load()  # raises the problem of the file
        raise UsageError(f"Cannot propose a field map for {path}", "It has no records")
    for guess in guesses:
        output.echo(f"{guess.key:<18} ← {guess.path:<24} {guess.confidence:>4.0%}  {guess.reason}")
    unchecked = unchecked_names(guesses, rows)
    missing = missing_keys(guesses, unchecked)
    if any(guess.key == "input" for guess in guesses):
        fields = parse_map(map_text(guesses))
        output.echo("\nThe first rows:")
        for row in rows[:_GUESSED_ROWS]:
            try:
                output.echo_json(fields.row(row))
            except ValueError as error:
                output.echo(f"({error})")
    if unchecked:
        output.echo(f"\nNot checked, but kept as metadata: {', '.join(unchecked)}.")
    tools = next((guess.path for guess in guesses if guess.key == "tools"), None)
    if tools and any(value_at(row, tools) == [] for row in rows):
        output.echo(f"\nNot checked: that no tool is called where {tools} is an empty list.")
    if missing:
        usable = [guess for guess in guesses if guess.key not in missing]
        fields_text = ", ".join(dict.fromkeys(str(name) for row in rows for name in row))
        pairs = ",".join((*(f"{key}=FIELD" for key in missing), *filter(None, (map_text(usable),))))
        output.echo(f"\nNot recognized: the field with {' and '.join(_MISSING[key] for key in missing)}.")
        output.echo(f"Choose among: {fields_text}\nThen: agentv eval {shlex.quote(path)} --map {shlex.quote(pairs)}")
        return
    output.echo(f"\nUse it: agentv eval {shlex.quote(path)} --map {shlex.quote(map_text(guesses))}")


def _unread_checks(path: str) -> set[str]:
    """Return the fields that look like checks, and that the format of a file does not read."""
    notes: list[Any] = []
    with suppress(AgentvError):
        deque(case_source(path, warn=notes.append, note=lambda _: None).stream(), maxlen=0)
    texts = "\n".join(map(str, notes))
    return set(re.findall(r"the field '([^']+)' looks like a check", texts))


def _print_lines(cases: Iterable[EvalCase], resolve: bool) -> None:
    """Print JSON Lines after the last case is read; many cases are buffered on disk."""
    to_data: Callable[[EvalCase], dict[str, Any]] = resolved_data if resolve else case_to_data
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:
        for case in cases:
            spool.write(safe_json(to_json(to_data(case))) + b"\n")
        spool.seek(0)
        shutil.copyfileobj(spool, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _print_table(cases: Iterable[EvalCase]) -> None:
    """Print a table of the first cases, and the total."""
    rows: list[tuple[str, ...]] = [_HEADINGS]
    total = 0
    for case in cases:
        total += 1
        if total <= _TABLE_ROWS:
            rows.append(_cells(case))
    for position, line in enumerate(_lay_out(rows, shutil.get_terminal_size().columns)):
        output.echo(output.Styled(line, bold=True) if position == 0 else line)
    more = f" (first {_TABLE_ROWS} shown)" if total > _TABLE_ROWS else ""
    output.echo(output.Styled(f"{plural(total, 'case')}{more}; use --json for the full cases", dim=True))


def _lay_out(rows: list[tuple[str, ...]], width: int) -> Iterator[str]:
    """Lay out the columns to fit the width; the input column gets the space that is left."""
    from rich.cells import cell_len, set_cell_size  # late: only needed for a table

    widths = [
        min(max(map(cell_len, column)), most) for column, most in zip(zip(*rows, strict=True), _WIDEST, strict=True)
    ]
    widths[_INPUT] = min(widths[_INPUT], max(10, width - sum(widths) + widths[_INPUT] - 2 * len(widths)))
    for row in rows:
        cells = (
            set_cell_size(cell, size) if cell_len(cell) <= size else set_cell_size(cell, size - 1) + "…"
            for cell, size in zip(row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _cells(case: EvalCase) -> tuple[str, ...]:
    last = next((message for message in reversed(case.input) if message.role == "user"), None)
    text = "" if last is None else _preview(last.content)
    if case.prompts:
        text = f"({len(case.prompts)} prompts) {_preview(case.variables)}"
    if case.case_error is not None:
        text = f"(refused) {one_line(case.case_error, 400)}"
    target = ", ".join(case.execution.targets) or case.execution.target or "default"
    evaluators = ", ".join(spec.name for spec in case.evaluators) or "none"
    id, dataset, target, evaluators = (one_line(value, 200) for value in (case.id, case.dataset, target, evaluators))
    return id, dataset, text, target, evaluators


def _preview(content: Any) -> str:
    if isinstance(content, tuple):
        content = " ".join(part.value for part in content)
    return one_line(content if isinstance(content, str) else to_json(content).decode(), 400)


def validate(args: ValidateArguments) -> None:
    """Check files and print the findings."""
    options = Options(args.allow_outside_files, args.max_line_bytes, fields=args.fields or "", strict=args.strict)
    report = validated(dataset_paths(args.paths, "validate"), options)
    if args.as_json or args.style == "json":
        output.echo_json(report)
    elif args.style == "github":
        for finding in report.findings:
            output.echo_workflow_command(annotation(finding))
    else:
        _print_human(report, args.quiet)
    sys.exit(EXIT_FINDINGS if report.errors or (args.strict and report.warnings) else EXIT_OK)


def annotation(finding: Finding) -> str:
    """Return a finding as a workflow command that GitHub shows at the line."""
    place = {"file": finding.path, "line": finding.line, "col": finding.column, "title": "agentv"}
    return workflow_command(finding.severity, place, finding.message + (f" — {finding.hint}" if finding.hint else ""))


def _print_human(report: Report, quiet: bool) -> None:
    last = None
    for finding in report.findings:
        if finding.path != last:
            output.echo("" if last is None else "\n", output.Styled(finding.path, bold=True))
            last = finding.path
        _print_finding(finding)
    if quiet:
        return
    if uses := Inventory(report.uses or ()):
        output.message(f"A run would use {uses.totals}:")
    for line in uses.lines():
        output.message(f"  {line}")
    for note in (*trust_notes(uses), *report.notes):
        output.note(note)
    count = len(report.findings)
    more = f" ({count:,} listed)" if count < report.errors + report.warnings else ""
    checked = f"Checked {plural(report.files, 'file')} with {plural(report.cases, 'readable case')}"
    totals = f"{plural(report.errors, 'error')}, {plural(report.warnings, 'warning')}{more}"
    output.message(("\n" if count else "") + f"{checked}: {totals}")


def _print_finding(finding: Finding) -> None:
    place = f"{finding.line or ''}" + (f":{finding.column}" if finding.column else "")
    severity = output.Styled(finding.severity, fg="red" if finding.severity == "error" else "yellow")
    hint = "".join(f"\n{'':11}{line}" for line in finding.hint.split("\n") if line)
    output.echo(f"  {place:>7}  ", severity, f"  {finding.message}{hint}")
