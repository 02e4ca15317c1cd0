"""Messages between a run and its judging processes: JSON behind its length. Knows no message."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_LENGTH = struct.Struct("!I")
LENGTH_BYTES = _LENGTH.size


class WireError(Exception):
    """Bytes that are no message."""


def frame(message: Any) -> bytes:
    """A message as bytes. Raises TypeError or ValueError for what JSON cannot hold."""
    return framed(msgspec.json.encode(message))


def framed(body: bytes) -> bytes:
    """A message that is encoded already."""
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes | bytearray) -> int:
    """How many bytes follow."""
    return int(_LENGTH.unpack(head)[0])


class Frames:
    """Bytes as they arrive, messages as they become whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that are whole now. Raises WireError for what cannot be one."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= LENGTH_BYTES:
            length = length_of(buffer[:LENGTH_BYTES])
            if length > MAX_MESSAGE_BYTES:
                raise WireError(f"a message of {length} bytes")
            if len(buffer) < LENGTH_BYTES + length:
                return
            body = bytes(buffer[LENGTH_BYTES : LENGTH_BYTES + length])
            del buffer[: LENGTH_BYTES + length]
            try:
                message = msgspec.json.decode(body)
            except (ValueError, RecursionError) as error:
                raise WireError(str(error)) from None
            yield message
