"""Run a program of the user's in a process group and temporary folders of its own, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Literal, NamedTuple

import msgspec

from agentv.support.watchdog import MARK, end_family, family, is_removed, new_mark, remove_after_death

MAX_OUTPUT_BYTES = 16 * 1024 * 1024
GRACE_S = 2.0
"""How long a group that was told to end may take before it is killed."""

_DRAIN_S = 1.0
"""How long output may stay open after the program: only a process that left the group can hold it open."""

_CHUNK_BYTES = 64 * 1024
_STDERR_BYTES = 64 * 1024
_TAIL_CHARACTERS = 2000
_TRACEBACK = "Traceback (most recent call last):"

Ending = Literal["start", "timeout", "output", "exit"]


class Ended(NamedTuple):
    """A program that ended by itself with code 0: what it printed."""

    stdout: str
    stderr: str


class ProcessFailure(Exception):
    """Any other end than code 0 in time and within the limit of output: which, in a sentence."""

    def __init__(self, ending: Ending, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.ending = ending
        self.message = message
        self.cause = cause


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run: a list of arguments, or a string for the shell. Messages about it start with `noun`.

    A noun that does not end with a quoted name is followed by the program's name, where that helps.
    `started` receives the process id at once. With a `grace_s` of 0 the group is killed without being asked to end.
    `take` receives output as it comes and returns false to end the process; no output is kept then. When a process has
    to be ended, so is everything that it started, whatever group it is in; with `leaves_nothing`, in any case.
    """

    command: str | Sequence[str]
    cwd: str
    env: Mapping[str, str]
    timeout_s: float
    stdin: bytes | None = None
    max_output_bytes: int = MAX_OUTPUT_BYTES
    grace_s: float = GRACE_S
    noun: str = "The command"
    started: Callable[[int], None] | None = None
    take: Callable[[bytes], bool] | None = None
    leaves_nothing: bool = False


async def run_process(spec: ProcessSpec) -> Ended:
    """Run a program to its end. Raises ProcessFailure."""
    # Nothing is awaited between the start and `try`: there is no moment in which a cancellation could lose a process.
    mark = new_mark()
    running = _Running(spec, _popen(spec, mark))
    try:
        if spec.started is not None:
            spec.started(running.process.pid)
        running.watch()
        # `wait`, because it leaves the future alone: it is needed again below.
        await asyncio.wait([running.done], timeout=spec.timeout_s)
        timed_out = not running.done.done()
    finally:
        await running.end(mark)
    said = tail_of(bytes(running.stderr)) or tail_of(bytes(running.stdout[-_STDERR_BYTES:]))
    if timed_out:
        raise ProcessFailure("timeout", f"{spec.noun} did not end within {spec.timeout_s:g} s and was ended{said}")
    if running.overflowed:
        limit = f"{spec.max_output_bytes / 1024 / 1024:g} MiB"
        raise ProcessFailure("output", f"{spec.noun} printed more than {limit} and was ended")
    if code := running.process.returncode:
        raise ProcessFailure("exit", f"{spec.noun} {ending_of(code)}{said}")
    return Ended(running.stdout.decode(errors="replace"), running.stderr.decode(errors="replace"))


def ending_of(code: int | None) -> str:
    """How a process ended, by its return code."""
    if code is None:
        return "did not end"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def tail_of(printed: bytes) -> str:
    """The end of what was printed, behind a colon; nothing when nothing was printed."""
    text = printed[-4 * _TAIL_CHARACTERS :].decode(errors="replace").strip()
    last = text.rpartition("\n")[2] if _TRACEBACK in text else ""
    if len(text) > _TAIL_CHARACTERS:
        text = "…" + text[1 - _TAIL_CHARACTERS :]
    if last:
        # What went wrong stands at the end of it, and many places show the first line of a message only.
        text = f"{last}\n{text}"
    return f": {text}" if text else ""


def end_group(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to a process and everything it started that stayed in its group."""
    with suppress(ProcessLookupError, PermissionError):  # nobody is left in it; macOS says so with the second
        os.killpg(pid, number)


async def certain(future: asyncio.Future[Any], timeout_s: float) -> None:
    """Waits, cancelled or not: it is a matter of a moment, and a process would be left behind."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    cancelled: asyncio.CancelledError | None = None
    while not future.done() and (left_s := deadline - loop.time()) > 0:
        try:
            await asyncio.wait([future], timeout=left_s)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def when_ended(process: subprocess.Popen[bytes], call: Callable[[], None]) -> Callable[[], None]:
    """Has the event loop call when a process has ended. Returns what takes that back.

    The process is not reaped, where the system allows it: its id, and that of its group, stay its own till then.
    """
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):

        def wait() -> None:
            process.wait()
            with suppress(RuntimeError):  # the loop is closed: nothing is waiting any more
                loop.call_soon_threadsafe(call)

        # Not Linux, or an old one: a thread that waits. It ends with the process.
        Thread(target=wait, daemon=True).start()
        return lambda: None

    def stop() -> None:
        nonlocal descriptor
        if descriptor >= 0:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            descriptor = -1

    def ended() -> None:
        stop()
        call()

    loop.add_reader(descriptor, ended)
    return stop


class _Running:
    """A process that was started: what it reads and prints, and how it is ended. Futures are set, never cancelled."""

    def __init__(self, spec: ProcessSpec, process: subprocess.Popen[bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._spec = spec
        self._stdin = memoryview(spec.stdin or b"")
        self.process = process
        self._open: set[int] = set()
        self._stop_waiting: Callable[[], None] = lambda: None
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.overflowed = False
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def watch(self) -> None:
        """Feeds the process and takes what it prints, as both come: it may print first, or read nothing at all."""
        for pipe, keep in ((self.process.stdout, self._keep_output), (self.process.stderr, self._keep_error)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._open.add(pipe.fileno())
            self._loop.add_reader(pipe.fileno(), self._read, pipe.fileno(), keep)
        if self.process.stdin is not None:
            os.set_blocking(self.process.stdin.fileno(), False)
            self._loop.add_writer(self.process.stdin.fileno(), self._write)
        self._stop_waiting = when_ended(self.process, lambda: _set(self.exited, self.done))

    async def end(self, mark: str) -> None:
        """End what is left of the group: asked first if its leader still runs, killed in any case."""
        pid, members = self.process.pid, None
        try:
            try:
                if self._spec.leaves_nothing or not self.exited.done():
                    # Before anything is ended: afterwards nothing shows whose child a process was.
                    members = family(pid, mark)
                if not self.exited.done() and self._spec.grace_s > 0:
                    end_group(pid, signal.SIGTERM)
                    await asyncio.wait([self.exited], timeout=self._spec.grace_s)
            finally:
                # Whatever the leader did: a child may outlive it, and a second cancellation may cut the wait short.
                end_group(pid)
                if members is not None:
                    end_family(members, mark)
                await certain(self.exited, GRACE_S)
                await certain(self.closed, _DRAIN_S)
        finally:
            self._close()
            self.process.poll()

    def _keep_output(self, data: bytes) -> None:
        take = self._spec.take
        if take is not None and not self.overflowed:
            self.overflowed = not take(data)
        elif take is None and not self.overflowed:
            self.overflowed = len(self.stdout) + len(data) > self._spec.max_output_bytes
            self.stdout += b"" if self.overflowed else data
        if self.overflowed:
            _set(self.done)

    def _keep_error(self, data: bytes) -> None:
        self.stderr += data
        del self.stderr[:-_STDERR_BYTES]

    def _read(self, descriptor: int, keep: Callable[[bytes], None]) -> None:
        try:
            data = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            keep(data)
            return
        self._loop.remove_reader(descriptor)
        self._open.discard(descriptor)
        if not self._open:
            _set(self.closed)

    def _write(self) -> None:
        pipe = self.process.stdin
        assert pipe is not None
        try:
            written = os.write(pipe.fileno(), self._stdin[:_CHUNK_BYTES]) if self._stdin else 0
        except BlockingIOError:
            return
        except OSError:
            written = len(self._stdin)  # nobody reads any more
        self._stdin = self._stdin[written:]
        if not self._stdin:
            self._loop.remove_writer(pipe.fileno())
            pipe.close()

    def _close(self) -> None:
        self._stop_waiting()
        for pipe in (self.process.stdout, self.process.stderr, self.process.stdin):
            if pipe is not None and not pipe.closed:
                self._loop.remove_reader(pipe.fileno())
                self._loop.remove_writer(pipe.fileno())
                pipe.close()


def _popen(spec: ProcessSpec, mark: str) -> subprocess.Popen[bytes]:
    if not os.path.isdir(spec.cwd):
        raise ProcessFailure("start", f"{spec.noun} cannot be run in '{spec.cwd}': there is no such folder")
    # A shell is a program like another; not the user's login shell, whose files could bring secrets back.
    arguments = ["/bin/sh", "-c", spec.command] if isinstance(spec.command, str) else list(spec.command)
    try:
        return subprocess.Popen(  # noqa: S603 - the user's own program
            arguments,
            stdin=subprocess.DEVNULL if spec.stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=spec.cwd,
            # `PWD` as a shell would set it: some programs trust it more than the system.
            env={**spec.env, "PWD": os.path.abspath(spec.cwd), MARK: mark},
            # A session of its own makes one group of the program and all it starts.
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        named = spec.noun if spec.noun.endswith("'") else f"{spec.noun} '{arguments[0]}'"
        raise ProcessFailure("start", f"{named} {_not_started(arguments[0], error)}", error) from None


def _not_started(program: str, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        gone = not os.path.exists(program)
        return "was not found" if gone else "cannot be started: the interpreter in its first line was not found"
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return f"cannot be started: {why}"


def _set(*futures: asyncio.Future[None]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def new_folder(prefix: str) -> str:
    """A new folder that only this user can read. Whoever asked for it removes it."""
    folder = tempfile.mkdtemp(prefix=prefix)
    remove_after_death(folder)
    return folder


@contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """A new folder that goes afterwards."""
    folder = new_folder(prefix)
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: str) -> None:
    """Removes a folder and everything in it, folders that may not be written to included (Go's cache has many)."""
    try:
        if sys.version_info >= (3, 12):
            shutil.rmtree(folder, onexc=_let_it_be_removed)
        else:
            shutil.rmtree(folder, onerror=_let_it_be_removed)
    except RecursionError:  # folders a thousand deep
        _remove_from_below(folder)
    if not os.path.exists(folder):
        is_removed(folder)


def _remove_from_below(folder: str) -> None:
    below, folders = [folder], []
    while below:
        parent = below.pop()
        folders.append(parent)
        with suppress(OSError):
            for entry in list(os.scandir(parent)):
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                else:
                    os.unlink(entry.path)
    for parent in reversed(folders):
        with suppress(OSError):
            os.rmdir(parent)


def _let_it_be_removed(call: Callable[..., Any], path: str, _: object) -> None:
    with suppress(OSError):
        for each in (os.path.dirname(path), path):
            if not os.path.islink(each):
                os.chmod(each, stat.S_IRWXU)
        if call in (os.unlink, os.rmdir):
            call(path)
        else:  # a folder that could not be looked into
            shutil.rmtree(path, ignore_errors=True)
