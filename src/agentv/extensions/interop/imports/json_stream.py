"""Read large JSON documents in pieces: the members of an object and the items of its lists, one at a time."""

import re
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

import msgspec

from agentv.support.json_keys import BOM, skip_blank
from agentv.support.json_values import repair_json

MAX_VALUE_BYTES = 128 * 1024 * 1024
"""The largest value that is read in one piece, such as one sample of a log."""

Path = tuple[str, ...]

_CHUNK = 1 << 20
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_FLAT = rb'[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Text up to a bracket that opens or closes a nested value, or to a string that is not complete yet.
_RUN = re.compile(rb"(?:%b|\{(?:%b)*+\}|\[(?:%b)*+\])*+" % (_FLAT, _FLAT, _FLAT), re.DOTALL)
_PLAIN = re.compile(rb"[^\s,:{}\[\]\"]+")
_CONSTANT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity\b|NaN\b', re.DOTALL)
_DEEPEST_OPENED = 20


class JsonProblem(ValueError):
    """Invalid JSON, or a value that is too large. The message gives the reason and the position in bytes."""


def json_parts(stream: BinaryIO, opened: Collection[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yield the values of a document with their paths. The objects and lists in `opened` are yielded by member.

    The items of a list have the path of the list. The document itself is the path `()`. Raises JsonProblem.
    """
    return _Scanner(stream, opened).parts()


def decode_json(data: bytes, kind: Any = Any) -> Any:
    """Decode JSON as other tools write it: NaN and infinities become null, and lone surrogates are replaced.

    Raises JsonProblem.
    """
    try:
        return _decoded(data, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        repaired = _CONSTANT.sub(lambda match: match[0] if match[0][:1] == b'"' else b"null", repair_json(data))
        if repaired == data:
            raise JsonProblem(_reason(error)) from error
    except RecursionError as error:
        raise JsonProblem("it is nested too deeply") from error
    try:
        return _decoded(repaired, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JsonProblem(_reason(error)) from error


def _decoded(data: bytes, kind: Any) -> Any:
    return msgspec.json.decode(data, type=kind)


def _reason(error: Exception) -> str:
    return "it is not valid UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


class _Scanner:
    """Finds the ends of values in a stream. `_buffer` starts at the byte `_offset` of the document."""

    def __init__(self, stream: BinaryIO, opened: Collection[Path]) -> None:
        self._stream = stream
        self._opened = frozenset(opened)
        self._buffer = b""
        self._place = 0
        self._offset = 0

    def parts(self) -> Iterator[tuple[Path, bytes]]:
        """Yield the parts of the document, and check that nothing follows it."""
        while len(self._buffer) < len(BOM) and self._fill():
            pass
        self._place = len(BOM) if self._buffer.startswith(BOM) else 0
        yield from self._values(())
        if self._next():
            raise self._problem("there is more text after the document")

    def _values(self, path: Path) -> Iterator[tuple[Path, bytes]]:
        mark = self._next()
        if path not in self._opened or mark not in (b"{", b"[") or len(path) > _DEEPEST_OPENED:
            yield path, self._value(path)
            return
        self._place += 1
        end = b"}" if mark == b"{" else b"]"
        if self._next() == end:
            self._place += 1
            return
        while True:
            if mark == b"{":
                yield from self._values((*path, self._key()))
            else:
                yield path, self._value(path)
            follows = self._next()
            self._place += 1
            if follows == end:
                return
            if follows != b",":
                raise self._unexpected(follows, f"',' or '{end.decode()}'")

    def _key(self) -> str:
        if (mark := self._next()) != b'"':
            raise self._unexpected(mark, "a key")
        key: str = decode_json(self._value(()))
        if (mark := self._next()) != b":":
            raise self._unexpected(mark, "':'")
        self._place += 1
        return key

    def _value(self, path: Path) -> bytes:
        """Return the bytes of the next value, and move past it."""
        mark = self._next()
        self._drop()
        if mark in (b"{", b"["):
            return self._container(path)
        pattern = _STRING if mark == b'"' else _PLAIN
        while True:
            match = pattern.match(self._buffer)
            is_whole = match is not None and (mark == b'"' or match.end() < len(self._buffer))
            if is_whole or not self._fill(path):
                break
        if match is None:
            raise self._unexpected(mark, "a value")
        self._place = match.end()
        return match[0]

    def _container(self, path: Path) -> bytes:
        depth, place = 1, 1
        while True:
            match = _RUN.match(self._buffer, place)
            assert match is not None
            place = match.end()
            if (mark := self._buffer[place : place + 1]) in (b"{", b"["):
                depth += 1
            elif mark in (b"}", b"]"):
                depth -= 1
                if not depth:
                    self._place = place + 1
                    return self._buffer[: self._place]
            elif not self._fill(path):  # the buffer ends here, or inside a string
                raise self._problem("the file ends inside a value; it was cut off")
            else:
                continue
            place += 1

    def _next(self) -> bytes:
        """Return the next byte that is not blank; empty at the end."""
        while True:
            self._place = skip_blank(self._buffer, self._place)
            if self._place < len(self._buffer) or not self._fill():
                return self._buffer[self._place : self._place + 1]

    def _drop(self) -> None:
        """Forget what was read, so that the buffer starts with the next value."""
        self._offset += self._place
        self._buffer = self._buffer[self._place :]
        self._place = 0

    def _fill(self, path: Path = ()) -> bool:
        """Read more, at least as much as there is, so that long values take linear time. Return whether there was."""
        if self._place:
            self._drop()
        if len(self._buffer) > MAX_VALUE_BYTES:
            name = ".".join(path) or "document"
            raise self._problem(f"one value of '{name}' is larger than {MAX_VALUE_BYTES // 2**20} MB")
        more = self._stream.read(max(_CHUNK, len(self._buffer)))
        self._buffer += more
        return bool(more)

    def _unexpected(self, mark: bytes, expected: str) -> JsonProblem:
        if not mark:
            return self._problem("the file ends inside a value; it was cut off")
        return self._problem(f"expected {expected}, got {mark.decode('latin-1')!r}")

    def _problem(self, what: str) -> JsonProblem:
        return JsonProblem(f"{what} (at byte {self._offset + self._place:,})")
