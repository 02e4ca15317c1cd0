"""What is seen of a run while it goes on: progress on a timer, and the first error of each kind at once."""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TextIO

from agentv.engine.run import Observer, RunInProgress
from agentv.engine.run_plan import RunPlan
from agentv.model.job import Job
from agentv.model.result import Result
from agentv.report.figures import counted, duration, fitting, number, one_line, usd
from agentv.runs.redaction import Redactor
from agentv.runs.summary import Snapshot

if TYPE_CHECKING:
    from rich.live import Live


REDRAWS_PER_SECOND = 4
PLAIN_INTERVAL_S = 5.0

_WINDOW_S = 30.0
_BAR_WIDTH = 24
_LONG_WAIT_S = 5.0
"""From here on a pause that an endpoint asks for is worth a word, and nobody can tell when the run will end."""


class Progress:
    """Draws on a timer of its own from what `snapshot` says, so that a case costs nothing."""

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
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._last_line = ""
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begins to draw."""
        self._pace.rate(self._snapshot().done, monotonic())
        if self._interactive:
            self._start_live()
        else:
            self._thread = threading.Thread(target=self._print_lines, name="agentv-progress", daemon=True)
            self._thread.start()

    def stop(self, *, last_line: bool = True) -> None:
        """Ends drawing; the line on a terminal goes away, a plain one is the last. A second time does nothing."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
            if last_line:
                self._print_line()

    def note(self, text: str) -> None:
        """Shows something at once, above the line: the first error, a warning."""
        # A terminal that went away must not take the run with it.
        with self._lock, suppress(OSError, ValueError):
            if self._live is not None:
                self._live.console.print(text, markup=False, highlight=False)
            else:
                self._stream.write(fitting(text, self._stream.encoding) + "\n")
                self._stream.flush()

    def __enter__(self) -> Progress:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _line(self, snapshot: Snapshot) -> str:
        return status_line(snapshot, self._pace.rate(snapshot.done, monotonic()))

    def _print_lines(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._print_line()

    def _print_line(self) -> None:
        line = self._line(self._snapshot())
        if line != self._last_line:
            self._last_line = line
            self.note(line)

    def _start_live(self) -> None:
        from rich import console, live, text  # late: only a terminal needs it, and it takes 50 ms

        def drawn() -> text.Text:
            snapshot = self._snapshot()
            line = text.Text(no_wrap=True, overflow="ellipsis")
            if snapshot.total:
                full = round(_BAR_WIDTH * min(1.0, snapshot.done / snapshot.total))
                line.append("━" * full, "green").append("━" * (_BAR_WIDTH - full), "dim").append(" ")
            return line.append(self._line(snapshot))

        self._live = live.Live(
            console=console.Console(file=self._stream, highlight=False),
            get_renderable=drawn,
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
            redirect_stdout=False,  # data on stdout is for programs and stays there
        )
        self._live.start()


class Pace:
    """Jobs a second over the last half minute, so that a slow start does not spoil the rest."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def rate(self, done: int, now: float) -> float | None:
        """Takes in how far it is, and gives the rate; None while there is nothing to tell it by."""
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW_S:
            self._seen.popleft()
        since, before = self._seen[0]
        return (done - before) / (now - since) if now > since and done > before else None


def status_line(snapshot: Snapshot, rate: float | None) -> str:
    """All of it on one line: done, rate, passes, errors by class, cost, time left, how many at once."""
    done, total = snapshot.done, snapshot.total
    parts = [f"{done}/{total} ({100 * done // total} %)" if total else str(done)]
    if rate is not None:
        parts.append(f"{rate:.1f}/s" if rate < 100 else f"{rate:.0f}/s")
    if snapshot.scored:
        parts.append(f"passed {100 * snapshot.passed / snapshot.scored:.0f} % of {snapshot.scored}")
    if snapshot.errors:
        parts.append(f"errors {sum(snapshot.errors.values())} ({counted(snapshot.errors)})")
    if snapshot.cost_usd is not None:
        parts.append(usd(snapshot.cost_usd))
    if snapshot.waits_s >= _LONG_WAIT_S and done != total:
        parts.append(f"waiting {duration(1000 * snapshot.waits_s)}, as an endpoint asked")
    elif rate and total and total > done:
        parts.append(f"ETA {duration(1000 * (total - done) / rate)}")
    if snapshot.concurrency is not None:
        parts.append(f"{snapshot.concurrency} at once")
    return " · ".join(parts)


_LONGEST_LINE = 500


class DisplayOptions(Protocol):
    """The options of a command that decide what is shown of its run."""

    quiet: bool
    as_json: bool


class RunDisplay(Observer):
    """Renders run events on stderr. With `quiet`, only what was asked for."""

    def __init__(self, plan: RunPlan, args: DisplayOptions) -> None:
        self._redactor = Redactor(plan.project.secrets)
        self._quiet = args.quiet or args.as_json
        self._why = getattr(args, "why", False)
        self._verbose = getattr(args, "verbose", False)
        self._progress: Progress | None = None
        self._seen: set[str] = set()

    @contextmanager
    def watch(self, running: RunInProgress) -> Iterator[None]:
        """Show progress, and send what user code prints to stderr: stdout is for what the command itself says."""
        shown = self._progressing(running), self._logging() if self._verbose else nullcontext()
        with redirect_stdout(sys.stderr), shown[0], shown[1]:
            yield

    @contextmanager
    def _progressing(self, running: RunInProgress) -> Iterator[None]:
        """Where the run stands, unless the user wants quiet."""
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

    def __init__(self, shown: RunDisplay) -> None:
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
