"""The HTTP client that API targets share: bytes out, bytes in, every failure under its class. Knows no API's messages.

    class             what ends in it                                                        tried again
    network           no connection, no name, a reset, an answer that the connection cut off  yes
    timeout           the total time-out, status 408                                         yes
    rate_limit        status 429, 498                                                        yes, after `retry_after_s`
    server            status 5xx, an overload under any status                               yes
    auth              status 401, 402, 403, 407, and a quota that is used up                 no
    refused           an error whose code says that a filter stopped the question            no
    invalid_response  any other status; an answer that came whole and cannot be used         no

An answer that ends where the connection ends may have been cut off unnoticed: if it cannot be read, it is `network`.
Redirects are not followed, because headers with keys would go along.
"""

from __future__ import annotations

import io
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from aiohttp.http_exceptions import ContentEncodingError
from yarl import URL

from agentv import __version__
from agentv.errors import UsageError
from agentv.model.response import TargetFailure
from agentv.model.result import ErrorClass
from agentv.settings.environment import SHORTEST_SECRET, redacted
from agentv.support.json_values import json_or, mended_json
from agentv.targets.apis.api_errors import reported_failure
from agentv.targets.target import is_loopback

MAX_ANSWER_BYTES = 64 * 2**20
CONNECT_TIMEOUT_S = 30.0
"""A host that does not even take the connection is given up on long before an answer would be."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for a body that is no JSON, or nested too deep."""

_NO_CONTENT = 204
_LARGE_BODY_BYTES = 2**20
_SECRET_HEADER = re.compile(r"auth|key|token|secret|password|cookie", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class HttpReply(NamedTuple):
    """An answer that came whole. Names of headers are looked up in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def may_be_cut_off(self) -> bool:
        """Whether nothing but the end of the connection said where the body ends."""
        has_no_end = "content-length" not in self.headers and "transfer-encoding" not in self.headers
        return has_no_end and self.status != _NO_CONTENT


class HttpClient:
    """Calls to one endpoint through one session, which the first call opens inside the loop that is running then."""

    def __init__(self, url: str, headers: Mapping[str, str], secrets: Iterable[str] = ()) -> None:
        _check_address(url)
        self._headers = {"User-Agent": f"agentv/{__version__}", **_sendable(headers)}
        # Of `Bearer x`, the x.
        keys = [text.rpartition(" ")[2] for name, text in self._headers.items() if _SECRET_HEADER.search(name)]
        self._secrets = [value for value in (*keys, *secrets) if len(value) >= SHORTEST_SECRET]
        self._proxy = proxy_for(url)
        is_encrypted = any(each is not None and each.startswith("https:") for each in (url, self._proxy))
        self._tls = _tls_context(_ca_bundle()) if is_encrypted else True
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, url: str, body: bytes | None, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        """The answer, if its status is below 300. Raises TargetFailure for everything else."""
        session = self._session or self._open()
        try:
            response = await session.request(
                method,
                url,
                # Large bodies as a file, which is sent in pieces and does not hold up the loop.
                data=io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY_BYTES else body,
                headers=headers,
                proxy=self._proxy,
                allow_redirects=False,
                timeout=_timeout(timeout_s),
            )
            try:
                reply = HttpReply(response.status, response.headers, mended_json(await _whole_body(response)))
            except BaseException:
                response.close()
                raise
        except aiohttp.ConnectionTimeoutError:
            raise self.failure(
                "network", f"{URL(url).origin()}: no connection within {CONNECT_TIMEOUT_S:g} s"
            ) from None
        except TimeoutError:
            raise self.failure("timeout", f"{URL(url).origin()}: no answer within {timeout_s:g} s") from None
        except aiohttp.ClientError as error:
            error_class, what = _explained(error)
            raise self.failure(error_class, f"{URL(url).origin()}: {what}") from None
        if reply.status >= 300:
            raise self._reported(reply)
        return reply

    def failure(self, error_class: ErrorClass, message: str, *, status: int | None = None) -> TargetFailure:
        """A failure in words that hold none of this client's secrets."""
        return TargetFailure(error_class, redacted(message, self._secrets), status=status)

    def unreadable(self, reply: HttpReply, why: str) -> TargetFailure:
        """The failure of an answer with a good status and a body that is not what was asked for."""
        if reply.may_be_cut_off:
            return self.failure("network", f"The connection ended before the answer did: {why}", status=reply.status)
        return self.failure("invalid_response", why, status=reply.status)

    def reported(self, error: Any, status: int, headers: Mapping[str, str]) -> TargetFailure:
        """The failure that an API reports, in words that hold none of this client's secrets."""
        return reported_failure(error, status, headers, self._secrets)

    def _reported(self, reply: HttpReply) -> TargetFailure:
        location = reply.headers.get("location")
        if reply.status < 400 and location:
            moved = f"moved to {location.partition('?')[0]}; redirects are not followed, so write that address"
            return self.reported(moved, reply.status, reply.headers)
        error = json_or(reply.body, reply.body.decode(errors="replace"))
        return self.reported(error, reply.status, reply.headers)

    async def aclose(self) -> None:
        """Closes every connection. The client can be used again; it then opens a new session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        # No limit of connections here: how many calls are made at once is decided by whoever makes them. No cookies:
        # one case must not leave anything behind for the next.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )
        return self._session


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for an address (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`).

    Looked up once per endpoint and here, because aiohttp's own `trust_env` asks in a thread on every call, and sends
    passwords of `~/.netrc` along that nobody configured. No proxy can reach this machine's own loopback.
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
        raise UsageError(f"The environment names a proxy of kind '{kind}' for {parts.scheme}", hint="Use an HTTP proxy")
    return proxy


def _check_address(url: str) -> None:
    try:
        host = URL(url).host
    except ValueError:
        host = None
    if not host:
        raise UsageError(f"'{url.partition('?')[0]}' is an address without a host")


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers without space around their values: keys often come with the end of a line. Raises UsageError."""
    made = {name: value.strip() for name, value in headers.items()}
    for name, value in made.items():
        if not _HEADER_NAME.fullmatch(name) or _CONTROL.search(value):
            raise UsageError(
                f"The header {name!a} cannot be sent",
                hint="A name has no spaces in it, and neither name nor value a line break or another control character",
            )
    return made


def _ca_bundle() -> str | None:
    for variable in _CA_VARIABLES:
        bundle = os.environ.get(variable)
        if bundle and not Path(bundle).exists():
            raise UsageError(f"{variable} names certificates that are not there: {bundle}")
        if bundle:
            return bundle
    return None


@cache  # reading a bundle takes tens of milliseconds
def _tls_context(bundle: str | None) -> ssl.SSLContext:
    if bundle is None:
        return ssl.create_default_context()
    try:
        if Path(bundle).is_dir():
            return ssl.create_default_context(capath=bundle)
        return ssl.create_default_context(cafile=bundle)
    except ssl.SSLError:
        raise UsageError(f"No certificates can be read from {bundle}") from None


@lru_cache(maxsize=64)
def _timeout(timeout_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)


async def _whole_body(response: aiohttp.ClientResponse) -> bytes:
    """The body up to its end. What is counted is what comes out of decompression."""
    pieces, size = [], 0
    while piece := await response.content.readany():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            message = f"The answer is larger than {MAX_ANSWER_BYTES >> 20} MiB"
            raise TargetFailure("invalid_response", message, status=response.status)
    return b"".join(pieces)


def _explained(error: aiohttp.ClientError) -> tuple[ErrorClass, str]:
    """The class of what aiohttp raised, in words that do not repeat the address, which may hold a key."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", None) or "not trusted"
        return "network", f"certificate: {reason}; SSL_CERT_FILE may name your own authority's"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ("auth" if error.status == 407 else "network"), f"the proxy answered with status {error.status}"
    if isinstance(error, aiohttp.ClientPayloadError):
        if isinstance(error.__cause__, ContentEncodingError):
            return "invalid_response", "the answer cannot be decompressed"
        return "network", "the connection ended in the middle of the answer"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "network", "the connection ended before an answer"
    if isinstance(error, aiohttp.ClientResponseError):
        return "invalid_response", "the answer is no HTTP"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "network", f"no connection: {_cause(error.os_error)}"
    if isinstance(error, OSError):
        return "network", f"the connection broke: {_cause(error)}"
    return "network", f"the connection broke: {type(error).__name__}"


def _cause(error: OSError) -> str:
    """The system's own words; those of asyncio repeat the address."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or type(error).__name__
