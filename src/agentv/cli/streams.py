"""The standard streams of a command: there although they were closed, and what it means when one takes no more."""

from __future__ import annotations

import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

from agentv.report.figures import fit_stream


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
