"""The parts of GitHub's REST API that comments need. The token is only sent to the address of the API."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from agentv.engine.calls.retry import RetryPolicy
from agentv.errors import AgentvError, UsageError
from agentv.model.response import TargetFailure
from agentv.report.figures import duration
from agentv.settings.addresses import address_complaints, is_loopback
from agentv.targets.apis.http_client import HttpClient, HttpResponse

PUBLIC_API = "https://api.github.com"

_PAGE = 100
_TIMEOUT_S = 60.0
_LONGEST_WAIT_S = 900.0
_UNSTATED_WAIT_S = 60.0
"""What GitHub asks for if a secondary rate limit does not state a time."""
_RETRIES = RetryPolicy(6, status_codes=(408, 429, 500, 502, 503, 504))
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]*[\w-][\w.-]*", re.ASCII)
_NEXT = re.compile(r'rel="?next"?')
_HINTS = {
    401: "Check GITHUB_TOKEN",
    403: "The job needs `permissions: pull-requests: write`. A pull request from a fork has a read-only token: comment "
    "from a workflow_run job, as `agentv init --ci` writes it",
    404: "Check --repo and --pr, and whether GITHUB_TOKEN may read the repository",
}

Decoded = TypeVar("Decoded")


class GithubRepository(msgspec.Struct, frozen=True):
    """A repository. `full_name` is OWNER/NAME."""

    full_name: str


class Branch(msgspec.Struct, frozen=True):
    """The head or the base of a pull request. `repo` is None if the fork was deleted."""

    ref: str
    sha: str
    repo: GithubRepository | None = None


class PullRequest(msgspec.Struct, frozen=True):
    """A pull request."""

    number: int
    head: Branch
    base: Branch


class Author(msgspec.Struct, frozen=True):
    """Who wrote a comment. The type of an app is `Bot`."""

    login: str
    type: str = "User"


class Comment(msgspec.Struct, frozen=True):
    """A comment on a pull request."""

    id: int
    body: str | None = None
    user: Author | None = None
    html_url: str = ""


class GitHubApi:
    """The API for one repository. Failed requests are repeated; rate limits are waited for."""

    def __init__(self, address: str, token: str, repository: str) -> None:
        check_api_address(address)
        if not _REPOSITORY.fullmatch(repository):
            raise UsageError(f"Invalid repository '{repository}'", hint="Pass --repo OWNER/NAME")
        self._base = address.rstrip("/")
        self._repository = f"repos/{repository}"
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        self._client = HttpClient(self._base, headers, (token,))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def login(self) -> str | None:
        """Return the user of the token; None for the token of an app, such as that of a workflow."""
        try:
            response = await self._client.send("GET", f"{self._base}/user", None, _TIMEOUT_S)
        except TargetFailure as failure:
            if failure.status in (403, 404):
                return None
            raise _explained(failure, "user") from None
        return self._decode(response, Author).login

    async def pull_request(self, number: int) -> PullRequest:
        """Return a pull request."""
        return self._decode(await self._send("GET", f"pulls/{number}"), PullRequest)

    async def open_pull_requests(self, owner: str, branch: str) -> list[PullRequest]:
        """Return the open pull requests from a branch of this repository or of a fork."""
        return await self._pages(f"pulls?state=open&head={quote(f'{owner}:{branch}', safe='')}", PullRequest)

    async def comments(self, number: int) -> list[Comment]:
        """Return all comments on a pull request."""
        return await self._pages(f"issues/{number}/comments", Comment)

    async def create_comment(self, number: int, body: str) -> Comment:
        """Add a comment to a pull request."""
        response = await self._send("POST", f"issues/{number}/comments", {"body": body})
        return self._decode(response, Comment)

    async def edit_comment(self, number: int, body: str) -> bool:
        """Replace the text of a comment; return False if the comment was deleted."""
        return await self._changed("PATCH", f"issues/comments/{number}", {"body": body})

    async def delete_comment(self, number: int) -> bool:
        """Delete a comment; return False if it was deleted already."""
        return await self._changed("DELETE", f"issues/comments/{number}")

    async def _pages(self, path: str, kind: type[Decoded]) -> list[Decoded]:
        """Return the objects of all pages. The addresses of pages are built here, not taken from the response."""
        objects: list[Decoded] = []
        page = 1
        while True:
            separator = "&" if "?" in path else "?"
            response = await self._send("GET", f"{path}{separator}per_page={_PAGE}&page={page}")
            objects += self._decode(response, list[kind])  # type: ignore[valid-type]
            if not _NEXT.search(response.headers.get("link", "")):
                return objects
            page += 1

    async def _changed(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bool:
        try:
            await self._attempts(method, path, body)
        except TargetFailure as failure:
            if failure.status in (404, 410):
                return False
            raise _explained(failure, path) from None
        return True

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpResponse:
        try:
            return await self._attempts(method, path, body)
        except TargetFailure as failure:
            raise _explained(failure, path) from None

    async def _attempts(self, method: str, path: str, body: Mapping[str, Any] | None) -> HttpResponse:
        url, data = f"{self._base}/{self._repository}/{path}", None if body is None else msgspec.json.encode(body)
        retries = 0
        while True:
            try:
                return await self._client.send(method, url, data, _TIMEOUT_S)
            except TargetFailure as failure:
                wait_s = _wait_s(failure, retries)
                if wait_s is None or wait_s > _LONGEST_WAIT_S or retries == _RETRIES.max_retries:
                    raise
                await asyncio.sleep(wait_s)
                retries += 1

    def _decode(self, response: HttpResponse, kind: type[Decoded]) -> Decoded:
        try:
            return msgspec.json.decode(response.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise AgentvError(f"{self._base} did not return what GitHub's API returns", str(error)) from None


def check_api_address(address: str) -> None:
    """Raise UsageError for an address to which a token must not be sent."""
    complaints = address_complaints("GITHUB_API_URL", address)
    if not complaints and not address.startswith("https://") and not is_loopback(address):
        complaints = ["'GITHUB_API_URL' must start with https://, because the token is sent to it"]
    if complaints:
        raise UsageError(complaints[0])


def _wait_s(failure: TargetFailure, retries: int) -> float | None:
    """Return the seconds until the next attempt; None if there is none. GitHub reports rate limits as 403 or 429."""
    is_limited = failure.status in (403, 429) and (
        failure.retry_after_s is not None or "rate limit" in failure.message.lower()
    )
    if not is_limited and not _RETRIES.is_retryable(failure):
        return None
    delay_s = _RETRIES.delay_s(failure, retries)
    return delay_s if failure.retry_after_s is not None or not is_limited else delay_s + _UNSTATED_WAIT_S


def _explained(failure: TargetFailure, path: str) -> AgentvError:
    hint = _HINTS.get(failure.status or 0, "")
    if failure.retry_after_s is not None:
        hint = f"The rate limit is reset in {duration(1000 * failure.retry_after_s)}; run the job again then"
    return AgentvError(f"GitHub's API refused {path.partition('?')[0]}", str(failure), hint)
