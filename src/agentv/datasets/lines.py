"""Splits a stream of bytes into physical lines, in small batches, with a limit on the length of a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

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
