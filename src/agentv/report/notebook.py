"""Notebook output: a run as an HTML table, and a status line that is updated while it runs."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from time import monotonic
from typing import Any

from agentv.model.result import Result, reason_of
from agentv.report.figures import job_name, number, one_line
from agentv.report.status_line import Pace, status_line
from agentv.report.target_facts import column_labels, columns
from agentv.runs.summary import RunSummary, Snapshot

_CASE_HEAD = ("case", "target", "score", "why")
_MOST_CASES = 10
_LONGEST_REASON = 200
_INTERVAL_S = 0.5


def run_html(path: Path, summary: RunSummary, results: Iterable[Result]) -> str:
    """Return the figures of each target, and the first jobs that did not pass."""
    targets = [(name, *columns("list", target).values()) for name, target in summary.targets.items()]
    failed = [result for result in results if result.verdict != "pass" and result.status != "unscored"]
    cases = [_case(result) for result in failed[:_MOST_CASES]]
    parts = [f"<p><b>Run {escape(path.name)}</b></p>", _table(["target", *column_labels("list")], targets)]
    if cases:
        parts.append(
            f"<p>{len(failed):,} did not pass{f'; the first {len(cases)}' if len(failed) > len(cases) else ''}:</p>"
        )
        parts.append(_table(_CASE_HEAD, cases))
    return "".join(parts)


def _case(result: Result) -> tuple[str, ...]:
    name = job_name(result.eval_id, result.prompt, result.trial)
    score = "error" if result.status == "error" else number(result.score)
    return name, result.target, score, one_line(reason_of(result) or "", _LONGEST_REASON)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


class LiveLine:
    """Shows the status line below a notebook cell, updated twice a second."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._pace = Pace()
        self._ended = threading.Event()

    @staticmethod
    def is_available() -> bool:
        """Return whether this process is the kernel of a notebook."""
        from IPython import get_ipython  # late: only notebooks have it

        return hasattr(get_ipython(), "kernel")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line while the context is active; the last state stays."""
        from IPython.display import display  # late: only notebooks have it

        handle: Any = display(self._text(), raw=True, display_id=True)
        thread = threading.Thread(target=self._update, args=(handle,), name="agentv-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            handle.update(self._text(), raw=True)

    def _update(self, handle: Any) -> None:
        while not self._ended.wait(_INTERVAL_S):
            handle.update(self._text(), raw=True)

    def _text(self) -> dict[str, str]:
        snapshot = self._snapshot()
        return {"text/plain": status_line(snapshot, self._pace.rate(snapshot.done - snapshot.earlier, monotonic()))}
