"""The progress display of a run: a status line on a timer, and the first error of each class."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from agentv.cli import output
from agentv.engine.run_in_progress import Observer, RunInProgress
from agentv.engine.run_plan import RunPlan
from agentv.model.job import Job
from agentv.model.result import Result
from agentv.report.figures import duration, fitting, number, one_line, safe_text
from agentv.report.services import RunExport
from agentv.report.status_line import Pace, status_line
from agentv.runs.redaction import Redactor
from agentv.runs.summary import Snapshot

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text


REDRAWS_PER_SECOND = 4
PLAIN_INTERVAL_S = 5.0

_MOST_WAITING = 10_000
"""How many lines wait for a slow terminal."""
_FROZEN_S = 2.0
"""How long a terminal may take to print a line at the end of a run."""
_BAR_WIDTH = 24
_COLOURS = {"pass": "green", "borderline": "yellow", "fail": "red", "error": "red"}


class Progress:
    """Redraws a status line from snapshots, and prints notes above it, in its own thread.

    Jobs have no overhead, and a terminal that is not read, for example after Ctrl-S, does not block them.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        stream: TextIO,
        interactive: bool,
        *,
        plain_interval_s: float = PLAIN_INTERVAL_S,
    ) -> None:
        self._snapshot = snapshot
        self._stream = stream
        self._interactive = interactive
        self._interval_s = plain_interval_s
        self._pace = Pace()
        self._live: Live | None = None
        self._text: type[Text] | Any = None
        self._thread: threading.Thread | None = None
        self._lines: SimpleQueue[tuple[str, str, str] | None] = SimpleQueue()
        self._printed = 0
        self._dropped = 0
        self._has_last_line = True
        self._last_line = ""

    def start(self) -> None:
        """Start drawing."""
        self._line(self._snapshot())
        if self._interactive:
            self._start_live()
        self._thread = threading.Thread(target=self._draw, name="agentv-progress", daemon=True)
        self._thread.start()

    def stop(self, *, last_line: bool = True) -> None:
        """Stop drawing: erase the line on a terminal, or print a last plain line. Can be called twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._has_last_line = last_line
        self._lines.put(None)
        printed = -1
        while thread.is_alive() and printed != self._printed:  # unless nothing is read any more
            printed = self._printed
            thread.join(_FROZEN_S)

    def note(self, text: str, label: str = "", colour: str = "") -> None:
        """Print a line above the status line. A terminal shows the label in colour."""
        if self._thread is None:
            self._print(safe_text(label), safe_text(text), colour)
        elif self._lines.qsize() < _MOST_WAITING:
            self._lines.put((safe_text(label), safe_text(text), colour))
        else:
            self._dropped += 1

    def __enter__(self) -> Progress:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _draw(self) -> None:
        """Print the lines until the end."""
        while True:
            try:
                line = self._lines.get(timeout=None if self._interactive else self._interval_s)
            except Empty:
                self._print_status()
                continue
            if line is None:
                break
            self._print(*line)
        if self._dropped:
            self._print("", f"{self._dropped:,} lines were not printed, because the terminal was not read", "")
        if self._live is not None:
            with suppress(OSError, ValueError):
                self._live.stop()
        elif self._has_last_line:
            self._print_status()

    def _print(self, label: str, text: str, colour: str) -> None:
        # A closed terminal must not end the run.
        with suppress(OSError, ValueError):
            if self._live is not None:
                self._live.console.print(self._text(label, colour).append(text, "default"))
            else:
                self._stream.write(fitting(label + text, self._stream.encoding) + "\n")
                self._stream.flush()
        self._printed += 1

    def _line(self, snapshot: Snapshot) -> str:
        return safe_text(status_line(snapshot, self._pace.rate(snapshot.done - snapshot.earlier, monotonic())))

    def _print_status(self) -> None:
        if (line := self._line(self._snapshot())) != self._last_line:
            self._last_line = line
            self._print("", line, "")

    def _start_live(self) -> None:
        from rich import console, live, text  # late: only a terminal needs it, and it takes 50 ms

        def drawn() -> text.Text:
            snapshot = self._snapshot()
            line = text.Text(no_wrap=True, overflow="ellipsis")
            if snapshot.total:
                full = round(_BAR_WIDTH * min(1.0, snapshot.done / snapshot.total))
                line.append("━" * full, "green").append("━" * (_BAR_WIDTH - full), "dim").append(" ")
            return line.append(self._line(snapshot))

        self._text = text.Text
        self._live = live.Live(
            console=console.Console(file=self._stream, highlight=False),
            get_renderable=drawn,
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
            redirect_stdout=False,  # stdout is for data
        )
        self._live.start()


_LONGEST_LINE = 500


class DisplayOptions(Protocol):
    """The options of a command that control the display."""

    quiet: bool
    as_json: bool


class RunDisplay(Observer):
    """Renders run events on stderr, and exports the records. With `quiet`, only what other options request."""

    def __init__(self, plan: RunPlan, args: DisplayOptions, export: RunExport | None = None) -> None:
        self._export = export
        self._redactor = Redactor(plan.project.secrets)
        self._quiet = args.quiet or args.as_json
        self._why = getattr(args, "why", False)
        self._verbose = getattr(args, "verbose", False)
        self._progress: Progress | None = None
        self._seen: set[str] = set()

    @contextmanager
    def watch(self, running: RunInProgress) -> Iterator[None]:
        """Show progress, and redirect prints of user code to stderr: stdout is for the command's own output."""
        output.drop_unread_output_if(lambda: running.loop.interrupted)
        if self._export is not None:
            self._export.start(running.manifest, running.store.folder)
        log = self._show_log() if self._verbose else nullcontext()
        printed: Any = _RedactedStream(sys.stderr, self._redactor)
        with self._show_progress(running), redirect_stdout(printed), redirect_stderr(printed), log:
            yield

    @contextmanager
    def _show_progress(self, running: RunInProgress) -> Iterator[None]:
        if self._quiet:
            yield
            return
        self._progress = Progress(running.snapshot, sys.stderr, sys.stderr.isatty())
        self._progress.start()
        try:
            yield
        finally:
            self._progress.stop(last_line=running.has_begun)

    @contextmanager
    def _show_log(self) -> Iterator[None]:
        """Print the log messages of targets."""
        handler, logger = _LogHandler(self), logging.getLogger("agentv")
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
        if self._export is not None:
            self._export.add(result)
        if self._verbose:
            verdict = "error" if error is not None else result.verdict or result.status
            self.print_line(_line(result), f"{verdict:<10}  ", _COLOURS.get(verdict, "dim"))
        elif error is not None and not self._quiet and error.error_class not in self._seen:
            self._seen.add(error.error_class)
            self.print_line(f"in {result.eval_id}: {error.message}", f"First {error.error_class} error ", "red")
        for warning in () if self._quiet else result.warnings:
            self.print_line(f"in {result.eval_id}: {warning}", "Warning ", "yellow")

    def decided(self, job: Job, why: str) -> None:
        if self._why:
            trial = f", trial {job.trial}" if job.trial > 1 else ""
            self.print_line(f"{job.case.id} ({job.target}{trial}): {why}")

    def print_line(self, text: str, label: str = "", colour: str = "") -> None:
        """Print external text on one line, without secrets and control characters."""
        self._print(one_line(self._redactor.redact_text(text), _LONGEST_LINE), label, colour)

    def note(self, text: str) -> None:
        if not self._quiet:
            self._print(text)

    def _print(self, text: str, label: str = "", colour: str = "") -> None:
        if self._progress is not None:
            self._progress.note(text, label, colour)
        else:
            output.message(label + text)


class _RedactedStream:
    """A stream for what user code prints, without secrets. Each piece is written at once, as for a progress bar."""

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream = stream
        self._redactor = redactor

    def write(self, text: str) -> int:
        self._stream.write(self._redactor.redact_text(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _LogHandler(logging.Handler):
    """Prints log records on the display."""

    def __init__(self, display: RunDisplay) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.print_line(f"{record.name}: {record.getMessage()}")


def _line(result: Result) -> str:
    """Return the job, its score or error, and how long it took."""
    trial = f", trial {result.trial}" if result.trial > 1 else ""
    job = f"{result.eval_id} ({', '.join(filter(None, (result.target, result.prompt)))}{trial})"
    if result.error is not None:
        return f"{job}: {result.error.error_class}: {result.error.message}"
    metrics = result.execution_metrics
    took = f" {duration(metrics.duration_ms)}" if metrics is not None and metrics.duration_ms is not None else ""
    return f"{job} {number(result.score)}{took}{' cached' if result.cached else ''}"
