"""Access control of the served page: the Host header, the token and the cookie, the Origin, and response headers."""

import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import hdrs, web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MOST_BODY_BYTES = 256 << 10
"""The largest body of a request."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""The headers of every response, which protect the page in a browser."""

_COOKIE = "agentv_"
_MOST_COOKIES = 20
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class AllowedHosts(NamedTuple):
    """The host names under which the page may be requested. `any_address` also allows every IP address.

    Another web page can only reach the server through a host name that it controls, never through an address.
    """

    names: frozenset[str]
    any_address: bool = False

    def allow(self, host: str, port: int) -> bool:
        """Return whether a Host header names this server."""
        name, colon, port_text = host.rpartition(":")
        if not colon or port_text != str(port):
            return False
        return name.lower() in self.names or (self.any_address and is_address(name.removeprefix("[").removesuffix("]")))


def is_address(name: str) -> bool:
    """Return whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Access:
    """Decides which requests are answered. The token in the URL works once, and is exchanged for a cookie."""

    def __init__(self, hosts: AllowedHosts, *, is_read_only: bool) -> None:
        self._hosts = hosts
        self._is_read_only = is_read_only
        self._token: str | None = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self.port = 0

    @property
    def token(self) -> str:
        """The token that has not been used yet."""
        assert self._token is not None
        return self._token

    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request if it may be answered. Raises an HTTP error otherwise."""
        self._check_host(request)
        self._check_origin(request)
        if request.method not in (hdrs.METH_GET, hdrs.METH_POST):
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "POST"])
        if request.method == hdrs.METH_GET and request.path == "/" and "token" in request.query:
            return self._exchange(request)
        if not self._has_cookie(request):
            raise web.HTTPForbidden(text=_NO_COOKIE)
        if request.method == hdrs.METH_POST:
            self._check_post(request)
        return await handler(request)

    def _check_host(self, request: web.Request) -> None:
        """Refuse names of other hosts, which a web page could let resolve to this address (DNS rebinding)."""
        hosts = request.headers.getall(hdrs.HOST, [])
        if len(hosts) != 1 or not self._hosts.allow(hosts[0], self.port):
            raise web.HTTPForbidden(text=_OTHER_HOST)

    def _check_origin(self, request: web.Request) -> None:
        """Refuse requests of other pages. A browser names the page of every request that changes data."""
        origins = request.headers.getall(hdrs.ORIGIN, [])
        is_own = origins == [f"http://{request.headers[hdrs.HOST]}"]
        if not is_own and (origins or request.method == hdrs.METH_POST):
            raise web.HTTPForbidden(text="Requests of other pages are refused.")

    def _check_post(self, request: web.Request) -> None:
        if self._is_read_only:
            raise web.HTTPForbidden(text="The page is read-only. Start agentv view with --label FILE to save labels.")
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="The body has to be JSON (Content-Type: application/json).")

    def _exchange(self, request: web.Request) -> web.Response:
        """Set the cookie for the token, and leave the URL that contains it."""
        token = request.query["token"]
        is_valid = self._token is not None and _is_same(token, self._token)
        if not is_valid and not self._has_cookie(request):
            raise web.HTTPForbidden(text=_NO_COOKIE if self._token is not None else _USED_TOKEN)
        response = web.Response(status=303, headers={hdrs.LOCATION: "/"})
        if is_valid:
            self._token = None
            self._forget_old_cookies(request, response)
            response.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="Strict", path="/")
        return response

    @staticmethod
    def _forget_old_cookies(request: web.Request, response: web.Response) -> None:
        """Remove cookies of earlier servers: browsers send all of them, oldest first, and headers have a limit."""
        names = [name for name in request.cookies if name.startswith(_COOKIE)]
        for name in names[:-_MOST_COOKIES]:
            response.del_cookie(name, path="/")

    @property
    def _cookie_name(self) -> str:
        # Browsers send cookies to all ports of a host.
        return f"{_COOKIE}{self.port}"

    def _has_cookie(self, request: web.Request) -> bool:
        return _is_same(request.cookies.get(self._cookie_name, ""), self._cookie)


_NO_COOKIE = "Open the link that agentv view printed in the terminal: it contains the key to this page."
_USED_TOKEN = "This link was used already and works once. Stop agentv view and start it again for a new one."
_OTHER_HOST = "This server does not answer to this host name. Open the link that agentv view printed."


def _is_same(token: str, secret: str) -> bool:
    return hmac.compare_digest(token.encode("utf-8", "replace"), secret.encode())


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:  # noqa: ARG001  # a signal handler
    """Set the headers that protect the page in a browser, on every response."""
    response.headers.update(HEADERS)
