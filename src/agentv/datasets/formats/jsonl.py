"""The JSONL dataset format: one object per line, plain or compressed, one file or shards, settings in a sidecar."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.datasets.case.keys import CaseKeys
from agentv.datasets.case.shorthand import AGENTMARK, is_agentmark_row, is_result, row_problems
from agentv.datasets.formats import dataset_format as formats
from agentv.datasets.formats.foreign_files import hint_for, name_of_text
from agentv.errors import DatasetError, DatasetParseError, InvalidCaseError
from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import Problems, type_word
from agentv.model.values import MAX_DEPTH, json_decoder, to_json
from agentv.settings.settings_reader import aliases_of, known_keys
from agentv.support.json_values import repeated_keys
from agentv.support.lines import (
    BATCH,
    LFS_POINTER,
    LFS_PROBLEM,
    MAX_LINE_BYTES,
    Line,
    line_batches,
    open_for_writing,
)
from agentv.support.yaml.yaml_writer import write_yaml

if TYPE_CHECKING:
    from json import JSONDecodeError

ROW_HINT = "Each line must be a complete JSON object"
ARRAY_HINT = f"{ROW_HINT}; jq -c '.[]' splits an array into lines"
_DEPTH_HINT = f"At most {MAX_DEPTH} levels are supported"
_TOKENS = lazy_regex(r'"[^"\\]*(?:\\.[^"\\]*)*"|([-+.\w]+)')
_SURROGATES = lazy_regex(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")


def explain(line: bytes, error: Exception) -> formats.BadRow:
    """Describe the problem in a line that could not be decoded."""
    if isinstance(error, RecursionError):
        return formats.BadRow("nested too deeply", hint=_DEPTH_HINT)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as problem:
        column = len(line[: problem.start].decode("utf-8")) + 1
        return formats.BadRow(
            f"the byte 0x{line[problem.start]:02x} is not valid UTF-8", column, "Save the file as UTF-8"
        )
    start = text.lstrip(" \t")
    if start.startswith(("#", "//", "/*")):
        return formats.BadRow(
            "a comment is not JSON", len(text) - len(start) + 1, "JSON Lines does not support comments"
        )
    import json  # late: only needed for a bad row

    try:
        json.loads(text, parse_constant=_refuse_constant, parse_int=str)
    except json.JSONDecodeError as problem:
        return _from_json_error(text, problem)
    except RecursionError:
        return formats.BadRow("nested too deeply", hint=_DEPTH_HINT)
    except ValueError as problem:
        constant = str(problem)
        place = _column(text, lambda token: token == constant)
        return formats.BadRow(f"{constant} is not allowed", place, "Use null, or leave the field out")
    return _from_msgspec(text, str(error))


def _from_json_error(text: str, problem: JSONDecodeError) -> formats.BadRow:
    """Translate an error of the standard library's parser, which has better messages than msgspec."""
    end = len(text.rstrip(" \t\r"))
    if problem.pos >= end or "Unterminated string" in problem.msg:
        if text.lstrip(" \t").startswith("["):
            return formats.BadRow("Expected JSON object, got array", hint=ARRAY_HINT)
        return formats.BadRow("the line is cut off before the object ends", end + 1, ROW_HINT)
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
    char = text[problem.pos] if problem.pos < len(text) else ""
    if what.startswith("expected") and char:
        what += f", found {char!r}"
    return formats.BadRow(what, problem.pos + 1, ROW_HINT)


def _from_msgspec(text: str, message: str) -> formats.BadRow:
    """Translate an error that only msgspec raises: a lone surrogate, or a number out of range."""
    if "surrogate" in message or "truncated" in message:
        lone = next((match.start(1) + 1 for match in _SURROGATES.finditer(text) if match[1]), None)
        what = "a lone surrogate (\\ud800 to \\udfff) is not a character"
        return formats.BadRow(what, lone, "Write characters outside the BMP as surrogate pairs")
    if "out of range" in message:
        return formats.BadRow(
            "a number is out of range", _column(text, _too_large), "Write very large numbers as strings"
        )
    return formats.BadRow(message, None, ROW_HINT)


def _column(text: str, accepts: Callable[[str], bool]) -> int | None:
    """Return the column of the first number or constant outside of strings for which `accepts` is true."""
    return next((match.start(1) + 1 for match in _TOKENS.finditer(text) if match[1] and accepts(match[1])), None)


def _too_large(token: str) -> bool:
    """Whether msgspec rejects a number: more digits than Python converts, or not a finite float."""
    digits = token.lstrip("-")
    return len(digits) > 4300 if digits.isdigit() else digits[:1].isdigit() and float(digits) == float("inf")


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


MOST_BLANK_LINES = 1_000_000
_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_CASE_KEYS = frozenset({*known_keys(CaseKeys), *aliases_of(CaseKeys)}) - {"description", "metadata", "tags"}


class _Jsonl(formats.DatasetFormat):
    suffixes = (".jsonl", ".ndjson")
    has_sidecar = can_be_sharded = can_be_compressed = writes_plain_rows = True

    def sniff(self, head: bytes, path: str) -> bool:  # noqa: ARG002
        first = head.removeprefix(_BOM).lstrip().split(b"\n", 1)[0]
        return not _CASE_KEYS.isdisjoint(formats.object_keys(first))

    def open(self, source: formats.Source) -> formats.Document:
        return formats.Document(source, is_agentmark=is_agentmark_row(first_row(source.files, skip_invalid=True)))

    def read(self, document: formats.Document, options: formats.ReadOptions) -> Iterator[formats.Batch]:
        decode: Callable[[bytes], Any] = json_decoder(formats.PlainRow if options.plain else dict[str, Any])
        for file in document.source.files:
            number = 1
            blank = BlankLines(file)
            for lines, cut in _lines(file, options.max_line_bytes):
                try:
                    rows: list[formats.Row] = list(map(decode, lines))  # type: ignore[arg-type]
                except (*_FAILURES, TypeError):
                    rows = [_row(line, decode, options.max_line_bytes) for line in lines]
                    blank.add(rows.count(None))
                    if cut:
                        rows[-1] = _cut_off(rows[-1], number + len(rows) - 1)
                yield formats.Batch(file, number, rows, lines)
                number += len(rows)

    def write(self, content: formats.Content, path: str) -> None:
        """Write one line per row, with its original JSON text if there is one, and the settings in a sidecar."""
        with open_for_writing(path) as stream:
            for row in content.rows:
                stream.write((to_json(row.data) if row.text is None else row.text.strip(_BLANK)) + b"\n")
        with Path(formats.base_of(path) + formats.SIDECAR_SUFFIXES[0]).open("wb") as stream:
            write_yaml(content.header, stream)

    def insert(self, data: bytes, key: str, values: Mapping[str, Any]) -> bytes:
        """Add `key` at the end of each row that does not have it yet."""
        return b"\n".join(_with_key(line, key, values) for line in data.split(b"\n"))

    def why_not(self, path: str) -> str | None:
        if is_result(first_row((path,))):
            return "a results file"
        folder, name = os.path.split(path)
        is_from_run = name == "cases.jsonl" and os.path.isfile(os.path.join(folder, "run.json"))
        return "the cases of an earlier run" if is_from_run else None

    def lint(self, document: formats.Document, options: formats.ReadOptions) -> Iterator[DatasetError]:
        """Report repeated keys, of which loading uses the last, and violations of AgentMark's own rules."""
        implied = AGENTMARK if document.is_agentmark else None
        is_agentmark = (document.header.get("format") or implied) == AGENTMARK
        for file in document.source.files:
            for number, line in enumerate(_each_line(file, options.max_line_bytes), 1):
                for problem in _line_problems(line, is_agentmark):
                    headline = f"Invalid eval case at line {number} in {file}"
                    message, hint, field = problem.message, problem.hint, problem.field
                    yield InvalidCaseError(headline, message, hint, path=file, line=number, field=field)

    def row_error(self, row: formats.BadRow, path: str, line: int) -> DatasetError:
        at = "" if row.column is None else f", at column {row.column}"
        detail = f"Line {line}: Invalid JSON - {row.what}{at}"
        headline = f"Failed to parse JSONL file: {path}"
        return DatasetParseError(headline, detail, row.hint or ROW_HINT, path=path, line=line, column=row.column)


JSONL = _Jsonl()


def _decoded(text: str) -> tuple[Any, list[str]]:
    """Return the value of a line, and the keys that occur more than once in one of its objects."""
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(items)
        if len(value) != len(items):
            repeated.extend(repeated_keys(items))
        return value

    import json  # late: as above

    return json.loads(text, object_pairs_hook=pairs), repeated


def _line_problems(line: Line, is_agentmark: bool) -> Problems:
    problems = Problems()
    if line is None:
        return problems
    if not (text := line.strip(_BLANK)):
        if is_agentmark:
            problems.error((), "AgentMark datasets must not contain blank lines", "Remove the line")
        return problems
    if not is_agentmark and text.count(b'"') < 8:
        return problems  # too short for a case with a repeated key
    try:
        value, repeated = _decoded(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return problems  # reported when the line is read as a case
    for key in dict.fromkeys(repeated):
        message = f"The key '{key}' occurs twice in one object; the last value is used"
        problems.error((key,), message, "Remove one of the two")
    if is_agentmark and isinstance(value, dict):
        row_problems(value, problems)
    return problems


def _with_key(line: bytes, key: str, values: Mapping[str, Any]) -> bytes:
    """Return a line with `key` added at the end of its object, in the style of the line."""
    try:
        row = msgspec.json.decode(line.removeprefix(_BOM))
    except _FAILURES:
        return line  # blank, or reported when the dataset was read
    if not isinstance(row, dict) or key in row or (value := values.get(str(row.get("id")))) is None:
        return line
    end = line.rindex(b"}")
    spaced = b'": ' in line
    separators = (", ", ": ") if spaced else (",", ":")
    ascii_only = line.isascii() and b"\\u" in line
    import json  # late: as above

    added = json.dumps({key: value}, ensure_ascii=ascii_only, separators=separators)[1:-1]
    return line[:end].rstrip(b" \t") + separators[0].encode() + added.encode() + line[end:]


def _lines(file: str, max_line_bytes: int) -> Iterator[tuple[list[Line], bool]]:
    """Yield the lines of one file in batches, after checking how the file begins."""
    with formats.opened(file) as stream:
        first = True
        for lines, cut in line_batches(stream, max_line_bytes):
            if first:
                _check_start(file, lines)
                lines[0] = None if lines[0] is None else lines[0].removeprefix(_BOM)
                first = False
            yield lines, cut


def _check_start(file: str, lines: list[Line]) -> None:
    """Reject files that are not JSONL at all, with a message that names what they are."""
    start = lines[0] or b""
    if start.startswith(LFS_POINTER):
        raise _unparsable(file, *LFS_PROBLEM)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or start[:4] == b"\x00\x00\xfe\xff":
        raise _unparsable(file, "The file is UTF-16 or UTF-32 text", "Save the file as UTF-8")
    if not start.lstrip().startswith((b"{", b"[")) and name_of_text(b"".join(line or b"\n" for line in lines[:3])):
        head = b"".join(line or b"\n" for line in lines[:3])
        raise _unparsable(file, f"The file is {name_of_text(head)}", hint_for(file, head, ()))
    # A lone bracket on the first line is one document spread over many lines: report it once, not on every line.
    if (text := start.removeprefix(_BOM).strip(_BLANK)) == b"[":
        hint = f"Write one object per line instead of one array: jq -c '.[]' {file}"
        raise _unparsable(file, "Line 1: Invalid JSON - Expected JSON object, got array", hint)
    if text == b"{" and len(lines) > 1:
        what = "Line 1: Invalid JSON - the object continues on the next line, at column 2"
        raise _unparsable(file, what, f"Write each object on one line: jq -c . {file}", column=2)


def _unparsable(file: str, what: str, hint: str, column: int | None = None) -> DatasetParseError:
    return DatasetParseError(f"Failed to parse JSONL file: {file}", what, hint, path=file, line=1, column=column)


def _row(line: Line, decode: Any, max_line_bytes: int) -> formats.Row:
    """Decode one line of a batch that could not be decoded as a whole."""
    if line is None:
        hint = "Raise the limit with --max-line-bytes, or split the data"
        return formats.BadRow(f"the line is longer than {max_line_bytes:,} bytes", hint=hint)
    line = line.removesuffix(b"\n")
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
    hint = ARRAY_HINT if isinstance(value, list) else ROW_HINT
    return formats.BadRow(f"Expected JSON object, got {type_word(value)}", hint=hint)


def _cut_off(row: formats.Row, number: int) -> formats.Row:
    if isinstance(row, formats.BadRow) and row.column is not None and "cut off" in row.what:
        hint = f"Line {number} is the last and does not end with a newline: the file is probably incomplete"
        return formats.BadRow(row.what, row.column, hint)
    return row


class BlankLines:
    """Counts the blank lines of a file. A small compressed file can have billions of them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._count = 0

    def add(self, count: int) -> None:
        """Count further blank lines. Raises DatasetParseError if there are too many."""
        self._count += count
        if self._count > MOST_BLANK_LINES:
            what = f"The file has more than {MOST_BLANK_LINES:,} blank lines"
            raise _unparsable(self._file, what, "Remove the blank lines, or create the file again")


def _each_line(file: str, max_line_bytes: int) -> Iterator[Line]:
    blank = BlankLines(file)
    for lines, _ in _lines(file, max_line_bytes):
        for line in lines:
            if not line or line.isspace():
                blank.add(line is not None)
            yield line


def first_row(files: Iterable[str], *, skip_invalid: bool = False) -> Any:
    """Return the first row that is not blank; None if there is none, or if it cannot be decoded.

    With `skip_invalid`, the first of the rows at the start of the files that can be decoded.
    """
    lines = (line for file in files for line in _each_line(file, MAX_LINE_BYTES) if line is None or line.strip(_BLANK))
    for line in islice(lines, BATCH if skip_invalid else 1):
        with suppress(*_FAILURES):
            return msgspec.json.decode(line or b"null")
    return None
