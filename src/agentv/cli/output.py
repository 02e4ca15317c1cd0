"""How commands speak: data on stdout, messages on stderr, colour on a terminal only, and how they end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from agentv.cli import streams
from agentv.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, AgentvError

if TYPE_CHECKING:
    from agentv.errors import DatasetWarning


def run(cli: click.Command) -> int:
    """Runs a command and turns the ways it can end into an exit code. One whose output is lost did not end well."""
    streams.prepare()
    try:
        code = _ended(cli)
    except OSError:
        code = EXIT_USAGE
        if streams.lost() is None:
            raise  # it is about something else
    lost = streams.lost()
    if lost is None or code == EXIT_INTERRUPTED:
        return code
    say(styled("Error:", "red") + f" Cannot write to stdout: {lost.strerror}")
    return EXIT_USAGE


def _ended(cli: click.Command) -> int:
    try:
        # Commands return nothing; where one raises click's Exit, its code comes back.
        code = cli.main(prog_name="agentv", standalone_mode=False)
    except SystemExit as ending:
        code = ending.code
    except click.Abort:
        say("Interrupted")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KeyboardInterrupt:
        say("\nInterrupted")
        return EXIT_INTERRUPTED
    except AgentvError as error:
        say(styled("Error:", "red") + f" {error}")
        return error.exit_code
    return code if isinstance(code, int) else EXIT_OK


def say(text: str) -> None:
    """A line for people, on stderr."""
    click.echo(text, err=True, color=None if _may_colour() else False)


def styled(text: str, colour: str) -> str:
    """Coloured text; the colour is taken off again where it is not wanted."""
    return click.style(text, fg=colour, bold=True)


def warn(warning: DatasetWarning) -> None:
    """A warning as a line on stderr."""
    say(styled("Warning:", "yellow") + f" {warning}")


def note(text: str) -> None:
    """Something worth knowing, on stderr."""
    say(f"Note: {text}")


def silent(_: object) -> None:
    """Where `--quiet` sends what it hides."""


def _may_colour() -> bool:
    return not os.environ.get("NO_COLOR") and sys.stderr.isatty()
