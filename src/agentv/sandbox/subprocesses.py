"""Run user programs in their own process group, with limits and isolation, and clean up after them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Literal, NamedTuple

import msgspec

from agentv.errors import end_of
from agentv.registry import service
from agentv.sandbox.confinement import Confinement, Launch, private_environment
from agentv.sandbox.hosts import AllowedHost
from agentv.settings.child_environment import withheld_hint
from agentv.support.byte_gate import LARGE_BYTES, UNKNOWN_BYTES, hold_bytes
from agentv.support.processes.process_exit import wait_uncancelled, when_ended
from agentv.support.processes.process_gate import gate_of
from agentv.support.processes.process_limits import FamilyWatch, ProcessLimits
from agentv.support.processes.process_memory import MARK, hide_environment
from agentv.support.processes.watchdog import end_family, family, new_mark
from agentv.support.temporary_folders import temporary_folder

MAX_OUTPUT_BYTES = 16 * 1024 * 1024
GRACE_S = 2.0
"""Time between SIGTERM and SIGKILL."""

_DRAIN_S = 1.0
"""Time to wait for open output pipes after the program has ended; only a process outside the group keeps them open."""

_CHUNK_BYTES = 64 * 1024
_STDERR_BYTES = 64 * 1024
_TAIL_CHARACTERS = 2000
_TRACEBACK = "Traceback (most recent call last):"

Ending = Literal["start", "timeout", "output", "limit", "exit"]
_RawOutput = tuple[bytes, bytes, int | None]
"""What a program printed to stdout and stderr, and its exit code; None if it was stopped."""


class ProcessOutput(NamedTuple):
    """The output of a program that ended with an accepted exit code."""

    stdout: str
    stderr: str
    code: int = 0


class ProcessFailure(Exception):
    """A program that could not be started, failed, timed out, or exceeded a limit. `exit_code` is None for signals."""

    def __init__(
        self, ending: Ending, message: str, cause: Exception | None = None, exit_code: int | None = None
    ) -> None:
        super().__init__(message)
        self.ending = ending
        self.message = message
        self.cause = cause
        self.exit_code = exit_code


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run: a list of arguments, or a string for the shell. Messages about it start with `noun`.

    Exit codes other than those in `accepts` are failures. `limits` restrict processes, memory and files. With a
    `grace_s` of 0 the group is killed without SIGTERM. `take` receives output as it arrives, instead of collecting it,
    and returns false to end the process. If the process has to be ended, all its descendants are ended too, whatever
    their group; with `leaves_nothing`, in any case. A program with a `confinement` is isolated and can connect only to
    `hosts`; it passes a socket that listens in its own network to `listener`.
    """

    command: str | Sequence[str]
    cwd: str
    env: Mapping[str, str]
    timeout_s: float
    stdin: bytes | None = None
    max_output_bytes: int = MAX_OUTPUT_BYTES
    grace_s: float = GRACE_S
    noun: str = "The command"
    accepts: frozenset[int] = frozenset({0})
    limits: ProcessLimits | None = None
    take: Callable[[bytes], bool] | None = None
    leaves_nothing: bool = False
    confinement: Confinement | None = None
    listener: int | None = None
    hosts: tuple[AllowedHost, ...] = ()


async def run_process(spec: ProcessSpec) -> ProcessOutput:
    """Run a program until it ends. Raises ProcessFailure."""
    gate = gate_of(asyncio.get_running_loop())
    await gate.enter()
    try:
        if spec.confinement is None:
            return await _run(spec)
        async with _confined(spec, spec.confinement) as confined:
            return await _run(confined)
    finally:
        gate.leave()


@asynccontextmanager
async def _confined(spec: ProcessSpec, confinement: Confinement) -> AsyncIterator[ProcessSpec]:
    """Give an isolated program a temporary folder, and access to its hosts. A container that is left is removed."""
    replace = msgspec.structs.replace
    with temporary_folder("agentv-scratch-") as scratch:
        confinement = replace(confinement, writable=(scratch, *confinement.writable))
        env = private_environment(spec.env, scratch, confinement.writable)
        if spec.limits is not None:
            spec = replace(spec, limits=replace(spec.limits, folders=(scratch, *spec.limits.folders)))
        if confinement.is_container:
            from agentv.sandbox.container import container_name, remove_container  # late: rarely needed

            confinement = replace(confinement, name=container_name())
        try:
            if not spec.hosts:
                yield replace(spec, confinement=confinement, env=env)
                return
            from agentv.sandbox.egress import egress_access  # late: rarely needed

            async with egress_access(spec.hosts, confinement, scratch) as access:
                env = {**env, **access.variables}
                yield replace(spec, confinement=access.confinement, env=env, listener=access.listener)
        except BaseException as error:
            has_ended = isinstance(error, ProcessFailure) and error.exit_code is not None
            if confinement.is_container and not has_ended:
                await remove_container(confinement.method, confinement.name)
            raise


async def _run(spec: ProcessSpec) -> ProcessOutput:
    if not os.path.isdir(spec.cwd):
        raise ProcessFailure("start", f"{spec.noun} cannot run in '{spec.cwd}': the folder does not exist")
    if sys.platform == "win32":
        return await _run_plainly(spec)
    # Do not await between the start and `try`, so that a cancellation cannot lose the process.
    mark = new_mark()
    running = _Running(spec, _popen(spec, mark))
    try:
        running.watch()
        # Unlike `wait_for`, `wait` does not cancel the future, which is needed again below.
        await asyncio.wait([running.done], timeout=spec.timeout_s)
        timed_out = not running.done.done()
    finally:
        await running.end(mark)
    output = bytes(running.stdout), bytes(running.stderr), None if timed_out else running.process.returncode
    return _checked(spec, output, is_too_long=running.overflowed, excess=running.excess)


async def _run_plainly(spec: ProcessSpec) -> ProcessOutput:
    """Run a program on Windows. Its limits are those of its time and its output."""
    try:
        run, limits = service("plain-process", spec.noun), (spec.timeout_s, spec.max_output_bytes)
        output: _RawOutput = await run(spec.command, spec.cwd, spec.env, spec.stdin, limits)
    except (OSError, ValueError) as error:
        raise _not_started(spec, spec.command if isinstance(spec.command, str) else spec.command[0], error) from None
    is_too_long = len(output[0]) > spec.max_output_bytes if spec.take is None else not spec.take(output[0])
    return _checked(spec, output if spec.take is None else (b"", *output[1:]), is_too_long=is_too_long)


def _checked(spec: ProcessSpec, output: _RawOutput, *, is_too_long: bool, excess: str = "") -> ProcessOutput:
    """Return the output of a program that ended as it should. Raises ProcessFailure."""
    stdout, stderr, code = output
    printed = stderr[-_STDERR_BYTES:] or stdout[-_STDERR_BYTES:]
    tail = tail_of(stderr) or tail_of(stdout[-_STDERR_BYTES:])
    if code is None and not (is_too_long or excess):
        raise ProcessFailure("timeout", f"{spec.noun} did not finish within {spec.timeout_s:g} s and was stopped{tail}")
    if is_too_long:
        limit = f"{spec.max_output_bytes / 1024 / 1024:g} MiB"
        raise ProcessFailure("output", f"{spec.noun} printed more than {limit} and was stopped")
    if excess:
        raise ProcessFailure("limit", f"{spec.noun} {excess} and was stopped{tail}")
    if code is None or code not in spec.accepts:
        if spec.confinement is not None and (problem := spec.confinement.start_problem(printed)):
            raise ProcessFailure("start", f"{spec.noun} was not started: {problem}")
        why = "" if spec.limits is None or code is None else spec.limits.explanation(code)
        why += withheld_hint(printed.decode(errors="replace"), spec.env)
        exit_code = code if code is not None and code >= 0 else None
        raise ProcessFailure("exit", f"{spec.noun} {ending_of(code)}{why}{tail}", exit_code=exit_code)
    return ProcessOutput(stdout.decode(errors="replace"), stderr.decode(errors="replace"), code)


def ending_of(code: int | None) -> str:
    """Describe how a process ended, from its return code."""
    if code is None:
        return "did not finish"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was terminated by {signal.Signals(-code).name}"
    except ValueError:
        return f"was terminated by signal {-code}"


def tail_of(printed: bytes) -> str:
    """Return the end of an output after a colon; an empty string if there is no output."""
    text = printed[-4 * _TAIL_CHARACTERS :].decode(errors="replace").strip()
    last = text.rpartition("\n")[2] if _TRACEBACK in text else ""
    text = end_of(text, _TAIL_CHARACTERS)
    if last:
        # The last line of a traceback has the error, and many places show only the first line of a message.
        text = f"{last}\n{text}"
    return f": {text}" if text else ""


def end_group(pid: int, number: signal.Signals | None = None) -> None:
    """Send a signal to the process group of a process, SIGKILL by default."""
    if sys.platform == "win32":
        return  # there are no groups: `run_plainly` ends its program
    with suppress(ProcessLookupError, PermissionError):  # the group is empty; macOS raises the second
        os.killpg(pid, number or signal.SIGKILL)


class _Running:
    """A running process: its input, output and end. Its futures are set, never cancelled."""

    def __init__(self, spec: ProcessSpec, process: subprocess.Popen[bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._spec = spec
        self._stdin = memoryview(spec.stdin or b"")
        self.process = process
        self._open: set[int] = set()
        self._stop_waiting: Callable[[], None] = lambda: None
        self._memory: asyncio.Task[None] | None = None
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.overflowed = False
        self.excess = ""
        self._family: FamilyWatch | None = None
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def watch(self) -> None:
        """Start to feed the process and read its output concurrently; it may print before it reads."""
        if sys.platform == "win32":
            raise NotImplementedError("event loops of Windows cannot watch pipes")
        for pipe, keep in ((self.process.stdout, self._keep_output), (self.process.stderr, self._keep_error)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._open.add(pipe.fileno())
            self._loop.add_reader(pipe.fileno(), self._read, pipe.fileno(), keep)
        if self.process.stdin is not None:
            os.set_blocking(self.process.stdin.fileno(), False)
            self._loop.add_writer(self.process.stdin.fileno(), self._write)
        self._stop_waiting = when_ended(self.process, self._exited)
        if self._spec.limits is not None:
            self._family = FamilyWatch(self.process.pid, self._stop_for, self._spec.limits)

    def _exited(self) -> None:
        self._read_rest()
        _set(self.exited, self.done)

    def _stop_for(self, excess: str) -> None:
        self.excess = excess
        _set(self.done)

    async def end(self, mark: str) -> None:
        """End the rest of the group: SIGTERM first if the leader is still running, then SIGKILL."""
        pid, members = self.process.pid, None
        self._read_rest()
        try:
            try:
                if self._spec.leaves_nothing or not self.exited.done():
                    # Collect the descendants first: when a parent has ended, its children are no longer linked to it.
                    members = family(pid, mark)
                if not self.exited.done() and self._spec.grace_s > 0:
                    end_group(pid, signal.SIGTERM)
                    await asyncio.wait([self.exited], timeout=self._spec.grace_s)
            finally:
                # In any case: a child may outlive the leader, and a second cancellation may interrupt the wait.
                end_group(pid)
                if members is not None:
                    end_family(members, mark)
                await wait_uncancelled(self.exited, GRACE_S)
                await wait_uncancelled(self.closed, _DRAIN_S)
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
            if self._memory is None and len(self.stdout) > LARGE_BYTES:
                self._wait_for_memory()
        if self.overflowed:
            _set(self.done)

    def _wait_for_memory(self) -> None:
        """Stop reading a large output until there is memory for it; the process waits when the pipe is full."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()

        def read_on(_: object) -> None:
            if descriptor in self._open:
                self._loop.add_reader(descriptor, self._read, descriptor, self._keep_output)

        self._loop.remove_reader(descriptor)
        self._memory = self._loop.create_task(hold_bytes(min(UNKNOWN_BYTES, self._spec.max_output_bytes)))
        self._memory.add_done_callback(read_on)

    def _read_rest(self) -> None:
        """Read what is left in the pipe without waiting for memory: the process has ended, or has to."""
        if self._memory is not None:
            self._memory.cancel()

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
            count = os.write(pipe.fileno(), self._stdin[:_CHUNK_BYTES]) if self._stdin else 0
        except BlockingIOError:
            return
        except OSError:
            count = len(self._stdin)  # the process has closed its input
        self._stdin = self._stdin[count:]
        if not self._stdin:
            self._loop.remove_writer(pipe.fileno())
            pipe.close()

    def _close(self) -> None:
        self._stop_waiting()
        self._open.clear()
        if self._family is not None:
            self._family.stop()
        for pipe in (self.process.stdout, self.process.stderr, self.process.stdin):
            if pipe is not None and not pipe.closed:
                self._loop.remove_reader(pipe.fileno())
                self._loop.remove_writer(pipe.fileno())
                pipe.close()


def _popen(spec: ProcessSpec, mark: str) -> subprocess.Popen[bytes]:
    # Not the user's login shell, whose startup files could set secrets again.
    arguments = ["/bin/sh", "-c", spec.command] if isinstance(spec.command, str) else list(spec.command)
    # Set `PWD` as a shell would: some programs use it instead of the actual working directory.
    env = {**spec.env, "PWD": os.path.abspath(spec.cwd), MARK: mark}
    hide_environment()
    launch = Launch(arguments, env)
    try:
        if spec.confinement is not None:
            launch = spec.confinement.launch(arguments, os.path.abspath(spec.cwd), env, spec.listener)
        started = launch.arguments
        return subprocess.Popen(  # noqa: S603 - the user's own program
            started if spec.limits is None else spec.limits.command(started, spec.cwd, launch.env),
            stdin=subprocess.DEVNULL if spec.stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=spec.cwd,
            env=launch.env,
            pass_fds=launch.descriptors,
            # A new session puts the program and its children in one process group.
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _not_started(spec, arguments[0], error) from None
    finally:
        launch.close()


def _not_started(spec: ProcessSpec, program: str, error: Exception) -> ProcessFailure:
    subject = spec.noun if spec.noun.endswith("'") else f"{spec.noun} '{program}'"
    why = f"cannot be started: {(error.strerror if isinstance(error, OSError) else None) or error}"
    if isinstance(error, FileNotFoundError):
        is_script = os.path.exists(program)
        why = "cannot be started: the interpreter in its first line was not found" if is_script else "was not found"
    return ProcessFailure("start", f"{subject} {why}", error)


def _set(*futures: asyncio.Future[None]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
