"""Find the pull request of an evaluated commit, and keep one comment of a suite on it up to date."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from agentv.errors import AgentvError, UsageError, file_errors
from agentv.extensions.github.github_api import Comment, GitHubApi, GithubRepository, PullRequest

_ATTEMPTS = 5


class WorkflowRun(msgspec.Struct, frozen=True):
    """The run of another workflow that started this one. Its values come from GitHub, not from the pull request."""

    head_sha: str
    head_branch: str
    head_repository: GithubRepository
    html_url: str = ""


class _Event(msgspec.Struct, frozen=True):
    """What started a workflow."""

    pull_request: PullRequest | None = None
    workflow_run: WorkflowRun | None = None


class EvaluatedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that was evaluated. Its pull request is `number`, or that of `origin`; `base` is its base branch.

    `sha` is None if the commit is not known. `report_url` is the page of the workflow run that has the report.
    """

    repository: str
    number: int | None = None
    sha: str | None = None
    base: str | None = None
    origin: WorkflowRun | None = None
    report_url: str = ""


def evaluated_commit(variables: Mapping[str, str]) -> EvaluatedCommit:
    """Read the commit from the variables and the event of a workflow. All fields are empty outside of one."""
    repository = variables.get("GITHUB_REPOSITORY", "")
    event = _read_event(variables.get("GITHUB_EVENT_PATH"))
    if (origin := event.workflow_run) is not None:
        report_url = f"{origin.html_url}#artifacts" if origin.html_url else ""
        return EvaluatedCommit(repository=repository, sha=origin.head_sha, origin=origin, report_url=report_url)
    server, run = variables.get("GITHUB_SERVER_URL"), variables.get("GITHUB_RUN_ID")
    report_url = f"{server}/{repository}/actions/runs/{run}#artifacts" if server and run else ""
    if (pull := event.pull_request) is None:
        return EvaluatedCommit(repository=repository, report_url=report_url)
    return EvaluatedCommit(
        repository=repository, number=pull.number, sha=pull.head.sha, base=pull.base.ref, report_url=report_url
    )


def _read_event(path: str | None) -> _Event:
    if not path:
        return _Event()
    with file_errors(f"Cannot read the event of the workflow, {path}"):
        data = Path(path).read_bytes()
    try:
        return msgspec.json.decode(data, type=_Event)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AgentvError(f"{os.path.basename(path)} is not the event of a workflow", str(error)) from None


async def find_pull_requests(api: GitHubApi, commit: EvaluatedCommit) -> list[PullRequest]:
    """Return the pull requests whose newest commit was evaluated; none if there are newer commits."""
    origin = commit.origin
    if commit.number is not None:
        pulls = [await api.pull_request(commit.number)]
    elif origin is not None:
        owner = origin.head_repository.full_name.partition("/")[0]
        pulls = await api.open_pull_requests(owner, origin.head_branch)
    else:
        raise UsageError("There is no pull request to comment on", hint="Pass --pr NUMBER, or run in its workflow")
    return [
        pull
        for pull in pulls
        if commit.sha in (None, pull.head.sha) and (origin is None or pull.head.repo == origin.head_repository)
    ]


def marker(suite: str) -> str:
    """Return the first line of a suite's comment, which a reader does not see."""
    # "--" would end an HTML comment.
    return f"<!-- agentv comment: {quote(suite, safe='').replace('-', '%2D')} -->"


async def keep_comment(api: GitHubApi, number: int, suite: str, body: str) -> Comment:
    """Create or update the comment of a suite, and return it. Its oldest comment stays, others are deleted.

    Another job may do the same at the same time: comments are listed again after one was created.
    """
    created: Comment | None = None
    for _ in range(_ATTEMPTS):
        comments = {comment.id: comment for comment in await _own_comments(api, number, suite)}
        if created is not None:  # a list may lag behind
            comments.setdefault(created.id, created)
        if not comments:
            created = await api.create_comment(number, body)
            continue
        first, *others = (comments[id] for id in sorted(comments))
        for other in others:
            await api.delete_comment(other.id)
        if first.body == body or await api.edit_comment(first.id, body):
            return first
        created = None  # deleted in the meantime
    raise AgentvError(f"The comment on pull request #{number} was deleted {_ATTEMPTS} times while it was updated")


async def _own_comments(api: GitHubApi, number: int, suite: str) -> list[Comment]:
    """Return the comments of a suite that an app or the user of the token wrote. Anyone can copy the first line."""
    start = marker(suite)
    similar = [comment for comment in await api.comments(number) if (comment.body or "").startswith(start)]
    is_app = [comment.user is not None and comment.user.type == "Bot" for comment in similar]
    login = None if all(is_app) else await api.login()
    return [
        comment
        for comment, is_own in zip(similar, is_app, strict=True)
        if is_own or (comment.user is not None and comment.user.login == login)
    ]
