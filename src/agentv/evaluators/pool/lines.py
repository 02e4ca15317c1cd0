"""A socket to a process of ours inside the event loop: messages in, bytes out, nothing lost when it is slow to read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from agentv.evaluators.pool.wire import Frames, WireError

_CHUNK_BYTES = 256 * 1024


class Line:
    """One end of a pair. `heard` gets every whole message, `lost` is called once when the other end is closed."""

    def __init__(self, end: socket.socket, heard: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = end
        self._heard = heard
        self._lost = lost
        self._frames = Frames()
        self._unsent = bytearray()
        end.setblocking(False)
        self._loop.add_reader(end.fileno(), self._read)

    @classmethod
    def pair(cls, heard: Callable[[Any], None], lost: Callable[[], None]) -> tuple[Line, socket.socket]:
        """Our end, and the one for the other process."""
        ours, theirs = socket.socketpair()
        return cls(ours, heard, lost), theirs

    def send(self, data: bytes, files: Sequence[int] = ()) -> None:
        """Sends now what goes now, and the rest as it goes. With open files, which go with the first byte."""
        if self._socket.fileno() < 0:
            return
        if self._unsent and not files:
            self._unsent += data
            return
        try:
            if files:
                # Behind what is still unsent this would come out of order; fork requests are a few bytes and rare.
                self._socket.setblocking(True)
                self._flush()
                sent = socket.send_fds(self._socket, [data], list(files))
                self._socket.setblocking(False)
            else:
                sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # closed at the other end, which reading says
        if sent < len(data):
            self._unsent += data[sent:]
            self._loop.add_writer(self._socket.fileno(), self._write)

    def close(self) -> None:
        """Closes this end; nothing is heard of it any more."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()

    def _flush(self) -> None:
        if self._unsent:
            self._socket.sendall(self._unsent)
            self._unsent.clear()
            self._loop.remove_writer(self._socket.fileno())

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._unsent)
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def _read(self) -> None:
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for message in self._frames.feed(data):
                self._heard(message)
        except WireError:
            data = b""
        if not data and self._socket.fileno() >= 0:
            self.close()
            self._lost()
