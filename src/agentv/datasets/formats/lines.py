"""Splits a stream of bytes into physical lines, in small batches, with a limit on the length of a line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from agentv.errors import AgentvError, DatasetParseError

MAX_LINE_BYTES = 64 * 1024 * 1024
BATCH = 256
"""Lines a batch: an offset inside it is one of Python's cached small integers and costs a case no memory."""

_CHUNK = 256 * 1024


class TooLong:
    """Stands for a line beyond the limit; its bytes were not kept."""


TOO_LONG = TooLong()
Line = bytes | TooLong


def line_batches(stream: IO[bytes], limit: int = MAX_LINE_BYTES) -> Iterator[tuple[list[Line], bool]]:
    """Lines without their `\\n`, at most BATCH at a time; True with the last batch when its last line had no `\\n`."""
    for lines, cut in _chunks(stream, limit):
        for start in range(0, len(lines), BATCH):
            yield lines[start : start + BATCH], cut and start + BATCH >= len(lines)


def _chunks(stream: IO[bytes], limit: int) -> Iterator[tuple[list[Line], bool]]:
    pieces: list[bytes] = []
    size = 0
    while chunk := stream.read(_CHUNK):
        if b"\n" not in chunk:
            size += len(chunk)
            # Beyond the limit only the length is kept, so that a line of any size takes no memory.
            pieces = [*pieces, chunk] if size <= limit else []
            continue
        lines: list[Line] = list(chunk.split(b"\n"))
        first, last = lines[0], lines.pop()
        assert isinstance(first, bytes) and isinstance(last, bytes)
        size += len(first)
        lines[0] = b"".join([*pieces, first]) if size <= limit else TOO_LONG
        if limit < len(chunk):
            lines[1:] = [line if isinstance(line, bytes) and len(line) <= limit else TOO_LONG for line in lines[1:]]
        pieces, size = [last], len(last)
        yield lines, False
    if size:
        yield [b"".join(pieces) if size <= limit else TOO_LONG], True


LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LFS_PROBLEM = ("The file is a Git LFS pointer, not the data", "Run `git lfs pull` to fetch the data")
"""How a file begins that Git LFS has not fetched, and what to say about it."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
SUFFIXES = (".gz", ".zst")


def open_lines(path: str) -> BinaryIO:
    """The bytes of a file as they were before compression, as a stream."""
    with Path(path).open("rb") as stream:
        magic = stream.read(4)
    if magic[:2] == _GZIP:
        return cast("BinaryIO", gzip.GzipFile(path, "rb"))
    if magic == _ZSTD:
        return _zstd().ZstdFile(path, "rb")  # type: ignore[no-any-return]
    return cast("BinaryIO", Path(path).open("rb", buffering=0))


def open_for_writing(path: str) -> BinaryIO:
    """A stream into a new file, compressed as its name says; the same bytes every time for the same content."""
    name = path.lower()
    if name.endswith(".gz"):
        return cast("BinaryIO", gzip.GzipFile(path, "wb", mtime=0))
    if name.endswith(".zst"):
        return _zstd().ZstdFile(path, "wb")  # type: ignore[no-any-return]
    return Path(path).open("wb")


def damage(path: str, error: Exception) -> DatasetParseError:
    """What to say when the compressed data itself is bad."""
    what = "ends too early" if isinstance(error, EOFError) else "is damaged"
    detail, hint = f"The compressed data {what}: {error}", "Make the file again from its source, or fetch it again"
    return DatasetParseError(f"Failed to parse JSONL file: {path}", detail, hint, path=path)


def is_damage(error: Exception) -> bool:
    """Whether an exception comes from bad compressed data."""
    return isinstance(error, EOFError | gzip.BadGzipFile | zlib.error) or type(error).__name__ == "ZstdError"


def _zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14 and later
    except ImportError:
        try:
            from backports import zstd  # an extra before Python 3.14
        except ImportError:
            message = "Reading Zstandard files needs a package that is not installed"
            raise AgentvError(message, hint="pip install 'agentv[zstd]'") from None
    return zstd
