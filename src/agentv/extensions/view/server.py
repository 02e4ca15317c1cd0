"""The web server of the page: its application, errors, start and stop."""

import asyncio
import errno
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec
from aiohttp import web

from agentv.cli import output
from agentv.engine.named_runs import existing_run, run_name, run_path
from agentv.errors import EXIT_OK, AgentvError, UsageError, plural
from agentv.extensions.view.access import (
    HEADERS,
    LOOPBACK,
    MOST_BODY_BYTES,
    Access,
    AllowedHosts,
    Handler,
    add_headers,
    is_address,
)
from agentv.extensions.view.command import ViewArguments
from agentv.extensions.view.live import add_feed
from agentv.extensions.view.routes import ROUTES
from agentv.extensions.view.run_list import RunList, places_of
from agentv.extensions.view.state import STATE, ViewState, error_response
from agentv.registry import service
from agentv.settings.project import project_root
from agentv.support.web_listener import listen

_SHUTDOWN_S = 0.2
_log = logging.getLogger("agentv.extensions.view")


class Address(msgspec.Struct, frozen=True):
    """Where the server listens. Port 0 means any free one."""

    host: str = "127.0.0.1"
    port: int = 0

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return self.host == "localhost" or (is_address(self.host) and ipaddress.ip_address(self.host).is_loopback)

    @property
    def is_any(self) -> bool:
        """Whether the server listens on all addresses of this machine."""
        return is_address(self.host) and ipaddress.ip_address(self.host).is_unspecified

    @property
    def shown_host(self) -> str:
        """The host in the URL."""
        host = "127.0.0.1" if self.is_any else self.host
        return f"[{host}]" if ":" in host else host

    def hosts(self) -> AllowedHosts:
        """Return the host names under which the page may be requested."""
        own = (socket.gethostname(),) if self.is_any else ()
        names = (*own, *(LOOPBACK if self.is_loopback or self.is_any else ()), self.shown_host)
        return AllowedHosts(frozenset(name.lower() for name in names), any_address=self.is_any)


def application(state: ViewState, access: Access) -> web.Application:
    """Return the application with all routes."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await access.check(request, handler)
        except Exception as error:
            return _error_response(request, error)

    app = web.Application(middlewares=[guarded], client_max_size=MOST_BODY_BYTES)
    app[STATE] = state
    add_feed(app)
    app.on_response_prepare.append(add_headers)
    for route in ROUTES:
        app.router.add_route(route.method, route.path, route.handle)
    return app


def _error_response(request: web.Request, error: Exception) -> web.Response:
    """Return an error as JSON, or as plain text to a person who opened a wrong address.

    A problem of the data, such as a damaged run, is a normal answer: browsers log other ones as errors of the page.
    """
    if isinstance(error, AgentvError):
        return error_response(error)
    if isinstance(error, web.HTTPException):
        status, message, detail = error.status, error.text or error.reason, ""
    else:
        _log.error("Cannot answer %s", request.path, exc_info=error)
        status, message, detail = 500, "The server cannot answer this request", type(error).__name__
    if request.path.startswith("/api/"):
        return error_response(AgentvError(message, detail), status)
    return web.Response(text="\n".join(filter(None, (message, detail))) + "\n", status=status)


async def serve(state: ViewState, address: Address, opened: Callable[[str], None]) -> None:
    """Serve the page until the process is interrupted. `opened` is called with the URL. Raises UsageError."""
    access = Access(address.hosts(), is_read_only=state.labels is None)
    runner = web.AppRunner(application(state, access), shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    stop = _stop_event()
    try:
        host = "127.0.0.1" if address.host == "localhost" else address.host  # one address, and one port
        try:
            listener = await listen(runner, (host, address.port), HEADERS)
        except OSError as error:
            raise _cannot_listen(address, error) from error
        access.port = listener.sockets[0].getsockname()[1]
        opened(f"http://{address.shown_host}:{access.port}/?token={access.token}")
        await stop.wait()
        listener.close()
    finally:
        state.close()
        await runner.cleanup()


def _stop_event() -> asyncio.Event:
    """Return an event that is set by Ctrl-C or a request to end the process."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows, Ctrl-C raises KeyboardInterrupt
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _cannot_listen(address: Address, error: OSError) -> UsageError:
    place = f"{address.host}:{address.port}" if address.port else address.host
    if error.errno == errno.EADDRINUSE:
        hint = "Choose another port with --port, or leave it out for a free one"
        return UsageError(f"Cannot listen on {place}", "The port is in use by another program", hint)
    return UsageError(f"Cannot listen on {place}", error.strerror or str(error), "Check --host and --port")


_MOST_SHUTDOWN_S = 1.0


def view(args: ViewArguments) -> None:
    """Serve the page until the process is interrupted."""
    if args.labeller and args.label_file is None:
        raise UsageError("--labeller needs --label", hint="Add --label FILE, where the labels are written")
    root = project_root(".")
    for name in args.runs:
        existing_run(name)
    paths = [run_path(name) for name in args.runs]
    runs = RunList(places_of(paths, root), root=root, name=run_name)
    runs.refresh()
    label_file = args.label_file
    labels = None if label_file is None else service("page-labels", "--label")(label_file, args.labeller)
    title = os.path.basename(os.path.realpath(paths[0] if len(paths) == 1 else root))
    state = ViewState(runs, title=title, labels=labels)
    if not args.host.strip():
        raise UsageError("--host needs an address or a name", hint="Leave it out to serve this machine only")
    address = Address(args.host, args.port)
    asyncio.run(serve(state, address, partial(announce, len(runs.runs()), address, not args.no_open)))
    output.message("\nStopped")
    _end_soon()


def announce(count: int, address: Address, opens: bool, url: str) -> None:
    """Print the link and a warning if other machines can connect, and open the browser."""
    output.echo(f"Serving {plural(count, 'run')} at {url}")
    if not count:
        output.note("There are no runs yet. They appear on the page when `agentv eval` starts one.")
    output.message("Press Ctrl-C to stop")
    if not address.is_loopback:
        output.warn(
            f"The server listens on {address.host}. Anyone on the network who has this link can read the runs, and "
            "connections are not encrypted."
        )
    if opens and _has_display():
        import webbrowser  # late: it looks for browsers

        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _has_display() -> bool:
    """Return whether a browser can open. Without a display, it would be a text browser in this terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))


def _end_soon() -> None:
    """End the process even if a thread still reads a large run."""
    timer = threading.Timer(_MOST_SHUTDOWN_S, os._exit, (EXIT_OK,))
    timer.daemon = True
    timer.start()
