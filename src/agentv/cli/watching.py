"""What is seen of a run while it goes on: progress on a timer, and the first error of each kind at once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from agentv.engine.job import Job
from agentv.engine.run import Observer, Running
from agentv.model.result import Result
from agentv.report.figures import duration, number
from agentv.report.progress import Progress
from agentv.report.text import one_line
from agentv.results.redact import Redactor

_LONGEST_LINE = 500


class Shown(Observer):
    """Both the observer of a run and the watch that goes along with it. `quiet`: only what is asked for is shown."""

    def __init__(self, redactor: Redactor, *, why: bool = False, verbose: bool = False, quiet: bool = False) -> None:
        self._redactor = redactor
        self._quiet = quiet
        self._why = why
        self._verbose = verbose
        self._progress: Progress | None = None
        self._seen: set[str] = set()

    @contextmanager
    def __call__(self, running: Running) -> Iterator[None]:
        with self._progressing(running), self._logging() if self._verbose else nullcontext():
            yield

    @contextmanager
    def _progressing(self, running: Running) -> Iterator[None]:
        """Where the run stands, unless the user wants quiet."""
        if self._quiet:
            yield
            return
        self._progress = Progress(running.snapshot, sys.stderr, sys.stderr.isatty())
        self._progress.start()
        try:
            yield
        finally:
            self._progress.stop()

    @contextmanager
    def _logging(self) -> Iterator[None]:
        """What targets log, among the other lines."""
        handler, logger = _Notes(self), logging.getLogger("agentv")
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)

    def result(self, result: Result) -> None:
        error = result.error
        if self._verbose:
            self.said(_line(result))
        elif error is not None and not self._quiet and error.error_class not in self._seen:
            self._seen.add(error.error_class)
            self.said(f"First {error.error_class} error, in {result.eval_id}: {error.message}")

    def decided(self, job: Job, why: str) -> None:
        if self._why:
            trial = f", trial {job.trial}" if job.trial > 1 else ""
            self.note(f"{job.case.id} ({job.target}{trial}): {why}")

    def said(self, text: str) -> None:
        """A line of words that are not ours: the first line of them, without secrets and control characters."""
        self.note(one_line(self._redactor.redact_text(text.split("\n", 1)[0]), _LONGEST_LINE))

    def note(self, text: str) -> None:
        if self._progress is not None:
            self._progress.note(text)
        else:
            sys.stderr.write(text + "\n")


class _Notes(logging.Handler):
    """A log that is shown as notes."""

    def __init__(self, shown: Shown) -> None:
        super().__init__()
        self._shown = shown

    def emit(self, record: logging.LogRecord) -> None:
        self._shown.said(f"{record.name}: {record.getMessage()}")


def _line(result: Result) -> str:
    """A job that ended: how, how well, which, and how long it took."""
    trial = f", trial {result.trial}" if result.trial > 1 else ""
    job = f"{result.eval_id} ({', '.join(filter(None, (result.target, result.prompt)))}{trial})"
    if result.error is not None:
        return f"error       {job}: {result.error.error_class}: {result.error.message}"
    metrics = result.execution_metrics
    took = f"  {duration(metrics.duration_ms)}" if metrics is not None and metrics.duration_ms is not None else ""
    cached = "  cached" if result.cached else ""
    return f"{result.verdict or result.status:<10}  {job}  {number(result.score)}{took}{cached}"
