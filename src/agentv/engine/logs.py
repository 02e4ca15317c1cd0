"""Logs of what agents print while they work: one file for each turn and attempt of a job, without secrets."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import BinaryIO

from agentv.engine.job import Job
from agentv.engine.job_files import stem_of
from agentv.engine.question import Question
from agentv.errors import AgentvError
from agentv.model.response import OpenLog, StreamLog
from agentv.results.redact import Redactor

FOLDER = "logs"


class StreamLogs:
    """The logs of a run. `folder` is theirs unless a target names another."""

    def __init__(self, folder: str | None, redactor: Redactor) -> None:
        self._folder = folder
        self._redactor = redactor

    def opener(self, job: Job, question: Question) -> OpenLog | None:
        """What opens the log of a job's attempt; None where there is no place for logs."""
        if self._folder is None:
            return None
        own = self._folder

        def open_log(folder: str | None, extension: str) -> StreamLog:
            turn = f".turn-{question.turn + 1}" if question.turn else ""
            attempt = f".attempt-{question.attempt}" if question.attempt > 1 else ""
            path = os.path.join(folder or own, f"{stem_of(job)}{turn}{attempt}.{extension}")
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                return _Log(open(path, "wb", buffering=0), self._redactor)
            except OSError as error:
                raise AgentvError(f"Cannot write {path}", error.strerror or str(error)) from error

        return open_log


class _Log:
    """Lines, each in the file as soon as it is written: an agent that hangs is looked at while it does.

    On a full disk the log ends, and nothing else does.
    """

    def __init__(self, file: BinaryIO, redactor: Redactor) -> None:
        self._file = file
        self._redactor = redactor

    def write(self, line: bytes) -> None:
        with suppress(OSError, ValueError):
            self._file.write(self._redactor.redact_line(line) + b"\n")

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
