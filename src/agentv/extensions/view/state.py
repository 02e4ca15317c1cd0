"""The state of the server that handlers share: the list of runs, the opened runs, and the options."""

from collections import OrderedDict
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from aiohttp import web

from agentv.errors import AgentvError
from agentv.extensions.view.analysis.trend_cache import TrendCache
from agentv.extensions.view.answer_rows import AnswerRows
from agentv.extensions.view.run_list import ListedRun, RunList, UnknownRunError
from agentv.extensions.view.served_run import ServedRun
from agentv.report.services import PageLabels

_MOST_OPEN = 8


class ViewState:
    """What handlers share. Only the thread of the server may call `served_run`.

    `title` is that of the page; `labels` is set if answers are labelled.
    """

    def __init__(self, runs: RunList, *, title: str, labels: PageLabels | None = None) -> None:
        self.runs = runs
        self.title = title
        self.labels = labels
        self.comparisons: OrderedDict[str, Any] = OrderedDict()
        """The latest comparisons, which `comparison_data` keeps."""
        self.trends = TrendCache()
        self.answers: WeakKeyDictionary[ServedRun, AnswerRows] = WeakKeyDictionary()
        """The answers of runs that are labelled, which `run_data` keeps."""
        self._open: OrderedDict[str, ServedRun] = OrderedDict()

    def served_run(self, id: str) -> ServedRun:
        """Return a run of the list, which is opened on first use. Raises UnknownRunError."""
        entry = self.runs.find(id).entry
        run = self._open.get(id)
        if run is not None and run.reader.was_replaced:
            self._open.pop(id).reader.close()
            run = None
        if run is None:
            run = self._open[id] = ServedRun(Path(entry.path))
            run.reader.follow()
        self._open.move_to_end(id)
        self._close_idle()
        return run

    def _close_idle(self) -> None:
        """Close the least recently used runs. Runs in progress stay open, because their progress is sent."""
        for id in list(self._open)[:-1]:
            if len(self._open) <= _MOST_OPEN:
                return
            if not self._open[id].reader.is_live:
                self._open.pop(id).reader.close()

    def progress(self, run: ListedRun) -> dict[str, Any]:
        """Return what is known of a run in progress beyond its entry, which is read when it starts."""
        open_run = self._open.get(run.id)
        if open_run is None or run.entry.state != "running":
            return {}
        return {"done": max(open_run.total, run.entry.done or 0)}

    def close(self) -> None:
        """Stop reading runs."""
        for run in self._open.values():
            run.reader.close()


STATE = web.AppKey("agentv", ViewState)


def json_response(data: Any) -> web.Response:
    """Return data as JSON."""
    return web.Response(body=msgspec.json.encode(data), content_type="application/json")


def error_response(error: AgentvError, status: int = 200) -> web.Response:
    """Return an error as JSON of a type of its own."""
    return web.Response(body=error_data(error), content_type="application/problem+json", status=status)


def error_data(error: AgentvError) -> bytes:
    """Return an error as JSON. `view` is the view that the hint leads to."""
    view = "runs" if isinstance(error, UnknownRunError) else None
    data = {"message": error.headline, "detail": error.detail, "hint": error.hint, "view": view}
    return msgspec.json.encode({"error": data})
