"""Why a line is not valid JSON, in words, with the column in characters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from agentv.datasets.formats.dataset_format import BadRow
from agentv.model.values import MAX_DEPTH

ROW_HINT = "Each line must be a complete JSON object"
ARRAY_HINT = f"{ROW_HINT}; jq -c '.[]' writes the items of an array so"
_DEPTH_HINT = f"At most {MAX_DEPTH} levels are read"
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|([-+.\w]+)')
_SURROGATES = re.compile(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")


def explain(line: bytes, error: Exception) -> BadRow:
    """Return what is wrong with a line that could not be decoded."""
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
            return BadRow("Expected JSON object, got array", hint=ARRAY_HINT)
        return BadRow("the line is cut off before the object ends", end + 1, ROW_HINT)
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
    return BadRow(what, problem.pos + 1, ROW_HINT)


def _from_msgspec(text: str, message: str) -> BadRow:
    """What only the strict parser refuses: lone surrogates, numbers out of range."""
    if "surrogate" in message or "truncated" in message:
        lone = next((match.start(1) + 1 for match in _SURROGATES.finditer(text) if match[1]), None)
        return BadRow(
            "a lone surrogate (\\ud800 to \\udfff) is no character", lone, "Write characters outside the BMP as pairs"
        )
    if "out of range" in message:
        return BadRow("a number is out of range", _column(text, _too_large), "Write very large numbers as strings")
    return BadRow(message, None, ROW_HINT)


def _column(text: str, wanted: Callable[[str], bool]) -> int | None:
    """The column of the first number or constant, outside of strings, that is wanted."""
    return next((match.start(1) + 1 for match in _TOKENS.finditer(text) if match[1] and wanted(match[1])), None)


def _too_large(token: str) -> bool:
    """Whether a number is one that the strict parser refuses: more digits than Python converts, or no finite float."""
    digits = token.lstrip("-")
    return len(digits) > 4300 if digits.isdigit() else digits[:1].isdigit() and float(digits) == float("inf")


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
