"""CSV and Parquet reports, and data frames of pandas and polars: one row per job, with complete texts."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from agentv.errors import UsageError, import_extra
from agentv.model.result import Result, reason_of
from agentv.report.figures import safe_text
from agentv.report.formats import ReportFormat
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore

if TYPE_CHECKING:
    import pandas
    import polars

_TYPES: dict[str, type] = {"": str, "int": int, "float": float, "bool": bool, "list": list}
_COLUMNS = """
run_id timestamp dataset dataset_path line:int eval_id conversation_id cluster target prompt trial:int status verdict
score:float partial_score:float reason error_class error_stage duration_ms:float cost_usd:float judge_cost_usd:float
input_tokens:int output_tokens:int attempts:int cached:bool carried_from tags:list candidate_answer raw_answer
"""
COLUMNS = {name: _TYPES[kind] for name, _, kind in (column.partition(":") for column in _COLUMNS.split())}
"""The columns and their types; they are followed by `score.NAME` for each evaluator."""


def columns(evaluators: Sequence[str]) -> dict[str, type]:
    """Return all columns with their types; each evaluator has one for its score."""
    return COLUMNS | {f"score.{name}": float for name in evaluators}


def row_of(result: Result, line: int | None, evaluators: Sequence[str]) -> dict[str, Any]:
    """Return the values of a result by column, without absent ones."""
    metrics = result.execution_metrics
    usage = metrics.token_usage if metrics else None
    row: dict[str, Any] = {name: value for name in COLUMNS if (value := getattr(result, name, None)) is not None}
    row |= {
        "line": line,
        "reason": None if result.verdict == "pass" else reason_of(result) or None,
        "error_class": result.error.error_class if result.error else None,
        "error_stage": result.error.stage if result.error else None,
        "duration_ms": metrics.duration_ms if metrics else None,
        "cost_usd": metrics.cost_usd if metrics else None,
        "judge_cost_usd": result.judge_cost_usd,
        "input_tokens": usage.input if usage else None,
        "output_tokens": usage.output if usage else None,
        "tags": list(result.tags),
    }
    scores = {evaluation.name: evaluation.score for evaluation in result.evaluator_results}
    row |= {f"score.{name}": scores.get(name) for name in evaluators}
    return {name: value for name, value in row.items() if value is not None}


def rows(run: RunStore, figures: Figures) -> Iterator[dict[str, Any]]:
    """Yield the values of each job by column."""
    lines = run.case_lines()
    for result in run.records():
        yield row_of(result, lines.get((result.dataset_path, result.eval_id)), figures.evaluators)


_STARTS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20", "|", "%")


def write(run: RunStore, figures: Figures, stream: BinaryIO) -> None:
    """Write CSV with a header: UTF-8, commas, CRLF."""
    names = columns(figures.evaluators)
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow([_cell(name) for name in names])
    for row in rows(run, figures):
        writer.writerow([_cell(row.get(name)) for name in names])
    text.detach()  # the caller closes the stream


def _cell(value: object) -> object:
    """Prefix text that a spreadsheet would run as a formula with a quote, which spreadsheets hide."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    if not isinstance(value, str):
        return value
    text = safe_text(value)
    return f"'{text}" if text.lstrip(" ").startswith(_STARTS_FORMULA) else text


CSV = ReportFormat(
    write=write,
    extensions=(".csv",),
    file_name="results.csv",
    help="Write CSV with one row per job, safe to open in a spreadsheet.",
)


_ROWS_AT_ONCE = 10_000


def write_parquet(run: RunStore, figures: Figures, stream: BinaryIO) -> None:
    """Write Parquet in row groups of 10,000."""
    hint = "Install it with: pip install 'agentv[parquet]'"
    missing = UsageError("Parquet reports need the package pyarrow, which is not installed", hint=hint)
    arrow, parquet = import_extra("pyarrow", missing), import_module("pyarrow.parquet")  # late: 150 ms
    schema = _schema(arrow, figures)
    names = columns(figures.evaluators)
    left = rows(run, figures)
    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        while batch := list(islice(left, _ROWS_AT_ONCE)):
            data = {name: [row.get(name) for row in batch] for name in names}
            writer.write_table(arrow.table(data, schema=schema))


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
    write=write_parquet,
    extensions=(".parquet",),
    file_name="results.parquet",
    help="Write Parquet with one row per job; needs pip install 'agentv[parquet]'.",
    is_text=False,
)


_PANDAS_TYPES = {str: "string", int: "Int64", float: "float64", bool: "boolean", list: "object"}


def pandas_frame(run: RunStore) -> pandas.DataFrame:
    """Return a pandas data frame. Absent values are NA, and NaN for fractions."""
    library = _imported("pandas")
    names, data = _data(run)
    return library.DataFrame({name: library.Series(data[name], dtype=_PANDAS_TYPES[names[name]]) for name in names})


def polars_frame(run: RunStore) -> polars.DataFrame:
    """Return a polars data frame. Absent values are null."""
    library = _imported("polars")
    types = {str: library.String, int: library.Int64, float: library.Float64, bool: library.Boolean}
    names, data = _data(run)
    schema = {name: types.get(kind) or library.List(library.String) for name, kind in names.items()}
    return library.DataFrame(data, schema=schema)


def _data(run: RunStore) -> tuple[dict[str, type], dict[str, list[Any]]]:
    figures = run.figures()
    names = columns(figures.evaluators)
    records = list(rows(run, figures))
    return names, {name: [row.get(name) for row in records] for name in names}


def _imported(name: str) -> Any:
    hint = f"Install it with: pip install 'agentv[{name}]'"
    return import_extra(name, UsageError(f"to_{name} needs the package {name}, which is not installed", hint=hint))
