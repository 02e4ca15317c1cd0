"""`agentv cases`: prints the cases of datasets as they will be run, one JSON object a line; a table on a terminal."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from agentv.cli import output
from agentv.cli.arguments.project_options import CasesArguments
from agentv.datasets.case.prompts import resolved_data
from agentv.datasets.dataset import Options
from agentv.datasets.loader import case_source
from agentv.datasets.selection import Selection
from agentv.model.case import EvalCase, case_to_data
from agentv.model.values import to_json
from agentv.report.figures import one_line

_SPOOL_BYTES = 16 * 1024 * 1024
_TABLE_ROWS = 200
_HEADINGS = ("id", "dataset", "input", "target", "evaluators")
_WIDEST = (24, 16, 200, 12, 40)
_INPUT = 2


def print_cases(args: CasesArguments) -> None:
    """Print the selected cases."""
    source = case_source(
        args.paths,
        warn=output.silent if args.quiet else output.warn,
        note=output.silent if args.quiet else output.note,
        options=Options(args.allow_outside_files, args.max_line_bytes, args.on_error),
        selection=Selection(args.filters, args.sample, args.seed, args.shard, args.limit, args.cases),
    )
    cases = source.stream()
    if args.count:
        click.echo(sum(1 for _ in cases))
    elif sys.stdout.isatty() and not (args.as_json or args.resolve):
        _print_table(cases)
    else:
        _print_lines(cases, args.resolve)
    if source.sink.skipped and not args.quiet:
        output.note(f"{source.sink.skipped:,} bad cases were skipped")


def _print_lines(cases: Iterable[EvalCase], resolve: bool) -> None:
    """JSON Lines, held back until the last case was read, on disk when there are many."""
    to_data: Callable[[EvalCase], dict[str, Any]] = resolved_data if resolve else case_to_data
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:
        for case in cases:
            spool.write(to_json(to_data(case)) + b"\n")
        spool.seek(0)
        shutil.copyfileobj(spool, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _print_table(cases: Iterable[EvalCase]) -> None:
    """The first cases as a table, with the number of the rest."""
    rows: list[tuple[str, ...]] = [_HEADINGS]
    total = 0
    for case in cases:
        total += 1
        if total <= _TABLE_ROWS:
            rows.append(_cells(case))
    for position, line in enumerate(_laid_out(rows, shutil.get_terminal_size().columns)):
        click.echo(click.style(line, bold=True) if position == 0 else line)
    more = f", the first {_TABLE_ROWS} shown" if total > _TABLE_ROWS else ""
    summary = f"{total:,} {'case' if total == 1 else 'cases'}{more}; --json prints them whole"
    click.echo(click.style(summary, dim=True))


def _laid_out(rows: list[tuple[str, ...]], width: int) -> Iterator[str]:
    """Lines of columns that fit: the input takes what the others leave."""
    from rich.cells import cell_len, set_cell_size  # late: characters of double width count twice

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
    asked = next((message for message in reversed(case.input) if message.role == "user"), None)
    text = "" if asked is None else _preview(asked.content)
    if case.prompts:
        text = f"({len(case.prompts)} prompts) {_preview(case.variables)}"
    target = ", ".join(case.execution.targets) or case.execution.target or "default"
    return case.id, case.dataset, text, target, ", ".join(spec.name for spec in case.evaluators) or "none"


def _preview(content: Any) -> str:
    if isinstance(content, tuple):
        content = " ".join(part.value for part in content)
    text = content if isinstance(content, str) else to_json(content).decode()
    return one_line(text, 400)
