"""A cache of responses on disk, keyed by everything that affects them. Equal calls at the same time are made once.

In this process and in all others that share the cache: a call locks one byte of a lock file, at a position that depends
on its key. The system releases the lock when the process ends, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from agentv.errors import file_errors
from agentv.model.case import case_to_data
from agentv.model.response import Request, Responder, ResponderWrapper, Response
from agentv.model.values import digest, to_json
from agentv.support.private_files import make_folder, open_file, read_file, write_file
from agentv.targets.recordings.recorder import StoredResponse, request_digest_of, restored, stored

SCHEMA_VERSION = 1
_MAX_BYTES = 256 * 1024 * 1024

Redact = Callable[[bytes], bytes]


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A cache file. It includes the key to detect files under a wrong name."""

    schema_version: int
    key: str
    response: StoredResponse


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Entry).decode


class ResponseCache:
    """A folder with one file per response, which several processes may use concurrently.

    Read and write errors are ignored: the run must not lose a response because of the cache. `redact` removes secrets;
    a response that contains one is not cached, because it would come back changed.
    """

    def __init__(self, folder: str, redact: Redact | None = None) -> None:
        self._folder = Path(folder)
        self._redact = redact
        self._numbers = count()
        with file_errors(f"Cannot create the cache {folder}"):
            make_folder(self._folder)

    def get(self, key: str) -> Response | None:
        """Return the response for a key, or None if there is no valid one."""
        try:
            entry = _decode(read_file(self._path(key), _MAX_BYTES))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if entry.schema_version != SCHEMA_VERSION or entry.key != key:
            return None
        return restored(entry.response, cached=True)

    def put(self, key: str, response: Response) -> None:
        """Store a response atomically."""
        try:
            data = _encode(_Entry(SCHEMA_VERSION, key, stored(response)))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return  # a user's function returned data that JSON cannot represent
        if self._redact is not None and self._redact(data) != data:
            return
        path = self._path(key)
        temporary = path.with_name(f".{key}.{os.getpid()}-{next(self._numbers)}.tmp")
        try:
            make_folder(path.parent)
            write_file(temporary, data)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def key(self, fingerprint: str, preview: dict[str, Any] | None, request: Request) -> str:
        """Return a hash of everything that affects a response: the settings, the request, the messages and the trial.

        If the target does not preview its request, the whole case is included.
        """
        line = to_json(preview if preview is not None else case_to_data(request.case))
        if self._redact is not None:
            line = self._redact(line)  # the key must not depend on an API key in an address
        return digest([fingerprint, line.decode("utf-8", "replace"), request_digest_of(request), request.trial])

    def _path(self, key: str) -> Path:
        # Subfolders keep the number of files per folder small.
        return self._folder / key[:2] / f"{key}.json"


class CachedResponder(ResponderWrapper):
    """A target with a cache. Failures are not cached. Equal calls at the same time are made once.

    A call waits at most as long as its timeout for an equal one of another process; any time if `is_batched`.
    """

    def __init__(
        self, inner: Responder, cache: ResponseCache, flights: CallFlights, fingerprint: str, *, is_batched: bool
    ) -> None:
        super().__init__(inner)
        self._cache = cache
        self._flights = flights
        self._fingerprint = fingerprint
        self._is_batched = is_batched

    async def respond(self, request: Request) -> Response:
        """Return the cached response, or call the target."""
        key = self._cache.key(self._fingerprint, self.sends(request), request)
        if (cached := self._cache.get(key)) is not None:
            return cached
        async with self._flights.flight(key, request, None if self._is_batched else request.timeout_s):
            if (cached := self._cache.get(key)) is not None:
                return cached
            response = await self._inner.respond(request)
            self._cache.put(key, response)
            return response


try:
    import fcntl
except ImportError:  # Windows: calls of other processes are not seen
    fcntl = None  # type: ignore[assignment]

_FILES = 32
"""Locks are spread over this many files: taking one takes longer the more of them a file has."""
_POSITION_DIGITS = 15
_FIRST_POLL_S, _LONGEST_POLL_S, _POLL_GROWTH = 0.02, 0.25, 1.5


class CallLocks:
    """The locks of this process on the calls of one cache, shared by all its runs: see `of`."""

    _all: WeakValueDictionary[tuple[str, int], CallLocks] = WeakValueDictionary()

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._files: dict[int, int] = {}
        self._keys: set[str] = set()
        self._threads = Lock()

    @classmethod
    def of(cls, folder: str) -> CallLocks:
        """Return the locks of a cache. Two objects for the same files would release each other's locks."""
        name = os.path.realpath(folder), os.getpid()
        if (locks := cls._all.get(name)) is None:
            locks = cls._all[name] = cls(folder)
        return locks

    def try_lock(self, key: str) -> bool:
        """Lock a key, and return whether it was free. A file system without locks has only free ones."""
        with self._threads:
            if key in self._keys or not self._set(key, is_locked=True):
                return False
            self._keys.add(key)
            return True

    def unlock(self, key: str) -> None:
        """Release a key."""
        with self._threads:
            self._keys.discard(key)
            self._set(key, is_locked=False)

    def _set(self, key: str, *, is_locked: bool) -> bool:
        position = int(key[:_POSITION_DIGITS], 16)
        file = self._file(position % _FILES)
        if sys.platform == "win32" or fcntl is None or file is None:
            return True
        how = fcntl.LOCK_EX | fcntl.LOCK_NB if is_locked else fcntl.LOCK_UN
        try:
            fcntl.lockf(file, how, 1, position)
        except (BlockingIOError, PermissionError):  # POSIX allows either for a byte that is locked
            return False
        except OSError:
            return True
        return True

    def _file(self, number: int) -> int | None:
        if (file := self._files.get(number)) is None:
            with suppress(OSError):
                path = self._folder / f".calls-{number:02d}.lock"
                file = self._files[number] = open_file(path, os.O_RDWR | os.O_CREAT)
        return file

    def __del__(self) -> None:
        for file in self._files.values():
            with suppress(OSError):
                os.close(file)


class CallFlights:
    """The calls in flight of one run, by key. A call that another one is in flight for waits for its response.

    `lent_slot` lets another job run meanwhile.
    """

    def __init__(self, folder: str, lent_slot: Callable[[], AbstractContextManager[None]]) -> None:
        self._locks = CallLocks.of(folder)
        self._lent_slot = lent_slot
        self._flights: dict[str, asyncio.Event] = {}
        self._is_stopped = False

    def stop(self) -> None:
        """Drop the jobs that have not made a call yet and wait for others."""
        self._is_stopped = True

    @asynccontextmanager
    async def flight(self, key: str, request: Request, patience_s: float | None) -> AsyncIterator[None]:
        """Wait for the call in flight with the same key, if there is one, then let others wait until this one ends.

        A call in another process is waited for at most `patience_s`: a process that was killed has no calls in flight,
        but one that was stopped has. If a call of this process fails, those that waited for it do not wait again.
        """
        if (landed := self._flights.get(key)) is not None:
            with self._lent_slot():
                await landed.wait()
            self._drop_if_stopped(request)
        if key in self._flights:
            yield
            return
        landed, is_locked = asyncio.Event(), False
        self._flights[key] = landed
        try:
            is_locked = self._locks.try_lock(key) or await self._wait_for_lock(key, request, patience_s)
            yield
        finally:
            del self._flights[key]
            if is_locked:
                self._locks.unlock(key)
            landed.set()

    async def _wait_for_lock(self, key: str, request: Request, patience_s: float | None) -> bool:
        clock = asyncio.get_running_loop().time
        pause_s, deadline = _FIRST_POLL_S, None if patience_s is None else clock() + patience_s
        with self._lent_slot():
            while deadline is None or clock() < deadline:
                await asyncio.sleep(pause_s)
                self._drop_if_stopped(request)
                if self._locks.try_lock(key):
                    return True
                pause_s = min(_LONGEST_POLL_S, pause_s * _POLL_GROWTH)
        return False

    def _drop_if_stopped(self, request: Request) -> None:
        if self._is_stopped and request.opens_job:
            raise asyncio.CancelledError
