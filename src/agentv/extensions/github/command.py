"""`agentv comment`: keep a comment with the verdict up to date on a GitHub pull request."""

import asyncio
import os
from contextlib import aclosing

import msgspec

from agentv.cli import output
from agentv.cli.options import AT_LEAST_1, Arguments, argument, declare, flag, option
from agentv.errors import UsageError
from agentv.extensions.github.comment_text import comment_markdown
from agentv.extensions.github.evaluation import Evaluation, evaluate_pull_request
from agentv.extensions.github.github_api import PUBLIC_API, GitHubApi, check_api_address
from agentv.extensions.github.pull_request_comment import (
    EvaluatedCommit,
    evaluated_commit,
    find_pull_requests,
    keep_comment,
    marker,
)
from agentv.settings.environment import redacted

TOKEN, API_ADDRESS = "GITHUB_TOKEN", "GITHUB_API_URL"
_LONGEST_OPTION = 500


class CommentArguments(Arguments):
    """Compares RUN with the runs of the base branch, and creates or updates one comment per suite: the verdict, the
    figures, the cases that flipped with both answers, what changed, and how many cases a decision would need. In a
    GitHub workflow, the repository, the pull request and the commit are those of its event. A pull request that has
    newer commits is left alone. RUN is only read: nothing in it is executed, and its text is escaped.

    The variable GITHUB_TOKEN has the token, GITHUB_API_URL the address of the API, which must start with https://.

    \b
    Exit codes: 0 commented, or there are newer commits   2 usage error, or GitHub's API refused a request
    """

    action = "agentv.extensions.github.command:comment"
    examples = (
        "agentv comment RUN --baseline @main --dry-run",
        "agentv comment RUN --repo my-org/my-app --pr 12",
        "agentv comment RUN --baseline monday --baseline tuesday --suite support",
    )

    run: str = argument(metavar="RUN", type=str)
    baselines: tuple[str, ...] = option(
        "--baseline RUN",
        "Run to compare with, as in `agentv compare`. Repeatable. Default: the newest run of the base branch, pooled "
        "with the runs equal to it.",
        multiple=True,
    )
    repository: str | None = option("--repo OWNER/NAME", "Repository of the pull request (default: of the workflow).")
    number: int | None = option("--pr N", "Number of the pull request (default: of the workflow).", AT_LEAST_1)
    sha: str | None = option(
        "--sha SHA", "Commit that was evaluated. If the pull request has a newer one, nothing is changed."
    )
    suite: str = option("--suite NAME", "Name of the suite. Each suite has one comment.", default="evals")
    report_url: str | None = option(
        "--report-url URL", "Address of the report (default: the artifacts of the workflow run)."
    )
    dry_run: bool = flag("--dry-run", "Print the comment as Markdown. Nothing is sent, and no token is needed.")


def comment(args: CommentArguments) -> None:
    """Print the comment, or keep it up to date on the pull request."""
    for name, value in (("--suite", args.suite), ("--report-url", args.report_url or "")):
        if len(value) > _LONGEST_OPTION:
            raise UsageError(f"{name} has more than {_LONGEST_OPTION} characters")
    commit = _commit(args)
    if args.dry_run:
        if not args.baselines and commit.base is None:
            raise UsageError("There is no baseline", hint="Pass --baseline RUN, such as --baseline @main")
        output.echo_bytes((_text(args, commit, commit.base) + "\n").encode())
        return
    if not (token := os.environ.get(TOKEN, "").strip()):
        hint = "Pass it to the step: env: GITHUB_TOKEN: ${{ github.token }}. With --dry-run, none is needed"
        raise UsageError(f"{TOKEN} is not set", hint=hint)
    # Only variables of the process: a .env file of the pull request must not redirect the token.
    address = os.environ.get(API_ADDRESS) or PUBLIC_API
    check_api_address(address)
    if not commit.repository:
        raise UsageError("There is no repository", hint="Pass --repo OWNER/NAME")
    asyncio.run(_comment(args, commit, GitHubApi(address, token, commit.repository), token))


def _commit(args: CommentArguments) -> EvaluatedCommit:
    """Return the evaluated commit: that of the workflow, replaced by the options."""
    commit = evaluated_commit(os.environ)
    options = {"repository": args.repository, "number": args.number, "sha": args.sha, "report_url": args.report_url}
    changes = {name: value for name, value in options.items() if value is not None}
    if args.number is not None and args.number != commit.number:  # another pull request than that of the event
        commit = msgspec.structs.replace(commit, sha=None, base=None, origin=None)
    return msgspec.structs.replace(commit, **changes)


async def _comment(args: CommentArguments, commit: EvaluatedCommit, api: GitHubApi, token: str) -> None:
    async with aclosing(api):
        if not (pulls := await find_pull_requests(api, commit)):
            output.note(f"No open pull request has {commit.sha} as its newest commit; no comment was changed")
        for pull in pulls:
            text = _text(args, msgspec.structs.replace(commit, sha=pull.head.sha), pull.base.ref)
            result = await keep_comment(api, pull.number, args.suite, redacted(text, [token]))
            output.message(f"Commented on pull request #{pull.number}: {result.html_url}")


def _text(args: CommentArguments, commit: EvaluatedCommit, base: str | None) -> str:
    if commit.origin is not None and not os.path.exists(args.run):  # the workflow that evaluates left no results
        evaluation = Evaluation(problem="The evaluation of this commit ended without results; its log has the reason")
    else:
        evaluation = evaluate_pull_request(args.run, args.baselines or (f"@{base}",))
    return comment_markdown(evaluation, marker(args.suite), args.suite, commit.report_url, commit.sha)


comment_command = declare("comment", CommentArguments)
