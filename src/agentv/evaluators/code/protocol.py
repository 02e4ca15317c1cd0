"""Data exchanged between a run and its judging processes: the setup, the limits, and JSON messages with a length."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_LENGTH = struct.Struct("!I")
LENGTH_BYTES = _LENGTH.size


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A function and its process settings. Judgements with equal setups share processes.

    `reference` names the function, in messages too; `path` is the location of its file. `given` selects the argument:
    an object with attributes, or the dict that a program reads from stdin. `way` is the kind of isolation, and `port`
    the one port that an isolated process may connect to.
    """

    reference: str
    path: str
    cwd: str
    given: Literal["context", "payload"] = "context"
    fresh: bool = False
    memory_mb: int = 4096
    stamp: tuple[int, int] | None = None
    way: Literal["limits", "landlock", "bubblewrap"] = "limits"
    port: int | None = None


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a forked process: the number of judgements and the size of files, including its printed output.

    `scratch` is the only folder that an isolated process may write to; empty without isolation.
    """

    judgements: int
    file_bytes: int
    scratch: str = ""


class ProtocolError(Exception):
    """Bytes that are not a message."""


def stamp_of(path: str) -> tuple[int, int]:
    """Modification time and size, which identify one version of a file. Raises OSError."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def frame(message: Any) -> bytes:
    """Encode a message. Raises TypeError or ValueError for values that JSON cannot hold."""
    return framed(msgspec.json.encode(message))


def framed(body: bytes) -> bytes:
    """Prefix an encoded message with its length."""
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes | bytearray) -> int:
    """Return the length that a prefix announces."""
    return int(_LENGTH.unpack(head)[0])


class MessageBuffer:
    """Collects bytes as they arrive and yields complete messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the messages that are complete now. Raises ProtocolError for bytes that cannot be one."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= LENGTH_BYTES:
            length = length_of(buffer[:LENGTH_BYTES])
            if length > MAX_MESSAGE_BYTES:
                raise ProtocolError(f"a message of {length} bytes")
            if len(buffer) < LENGTH_BYTES + length:
                return
            body = bytes(buffer[LENGTH_BYTES : LENGTH_BYTES + length])
            del buffer[: LENGTH_BYTES + length]
            try:
                message = msgspec.json.decode(body)
            except (ValueError, RecursionError) as error:
                raise ProtocolError(str(error)) from None
            yield message
