"""Access to the served page: which requests are answered, and with which headers."""

import json
import os
import socket

import pytest
from view_process import started

from agentv.extensions.view.server import Address, announce

ROW = {"test_id": "a", "score": 1.0}
JSON = {"Content_Type": "application/json"}
PROTECTION = {
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "Cache-Control",
    "Referrer-Policy",
    "Cross-Origin-Resource-Policy",
    "Cross-Origin-Opener-Policy",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with one file of results, in a project of its own."""
    folder = tmp_path_factory.mktemp("project")
    (folder / ".agentv").mkdir()
    (folder / "eval_1.jsonl").write_text(json.dumps(ROW) + "\n")
    return folder


@pytest.fixture(scope="module")
def view(program, runs):
    """A page without labels, and a browser that has opened it."""
    with started(program, ".", cwd=runs) as server:
        yield server.login()


@pytest.fixture(scope="module")
def labelling(program, runs):
    """A page with labels, and a browser that has opened it."""
    with started(program, ".", "--label", "labels.jsonl", cwd=runs) as server:
        yield server.login()


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1:{port}.evil.example",
        "10.0.0.1:{port}",
        "",
        None,
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/runs", "/page/served.js", "/?token=x"])
def test_other_host_names_are_refused(view, host, path):
    answer = view.request(path, Host=host and host.format(port=view.port))
    assert answer.status == (400 if host is None else 403)
    assert host is None or "host name" in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST"])
def test_the_names_of_this_machine_are_answered(view, host):
    assert view.request("/api/runs", Host=f"{host}:{view.port}").status == 200


@pytest.mark.parametrize("cookie", [None, "agentv={value}", "agentv_{port}=", "agentv_{port}=guess", "agentv_{port}=é"])
@pytest.mark.parametrize("path", ["/", "/api/runs", "/page/served.js", "/api/none", "/none"])
def test_requests_without_the_cookie_are_refused(view, cookie, path):
    value = view.cookie.partition("=")[2]
    answer = view.request(path, Cookie=cookie and cookie.format(port=view.port, value=value).encode())
    assert answer.status == 403
    assert "Open the link that agentv view printed" in answer.text


def test_the_token_works_once_and_leaves_the_address(server, runs):
    with server(cwd=runs) as view:
        assert view.request("/?token=guess").status == 403
        first = view.request(f"/?token={view.token}")
        assert (first.status, first.headers["Location"]) == (303, "/")
        cookie, *flags = first.headers["Set-Cookie"].split("; ")
        assert cookie.startswith(f"agentv_{view.port}=") and view.token not in cookie
        assert set(flags) == {"HttpOnly", "SameSite=Strict", "Path=/"}
        second = view.request(f"/?token={view.token}")
        assert second.status == 403 and "works once" in second.text and "Set-Cookie" not in second.headers
        again = view.request(f"/?token={view.token}", Cookie=cookie)
        assert again.status == 303 and "Set-Cookie" not in again.headers


def test_old_cookies_are_removed_before_the_browser_sends_too_many(server, runs):
    with server(cwd=runs) as view:
        many = "; ".join(["other=1", *(f"agentv_{port}={'x' * 100}" for port in range(100))])
        removed = view.request(f"/?token={view.token}", Cookie=many).headers.get_all("Set-Cookie")
        names = [each.partition("=")[0] for each in removed]
        assert names == [*(f"agentv_{port}" for port in range(80)), f"agentv_{view.port}"]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_requests_of_other_pages_are_refused(labelling, origin):
    origin = origin.format(port=labelling.port)
    assert labelling.request("/api/runs", Origin=origin).status == 403
    assert labelling.request("/api/labels/x", "POST", body=b"{}", Origin=origin, **JSON).status == 403


def test_a_post_needs_an_origin_json_and_a_small_body(labelling):
    def post(path="/api/labels/x", body=b"{}", **headers):
        return labelling.request(path, "POST", body=body, **{"Origin": labelling.origin, **JSON, **headers})

    assert post().status not in (403, 415)
    assert post(Origin=None).status == 403
    assert post(Cookie=None).status == 403
    for kind in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert post(Content_Type=kind).status == 415
    [run] = labelling.run_ids()
    assert post(f"/api/labels/{run}", b'"%b"' % (b"x" * (300 << 10))).status == 413


def test_the_page_is_read_only_without_a_file_for_labels(view):
    answer = view.request("/api/labels/x", "POST", body=b"{}", Origin=view.origin, **JSON)
    assert (answer.status, answer.json["error"]["message"]) == (
        403,
        "The page is read-only. Start agentv view with --label FILE to save labels.",
    )


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(labelling, method):
    for path in ("/", "/api/runs", "/api/labels/x", "/none"):
        assert labelling.request(path, method, Origin=labelling.origin).status == 405


BROKEN_REQUESTS = {
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a broken cookie": b"GET / HTTP/1.1\r\nHost: a\r\nCookie\x00: SECRET\r\n\r\n",
    "an unknown protocol": b"GET /SECRET HTTP/9.x\r\n\r\n",
    "a long path": b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"SECRET" * 2000),
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\nSECRET",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03SECRET\r\n\r\n",
}


def test_broken_requests_get_the_headers_and_are_not_printed(server, runs):
    with server(cwd=runs) as view:
        for name, request in BROKEN_REQUESTS.items():
            answer = view.raw_request(request)
            assert answer.status == 400, name
            assert {*answer.headers} >= PROTECTION, name
            assert answer.text == "The request is not valid HTTP.\n", name
        assert view.stop() == 0
        assert view.process.stderr.read().partition("Press Ctrl-C to stop")[2].split() == ["Stopped"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/page/served.js", 200),
        ("/api/runs", 200),
        ("/api/runs/x/head", 200),
        ("/api/none", 404),
        ("/none", 404),
        ("/?token=x", 303),
    ],
)
def test_every_answer_has_the_headers_that_protect_the_page(view, path, status):
    answers = [view.request(path), view.request(path, Cookie=None), view.request(path, Host="evil.example")]
    for answer in answers:
        assert answer.status == (status if answer is answers[0] else 403)
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "trusted-types 'none'"} <= {
            *policy
        }
        assert "unsafe" not in " ".join(policy)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    "path",
    [
        "/page/../../../errors.py",
        "/page/%2e%2e/%2e%2e/errors.py",
        "/page/..%2fhtml.py",
        "/page//etc/passwd",
        "/page/%2Fetc%2Fpasswd",
        "/page/",
        "/page/core",
        "/page/page.html",
        "/page/served.js%00",
    ],
)
def test_only_the_files_of_the_page_are_served(view, path):
    assert view.request(path).status == 404


@pytest.mark.parametrize("id", ["eval_1.jsonl", "..", "../..", "%2e%2e", "..%2feval_1.jsonl", "%2Fetc", "", "x" * 4000])
@pytest.mark.parametrize("part", ["head", "rows?first=0", "results?rows=0", "case?row=0"])
def test_runs_are_named_by_ids_of_the_list_only(view, id, part):
    answer = view.request(f"/api/runs/{id}/{part}")
    assert answer.status == 404 or answer.json["error"]["message"] == "This run is not in the list"


def test_the_page_is_one_document_with_modules_of_its_own(view):
    page = view.request("/").text
    assert page.count("<script") == 1 and "<style" not in page and "http" not in page
    assert view.request("/page/served.js").headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert view.request("/page/page.css").headers["Content-Type"] == "text/css; charset=utf-8"


def test_other_addresses_accept_addresses_and_own_names_only():
    hosts = Address("0.0.0.0").hosts()
    for name in ("192.168.1.7", "[fe80::1]", "127.0.0.1", "localhost", socket.gethostname()):
        assert hosts.allow(f"{name}:80", 80) and not hosts.allow(f"{name}:81", 80)
    assert not hosts.allow("evil.example:80", 80)
    named = Address("eval-box.example").hosts()
    assert named.allow("eval-box.example:80", 80)
    assert not named.allow("127.0.0.1:80", 80) and not named.allow("192.168.1.7:80", 80)


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", 0), ("::1", 0), ("0.0.0.0", 1), ("box", 1)])
def test_another_address_is_a_warning(capsys, host, warns):
    announce(1, Address(host), False, "http://x/?token=y")
    printed = capsys.readouterr()
    assert printed.out == "Serving 1 run at http://x/?token=y\n"
    assert printed.err.count("Anyone on the network who has this link can read the runs") == warns


def test_a_port_in_use_and_wrong_arguments_are_errors(folder, server, command):
    folder.write("notes.txt", "not a run")
    os.mkfifo("eval_pipe.jsonl")
    with server() as first, server("--port", "0") as second:
        assert first.port != second.port
        ended = command("view", "--no-open", "--port", str(first.port))
        assert ended.code == 2 and "The port is in use" in ended.stderr and "--port" in ended.stderr
    for arguments, text in (
        (["none"], "No such run: none"),
        (["notes.txt"], "Not a run: notes.txt"),
        (["eval_pipe.jsonl"], "Not a run: eval_pipe.jsonl"),
        (["--label", "none/labels.jsonl"], "The folder none does not exist"),
        (["--labeller", "ann"], "--labeller needs --label"),
        (["--host", "203.0.113.7"], "Cannot listen on 203.0.113.7"),
        (["--host", ""], "--host needs an address"),
        (["--port", "70000"], "70000"),
    ):
        ended = command("view", "--no-open", *arguments)
        assert ended.code == 2 and text in ended.stderr
