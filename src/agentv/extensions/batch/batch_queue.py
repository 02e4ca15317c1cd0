"""Collect requests into batches of a provider's batch API, wait for them, and return their results.

A request has the same id whenever the run is resumed, so a batch that was submitted before is found in the log instead
of being submitted and paid for again. Batches go on at the provider when the run stops.
"""

import asyncio
import copy
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agentv.errors import plural
from agentv.executors.executor import Limits
from agentv.model.response import Request, Responder, ResponderWrapper, Response, TargetFailure
from agentv.model.values import digest
from agentv.runs.writer import ResultWriter
from agentv.support.private_files import make_folder
from agentv.targets.apis.batch_api import BatchApi, BatchPlace, BatchState, Outcome, Submission, UnreadableResults


class BatchLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the log: first the label and the ids of the requests, later the batch that the provider created.

    A batch that the provider rejected `is_void`: its requests may be submitted again.
    """

    label: str
    target: str
    batch: str | None = None
    ids: tuple[str, ...] = ()
    at_s: float = 0.0
    is_void: bool = False


class LoggedBatch(msgspec.Struct):
    """A submitted batch, or one that may have been submitted before the run was killed."""

    submission: Submission
    batch: str | None = None


_decode = msgspec.json.Decoder(BatchLine).decode


class BatchLog:
    """The batches of one target. Each process writes its own file, and reads those of all."""

    def __init__(self, folder: str, target: str) -> None:
        self._folder = Path(folder)
        self._target = target
        self._file: ResultWriter | None = None
        self.batches: dict[str, LoggedBatch] = {}
        self.of_id: dict[str, LoggedBatch] = {}
        """The batch of each request."""
        for line in self._lines():
            self._apply(line)

    @property
    def known(self) -> set[str]:
        """The ids of all batches that are known to exist."""
        return {entry.batch for entry in self.batches.values() if entry.batch is not None}

    def intend(self, label: str, ids: list[str]) -> LoggedBatch:
        """Write that a batch is about to be submitted."""
        self._write(BatchLine(label, self._target, ids=tuple(ids), at_s=time.time()))
        return self.batches[label]

    def created(self, label: str, batch: str) -> None:
        """Write the provider's id of a batch."""
        self._write(BatchLine(label, self._target, batch))

    def void(self, label: str) -> None:
        """Write that a batch does not exist."""
        self._write(BatchLine(label, self._target, is_void=True))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, line: BatchLine) -> None:
        if self._file is None:
            make_folder(str(self._folder))
            name = "".join(char if char.isalnum() else "-" for char in self._target)[:40]
            self._file = ResultWriter(self._folder / f"{os.getpid()}-{name}.jsonl")
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.sync()
        self._apply(line)

    def _apply(self, line: BatchLine) -> None:
        if line.ids:
            entry = self.batches[line.label] = LoggedBatch(Submission(line.label, frozenset(line.ids), line.at_s))
            self.of_id.update(dict.fromkeys(line.ids, entry))
        elif line.label in self.batches and line.is_void:
            gone = self.batches.pop(line.label)
            for id in gone.submission.ids:
                if self.of_id.get(id) is gone:
                    del self.of_id[id]
        elif line.label in self.batches:
            self.batches[line.label].batch = line.batch

    def _lines(self) -> Iterator[BatchLine]:
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else ():
            for line in path.read_bytes().split(b"\n"):
                with suppress(msgspec.DecodeError):  # an incomplete last line
                    entry = _decode(line)
                    if entry.target == self._target:
                        yield entry


_QUIET_S = 0.5
"""Delay after the last request before a batch is submitted, or its results are read."""
_FIRST_POLL_S, _SLOWEST_POLL_S, _GROWTH = 0.25, 30.0, 1.25
_SUBMIT_ATTEMPTS = 5
_READ_ATTEMPTS = 3
_UNCLEAR = frozenset({"network", "timeout", "server", "rate_limit"})

Value = TypeVar("Value")
Waiting = tuple[Request, "asyncio.Future[Response]"]


class BatchQueueWrapper(ResponderWrapper):
    """Sends requests in batches. The run is part of their ids. `limits` shows the progress.

    When the run stops, requests are dropped: those that were submitted are found when the run is resumed.
    """

    def __init__(self, inner: Responder, api: BatchApi, place: BatchPlace, limits: Limits) -> None:
        super().__init__(inner)
        self._api = api
        self._log = BatchLog(place.folder, place.target)
        self._run = place.run
        self._report = limits.report
        self._seen: Counter[str] = Counter()
        self._open: dict[str, tuple[Request, asyncio.Future[Response], bytes]] = {}
        self._open_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[str, Waiting] = {}
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._states: dict[str, BatchState | None] = {}
        self._polled: dict[str, LoggedBatch] = {}
        self._is_stopped = False
        limits.on_stop(self._stop)

    async def respond(self, request: Request) -> Response:
        """Add a request to a batch, or find the batch that it is in, and wait for its result."""
        if request.turn:
            raise TargetFailure("refused", "A target in batch mode cannot play conversations")
        if self._is_stopped:
            raise asyncio.CancelledError
        id = self._id(request)
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._enter(id, (request, response))
        return await response

    async def aclose(self) -> None:
        """Stop waiting. Submitted batches go on at the provider."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._report(None)
        self._log.close()
        await self._api.aclose()
        await super().aclose()

    def _stop(self) -> None:
        """Drop the requests that are not submitted, and those of batches that are not over."""
        self._is_stopped = True
        for _, response, _ in self._open.values():
            response.cancel()
        for label in list(self._polled):
            self._followed[label].cancel()

    def _id(self, request: Request) -> str:
        case, body = request.case, self.sends(request)
        parts = (case.path, case.id, request.prompt_id, request.trial, request.repeat)
        own = digest([self._run, *map(str, parts), body])[:40]
        self._seen[own] += 1  # a repeated request, such as a retry, needs another id, also when the run is resumed
        return f"{own}-{self._seen[own]}"

    def _enter(self, id: str, waiting: Waiting) -> None:
        if (batch := self._log.of_id.get(id)) is not None:
            self._waiting[id] = waiting
            self._follow(batch)
            return
        line = self._api.line(id, waiting[0])
        is_full = len(self._open) >= self._api.max_requests or self._open_bytes + len(line) > self._api.max_bytes
        if self._open and is_full:
            self._submit_open()
        self._open[id] = (*waiting, line)
        self._open_bytes += len(line) + 2
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_QUIET_S, self._submit_open)

    def _submit_open(self) -> None:
        entries, self._open, self._open_bytes = self._open, {}, 0
        if pending := {id: entry for id, entry in entries.items() if not entry[1].done()}:
            self._waiting |= {id: (request, response) for id, (request, response, _) in pending.items()}
            self._start(self._submit({id: line for id, (_, _, line) in pending.items()}))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _submit(self, lines: dict[str, bytes]) -> None:
        label = f"agentv-{self._run}-{os.urandom(4).hex()}"
        logged = self._log.intend(label, list(lines))
        self._show(label, None)
        try:
            batch = await self._created(logged, list(lines.values()))
        except TargetFailure as failure:
            self._states.pop(label, None)
            if failure.error_class not in _UNCLEAR:
                self._log.void(label)
            self._fail(logged, failure)
            return
        self._log.created(label, batch)
        self._follow(logged)

    async def _created(self, logged: LoggedBatch, lines: list[bytes]) -> str:
        """Submit a batch. After a failure it may exist: look for it before it is submitted again."""
        label, delay_s = logged.submission.label, 1.0
        for attempt in range(1, _SUBMIT_ATTEMPTS + 1):
            try:
                return await self._api.submit(label, lines)
            except TargetFailure as failure:
                if failure.error_class not in _UNCLEAR or attempt == _SUBMIT_ATTEMPTS:
                    raise
                await asyncio.sleep(max(delay_s, failure.retry_after_s or 0.0))
            delay_s *= 2
            batch_id = await self._patiently(lambda: self._api.find(logged.submission, self._log.known))
            if batch_id is not None:
                return batch_id
        raise AssertionError

    def _follow(self, logged: LoggedBatch) -> None:
        """Wait for a batch in the background, once."""
        label = logged.submission.label
        task = self._followed.get(label)
        if task is None or task.done():
            self._followed[label] = self._start(self._collect(logged))

    async def _collect(self, logged: LoggedBatch) -> None:
        label = logged.submission.label
        self._show(label, None)
        try:
            await asyncio.sleep(_QUIET_S)  # until the other requests of a resumed run are here
            if logged.batch is None and not await self._found(logged):
                return
            batch = str(logged.batch)
            state = await self._over(logged, batch)
            await self._read(batch)
            self._fail(logged, state.failure)
        except TargetFailure as failure:
            self._fail(logged, failure)
        finally:
            self._states.pop(label, None)

    async def _read(self, batch: str) -> None:
        """Read the results of a batch. Those that were damaged on the way can be read the next time."""
        for attempt in range(1, _READ_ATTEMPTS + 1):
            try:
                await self._patiently(lambda: self._read_once(batch))
                break
            except UnreadableResults:
                if attempt == _READ_ATTEMPTS:
                    raise
            await asyncio.sleep(attempt * _QUIET_S)

    async def _read_once(self, batch: str) -> None:
        async for id, outcome in self._api.results(batch):
            self._settle(id, outcome)

    async def _found(self, logged: LoggedBatch) -> bool:
        """Look for a batch that may have been submitted before the run was killed; else submit its requests again."""
        batch_id = await self._patiently(lambda: self._api.find(logged.submission, self._log.known))
        if batch_id is not None:
            self._log.created(logged.submission.label, batch_id)
            return True
        self._log.void(logged.submission.label)
        for id in [id for id in self._waiting if id in logged.submission.ids]:
            self._enter(id, self._waiting.pop(id))
        return False

    async def _over(self, logged: LoggedBatch, batch: str) -> BatchState:
        """Wait until a batch is over. If that is cancelled, drop its requests."""
        label, delay_s = logged.submission.label, _FIRST_POLL_S
        self._polled[label] = logged
        try:
            while not self._is_stopped:
                state: BatchState = await self._patiently(lambda: self._api.state(batch))
                self._show(label, state)
                if state.is_over:
                    return state
                await asyncio.sleep(delay_s)
                delay_s = min(_SLOWEST_POLL_S, delay_s * _GROWTH)
            raise asyncio.CancelledError
        except asyncio.CancelledError:
            for id in [id for id in self._waiting if id in logged.submission.ids]:
                self._waiting.pop(id)[1].cancel()
            raise
        finally:
            del self._polled[label]

    async def _patiently(self, call: Callable[[], Awaitable[Value]]) -> Value:
        """Repeat a call until it works: an outage does not affect the batch. Raises failures that would not go away."""
        delay_s = 1.0
        while True:
            try:
                return await call()
            except TargetFailure as failure:
                if failure.error_class not in _UNCLEAR and not failure.is_page:
                    raise
                await asyncio.sleep(max(delay_s, failure.retry_after_s or 0.0))
                delay_s = min(60.0, delay_s * 2)

    def _settle(self, id: str, outcome: Outcome) -> None:
        """Return a result to its request. A second result of a request is ignored."""
        waiting = self._waiting.pop(id, None)
        if waiting is None or waiting[1].done():
            return
        if isinstance(outcome, TargetFailure):
            waiting[1].set_exception(outcome)
        else:
            waiting[1].set_result(outcome)

    def _fail(self, logged: LoggedBatch, failure: TargetFailure) -> None:
        for id in [id for id in self._waiting if id in logged.submission.ids]:
            # A copy for each request, because each raise adds to its traceback.
            self._settle(id, copy.copy(failure))

    def _show(self, label: str, state: BatchState | None) -> None:
        self._states[label] = state
        labels = list(self._log.batches)
        if not (running := [label for label in labels if label in self._states]):
            self._report(None)
            return
        number, state = 1 + labels.index(running[0]), self._states[running[0]]
        progress = "submitting" if state is None else f"{state.done:,} of {plural(state.total, 'request')} done"
        self._report(f"batch {number} of {len(labels)}: {progress}")
