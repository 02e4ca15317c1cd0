"""Server-sent events: changes of the list of runs, and the progress of runs that are being written."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web

from agentv.extensions.view.appended_records import file_stamp
from agentv.extensions.view.run_list import ListedRun, UnknownRunError
from agentv.extensions.view.served_run import ServedRun
from agentv.extensions.view.state import STATE, ViewState
from agentv.report.status_line import Pace
from agentv.runs.summary import Snapshot

_EVERY_S = 0.5
_MOST_TIME = 0.05
"""The fraction of time to spend looking at files: long lists are looked at less often."""
_HEARTBEAT_S = 15.0
_MOST_BEHIND = 1024
"""How many rows errors and cost may be behind: then `done` is their number of results, otherwise they are unknown."""

Message = tuple[str, dict[str, Any]]


class RunProgress:
    """The progress of one run, measured each time it is looked at."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._seen: dict[str, Any] = {}
        self.last: dict[str, Any] = {}

    def look(self, listed: ListedRun, run: ServedRun) -> dict[str, Any] | None:
        """Return the progress of a run; None if nothing changed since the last look."""
        rows, jobs, snapshot = run.total, listed.entry.jobs, run.reader.snapshot or Snapshot(done=0)
        is_behind = rows - snapshot.done > _MOST_BEHIND
        rate = self._pace.rate(rows, time.monotonic()) if listed.entry.state == "running" else None
        left = None if rate is None or jobs is None else max(0, jobs - rows) / rate
        progress = {
            "id": listed.id,
            "state": listed.entry.state,
            "done": rows if is_behind else snapshot.done,
            "jobs": jobs,
            "rows": rows,
            "errors": None if is_behind else sum(snapshot.errors.values()),
            "cost_usd": None if is_behind else snapshot.cost_usd,
        }
        if progress == self._seen:
            return None
        self._seen, self.last = progress, {**progress, "rate": rate, "seconds_left": left}
        return self.last


class LiveFeed:
    """Looks at the files of runs while a page is connected, and sends what changed to all pages."""

    def __init__(self, state: ViewState) -> None:
        self._state = state
        self._pages: set[asyncio.Queue[Message | None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._progress: dict[str, RunProgress] = {}
        self._labels = self._label_stamp()

    def connect(self) -> asyncio.Queue[Message | None]:
        """Return the messages for a new page; None is the last one."""
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        self._pages.add(messages)
        for progress in self._progress.values():
            messages.put_nowait(("progress", progress.last))
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        return messages

    def disconnect(self, messages: asyncio.Queue[Message | None]) -> None:
        """Send nothing more to a page."""
        self._pages.discard(messages)

    async def close(self, app: web.Application) -> None:  # noqa: ARG002  # a signal handler
        """End all connections."""
        for messages in self._pages:
            messages.put_nowait(None)
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching

    async def _watch(self) -> None:
        while self._pages:
            began = time.monotonic()
            if await asyncio.to_thread(self._state.runs.refresh):
                self._send("runs", {})
            self._send_progress()
            self._send_labels()
            await asyncio.sleep(max(_EVERY_S, (time.monotonic() - began) / _MOST_TIME))

    def _send_progress(self) -> None:
        """Send the progress of runs in progress, and once more when one has ended."""
        runs = {run.id: run for run in self._state.runs.runs()}
        running = [id for id, run in runs.items() if run.entry.state == "running"]
        for id in {*running, *self._progress}:
            if id not in runs:
                del self._progress[id]
                continue
            with suppress(UnknownRunError):
                served = self._state.served_run(id)
                served.reader.follow()
                message = self._progress.setdefault(id, RunProgress()).look(runs[id], served)
                if message is not None:
                    self._send("progress", message)
                elif id not in running:
                    del self._progress[id]

    def _send_labels(self) -> None:
        """Tell the pages that the label file has changed, by this program or another one."""
        if (stamp := self._label_stamp()) != self._labels:
            self._labels = stamp
            self._send("labels", {})

    def _label_stamp(self) -> tuple[int, int] | None:
        labels = self._state.labels
        return None if labels is None else file_stamp(labels.path)

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        for messages in self._pages:
            messages.put_nowait((kind, data))


FEED = web.AppKey("agentv_feed", LiveFeed)


async def events(request: web.Request) -> web.StreamResponse:
    """Send events until the page or the server is closed."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    feed = request.app[FEED]
    messages = feed.connect()
    try:
        await response.write(b"retry: 1000\n\n")
        while (line := await _next_line(messages)) is not None:
            await response.write(line)
    except ConnectionResetError:
        pass  # the page was closed
    finally:
        feed.disconnect(messages)
    return response


async def _next_line(messages: asyncio.Queue[Message | None]) -> bytes | None:
    try:
        message = await asyncio.wait_for(messages.get(), _HEARTBEAT_S)
    except TimeoutError:
        return b": still here\n\n"
    return (
        None if message is None else b"event: %b\ndata: %b\n\n" % (message[0].encode(), msgspec.json.encode(message[1]))
    )


def add_feed(app: web.Application) -> None:
    """Add the events to an application."""
    app[FEED] = LiveFeed(app[STATE])
    app.on_shutdown.append(app[FEED].close)
