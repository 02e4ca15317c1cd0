"""How commands speak: data on stdout, messages on stderr, colour on a terminal only, and how they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

import click

from agentv.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, AgentvError
from agentv.report.figures import fit_stream

if TYPE_CHECKING:
    from agentv.errors import DatasetWarning


def run(cli: click.Command) -> int:
    """Runs a command and turns the ways it can end into an exit code. One whose output is lost did not end well."""
    prepare()
    try:
        code = _ended(cli)
    except OSError:
        code = EXIT_USAGE
        if lost() is None:
            raise  # it is about something else
    failure = lost()
    if failure is None or code == EXIT_INTERRUPTED:
        return code
    say(styled("Error:", "red") + f" Cannot write to stdout: {failure.strerror}")
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


def listeners(quiet: bool) -> tuple[Callable[[DatasetWarning], None], Callable[[str], None]]:
    """What receives warnings and notes."""
    return (silent, silent) if quiet else (warn, note)


def silent(_: object) -> None:
    """Where `--quiet` sends what it hides."""


def _may_colour() -> bool:
    return not os.environ.get("NO_COLOR") and sys.stderr.isatty()


def prepare() -> None:
    """Makes the streams fit to be written to, whatever their encoding and whether or not they are open."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _fill()
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.fileno() == 1:
        sys.stdout = _text(_Watched(1, "w", closefd=False), sys.stdout.encoding, lines=sys.stdout.line_buffering)
    if isinstance(sys.stderr, TextIOWrapper) and sys.stderr.fileno() == 2:
        sys.stderr = _text(_Heedless(2, "w", closefd=False), sys.stderr.encoding, lines=True)
    for stream in (sys.stdout, sys.stderr):
        fit_stream(stream)


def lost() -> OSError | None:
    """Why what was printed did not get out; None when all of it did, or when its reader has seen enough."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    raw = getattr(sys.stdout.buffer, "raw", None)
    failure = raw.failure if isinstance(raw, _Watched) else None
    return None if isinstance(failure, BrokenPipeError) else failure


class _Watched(FileIO):
    """A stream for data that remembers why it could not be written: not every error is an error of stdout.

    A reader that has seen enough, as `head` has, is no failure: the command goes on to its verdict.
    """

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
                if not isinstance(error, BrokenPipeError):
                    raise
        return len(data)


class _Heedless(FileIO):
    """A stream for messages. Nobody can be told that messages cannot be written, and no run ends for their sake."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _fill() -> None:
    """Has something under each of the three numbers: a file that is opened next must not be taken for a stream."""
    while (number := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass  # what is only open for reading says so to whoever writes to it
    os.close(number)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False, encoding="utf-8"))  # noqa: SIM115


def _text(raw: FileIO, encoding: str, *, lines: bool) -> TextIOWrapper:
    return TextIOWrapper(BufferedWriter(raw), encoding=encoding, line_buffering=lines)
