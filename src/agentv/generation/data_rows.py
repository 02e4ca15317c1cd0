"""Rows of data out of CSV and JSON Lines files, each with its number, counted from 1. Knows no cases."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.datasets.source import TABLES
from agentv.errors import UsageError


def read_rows(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file, by its extension. Raises UsageError with the place of what is wrong."""
    suffix = os.path.splitext(path)[1].lower()
    try:
        with open(path, "rb") as file:
            data = file.read()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"Cannot read {path}", f"The byte at {error.start} is no UTF-8", "Save it as UTF-8") from None
    if suffix in TABLES:
        return _from_table(text, TABLES[suffix], path)
    if suffix in (".jsonl", ".ndjson"):
        return _from_lines(text, path)
    raise UsageError(f"Unsupported file of rows: {path}", hint="Rows are read from .csv, .tsv and .jsonl files")


def _from_table(text: str, delimiter: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        head = [name.strip() for name in next(reader, [])]
        if not head or len(set(head)) < len(head) or not all(head):
            raise UsageError(f"The first line of {path} must name the columns, each once")
        number = 0
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            number += 1
            if len(cells) != len(head):
                raise UsageError(f"{path}, line {reader.line_num}: {len(cells)} cells, and {len(head)} columns")
            yield number, dict(zip(head, cells, strict=True))
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: {error}") from None


def _from_lines(text: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    for line_number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"{path}, line {line_number}: {error}") from None
        if not isinstance(row, dict):
            raise UsageError(f"{path}, line {line_number}: expected a JSON object")
        number += 1
        yield number, row
