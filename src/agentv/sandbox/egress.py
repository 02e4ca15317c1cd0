"""A proxy that lets an isolated program reach some hosts only, and adds keys that the program never has.

A program connects through it in two ways. As a client of an HTTP proxy it reaches the hosts directly; the contents of
`CONNECT` tunnels are encrypted and pass unchanged. Or it uses `http://127.0.0.1:PORT/HOST/…` as the address of a host:
such requests are sent on over TLS, with the key of the host.
"""

import asyncio
import io
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing, suppress
from functools import lru_cache
from http.client import HTTPMessage, parse_headers
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from agentv.sandbox.confinement import Confinement
from agentv.sandbox.hosts import PROXY_ADDRESS, AllowedHost

MAX_HEAD_BYTES = 64 * 1024
CONNECT_S = 30.0

_CHUNK_BYTES = 64 * 1024
_NOT_FORWARDED = ("proxy-authorization", "proxy-connection", "connection", "keep-alive", "host")
_REASONS = {400: "Bad Request", 403: "Forbidden", 431: "Request Header Fields Too Large", 502: "Bad Gateway"}


class EgressAccess(NamedTuple):
    """What a program needs to use the proxy: its isolation with a channel, an inherited socket, and variables."""

    confinement: Confinement
    listener: int | None
    variables: dict[str, str]


@asynccontextmanager
async def egress_access(
    hosts: tuple[AllowedHost, ...], confinement: Confinement, scratch: str
) -> AsyncIterator[EgressAccess]:
    """Run a proxy for one program."""
    proxy = EgressProxy(hosts)
    try:
        if confinement.is_container:
            path = os.path.join(scratch, "egress")
            with closing(socket.socket(socket.AF_UNIX)) as listening:
                listening.bind(path)
                listening.listen(1)
                proxy.accept(listening)
                confinement = msgspec.structs.replace(confinement, channel=path)
                yield EgressAccess(confinement, None, proxy.variables)
            return
        ours, theirs = socket.socketpair()
        with ours, theirs:
            proxy.receive(ours)
            yield EgressAccess(confinement, theirs.fileno(), proxy.variables)
    finally:
        await proxy.close()


class _Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class EgressProxy:
    """Serves the sockets of isolated programs."""

    def __init__(self, hosts: tuple[AllowedHost, ...]) -> None:
        self._hosts = hosts
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._read_from: set[socket.socket] = set()
        self._channel: socket.socket | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that let programs use the proxy."""
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "AGENTV_EGRESS_URL")
        local = dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1")
        return {**dict.fromkeys(names, PROXY_ADDRESS), **local, "NODE_USE_ENV_PROXY": "1"}

    def accept(self, listening: socket.socket) -> None:
        """Accept the one connection of a container, which is the channel of its listening socket."""

        def connected() -> None:
            self._stop_reading(listening)
            self._channel, _ = listening.accept()
            self.receive(self._channel)

        self._read(listening, connected)

    def receive(self, channel: socket.socket) -> None:
        """Serve the listening socket that a program passes through a channel."""

        def received() -> None:
            self._stop_reading(channel)
            for descriptor in socket.recv_fds(channel, 16, 1)[1]:
                self._start(self._listen(socket.socket(fileno=descriptor)))

        self._read(channel, received)

    async def close(self) -> None:
        """Close all connections."""
        for from_socket in list(self._read_from):
            self._stop_reading(from_socket)
        if self._channel is not None:
            self._channel.close()
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _read(self, from_socket: socket.socket, ready: Callable[[], None]) -> None:
        from_socket.setblocking(False)
        self._read_from.add(from_socket)
        asyncio.get_running_loop().add_reader(from_socket, ready)

    def _stop_reading(self, from_socket: socket.socket) -> None:
        if from_socket in self._read_from:
            self._read_from.discard(from_socket)
            asyncio.get_running_loop().remove_reader(from_socket)

    async def _listen(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._serve, sock=listening, limit=MAX_HEAD_BYTES)
        self._servers.append(server)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._answer(reader, writer)
        except _Refused as refused:
            text = f"agentv sandbox: {refused}\n".encode()
            head = f"HTTP/1.1 {refused.status} {_REASONS[refused.status]}\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
            with suppress(OSError):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side has closed the connection
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, headers = await _read_head(reader)
        if method == "CONNECT":
            host = self._allowed(*_name_and_port(target, 443))
            upstream = await _connect(host, encrypted=False)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            host, path = self._destination(target)
            upstream = await _connect(host, encrypted=host.is_encrypted)
            upstream[1].write(_head(method, path, host, headers))
        try:
            await _relay(reader, writer, *upstream)
        finally:
            upstream[1].close()

    def _destination(self, target: str) -> tuple[AllowedHost, str]:
        """Return the host and the path of a request, in the form of a proxy or of an address of this server."""
        if target.startswith("/"):
            name, _, path = target[1:].partition("/")
            return self._allowed(*_name_and_port(name, None)), f"/{path}"
        parts = urlsplit(target)
        if parts.scheme != "http" or not parts.hostname:
            raise _Refused(400, f"cannot send a request to {target}")
        host = self._allowed(parts.hostname, parts.port or 80)
        return host, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def _allowed(self, name: str, port: int | None) -> AllowedHost:
        for host in self._hosts:
            if host.name == name.lower() and port in (None, host.port):
                return host
        where = name if port is None else f"{name}:{port}"
        raise _Refused(403, f"connections to {where} are not allowed; add it to `hosts` of the sandbox")


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, str, HTTPMessage]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _Refused(431, "the headers are too long") from None
    line, _, rest = head.partition(b"\r\n")
    words = line.decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _Refused(400, "the request is not HTTP/1.1")
    return words[0], words[1], parse_headers(io.BytesIO(rest))


def _name_and_port(text: str, default: int | None) -> tuple[str, int | None]:
    name, _, port = text.rpartition(":")
    if not name:
        return text, default
    if not port.isdecimal():
        raise _Refused(400, f"'{text}' is not a host and a port")
    return name.strip("[]"), int(port)


def _head(method: str, path: str, host: AllowedHost, headers: HTTPMessage) -> bytes:
    """Return the head of a request, with the key of the host instead of the one that the program may have sent."""
    own = {name.lower() for name in host.headers}
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host.name}:{host.port}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() not in (*_NOT_FORWARDED, *own)]
    lines += [f"{name}: {value}" for name, value in host.headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _connect(host: AllowedHost, *, encrypted: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(CONNECT_S):
            return await asyncio.open_connection(host.name, host.port, ssl=_trusted() if encrypted else None)
    except (OSError, TimeoutError) as error:
        raise _Refused(502, f"cannot connect to {host.name}:{host.port}: {error}") from None


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
    other_reader: asyncio.StreamReader, other_writer: asyncio.StreamWriter,
) -> None:  # fmt: skip
    """Copy bytes in both directions until the host closes the connection."""
    sending = asyncio.ensure_future(_copy(reader, other_writer))
    try:
        await _copy(other_reader, writer)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
