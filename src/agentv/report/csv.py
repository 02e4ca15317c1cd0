"""A run as CSV: one row a job, in a form that no spreadsheet takes for a formula. Text is whole."""

from __future__ import annotations

import csv
import io
from typing import BinaryIO

from agentv.report.figures import visible
from agentv.report.formats import ReportFormat
from agentv.report.tables import columns, row_of
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore

_STARTS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20", "|", "%")


def write(run: RunStore, figures: Figures, stream: BinaryIO) -> None:
    """Streams; UTF-8, commas, CRLF, a header."""
    lines = run.case_lines()
    names = columns(figures.evaluators)
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow([_cell(name) for name in names])
    for result in run.records():
        row = row_of(result, lines.get((result.dataset_path, result.eval_id)), figures.evaluators)
        writer.writerow([_cell(row.get(name)) for name in names])
    text.detach()  # the stream is the caller's to close


def _cell(value: object) -> object:
    """Text that a spreadsheet would compute gets a quote before it, which spreadsheets do not show."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.lstrip(" ").startswith(_STARTS_FORMULA) else text


CSV = ReportFormat(
    write=write,
    extensions=(".csv",),
    file_name="results.csv",
    help="One row a job, safe to open in a spreadsheet.",
)
