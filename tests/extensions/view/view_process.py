"""`agentv view` as a process on loopback, and plain requests to it."""

import http.client
import json
import re
import signal
import socket
import subprocess
from contextlib import contextmanager
from urllib.parse import urlsplit

URL = re.compile(r"http://\S+")


class Answer:
    """The answer to a request."""

    def __init__(self, found):
        self.status, self.headers, self.body = found.status, found.headers, found.read()

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


class Server:
    """A running `agentv view`. `cookie` is set by `login`; every other header is what a test passes."""

    def __init__(self, process):
        self.process = process
        self.first_line = process.stdout.readline()
        found = URL.search(self.first_line)
        assert found, f"no URL in {self.first_line!r}: {process.stderr.read()}"
        self.url = found[0]
        parts = urlsplit(self.url)
        self.port, self.token = parts.port, parts.query.removeprefix("token=")
        self.origin = f"http://{parts.netloc}"
        self.cookie = None

    def login(self):
        """Exchange the token for the cookie, as a browser does."""
        answer = self.request(f"/?token={self.token}")
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return self

    def request(self, path, method="GET", *, body=None, **headers):
        """Send one request. A header that is None is left out; `_` in a name means `-`."""
        known = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie}
        known |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=200)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in known.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def raw_request(self, request):
        """Send these bytes, and return the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=200) as connection:
            connection.sendall(request)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return Answer(answer)

    def get(self, path):
        """Return the JSON at a path; the error of a refused request."""
        return self.request(path).json

    def run_ids(self):
        return [run["id"] for run in self.get("/api/runs")["runs"]]

    def rows(self, id):
        """Return all rows as dicts of their columns, with names instead of numbers."""
        names, found, first = {}, [], 0
        while True:
            block = self.get(f"/api/runs/{id}/rows?first={first}")
            n, total, complete = block.pop("n"), block.pop("total"), block.pop("complete")
            for kind, new in block.pop("names").items():
                names.setdefault(kind, []).extend(new)
            assert block.pop("first") == first and block.pop("version")
            found += [{key: v[i] if isinstance(v, list) else v for key, v in block.items()} for i in range(n)]
            first += n
            if complete and first == total:
                return found, names

    def head(self, id, covers=None):
        """Return the head of a run whose figures cover this many results: by default, one that is read to its end."""
        for _ in range(600):  # the server waits a moment for figures, and then answers with those it has
            head = self.get(f"/api/runs/{id}/head")
            if "error" in head or (head["covers"] == covers and (covers or head["complete"])):
                break
        return head

    @contextmanager
    def events(self):
        """Connect to the events, and yield an iterator of their kinds and data."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=200)
        connection.request("GET", "/api/events", headers={"Cookie": self.cookie})
        try:
            yield _events(connection.getresponse())
        finally:
            connection.close()

    def messages(self, count):
        """Return the first lines on stderr."""
        return "".join(self.process.stderr.readline() for _ in range(count))

    def stop(self):
        """Press Ctrl-C, and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=200)


def _events(stream):
    kind = ""
    while line := stream.readline():
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


@contextmanager
def started(program, *arguments, cwd=None):
    """Start `agentv view` with these arguments, and end it after the block."""
    command = [program, "view", *map(str, arguments), "--no-open"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=cwd, **pipes) as process:
        try:
            yield Server(process)
        finally:
            process.kill()
