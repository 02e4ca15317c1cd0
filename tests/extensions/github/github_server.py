"""A local server with the parts of GitHub's REST API that comments use: pull requests, comments, pages, limits."""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

TOKEN = "ghs_0123456789abcdefghijklmnopqrstuvwxyz"
REPOSITORY = "my-org/my-app"
SHA = "1" * 40
BOT = {"login": "github-actions[bot]", "type": "Bot"}
USER = {"login": "mona", "type": "User"}


class GitHubServer:
    """Serves at `address`. `faults` are (status, headers, message) of the next requests; `before` runs before each.

    `requests` are the methods and paths that were received, `tokens` the values of the Authorization header.
    """

    def __init__(self, page=2):
        self.page = page
        self.pulls = {}
        self.comments = {}
        self.faults = []
        self.before = lambda method, path: None
        self.requests, self.tokens = [], set()
        self.user = None
        self._number = 100
        self._lock = threading.Lock()

    def open_pull(self, number, sha, branch="improve", repository=REPOSITORY, base="main"):
        """Open a pull request, or push to it."""
        head = {"ref": branch, "sha": sha, "repo": {"full_name": repository}}
        self.pulls[number] = {
            "number": number, "state": "open", "head": head,
            "base": {"ref": base, "sha": "0" * 40, "repo": {"full_name": REPOSITORY}},
        }  # fmt: skip

    def add_comment(self, pull, body, user):
        self._number += 1
        self.comments[self._number] = {
            "id": self._number, "body": body, "user": user, "pull": pull,
            "html_url": f"https://github.test/{REPOSITORY}/pull/{pull}#issuecomment-{self._number}",
        }  # fmt: skip
        return self._number

    def bodies(self, pull=7):
        return [comment["body"] for comment in self.comments.values() if comment["pull"] == pull]

    def reply(self, method, target, body):
        """Return the status, headers and content of a response."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        self.before(method, path)
        with self._lock:
            self.requests.append((method, path))
            if self.faults:
                status, headers, message = self.faults.pop(0)
                return status, headers, {"message": message}
            return self._route(method, path.removeprefix(f"/repos/{REPOSITORY}"), query, body)

    def _route(self, method, path, query, body):
        if path == "/user":
            return (200, {}, self.user) if self.user else (403, {}, {"message": "Resource not accessible"})
        if method == "GET" and path == "/pulls":
            owner, _, branch = query["head"][0].partition(":")
            return self._listed(query, [
                pull for pull in self.pulls.values()
                if (pull["head"]["repo"]["full_name"].split("/")[0], pull["head"]["ref"]) == (owner, branch)
                and pull["state"] == query["state"][0]
            ])  # fmt: skip
        if method == "GET" and (match := re.fullmatch(r"/pulls/(\d+)", path)) and int(match[1]) in self.pulls:
            return 200, {}, self.pulls[int(match[1])]
        if (match := re.fullmatch(r"/issues/(\d+)/comments", path)) and int(match[1]) in self.pulls:
            if method == "GET":
                return self._listed(query, [each for each in self.comments.values() if each["pull"] == int(match[1])])
            assert len(body["body"]) <= 65_536
            return 201, {}, self.comments[self.add_comment(int(match[1]), body["body"], self.user or BOT)]
        if (match := re.fullmatch(r"/issues/comments/(\d+)", path)) and int(match[1]) in self.comments:
            if method == "DELETE":
                del self.comments[int(match[1])]
                return 204, {}, None
            self.comments[int(match[1])]["body"] = body["body"]
            return 200, {}, self.comments[int(match[1])]
        return 404, {}, {"message": "Not Found"}

    def _listed(self, query, objects):
        page, size = int(query["page"][0]), min(self.page, int(query["per_page"][0]))
        start = (page - 1) * size
        # The address of the next page is another host's: the token must not follow it.
        more = {"Link": '<https://127.0.0.2/next>; rel="next"'} if start + size < len(objects) else {}
        return 200, more, objects[start : start + size]

    @contextmanager
    def serve(self):
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        self.address = f"http://127.0.0.1:{server.server_port}"
        yield self
        server.shutdown()
        thread.join()
        server.server_close()

    def _handler(outer):
        class Handler(BaseHTTPRequestHandler):
            def _answer(self):
                outer.tokens.add(self.headers["Authorization"])
                content = self.rfile.read(int(self.headers["Content-Length"] or 0))
                body = json.loads(content) if content else None
                status, headers, reply = outer.reply(self.command, self.path, body)
                data = b"" if reply is None else json.dumps(reply).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = _answer

            def log_message(self, *_):
                pass

        return Handler
