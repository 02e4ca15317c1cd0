"""Call functions in a process that stays open between calls: one JSON line for each call, and one for each reply."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Any

_MOST = 32
"""The number of processes that stay open."""

_processes: dict[tuple[object, ...], FunctionProcess] = {}


class CallFailure(ValueError):
    """A call that gave no result. The message is the reason."""


class FunctionProcess:
    """A program that calls functions. It gets a mark as its last argument, which begins each of its replies."""

    def __init__(self, command: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        self._lock = Lock()
        self._mark = secrets.token_hex(8)
        self._replies: Queue[bytes | None] = Queue()
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

    def call(self, request: Any, timeout_s: float) -> Any:
        """Return the reply to a request. Raises CallFailure if there is none."""
        with self._lock:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
                reply = self._replies.get(timeout=timeout_s)
            except Empty:
                self.close()
                raise CallFailure(f"It did not return within {timeout_s:g} s") from None
            except OSError:
                reply = None
        if reply is None:
            self.close()
            raise CallFailure("Its process ended without a result")
        return json.loads(reply)

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
            _, separator, reply = line.partition(mark)
            if separator:
                self._replies.put(reply)
        self._replies.put(None)


def function_process(command: Sequence[str], file: str, env: Mapping[str, str]) -> FunctionProcess:
    """Return the open process for a file, in its folder; a new one if there is none, or if the file has changed."""
    status = os.stat(file)
    key = (os.getpid(), *command, file, status.st_mtime_ns, status.st_size, tuple(sorted(env.items())))
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
