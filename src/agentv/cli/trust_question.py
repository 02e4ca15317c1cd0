"""The question whether to trust a folder outside the project, and the command that trusts it."""

import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from agentv.cli import output
from agentv.support.user_code import importing_nothing as importing_nothing
from agentv.trust.roots import trust_runs, trusting


@contextmanager
def with_trust(paths: Iterable[str], *, trusts_run: bool) -> Iterator[None]:
    """Trust these files and folders, and runs if requested; ask about others on a terminal."""
    with trusting(paths, _ask if sys.stdin.isatty() and sys.stderr.isatty() else None, command_with_trust):
        if trusts_run:
            trust_runs()
        yield


def command_with_trust(path: str) -> str:
    """Return the hint of a refusal: the same command, with the path trusted, or the run if it is empty."""
    command = shlex.join(["agentv", *sys.argv[1:], *(["--trust", path] if path else ["--trust-run"])])
    return f"Look at these files first. If you trust them, run:\n{command}"


def _ask(question: str) -> bool:
    output.message(question)
    return click.confirm("Trust it", default=False, err=True)
