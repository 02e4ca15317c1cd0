"""The output lines of batch commands, stored as they arrive, so that a killed run does not ask for them again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from agentv.model.response import Request, Response
from agentv.runs.writer import Redact, ResultWriter
from agentv.support.private_files import make_folder
from agentv.targets.recordings.recorder import StoredResponse, restored, stored

Key = tuple[str, str, str | None, int]


class AnsweredLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the log: the answer to a request; without one, the command failed, and earlier answers are void."""

    target: str
    key: Key
    response: StoredResponse | None = None


_decode = msgspec.json.Decoder(AnsweredLine).decode


def key_of(request: Request) -> Key:
    """Return what identifies a request among those of its target."""
    return request.case.path, request.case.id, request.prompt_id, request.trial


class LineLog:
    """The answers of one target. Each process writes its own file, and reads those from before the run was resumed."""

    def __init__(self, folder: str, target: str, redact: Redact) -> None:
        self._folder = Path(folder)
        self._target = target
        self._redact = redact
        self._file: ResultWriter | None = None
        self._known: dict[Key, StoredResponse | None] = {line.key: line.response for line in self._lines()}

    def take(self, request: Request) -> Response | None:
        """Return the answer to a request that an earlier session stored, once."""
        response = self._known.pop(key_of(request), None)
        return None if response is None else restored(response)

    def add(self, request: Request, response: Response) -> None:
        """Store an answer. Data that JSON cannot represent is left out."""
        with suppress(TypeError, ValueError, OverflowError, RecursionError):
            self._write([AnsweredLine(self._target, key_of(request), stored(response))])

    def void(self, requests: Iterable[Request]) -> None:
        """Withdraw the answers of a command that failed."""
        self._write([AnsweredLine(self._target, key_of(request)) for request in requests])

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, lines: list[AnsweredLine]) -> None:
        encoded = [msgspec.json.encode(line) + b"\n" for line in lines]
        if self._file is None:
            make_folder(str(self._folder))
            self._file = ResultWriter(self._folder / f"{os.getpid()}.lines", self._redact)
        self._file.write_all(encoded)

    def _lines(self) -> Iterator[AnsweredLine]:
        for path in sorted(self._folder.glob("*.lines")) if self._folder.is_dir() else ():
            for line in path.read_bytes().split(b"\n")[:-1]:
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    entry = _decode(line)
                    if entry.target == self._target:
                        yield entry
