"""Call functions in a process that stays open between calls: one JSON line for each call, and one for each reply.

Calls have numbers, which their replies repeat, so that several can be in flight.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

_MOST = 32
"""The number of processes that stay open."""

_processes: dict[tuple[object, ...], FunctionProcess] = {}
_lock = Lock()


class CallFailure(ValueError):
    """A call that gave no result. The message is the reason."""


class FunctionProcess:
    """A program that calls functions. It gets a mark as its last argument, which begins each of its replies."""

    def __init__(self, command: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        self._lock = Lock()
        self._mark = secrets.token_hex(8)
        self._calls = 0
        self._replies: dict[int, SimpleQueue[Any]] = {}
        self._process = subprocess.Popen(  # noqa: S603 - the user's own functions
            [*command, self._mark],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        """Whether the process can be called."""
        return self._process.poll() is None

    def call(self, request: dict[str, Any], timeout_s: float | None) -> Any:
        """Return the reply to a request. Raises CallFailure if there is none. A timeout ends the process."""
        replies: SimpleQueue[Any] = SimpleQueue()
        with self._lock:
            assert self._process.stdin is not None
            self._calls += 1
            call = self._calls
            self._replies[call] = replies
            try:
                self._process.stdin.write(json.dumps({**request, "call": call}).encode() + b"\n")
                self._process.stdin.flush()
                if not self._reader.is_alive():
                    replies.put(None)
            except OSError:
                replies.put(None)
        try:
            reply = replies.get(timeout=timeout_s)
        except Empty:
            self.close()
            raise CallFailure(f"It did not return within {timeout_s:g} s") from None
        finally:
            self._replies.pop(call, None)
        if reply is None:
            self.close()
            raise CallFailure("Its process ended without a result")
        return reply

    def close(self) -> None:
        """End the process, and close its pipes."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # a request that was not sent
                    stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        mark = self._mark.encode()
        for line in self._process.stdout:
            _, separator, text = line.partition(mark)
            if separator:
                reply = json.loads(text)
                if (replies := self._replies.get(reply["call"])) is not None:
                    replies.put(reply)
        for replies in list(self._replies.values()):
            replies.put(None)


def function_process(command: Sequence[str], file: str, env: Mapping[str, str]) -> FunctionProcess:
    """Return the open process for a file, in its folder; a new one if there is none, or if the file has changed."""
    status = os.stat(file)
    key = (os.getpid(), *command, file, status.st_mtime_ns, status.st_size, tuple(sorted(env.items())))
    with _lock:
        process = _processes.get(key)
        if process is not None and not process.is_running:
            process.close()
            process = None
        if process is None:
            if len(_processes) >= _MOST:
                _processes.pop(next(iter(_processes))).close()
            process = _processes[key] = FunctionProcess([*command, file], os.path.dirname(file), env)
        return process


@atexit.register
def _close_all() -> None:
    for (owner, *_), process in _processes.items():
        if owner == os.getpid():
            process.close()
