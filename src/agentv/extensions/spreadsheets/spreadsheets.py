"""Read the records of spreadsheets and Parquet files, with limits on their size. Formulas are values, never run."""

import os
import zipfile
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from agentv.datasets.foreign.records import Record
from agentv.errors import AgentvError, DatasetParseError, import_extra
from agentv.support.processes.forked_call import CallLimits, LimitExceeded, forked_call

MAX_UNPACKED_BYTES = 512 * 1024 * 1024
MAX_RATIO = 200
"""A member of an archive that is compressed more than this is refused above a few megabytes."""

_LIMITS = CallLimits(seconds=60.0, extra_bytes=2048 * 1024 * 1024, result_bytes=MAX_UNPACKED_BYTES)
"""The limits of reading a sheet, in a process of its own."""

_SMALL_BYTES = 8 * 1024 * 1024
_ROWS_AT_ONCE = 128
_ROWS_BYTES = 256 * 1024 * 1024
"""The largest size of the rows that are read at once. A text that all rows share is stored once, and expanded."""


def records(path: str, kind: str) -> Iterator[Record]:
    """Yield the rows of a spreadsheet or a Parquet file. `line` is the row in the sheet, or its number."""
    return _sheet(path) if kind == "sheet" else _parquet(path)


def _problem(path: str, what: str, hint: str = "") -> DatasetParseError:
    return DatasetParseError(f"Cannot read {path}", what, hint, path=path, line=1)


def _sheet(path: str) -> Iterator[Record]:
    """Yield the rows of the first sheet that has any. The first row has the names.

    A cell in the last column of the last row makes the library allocate all others, and end the process if it cannot.
    """
    missing = AgentvError("Spreadsheets need a package that is not installed", hint="pip install 'agentv[xlsx]'")
    import_extra("python_calamine", missing)
    _check_archive(path)
    try:
        packed = forked_call(partial(_packed_rows, path), _LIMITS)
    except LimitExceeded as error:
        hint = "Remove cells that are far from the table, or save the sheet as a .csv file"
        raise _problem(path, f"The sheet {error}", hint) from None
    sheet = msgspec.msgpack.decode(packed, type=_Sheet)
    if sheet.problem:
        raise _problem(path, f"Not a valid spreadsheet: {sheet.problem}")
    for number, cells in sheet.rows:
        yield Record(number, {name: _cell(cell) for name, cell in zip(sheet.names, cells, strict=False)})


class _Sheet(msgspec.Struct, array_like=True):
    """The named columns of a sheet, and its rows with their numbers; or why it cannot be read."""

    problem: str = ""
    names: list[str] = []
    rows: list[tuple[int, list[Any]]] = []


def _packed_rows(path: str) -> bytes:
    try:
        return msgspec.msgpack.encode(_read_sheet(path))
    except BaseException as error:
        return msgspec.msgpack.encode(_Sheet(f"{error}"[:1000] or type(error).__name__))


def _read_sheet(path: str) -> _Sheet:
    from python_calamine import CalamineWorkbook  # late: an extra

    book = CalamineWorkbook.from_path(path)
    for name in book.sheet_names:
        rows = iter(book.get_sheet_by_name(name).iter_rows())
        columns = {text: index for index, cell in enumerate(next(rows, [])) if (text := str(cell).strip())}
        if columns:
            picked = ((number, [_plain(cells[i]) for i in columns.values()]) for number, cells in enumerate(rows, 2))
            return _Sheet("", list(columns), [row for row in picked if any(cell not in ("", None) for cell in row[1])])
    return _Sheet()


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _cell(value: Any) -> Any:
    """Return a cell as JSON: whole numbers without a fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_archive(path: str) -> None:
    """Refuse an archive that unpacks to far more than its size."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        raise _problem(path, f"Not a valid spreadsheet: {error}") from None
    total = sum(member.file_size for member in members)
    packed = max(1, sum(member.compress_size for member in members))
    if total > MAX_UNPACKED_BYTES or (total > _SMALL_BYTES and total / packed > MAX_RATIO):
        what = f"The file unpacks to {total / 2**20:,.0f} MB"
        raise _problem(path, what, "Save the sheet as a .csv file if this is intended")


def _parquet(path: str) -> Iterator[Record]:
    missing = AgentvError("Parquet files need a package that is not installed", hint="pip install 'agentv[parquet]'")
    import_extra("pyarrow", missing)
    from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]  # late: an extra, and large

    try:
        file = parquet.ParquetFile(path)
        _check_parquet(path, file.metadata)
        number = 0
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            if batch.nbytes > _ROWS_BYTES:
                raise _problem(path, "Rows are too large: more than 2 MB each", "Write long texts to files")
            for row in batch.to_pylist():
                number += 1
                yield Record(number, {key: _value(value) for key, value in row.items()})
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise _problem(path, f"Not a valid Parquet file: {error}") from None


def _check_parquet(path: str, metadata: Any) -> None:
    largest = max((metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)), default=0)
    size = max(1, os.path.getsize(path))
    if largest > MAX_UNPACKED_BYTES or (largest > _SMALL_BYTES and largest / size > MAX_RATIO):
        raise _problem(path, f"A row group unpacks to {largest / 2**20:,.0f} MB", "Write it with smaller row groups")


def _value(value: Any) -> Any:
    """Return a value as JSON: bytes and dates as text."""
    if isinstance(value, dict):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    if isinstance(value, bytes):
        return f"({len(value):,} bytes)"
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
