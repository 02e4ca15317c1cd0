"""The question whether to trust a folder outside the project, and the command that trusts it."""

from __future__ import annotations

import shlex
import sys

import click

from agentv.cli import output
from agentv.trust.roots import Ask


def ask_on_terminal() -> Ask | None:
    """Return a function that asks on the terminal; None if there is no terminal to ask on."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def command_with_trust(path: str) -> str:
    """Return the hint of a refusal: the same command, with the path trusted, or the run if it is empty."""
    command = shlex.join(["agentv", *sys.argv[1:], *(["--trust", path] if path else ["--trust-run"])])
    return f"Look at these files first. If you trust them, run:\n{command}"


def _ask(question: str) -> bool:
    output.message(question)
    return click.confirm("Trust it", default=False, err=True)
