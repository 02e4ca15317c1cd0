"""Adds one key to rows of a JSON Lines file as text: lines without it stay as they are, to the byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec


def insert_into_jsonl(data: bytes, key: str, value_of: Callable[[dict[str, Any]], Any]) -> bytes:
    """The file with `key` at the end of each row for which `value_of` gives a value; rows that have it stay."""
    return b"".join(_line(line, key, value_of) for line in _lines(data))


def _lines(data: bytes) -> list[bytes]:
    found = data.split(b"\n")
    return [line + b"\n" for line in found[:-1]] + ([found[-1]] if found[-1] else [])


def _line(line: bytes, key: str, value_of: Callable[[dict[str, Any]], Any]) -> bytes:
    text = line.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")
    if not text:
        return line
    try:
        row = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return line  # what is no row is not ours to touch; reading has said so
    if not isinstance(row, dict) or key in row or (value := value_of(row)) is None:
        return line
    end = line.rindex(b"}")
    spaced = b'": ' in line
    ascii_only = line.isascii() and b"\\u" in line
    added = json.dumps({key: value}, ensure_ascii=ascii_only, separators=(", ", ": ") if spaced else (",", ":"))[
        1:-1
    ].encode("utf-8")
    comma = b", " if spaced else b","
    return line[:end].rstrip(b" \t") + comma + added + line[end:]
