"""JSON Lines: one object per line, plain or compressed, in one file or in shards; settings in a YAML sidecar."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from agentv.datasets.formats import lines as compressed
from agentv.datasets.formats.lines import MAX_LINE_BYTES, Line, TooLong, line_batches
from agentv.datasets.formats.rows import BadRow, Batch, Document, PlainRow, Row
from agentv.datasets.formats.yaml_dataset import parse_yaml_file
from agentv.datasets.source import YAML_SUFFIXES, Source
from agentv.errors import DatasetNotFoundError, DatasetParseError, InvalidDatasetError
from agentv.model.values import MAX_DEPTH
from agentv.settings.diagnostics import type_word

_BLANK = b" \t\r"
_LFS = b"version https://git-lfs.github.com/spec/"
_DEPTH_HINT = f"At most {MAX_DEPTH} levels are read"
_HINT = "Each line must be a complete JSON object"
_ARRAY_HINT = f"{_HINT}; jq -c '.[]' writes the items of an array so"
_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|([-+.\w]+)')
_SURROGATES = re.compile(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")


def open_document(source: Source) -> Document:
    """Reads the sidecar, if there is one, and the first row."""
    sidecar = sidecar_of(source.base)
    header = {} if sidecar is None else _read_sidecar(sidecar)
    return Document(source, header, sidecar, first_row=first_row(source))


def batches(document: Document, *, plain: bool, max_line_bytes: int) -> Iterator[Batch]:
    """The rows of all files. With `plain`, rows in the common shape come checked, at several times the speed."""
    decode = msgspec.json.Decoder(PlainRow).decode if plain else msgspec.json.Decoder(dict[str, Any]).decode
    for file in document.source.files:
        number = 1
        for lines, cut in _lines(file, max_line_bytes):
            try:
                rows: list[Row] = [decode(line) for line in lines]  # type: ignore[arg-type]
            except (*_FAILURES, TypeError):
                rows = [_row(line, decode, max_line_bytes) for line in lines]
                if cut:
                    rows[-1] = _cut_off(rows[-1], number + len(rows) - 1)
            yield Batch(file, number, rows, lines)
            number += len(rows)


def sidecar_of(base: str) -> str | None:
    """The sidecar beside a dataset, if there is one."""
    return next((base + suffix for suffix in YAML_SUFFIXES if os.path.isfile(base + suffix)), None)


def _read_sidecar(path: str) -> dict[str, Any]:
    data = parse_yaml_file(path)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InvalidDatasetError(
            f"Invalid sidecar: {path}", f"Expected a mapping of settings, got {type_word(data)}", path=path, line=1
        )
    return data


def _lines(file: str, max_line_bytes: int) -> Iterator[tuple[list[Line], bool]]:
    """Batches of lines of one file, after a look at how it begins."""
    try:
        with compressed.open_lines(file) as stream:
            first = True
            for lines, cut in line_batches(stream, max_line_bytes):
                if first:
                    _check_start(file, lines)
                    if isinstance(lines[0], bytes):
                        lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
                    first = False
                yield lines, cut
    except OSError as error:
        if compressed.is_damage(error):
            raise compressed.damage(file, error) from None
        raise DatasetNotFoundError(f"Cannot read {file}: {error.strerror or error}", path=file) from None
    except Exception as error:
        if compressed.is_damage(error):
            raise compressed.damage(file, error) from None
        raise


def _check_start(file: str, lines: list[Line]) -> None:
    """Refuses files that are something else altogether, by name."""
    start = lines[0] if isinstance(lines[0], bytes) else b""
    if start.startswith(_LFS):
        what, hint = "The file is a Git LFS pointer, not the data", "Run `git lfs pull` to fetch the data"
        raise _unparsable(file, what, hint)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or start[:4] == b"\x00\x00\xfe\xff":
        raise _unparsable(file, "The file is UTF-16 or UTF-32 text", "Save the file as UTF-8")
    # A lone bracket on the first line is a whole document spread over lines: one message for it, not one a line.
    text = start.removeprefix(b"\xef\xbb\xbf").strip(_BLANK)
    if text == b"[":
        raise _unparsable(file, "Line 1: Invalid JSON - Expected JSON object, got array", _array_hint(file))
    if text == b"{" and len(lines) > 1:
        what = "Line 1: Invalid JSON - the object goes on after the end of the line, at column 2"
        raise _unparsable(file, what, f"Write each object on one line: jq -c . {file}", column=2)


def _unparsable(file: str, what: str, hint: str, column: int | None = None) -> DatasetParseError:
    return DatasetParseError(f"Failed to parse JSONL file: {file}", what, hint, path=file, line=1, column=column)


def _array_hint(file: str) -> str:
    return f"Write one object per line instead of one array: jq -c '.[]' {file}"


def _row(line: Line, decode: Any, max_line_bytes: int) -> Row:
    """One line on its own: what a whole batch could not be read as."""
    if isinstance(line, TooLong):
        limit = f"{max_line_bytes:,} bytes"
        return BadRow(
            f"the line is longer than {limit}", hint="Raise the limit with --max-line-bytes, or split the data"
        )
    if not line.strip(_BLANK):
        return None
    try:
        return decode(line)  # type: ignore[no-any-return]
    except _FAILURES:
        pass
    try:
        value = msgspec.json.decode(line)
    except _FAILURES as error:
        return explain(line, error)
    if isinstance(value, dict):
        return value
    return BadRow(
        f"Expected JSON object, got {type_word(value)}", hint=_ARRAY_HINT if isinstance(value, list) else _HINT
    )


def _cut_off(row: Row, number: int) -> Row:
    if isinstance(row, BadRow) and row.column is not None and "cut off" in row.what:
        hint = f"Line {number} is the last and has no line end: the file is probably incomplete"
        return BadRow(row.what, row.column, hint)
    return row


def read_lines(file: str, max_line_bytes: int) -> Iterator[tuple[int, Line]]:
    """Every physical line of a file with its number, as bytes; for those who look at the text itself."""
    number = 0
    for lines, _ in _lines(file, max_line_bytes):
        for line in lines:
            number += 1
            yield number, line


def first_row(source: Source) -> Any:
    """The first row that is not blank, if it can be read; what is wrong with it is said when it is reached."""
    for file in source.files:
        for lines, _ in _lines(file, MAX_LINE_BYTES):
            for line in lines:
                if isinstance(line, TooLong):
                    return None
                if line.strip(_BLANK):
                    try:
                        return msgspec.json.decode(line)
                    except _FAILURES:
                        return None
    return None


def explain(line: bytes, error: Exception) -> BadRow:
    """Why a line is no JSON, in words, with the column in characters."""
    if isinstance(error, RecursionError):
        return BadRow("nested too deeply", hint=_DEPTH_HINT)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as problem:
        column = len(line[: problem.start].decode("utf-8")) + 1
        return BadRow(f"the byte 0x{line[problem.start]:02x} is not valid UTF-8", column, "Save the file as UTF-8")
    start = text.lstrip(" \t")
    if start.startswith(("#", "//", "/*")):
        return BadRow("a comment is not JSON", len(text) - len(start) + 1, "JSON Lines has no comments")
    try:
        json.loads(text, parse_constant=_refuse_constant, parse_int=str)
    except json.JSONDecodeError as problem:
        return _from_json_error(text, problem)
    except RecursionError:
        return BadRow("nested too deeply", hint=_DEPTH_HINT)
    except ValueError as problem:
        constant = str(problem)
        place = _column(text, lambda token: token == constant)
        return BadRow(f"{constant} is not allowed", place, "Use null, or leave the field out")
    return _from_msgspec(text, str(error))


def _from_json_error(text: str, problem: json.JSONDecodeError) -> BadRow:
    """The words of the standard library's parser, which say more than an offset does."""
    end = len(text.rstrip(" \t\r"))
    if problem.pos >= end or "Unterminated string" in problem.msg:
        if text.lstrip(" \t").startswith("["):
            return BadRow("Expected JSON object, got array", hint=_ARRAY_HINT)
        return BadRow("the line is cut off before the object ends", end + 1, _HINT)
    message = problem.msg.removesuffix(" at").removesuffix(" starting")
    words = {
        "Expecting value": "expected a value",
        "Expecting property name enclosed in double quotes": "expected a key in double quotes",
        "Expecting ',' delimiter": "expected ',' or the end of the object or array",
        "Expecting ':' delimiter": "expected ':'",
        "Extra data": "more text after the end of the object",
        "Invalid control character": "a control character inside a string must be escaped",
        "Invalid \\escape": "invalid escape",
        "Invalid \\uXXXX escape": "invalid \\u escape",
        "Illegal trailing comma before end of object": "a comma before '}'",
        "Illegal trailing comma before end of array": "a comma before ']'",
        "Unexpected UTF-8 BOM (decode using utf-8-sig)": "a byte order mark belongs only at the start of a file",
    }
    what = words.get(message.split(": ")[0], message)
    found = text[problem.pos] if problem.pos < len(text) else ""
    if what.startswith("expected") and found:
        what += f", found {found!r}"
    return BadRow(what, problem.pos + 1, _HINT)


def _from_msgspec(text: str, message: str) -> BadRow:
    """What only the strict parser refuses: lone surrogates, numbers out of range."""
    if "surrogate" in message or "truncated" in message:
        lone = next((match.start(1) + 1 for match in _SURROGATES.finditer(text) if match[1]), None)
        return BadRow(
            "a lone surrogate (\\ud800 to \\udfff) is no character", lone, "Write characters outside the BMP as pairs"
        )
    if "out of range" in message:
        return BadRow("a number is out of range", _column(text, _too_large), "Write very large numbers as strings")
    return BadRow(message, None, _HINT)


def _column(text: str, wanted: Callable[[str], bool]) -> int | None:
    """The column of the first number or constant, outside of strings, that is wanted."""
    return next((match.start(1) + 1 for match in _TOKENS.finditer(text) if match[1] and wanted(match[1])), None)


def _too_large(token: str) -> bool:
    """Whether a number is one that the strict parser refuses: more digits than Python converts, or no finite float."""
    digits = token.lstrip("-")
    return len(digits) > 4300 if digits.isdigit() else digits[:1].isdigit() and float(digits) == float("inf")


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
