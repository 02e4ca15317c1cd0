"""Opens a file of lines, plain, gzip or Zstandard: by its first bytes, not by its name."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, BinaryIO, cast

from agentv.errors import AgentvError, DatasetParseError

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
    return DatasetParseError(
        f"Failed to parse JSONL file: {path}",
        f"The compressed data {what}: {error}",
        "Make the file again from its source, or fetch it again",
        path=path,
    )


def is_damage(error: Exception) -> bool:
    """Whether an exception comes from bad compressed data."""
    import zlib  # late: only a failure needs it

    if isinstance(error, EOFError | gzip.BadGzipFile | zlib.error):
        return True
    return type(error).__name__ == "ZstdError"


def _zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14 and later
    except ImportError:
        try:
            from backports import zstd  # an extra before Python 3.14
        except ImportError:
            raise AgentvError(
                "Reading Zstandard files needs a package that is not installed", hint="pip install 'agentv[zstd]'"
            ) from None
    return zstd
