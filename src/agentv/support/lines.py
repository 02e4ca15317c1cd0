"""Read and write lines of plain or compressed files, in small batches and with a limit on the line length."""

import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from agentv.errors import AgentvError, DatasetParseError

MAX_LINE_BYTES = 64 * 1024 * 1024
BATCH = 256
"""Lines per batch. Offsets up to this are cached small integers in CPython, so a case's offset takes no memory."""

_CHUNK = 256 * 1024

Line = bytes | None
"""None for a line that exceeds the limit."""


def line_batches(stream: IO[bytes], limit: int = MAX_LINE_BYTES) -> Iterator[tuple[list[Line], bool]]:
    """Yield up to BATCH lines with their `\\n`, and whether the last line of the file has none."""
    for lines, cut in _chunks(stream, limit):
        for start in range(0, len(lines), BATCH):
            yield lines[start : start + BATCH], cut and start + BATCH >= len(lines)


def _chunks(stream: IO[bytes], limit: int) -> Iterator[tuple[list[Line], bool]]:
    pieces: list[bytes] = []
    size = 0
    while chunk := stream.read(_CHUNK):
        if b"\n" not in chunk:
            size += len(chunk)
            # Past the limit only the length is counted: a line of any size takes no memory.
            pieces = [*pieces, chunk] if size <= limit else []
            continue
        lines: list[Any] = BytesIO(chunk).readlines()  # in half of the time of `split`
        last = b"" if chunk.endswith(b"\n") else lines.pop()
        size += len(lines[0]) - 1
        lines[0] = b"".join([*pieces, lines[0]]) if size <= limit else None
        if limit < len(chunk):
            lines[1:] = [line if len(line) <= limit + 1 else None for line in lines[1:]]
        pieces, size = [last], len(last)
        yield lines, False
    if size:
        yield [b"".join(pieces) if size <= limit else None], True


LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LFS_PROBLEM = ("The file is a Git LFS pointer, not the data", "Run `git lfs pull` to fetch the data")

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
SUFFIXES = (".gz", ".zst")


def open_lines(path: str) -> BinaryIO:
    """Open a file for reading, decompressed."""
    with Path(path).open("rb") as stream:
        magic = stream.read(4)
    if magic[:2] == _GZIP:
        from gzip import GzipFile  # late: few files are compressed

        return cast("BinaryIO", GzipFile(path, "rb"))
    if magic == _ZSTD:
        return _zstd().ZstdFile(path, "rb")  # type: ignore[no-any-return]
    return cast("BinaryIO", Path(path).open("rb", buffering=0))


def open_for_writing(path: str) -> BinaryIO:
    """Open a file for writing, compressed according to its extension. Output is deterministic."""
    name = path.lower()
    if name.endswith(".gz"):
        from gzip import GzipFile  # late: as above

        return cast("BinaryIO", GzipFile(path, "wb", mtime=0))
    if name.endswith(".zst"):
        return _zstd().ZstdFile(path, "wb")  # type: ignore[no-any-return]
    return Path(path).open("wb")


def compression_error(path: str, error: Exception) -> DatasetParseError | None:
    """Return the error for corrupt compressed data; None for an exception with another cause."""
    from gzip import BadGzipFile  # late: as above

    if not isinstance(error, EOFError | BadGzipFile | zlib.error) and type(error).__name__ != "ZstdError":
        return None
    what = "ends too early" if isinstance(error, EOFError) else "is damaged"
    detail, hint = f"The compressed data {what}: {error}", "Create the file again, or download it again"
    return DatasetParseError(f"Failed to parse JSONL file: {path}", detail, hint, path=path)


def _zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # new in Python 3.14
    except ImportError:
        try:
            from backports import zstd  # an extra before Python 3.14
        except ImportError:
            message = "Zstandard files need a package that is not installed"
            raise AgentvError(message, hint="pip install 'agentv[zstd]'") from None
    return zstd
