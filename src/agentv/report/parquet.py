"""A run as Parquet: one row a job, written a batch at a time. Needs the extra `parquet`; text is as it was."""

from __future__ import annotations

from importlib import import_module
from typing import Any, BinaryIO

from agentv.errors import UsageError
from agentv.report.csv import columns, row_of
from agentv.report.formats import ReportFormat
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore

_ROWS_AT_ONCE = 10_000


def write(run: RunStore, figures: Figures, stream: BinaryIO) -> None:
    """Streams, in row groups of ten thousand."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")  # late: an extra, and 150 ms
    except ImportError:
        hint = "Install it with: pip install 'agentv[parquet]'"
        raise UsageError("Parquet needs the package pyarrow, which is not installed", hint=hint) from None
    schema = _schema(arrow, figures)
    lines = run.case_lines()
    names = columns(figures.evaluators)
    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []

        def flush() -> None:
            data = {name: [row.get(name) for row in batch] for name in names}
            writer.write_table(arrow.table(data, schema=schema))
            batch.clear()

        for result in run.records():
            batch.append(row_of(result, lines.get((result.dataset_path, result.eval_id)), figures.evaluators))
            if len(batch) == _ROWS_AT_ONCE:
                flush()
        if batch:
            flush()


def _schema(arrow: Any, figures: Figures) -> Any:
    types = {
        str: arrow.string(),
        int: arrow.int64(),
        float: arrow.float64(),
        bool: arrow.bool_(),
        list: arrow.list_(arrow.string()),
    }
    return arrow.schema([(name, types[kind]) for name, kind in columns(figures.evaluators).items()])


PARQUET = ReportFormat(
    write=write,
    extensions=(".parquet",),
    file_name="results.parquet",
    help="One row a job, for data tools; needs pip install 'agentv[parquet]'.",
    is_text=False,
)
