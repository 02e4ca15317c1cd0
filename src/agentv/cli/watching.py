"""What is seen of a run while it goes on: progress on a timer, and the first error of each kind at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from agentv.engine.job import Job
from agentv.engine.run import Observer, Running
from agentv.model.result import Result
from agentv.report.progress import Progress
from agentv.results.redact import Redactor


class Shown(Observer):
    """Both the observer of a run and the watch that goes along with it."""

    def __init__(self, redactor: Redactor, *, why: bool = False) -> None:
        self._redactor = redactor
        self._why = why
        self._progress: Progress | None = None
        self._seen: set[str] = set()

    @contextmanager
    def __call__(self, running: Running) -> Iterator[None]:
        self._progress = Progress(running.snapshot, sys.stderr, sys.stderr.isatty())
        self._progress.start()
        try:
            yield
        finally:
            self._progress.stop()

    def result(self, result: Result) -> None:
        error = result.error
        if error is not None and error.error_class not in self._seen:
            self._seen.add(error.error_class)
            message = self._redactor.redact_text(error.message.split("\n", 1)[0])
            self.note(f"First {error.error_class} error, in {result.eval_id}: {message}")

    def decided(self, job: Job, why: str) -> None:
        if self._why:
            trial = f", trial {job.trial}" if job.trial > 1 else ""
            self.note(f"{job.case.id} ({job.target}{trial}): {why}")

    def note(self, text: str) -> None:
        if self._progress is not None:
            self._progress.note(text)
        else:
            sys.stderr.write(text + "\n")
