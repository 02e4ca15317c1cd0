"""Console output: data on stdout, messages on stderr, colour only on a terminal; and the exit code of a command."""

from __future__ import annotations

import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from io import BufferedWriter, FileIO, RawIOBase, StringIO, TextIOWrapper
from threading import RLock
from time import monotonic
from typing import Any

import click

from agentv.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, AgentvError, MappedNote, RunWarning
from agentv.lazy_regex import lazy_regex
from agentv.report.figures import disarm_commands, fit_stream, fitting, safe_json, safe_text


def run(cli: click.Command) -> int:
    """Run a command and return its exit code. Output that could not be written is an error."""
    prepare()
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", RunWarning)
    try:
        code = _exit_code(cli)
    except KeyboardInterrupt:  # while a message was printed
        drop_unread_output_if(lambda: True)
        code = EXIT_INTERRUPTED
    except OSError:
        code = EXIT_USAGE
        if stdout_error() is None:
            raise
    failure = stdout_error()
    if failure is None or code == EXIT_INTERRUPTED:
        return code
    error(f"Cannot write to stdout: {failure.strerror}")
    return EXIT_USAGE


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print a warning for the user, without its place in the code; others as usual."""
    if issubclass(category, RunWarning):
        warn(message)
    else:
        _show_python_warning(message, category, *place, **more)


_show_python_warning = warnings.showwarning


def _exit_code(cli: click.Command) -> int:
    try:
        # Commands return nothing; if one raises click's Exit, its code is returned.
        code = cli.main(prog_name="agentv", standalone_mode=False, color=_colour())
    except SystemExit as ending:
        code = ending.code
    except click.Abort:
        message("Interrupted")
        return EXIT_INTERRUPTED
    except click.ClickException as failure:
        buffer = StringIO()
        (_with_suggestion(failure) if isinstance(failure, click.NoSuchOption) else failure).show(buffer)
        echo(buffer.getvalue(), err=True, nl=False)
        return failure.exit_code
    except KeyboardInterrupt:
        message("\nInterrupted")
        return EXIT_INTERRUPTED
    except AgentvError as failure:
        error(failure)
        return failure.exit_code
    return code if isinstance(code, int) else EXIT_OK


def _with_suggestion(failure: click.NoSuchOption) -> click.UsageError:
    """Suggest the most similar option of the command."""
    from agentv.model.diagnostics import did_you_mean  # late: needed only for mistakes

    params = failure.ctx.command.get_params(failure.ctx) if failure.ctx else []
    names = [name for param in params for name in (*param.opts, *param.secondary_opts) if name.startswith("-")]
    hint = did_you_mean(failure.option_name, names)
    return click.UsageError(f"No such option '{failure.option_name}'. {hint}".rstrip(), failure.ctx)


class Styled(str):
    """Text with a style for terminals: the arguments of `click.style`."""

    style: dict[str, Any]

    def __new__(cls, text: str, **style: Any) -> Styled:
        styled = super().__new__(cls, text)
        styled.style = style
        return styled


def echo(*parts: object, err: bool = False, nl: bool = True) -> None:
    """Print a text, in parts that may be styled. Control characters and workflow commands in it are escaped."""
    stream = sys.stderr if err else sys.stdout
    uses_colour = _colour() is not False and stream.isatty()
    texts = (_shown(part, uses_colour) for part in parts)
    stream.write("".join(texts) + ("\n" if nl else ""))
    stream.flush()


def _shown(part: object, uses_colour: bool) -> str:
    text = safe_text(str(part))
    return click.style(text, **part.style) if uses_colour and isinstance(part, Styled) else text


def echo_json(data: object) -> None:
    """Print data as one line of JSON."""
    echo_bytes(safe_json(_to_json(data)) + b"\n")


def _to_json(data: object) -> bytes:
    from agentv.model.values import to_json  # late: `--help` does not need msgspec

    return to_json(data)


def echo_result(data: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result as lines, or as one line of JSON."""
    if as_json:
        echo_json(data)
    else:
        echo("\n".join(lines))


def echo_json_parts(data: dict[str, Any]) -> None:
    """Print data as one line of JSON. Values that are iterators are printed as lists, one item at a time."""
    sys.stdout.flush()
    write = sys.stdout.buffer.write
    for place, (key, value) in enumerate(data.items()):
        write((b"," if place else b"{") + safe_json(_to_json(key)) + b":")
        if isinstance(value, Iterator):
            write(b"[")
            for number, item in enumerate(value):
                write((b"," if number else b"") + safe_json(_to_json(item)))
            write(b"]")
        else:
            write(safe_json(_to_json(value)))
    write(b"}\n")
    sys.stdout.buffer.flush()


def echo_bytes(data: bytes) -> None:
    """Print a document of agentv unchanged."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def echo_workflow_command(line: str) -> None:
    """Print a workflow command of agentv itself, whose values are escaped."""
    echo_bytes(fitting(line + "\n", sys.stdout.encoding).encode(sys.stdout.encoding))


def message(text: str) -> None:
    """Print a line on stderr."""
    echo(text, err=True)


def error(text: object, label: str = "Error") -> None:
    """Print a line with a red label on stderr."""
    echo(Styled(f"{label}:", fg="red", bold=True), " ", text, err=True)


def warn(text: object) -> None:
    """Print a warning on stderr, or a note about what a file was read as."""
    if isinstance(text, MappedNote):
        note(str(text))
        return
    echo(Styled("Warning:", fg="yellow", bold=True), " ", text, err=True)


def note(text: str) -> None:
    """Print a note on stderr."""
    message(f"Note: {text}")


def listeners(quiet: bool) -> tuple[Callable[[object], None], Callable[[str], None]]:
    """Return the functions that receive warnings and notes."""
    return (discard, discard) if quiet else (warn, note)


def discard(_: object) -> None:
    """Ignore a warning or a note."""


def _colour() -> bool | None:
    """Return click's `color` setting: off with NO_COLOR, else on for terminals."""
    return False if os.environ.get("NO_COLOR") else None


def prepare() -> None:
    """Make the standard streams usable whatever their encoding, even if they are closed."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.fileno() == 1:
        sys.stdout = _text(BufferedWriter(_Watched(1)), sys.stdout.encoding, lines=sys.stdout.line_buffering)
    if isinstance(sys.stderr, TextIOWrapper) and sys.stderr.fileno() == 2:
        # Without a BufferedWriter: waiting for its lock, which another thread may have, ignores signals.
        sys.stderr = _text(_IgnoreWriteErrors(2), sys.stderr.encoding, lines=True)
    for stream in (sys.stdout, sys.stderr):
        fit_stream(stream)


def stdout_error() -> OSError | None:
    """Return why output could not be written to stdout; None if it was, or if its reader closed the pipe."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    raw = getattr(sys.stdout.buffer, "raw", None)
    failure = raw.failure if isinstance(raw, _Watched) else None
    return None if isinstance(failure, BrokenPipeError) else failure


_FROZEN_S = 2.0
"""How long an interrupted command waits for a terminal or a pipe that is not read."""
_CHECK_S = 0.1
_TERMINAL_PIECES = lazy_regex(rb"[\b\t\r\n]|[^\b\t\r\n]{1,256}")
_PIPE_PIECES = lazy_regex(rb"(?s:.{1,4096})")
"""What a stream that is writable takes without blocking."""

_is_interrupted: Callable[[], bool] = bool


def drop_unread_output_if(is_interrupted: Callable[[], bool]) -> None:
    """Do not wait for a frozen terminal, for example after Ctrl-S, once this returns true."""
    global _is_interrupted
    _is_interrupted = is_interrupted


class _Stream(FileIO):
    """A standard stream. If it is not read, an interrupted command drops its output instead of blocking."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        mode = os.fstat(number).st_mode
        self._pieces = _TERMINAL_PIECES if self.isatty() else _PIPE_PIECES
        self._can_block = sys.platform != "win32" and (self.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
        self._is_frozen = False
        self._renew_lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = RLock()

    def write(self, data: Any) -> int:
        if not self._can_block:
            return super().write(data)
        if isinstance(sys.exc_info()[1], KeyboardInterrupt):  # click writes a line while it handles it
            drop_unread_output_if(lambda: True)
        with self._lock:
            for piece in self._pieces.finditer(data):
                rest = piece.group()
                while rest and self._wait_until_writable():
                    rest = rest[super().write(rest) :]
        return len(data)

    def _wait_until_writable(self) -> bool:
        """Return False if the command was interrupted and the stream is still not read after a while."""
        from select import select  # late: `--help` does not need it

        end_s = None
        while not select([], [self.fileno()], [], 0 if self._is_frozen else _CHECK_S)[1]:
            if self._is_frozen:
                return False
            if _is_interrupted():
                end_s = end_s or monotonic() + _FROZEN_S
                self._is_frozen = monotonic() >= end_s
        self._is_frozen = False
        return True


class _Watched(_Stream):
    """A stream that stores its first write error.

    A reader that closes the pipe early, such as `head`, is not an error: the command continues to its exit code.
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


class _IgnoreWriteErrors(_Stream):
    """A stream for messages. Messages that cannot be written do not end a run."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _open_closed_streams() -> None:
    """Open the descriptors 0 to 2, so that a file that is opened later does not become a standard stream."""
    while (number := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass  # read-only: writing to it is an error
    os.close(number)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False, encoding="utf-8"))  # noqa: SIM115


class _CommandlessText(TextIOWrapper):
    """Disarms workflow commands that user code and libraries print. Those of agentv go to the `buffer`."""

    _start: str | None = ""
    """The current line, if it may still become a command: spaces and at most one colon."""

    def write(self, text: str) -> int:
        start, result = "x" if self._start is None else self._start, text
        if start.endswith(":"):
            result = f"\\{text}" if text.startswith(":") else text
            start = "x"
        result = disarm_commands(start + result)[len(start) :]
        last = (start + text).rpartition("\n")[2]
        self._start = last if last.strip() in ("", ":") else None
        super().write(result)
        return len(text)


def _text(stream: BufferedWriter | RawIOBase, encoding: str, *, lines: bool) -> TextIOWrapper:
    return _CommandlessText(stream, encoding=encoding, line_buffering=lines)  # type: ignore[arg-type]
