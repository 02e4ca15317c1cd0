"""The HTTP client: every kind of failed call is classified, within the timeout."""

import asyncio
import gzip
import json
import ssl
import subprocess
from email.utils import formatdate

import pytest
from multidict import CIMultiDict

from agentv.errors import UsageError
from agentv.model.response import TargetFailure
from agentv.targets.apis import http_client as client
from agentv.targets.apis.api_errors import error_class_of, parse_error, retry_after_s, seconds_until
from agentv.targets.apis.http_client import HttpClient, proxy_for
from agentv_testing import Fault, FaultyServer, RawReply
from virtual_time import skipped_ahead
from waiting import wait_until_async

BODY = json.dumps({"model": "gpt", "messages": [{"role": "user", "content": "Hello"}]}).encode()
KEY = "sk-planted-0123456789"
NOW = 1_800_000_000.0


def chat(server: FaultyServer) -> str:
    return f"{server.url}/chat/completions"


def call(url, timeout_s=200.0, key=KEY, **options):
    async def once():
        http = HttpClient(url, {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        try:
            return await http.send("POST", url, BODY, timeout_s, **options)
        finally:
            await http.aclose()

    return asyncio.run(once())


def failure(url, timeout_s=200.0) -> TargetFailure:
    with pytest.raises(TargetFailure) as raised:
        call(url, timeout_s)
    assert KEY not in str(raised.value)
    return raised.value


def failure_of(sent: bytes) -> TargetFailure:
    """Return the failure for a server that sends exactly these bytes and closes the connection."""

    async def scenario():
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(len(BODY))
            writer.write(sent)
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1") as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            http = HttpClient(url, {})
            try:
                with pytest.raises(TargetFailure) as raised:
                    await http.send("POST", url, BODY, 30.0)
            finally:
                await http.aclose()
            return raised.value

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fault", "error_class", "status"),
    [
        ("hang", "timeout", None),
        (Fault("slow_drip", delay_s=0.1), "timeout", None),
        (Fault("latency", delay_s=60.0), "timeout", None),
        ("half_closed", "network", None),
        ("reset", "network", None),
        ("408", "timeout", 408),
        ("429", "rate_limit", 429),
        ("500", "server", 500),
        ("503", "server", 503),
        ("529", "server", 503),
        ("401", "auth", 401),
        ("402", "auth", 402),
        ("403", "auth", 403),
        ("400", "invalid_response", 400),
        ("404", "invalid_response", 404),
        ("422", "invalid_response", 422),
    ],
    ids=str,
)
def test_every_fault_is_classified_within_the_timeout(fault, error_class, status):
    with FaultyServer(faults=[fault]) as server:
        ended = failure(chat(server), timeout_s=0.15 if error_class == "timeout" and status is None else 30.0)
    assert (ended.error_class, ended.status) == (error_class, status)


def test_slow_responses_within_the_timeout_succeed():
    with FaultyServer("Paris", faults=[Fault("slow_drip", delay_s=0.002), Fault("latency", delay_s=0.02)]) as server:
        assert b"Paris" in call(chat(server)).body
        assert b"Paris" in call(chat(server)).body


@pytest.mark.parametrize("fault", ["hang", Fault("slow_drip", delay_s=60.0)], ids=str)
def test_a_timeout_closes_the_socket(fault):
    async def scenario(server):
        http = HttpClient(server.url, {})
        try:
            with pytest.raises(TargetFailure):
                await http.send("POST", chat(server), BODY, 60.0)
            # The client is still open, so the timeout closed the connection.
            await wait_until_async(lambda: server.counts.disconnected == 1 and server.connections == 0)
        finally:
            await http.aclose()

    with FaultyServer(faults=[fault]) as server, skipped_ahead(lambda: server.counts.requests == 1):
        asyncio.run(scenario(server))


def test_a_cancelled_call_closes_the_socket():
    async def scenario(server):
        http = HttpClient(server.url, {})
        try:
            task = asyncio.create_task(http.send("POST", chat(server), BODY, 60.0))
            await wait_until_async(lambda: server.counts.at_once == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await wait_until_async(lambda: server.counts.disconnected == 1 and server.connections == 0)
        finally:
            await http.aclose()

    with FaultyServer(faults=["hang"]) as server:
        asyncio.run(scenario(server))


def test_a_failed_call_leaves_the_client_usable():
    async def scenario(server):
        http = HttpClient(server.url, {})
        try:
            while len(server.requests) < 4:  # the first call may end before the server has received it
                with pytest.raises(TargetFailure):
                    await http.send("POST", chat(server), BODY, 30.0 if server.requests else 0.1)
            return (await http.send("POST", chat(server), BODY, 30.0)).status
        finally:
            await http.aclose()
            await http.aclose()

    with FaultyServer(faults=["hang", "reset", "half_closed", "500"]) as server:
        assert asyncio.run(scenario(server)) == 200


def test_a_refused_connection_is_a_network_failure():
    with FaultyServer() as server:
        url = chat(server)
    ended = failure(url)
    assert ended.error_class == "network"
    assert "no connection" in ended.message


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("sent", "error_class"),
    [
        pytest.param(b"", "network", id="nothing"),
        pytest.param(b"HTTP/1.1 200", "network", id="half a status line"),
        pytest.param(HEAD + b"Content-Length: 100\r\n\r\n{}", "network", id="less than announced"),
        pytest.param(HEAD + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"a":', "network", id="half a chunk"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", "network", id="no last chunk"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "invalid_response", id="a chunk of no size"),
        pytest.param(
            HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", "invalid_response", id="no gzip"
        ),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "invalid_response", id="another protocol"),
    ],
)
def test_broken_responses(sent, error_class):
    assert failure_of(sent).error_class == error_class


def test_unreadable_bodies_are_network_failures_only_without_a_length():
    http = HttpClient("http://h", {})
    whole = client.HttpResponse(200, CIMultiDict({"Content-Length": "3"}), b"{cu")
    marked = client.HttpResponse(200, CIMultiDict({"Transfer-Encoding": "chunked"}), b"{cu")
    assert http.unreadable(whole, "no JSON").error_class == "invalid_response"
    assert http.unreadable(marked, "no JSON").error_class == "invalid_response"
    assert http.unreadable(client.HttpResponse(200, CIMultiDict(), b"{cu"), "no JSON").error_class == "network"


def test_the_size_limit_applies_after_decompression(monkeypatch):
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 2**20)
    packed = RawReply(gzip.compress(b" " * 2**22), headers={"Content-Encoding": "gzip"})
    with FaultyServer(packed) as server:
        assert failure(chat(server)).error_class == "invalid_response"
    with FaultyServer(RawReply(b" " * 2**20)) as server:
        assert len(call(chat(server)).body) == 2**20


def test_redirects_are_not_followed():
    with FaultyServer() as elsewhere:
        moved = RawReply(b"", 307, {"Location": f"{chat(elsewhere)}?token=x"})
        with FaultyServer(moved) as server:
            ended = failure(chat(server))
    assert elsewhere.counts.requests == 0
    assert ended.error_class == "invalid_response"
    assert f"moved to {chat(elsewhere)};" in ended.message


def test_cookies_are_not_kept():
    async def twice(server):
        http = HttpClient(server.url, {})
        try:
            for _ in range(2):
                await http.send("POST", chat(server), BODY, 30.0)
        finally:
            await http.aclose()

    with FaultyServer(RawReply(b"{}", headers={"Set-Cookie": "session=1"})) as server:
        asyncio.run(twice(server))
    assert "Cookie" not in server.requests[1].headers


@pytest.mark.parametrize(
    ("body", "message", "codes"),
    [
        ({"error": {"message": "No model", "code": "not_found", "type": "x"}}, "No model", ("not_found", "x")),
        ([{"error": {"message": "Quota", "code": 429, "status": "X"}}], "Quota", ("X",)),
        ({"error": "plain"}, "plain", ()),
        ({"detail": "Not here"}, "Not here", ()),
        ({"detail": [{"loc": ["body"]}]}, '[{"loc":["body"]}]', ()),
        ({"message": "m", "type": "t"}, "m", ("t",)),
        ({"strange": 1}, '{"strange":1}', ()),
        ("<html>", "<html>", ()),
        (None, "null", ()),
        ([], "[]", ()),
    ],
)
def test_error_messages_and_codes_are_parsed(body, message, codes):
    assert parse_error(body) == (message, codes)


def test_long_messages_are_truncated_and_empty_ones_replaced():
    with FaultyServer(RawReply(b"word \n " * 1000, 400)) as server:
        ended = failure(chat(server))
    assert ended.message.startswith("HTTP 400: word word")
    assert len(ended.message) == len("HTTP 400: ") + 500
    with FaultyServer(RawReply(b"", 502)) as server:
        assert failure(chat(server)).message == "HTTP 502: no message"


def test_every_status_has_a_class():
    assert {error_class_of(status) for status in range(500, 600)} == {"server"}
    assert {error_class_of(status) for status in range(300, 400)} == {"invalid_response"}


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"Retry-After": "2"}, 2.0),
        ({"Retry-After": "0.25"}, 0.25),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": formatdate(NOW + 30, usegmt=True)}, 30.0),
        ({"Retry-After": formatdate(NOW - 30, usegmt=True)}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "86400"}, 86_400.0),
        ({"Retry-After": "999999"}, None),
        ({"Retry-After": "Wed, 21 Oct 9999 07:28:00 GMT"}, None),
        ({"retry-after-ms": "120", "Retry-After": "1"}, 0.12),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "6m0s"}, None),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "120ms",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "1.5s",
            },
            1.5,
        ),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2027-01-15T08:00:20Z",
            },
            20.0,
        ),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int((NOW + 7) * 1000))}, 7.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW + 7))}, 7.0),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "9"}, 9.0),
        ({"Retry-After": "4", "RateLimit-Remaining": "0", "RateLimit-Reset": "9"}, 4.0),
    ],
)
def test_retry_after(headers, wait_s):
    assert retry_after_s(CIMultiDict(headers), NOW) == wait_s


def test_durations():
    assert seconds_until("1h2m3s", NOW) == 3723
    assert seconds_until("1m30.5s", NOW) == 90.5
    assert seconds_until("2s500ms", NOW) == 2.5
    assert seconds_until(None, NOW) is None


def test_the_failure_has_the_retry_delay():
    with FaultyServer(faults=[Fault("429", retry_after_s=0.25), Fault("503", headers={"Retry-After": "7"})]) as server:
        assert failure(chat(server)).retry_after_s == 0.25
        assert failure(chat(server)).retry_after_s == 7.0


@pytest.fixture
def no_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


def test_the_proxy_of_the_environment_is_used(no_proxies):
    with FaultyServer("by proxy") as proxy:
        no_proxies.setenv("http_proxy", proxy.origin)
        assert b"by proxy" in call("http://model.example/v1/chat/completions").body
    assert proxy.requests[0].headers["Host"] == "model.example"


def test_loopback_needs_no_proxy(no_proxies):
    no_proxies.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with FaultyServer("direct") as server:
        assert b"direct" in call(chat(server)).body


def test_which_proxy_is_chosen(no_proxies):
    assert proxy_for("https://api.example/v1") is None
    no_proxies.setenv("ALL_PROXY", "proxy.example:3128")
    assert proxy_for("https://api.example/v1") == "http://proxy.example:3128"
    no_proxies.setenv("HTTPS_PROXY", "http://secure.example")
    assert proxy_for("https://api.example/v1") == "http://secure.example"
    assert proxy_for("http://api.example/v1") == "http://proxy.example:3128"
    no_proxies.setenv("NO_PROXY", "api.example,.internal")
    assert proxy_for("https://api.example/v1") is None
    assert proxy_for("https://a.internal:8443/v1") is None
    no_proxies.setenv("HTTPS_PROXY", "socks5://secure.example")
    with pytest.raises(UsageError, match="configures a 'socks5' proxy"):
        proxy_for("https://other.example/v1")


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """A self-signed certificate for this machine."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    file, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(file), "-days", "2", "-subj", "/CN=localhost"]
    try:
        subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl is needed to make a certificate")
    return file, key


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates_are_verified_with_the_configured_authorities(certificate, monkeypatch, variable):
    file, key = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file, key)
    with FaultyServer("trusted", tls=context) as server:
        refused = failure(chat(server))
        assert refused.error_class == "network"
        assert "certificate" in refused.message
        monkeypatch.setenv(variable, str(file))
        assert b"trusted" in call(chat(server)).body
    assert server.counts.requests == 1


@pytest.mark.parametrize("url", ["http://", "http:///v1", "http://h:port/v1"])
def test_an_address_without_a_host_is_rejected(url):
    with pytest.raises(UsageError, match="has no host"):
        HttpClient(url, {})


def test_whitespace_around_keys_is_removed():
    with FaultyServer() as server:
        call(chat(server), key=f"{KEY}\r\n")
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("header", [{"X": "a\r\nY: b"}, {"X": "\0"}, {"X\nY": "a"}, {"X Y": "a"}, {"": "a"}])
def test_an_invalid_header_is_rejected(header):
    with pytest.raises(UsageError, match="cannot be sent"):
        HttpClient("http://127.0.0.1:9", header)


def test_a_deeply_nested_body_is_kept_as_bytes():
    with FaultyServer(RawReply(b"[" * 100_000, 500)) as server:
        assert failure(chat(server)).error_class == "server"


def test_missing_certificates_are_an_error_before_any_call(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    with pytest.raises(UsageError, match="SSL_CERT_FILE points to a certificate file that does not exist"):
        HttpClient("https://api.example", {})
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    monkeypatch.setenv("SSL_CERT_FILE", str(empty))
    with pytest.raises(UsageError, match="Cannot read certificates from"):
        HttpClient("https://api.example", {})
