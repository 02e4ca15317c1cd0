"""The HTTP client shared by all API targets. It sends and receives bytes and classifies every failure:

    class             causes                                                                 retried
    network           no connection, DNS failure, connection reset, truncated response       yes
    timeout           total timeout, status 408                                              yes
    rate_limit        status 429, 498                                                        yes, after `retry_after_s`
    server            status 5xx, an overload with any status                                yes
    auth              status 401, 402, 403, 407, exhausted quota                             no
    refused           an error code that means a filter blocked the prompt                   no
    invalid_response  any other status; a complete response that cannot be used              no

A response without a length may have been truncated unnoticed: if it cannot be parsed, the class is `network`. Redirects
are not followed, because that would send API keys to another host.
"""

import errno
import io
import os
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError
from yarl import URL

from agentv.errors import UsageError, open_files_hint, start_of
from agentv.model.environment import SHORTEST_SECRET
from agentv.model.response import TargetFailure
from agentv.model.result import ErrorClass
from agentv.settings.addresses import is_loopback
from agentv.settings.environment import redacted
from agentv.support.byte_gate import LARGE_BYTES, UNKNOWN_BYTES, hold_bytes
from agentv.support.json_values import json_or, repair_json
from agentv.targets.apis.api_errors import reported_failure
from agentv.trust.policy import load_policy
from agentv.version import __version__

MAX_ANSWER_BYTES = 64 * 2**20
CONNECT_TIMEOUT_S = 30.0
"""Much shorter than the timeout of a response: a host that is up accepts connections quickly."""

_NO_CONTENT = 204
_NO_SERVER = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH})
_SNIFFED_BYTES, _SHOWN_CHARACTERS = 1024, 100
_LARGE_BODY_BYTES = 2**20
_SECRET_HEADER = re.compile(r"auth|key|token|secret|password|cookie", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class HttpResponse(NamedTuple):
    """A complete response. Header lookup is case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str = ""

    @property
    def page(self) -> str | None:
        """What an HTML page begins with, and where it comes from, without the query; None for other responses."""
        start = self.body[:_SNIFFED_BYTES].decode(errors="replace").lstrip()
        if not start.lower().startswith(("<!doctype html", "<html", "<head", "<body")):
            return None
        where = URL(self.url).with_query(None).with_user(None) if self.url else "The server"
        begins = start_of(" ".join(start.split()), _SHOWN_CHARACTERS)
        return f"{where} returned an HTML page, which is not the API: check the address. It begins with: {begins}"

    @property
    def may_be_cut_off(self) -> bool:
        """Whether the body has no declared length, so that a lost connection looks like its end."""
        has_no_end = "content-length" not in self.headers and "transfer-encoding" not in self.headers
        return has_no_end and self.status != _NO_CONTENT


class HttpClient:
    """Calls one endpoint through one session, which the first call opens in the running event loop."""

    def __init__(self, url: str, headers: Mapping[str, str], secrets: Iterable[str] = ()) -> None:
        _check_address(url)
        self._policy = load_policy()
        if "{{" not in url.partition("://")[2].partition("/")[0]:  # else the host is known when a request is sent
            self._policy.check_host(url)
        self._headers = {"User-Agent": f"agentv/{__version__}", **_sendable(headers)}
        # For `Bearer x`, only x is secret.
        keys = [text.rpartition(" ")[2] for name, text in self._headers.items() if _SECRET_HEADER.search(name)]
        self._secrets = [value for value in (*keys, *secrets) if len(value) >= SHORTEST_SECRET]
        self._proxy = proxy_for(url)
        is_encrypted = any(address is not None and address.startswith("https:") for address in (url, self._proxy))
        self._tls = _tls_context(_ca_bundle()) if is_encrypted else True
        self._session: aiohttp.ClientSession | None = None
        self.max_bytes = MAX_ANSWER_BYTES

    async def send(
        self, method: str, url: str, body: bytes | None, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """Send a request and return a response with a status below 300. Raises TargetFailure for everything else."""
        session = self._session or self._open()
        if not self._policy.allows_host(url):
            raise self.failure("invalid_response", f"Your policy does not allow calls to '{URL(url).host}'")
        is_ok = False
        try:
            raw = await session.request(
                method,
                url,
                # aiohttp sends a file in pieces, which does not block the event loop.
                data=io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY_BYTES else body,
                headers=headers,
                proxy=self._proxy,
                allow_redirects=False,
                timeout=_timeout(timeout_s),
            )
            is_ok = raw.status < 300
            try:
                response = HttpResponse(
                    raw.status, raw.headers, repair_json(await _whole_body(raw, self.max_bytes)), url
                )
            except BaseException:
                raw.close()
                raise
        except aiohttp.ConnectionTimeoutError:
            message = f"{URL(url).origin()}: no connection within {CONNECT_TIMEOUT_S:g} s"
            raise self.failure("network", message) from None
        except TimeoutError:
            failure = self.failure("timeout", f"{URL(url).origin()}: no response within {timeout_s:g} s")
            failure.is_billed = True  # the server may have finished the answer
            raise failure from None
        except aiohttp.ClientError as error:
            error_class, what = _explained(error)
            failure = self.failure(error_class, f"{URL(url).origin()}: {what}")
            failure.is_billed = isinstance(error, aiohttp.ClientPayloadError) and is_ok
            failure.is_unreachable = _has_no_server(error)
            raise failure from None
        if response.status >= 300:
            raise self._reported(response)
        return response

    def failure(self, error_class: ErrorClass, message: str, *, status: int | None = None) -> TargetFailure:
        """Return a failure, with this client's secrets removed from the message."""
        return TargetFailure(error_class, redacted(message, self._secrets), status=status)

    def unreadable(self, response: HttpResponse, why: str) -> TargetFailure:
        """Return the failure for a response with a good status and an unusable body."""
        if (page := response.page) is not None:
            why = f"{why.partition(':')[0]}: {page}"
        if page is not None or not response.body.strip():
            failure = self.failure("invalid_response", why, status=response.status)
            failure.is_page = True
            return failure
        if response.may_be_cut_off:
            return self.failure(
                "network", f"The connection ended before the response was complete: {why}", status=response.status
            )
        return self.failure("invalid_response", why, status=response.status)

    def reported(self, error: Any, status: int, headers: Mapping[str, str]) -> TargetFailure:
        """Return the failure that an API reports, with this client's secrets removed."""
        return reported_failure(error, status, headers, self._secrets)

    def _reported(self, response: HttpResponse) -> TargetFailure:
        location = response.headers.get("location")
        if response.status < 400 and location:
            moved = f"moved to {location.partition('?')[0]}; redirects are not followed, so configure that address"
            return self.reported(moved, response.status, response.headers)
        error = response.page or json_or(response.body, response.body.decode(errors="replace"))
        return self.reported(error, response.status, response.headers)

    async def aclose(self) -> None:
        """Close every connection. The next call opens a new session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        # No connection limit: the caller limits concurrency. No cookies: cases must not affect each other.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )
        return self._session


def proxy_for(url: str) -> str | None:
    """Return the proxy for an address from the environment (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`).

    aiohttp's `trust_env` is not used: it looks the proxy up in a thread on every call, and also sends passwords from
    `~/.netrc`. Loopback addresses never use a proxy.
    """
    parts = urlsplit(url)
    if is_loopback(url) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None:
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        kind = proxy.partition("://")[0]
        message = f"The environment configures a '{kind}' proxy for {parts.scheme}, which is not supported"
        raise UsageError(message, hint="Use an HTTP proxy")
    return proxy


def _check_address(url: str) -> None:
    try:
        host = URL(url).host
    except ValueError:
        host = None
    if not host:
        raise UsageError(f"The address '{url.partition('?')[0]}' has no host")


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers with whitespace around their values removed: keys often end with a newline. Raises UsageError."""
    result = {name: value.strip() for name, value in headers.items()}
    for name, value in result.items():
        if not _HEADER_NAME.fullmatch(name) or _CONTROL.search(value):
            hint = "Header names must not contain spaces; names and values must not contain control characters"
            raise UsageError(f"The header {name!a} cannot be sent", hint=hint)
    return result


def _ca_bundle() -> str | None:
    for variable in _CA_VARIABLES:
        bundle = os.environ.get(variable)
        if bundle and not Path(bundle).exists():
            raise UsageError(f"{variable} points to a certificate file that does not exist: {bundle}")
        if bundle:
            return bundle
    return None


@cache  # reading a bundle takes tens of milliseconds
def _tls_context(bundle: str | None) -> ssl.SSLContext:
    is_folder = bundle is not None and Path(bundle).is_dir()
    try:
        return ssl.create_default_context(capath=bundle) if is_folder else ssl.create_default_context(cafile=bundle)
    except ssl.SSLError:
        raise UsageError(f"Cannot read certificates from {bundle}") from None


@lru_cache(maxsize=64)
def _timeout(timeout_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)


async def _whole_body(raw: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Read the whole body. The size limit applies after decompression. A large one may have to wait for memory."""
    pieces, size, counted = [], 0, LARGE_BYTES
    while piece := await raw.content.readany():
        pieces.append(piece)
        size += len(piece)
        if size > max_bytes:
            message = f"The response is larger than {max_bytes >> 20} MiB"
            raise TargetFailure("invalid_response", message, status=raw.status)
        if size > counted:
            counted = max_bytes
            await hold_bytes(max(size, min(raw.content_length or UNKNOWN_BYTES, max_bytes)))
    return b"".join(pieces)


def _explained(error: aiohttp.ClientError) -> tuple[ErrorClass, str]:
    """Return the class and a message for an aiohttp error. The message omits the URL, which may contain a key."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", None) or "not trusted"
        return "network", f"certificate error: {reason}; set SSL_CERT_FILE to use your own certificate authority"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ("auth" if error.status == 407 else "network"), f"the proxy returned status {error.status}"
    if isinstance(error, aiohttp.ClientPayloadError):
        if isinstance(error.__cause__, ContentEncodingError):
            return "invalid_response", "the response cannot be decompressed"
        return "network", "the connection ended in the middle of the response"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "network", "the connection ended before a response"
    if isinstance(error, aiohttp.ClientResponseError):
        return "invalid_response", "the response is not valid HTTP"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "network", f"no connection: {_cause(error.os_error)}"
    if isinstance(error, OSError):
        return "network", f"the connection failed: {_cause(error)}"
    return "network", f"the connection failed: {type(error).__name__}"


def _has_no_server(error: aiohttp.ClientError) -> bool:
    """Whether nothing listens at the address, or its name is unknown."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return False
    return isinstance(error.os_error, socket.gaierror) or error.os_error.errno in _NO_SERVER


def _cause(error: OSError) -> str:
    """Return the operating system's message; asyncio's would repeat the address."""
    if error.errno is not None and error.errno > 0:
        hint = open_files_hint(error)
        return f"{os.strerror(error.errno)}. {hint}" if hint else os.strerror(error.errno)
    return error.strerror or type(error).__name__
