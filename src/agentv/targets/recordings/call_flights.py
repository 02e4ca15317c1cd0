"""Make each cached call once at a time, in this process and in all others that share the cache.

A call locks one byte of a lock file, at a position that depends on its key. The system releases the lock when the
process ends, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from threading import Lock
from weakref import WeakValueDictionary

from agentv.model.response import Request
from agentv.support.private_files import open_file

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
