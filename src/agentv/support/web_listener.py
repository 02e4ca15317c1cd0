"""Listen for HTTP on this machine, and answer broken requests without repeating or printing them."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus

from aiohttp import web

_log = logging.getLogger("agentv.web")
MOST_HEADER_BYTES = 64 << 10
"""The longest header. Browsers send the cookies of all servers on this machine to each."""
_HTTP2 = b"PRI * HTTP/2"
_BAD_REQUEST = "The request is not valid HTTP."
_FAILED = "The server cannot answer this request."


async def listen(
    runner: web.AppRunner,
    place: tuple[str, int] | socket.socket,
    headers: Mapping[str, str] | None = None,
    on_broken: Callable[[bool], None] | None = None,
) -> asyncio.Server:
    """Listen at a host and port, or on a socket. Answers to broken requests get these headers. Raises OSError.

    Bodies are not decompressed. `on_broken` is called for each broken request, with whether it is HTTP/2.
    """
    loop = asyncio.get_running_loop()
    assert runner.server is not None
    connection = partial(_Connection, runner.server, loop, headers or {}, on_broken)
    if isinstance(place, socket.socket):
        return await loop.create_server(connection, sock=place)
    return await loop.create_server(connection, *place)


class _Connection(web.RequestHandler):
    """A connection. Requests that are not HTTP never reach the application, so they are answered here.

    aiohttp would print a traceback for each, and repeat the request in its answer.
    """

    def __init__(
        self,
        manager: web.Server,
        loop: asyncio.AbstractEventLoop,
        headers: Mapping[str, str],
        on_broken: Callable[[bool], None] | None,
    ) -> None:
        super().__init__(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None is documented
            max_field_size=MOST_HEADER_BYTES,
            auto_decompress=False,  # broken data would be an error outside the handler, or wait for ever
        )
        self._error_headers = headers
        self._on_broken = on_broken
        self._is_http2: bool | None = None

    def data_received(self, data: bytes) -> None:
        """Receive a part of a connection. Only its first part may be the start of HTTP/2."""
        if self._is_http2 is None:
            self._is_http2 = data.startswith(_HTTP2)
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  # it contains parts of the request
    ) -> web.StreamResponse:
        """Answer a request that could not be read or handled, and close the connection."""
        if failed := status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _log.error(_FAILED, exc_info=exc)
        elif self._on_broken is not None:
            self._on_broken(bool(self._is_http2))
        if request.writer.output_size > 0:
            raise ConnectionError("A part of the answer was sent already")
        text = _FAILED if failed else _BAD_REQUEST
        response = web.Response(status=status, text=f"{text}\n", headers=self._error_headers)
        response.force_close()
        return response
