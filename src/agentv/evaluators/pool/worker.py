"""Judges in a forked process: reads answers, calls the user's function, sends scores, and ends when it left a trace."""

from __future__ import annotations

import contextvars
import inspect
import os
import pickle
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from agentv.evaluators.code.programs import with_names_of_4x
from agentv.evaluators.code.python_function import score_in, score_of
from agentv.evaluators.pool.failing import failure_text
from agentv.evaluators.pool.setup import Limits, Setup
from agentv.evaluators.pool.untouched import Untouched, is_users_module
from agentv.evaluators.pool.wire import LENGTH_BYTES, frame, length_of
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.message import Message, message_to_data
from agentv.model.response import Response
from agentv.model.result import ExecutionMetrics, TraceSummary

MAX_RESULT_BYTES = 4 * 1024 * 1024

_MIB = 1024 * 1024

_decode = msgspec.json.Decoder().decode


class Channel:
    """The socket to the run, one whole message at a time."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._reader = self._socket.makefile("rb", buffering=64 * 1024)

    def receive(self) -> bytes | None:
        """The next message; None when the run has gone."""
        head = self._reader.read(LENGTH_BYTES)
        if len(head) < LENGTH_BYTES:
            return None
        body: bytes = self._reader.read(length_of(head))
        return body

    def send(self, message: Any) -> None:
        self._socket.sendall(frame(message))

    def asked(self, message: Any) -> Any:
        """What the run answers to a question. The run is trusted, so its answer may be any object."""
        self.send(message)
        body = self.receive()
        if body is None:
            os._exit(0)
        answer = pickle.loads(body)  # noqa: S301 - from the run itself
        if isinstance(answer, Exception):
            raise answer
        return answer


class Context:
    """What the function gets: one answered case under the names of prompts and payloads, with the entry's `config`."""

    question: str
    expected_outcome: str
    expected_messages: list[dict[str, Any]]
    reference_answer: str
    candidate_answer: str
    output_messages: list[dict[str, Any]]
    guideline_files: list[str]
    input_files: list[str]
    input_messages: list[dict[str, Any]]
    context: list[str]
    workspace_path: str | None
    config: dict[str, Any]
    trace_summary: TraceSummary | None
    execution_metrics: ExecutionMetrics | None

    def __init__(self, payload: dict[str, Any], channel: Channel) -> None:
        self.__dict__.update(payload)
        self._channel = channel
        if payload["trace_summary"] is not None:
            self.trace_summary = msgspec.convert(payload["trace_summary"], TraceSummary)
        if payload["execution_metrics"] is not None:
            self.execution_metrics = msgspec.convert(payload["execution_metrics"], ExecutionMetrics)

    @property
    def case(self) -> Any:
        """The whole case, fetched when it is asked for."""
        return self._channel.asked(["case"])

    async def ask(self, target: str | None, messages: Any) -> Response:
        """A question to a target of the run, through the run's own limits, retries and records."""
        response: Response = self._channel.asked(["ask", target, [_as_data(each) for each in _listed(messages)]])
        return response


class Worker:
    """One forked process from its first judgement to its last."""

    def __init__(
        self,
        setup: Setup,
        limits: Limits,
        function: Callable[..., Any],
        untouched: Untouched | None,
        channel: Channel,
        output: int,
    ) -> None:
        self._untouched = untouched
        self._setup = setup
        self._limits = limits
        self._function = function
        self._channel = channel
        self._output = output
        self._loop: Any = None

    def serve(self) -> None:
        """Judges until the run has gone, a judgement left a trace, or it has judged often enough."""
        limit(self._setup.memory_mb, self._limits.file_bytes)
        if is_async(self._function):
            self._open_loop()
        self._channel.send(["hello", os.getpid()])
        scratch = self._own_scratch()
        untouched = self._untouched
        if untouched is not None:
            untouched.begin()
        modules = set(sys.modules)
        for count in range(1, self._limits.judgements + 1):
            body = self._channel.receive()
            if body is None:
                return
            payload, variables = _decode(body)
            os.environ.update(variables)
            reply = self._judged(payload)
            for name in variables:
                os.environ.pop(name, None)
            trace = "every judgement is to be fresh" if untouched is None else untouched.trace()
            if not trace and scratch and os.listdir(scratch):
                trace = "files were left in its folder"
            spent = bool(trace) or count == self._limits.judgements
            imported = _imported_since(modules) if len(sys.modules) != len(modules) else []
            self._channel.send([*reply, spent, trace, imported])
            if spent:
                return
            if os.fstat(self._output).st_size:
                os.ftruncate(self._output, 0)

    def _own_scratch(self) -> str:
        """A folder for temporary files that no other process uses, where this one may not use the system's."""
        if not self._limits.scratch:
            return ""
        folder = os.path.join(self._limits.scratch, str(os.getpid()))
        os.mkdir(folder, 0o700)
        os.environ["TMPDIR"] = folder
        return folder

    def _judged(self, payload: dict[str, Any]) -> list[Any]:
        """`["score", …]` or `["failure", …]`."""
        try:
            score = self._score(payload)
            data = msgspec.Raw(msgspec.json.encode(score))
        except EvaluatorFailure as failure:
            return ["failure", str(failure)]
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            return ["failure", f"{self._setup.name} returned what cannot be written as JSON: {error}"]
        if len(bytes(data)) > MAX_RESULT_BYTES:
            return ["failure", f"{self._setup.name} returned more than {MAX_RESULT_BYTES // _MIB} MiB"]
        return ["score", data]

    def _score(self, payload: dict[str, Any]) -> Score:
        name = self._setup.name
        if self._setup.given == "context":
            return score_of(name, self._called(Context(payload, self._channel)))
        returned = self._called(with_names_of_4x(payload))
        return score_in(returned, name, "returned") if isinstance(returned, dict) else score_of(name, returned)

    def _called(self, argument: Any) -> Any:
        try:
            # A copy of the context variables: what the judge sets in them ends with it.
            returned = contextvars.copy_context().run(self._function, argument)
            return self._finished(returned) if hasattr(returned, "__await__") else returned
        except EvaluatorFailure:
            raise
        except BaseException as error:
            raise EvaluatorFailure(failure_text(self._setup.name, error)) from error

    def _finished(self, running: Any) -> Any:
        """The result of an async function. Tasks that it left running are ended; nobody would wait for them."""
        import asyncio  # late: plain functions do not need it

        if self._loop is None:
            self._open_loop()
        loop: asyncio.AbstractEventLoop = self._loop
        try:
            return loop.run_until_complete(running)
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    def _open_loop(self) -> None:
        import asyncio  # late: as above

        self._loop = asyncio.new_event_loop()


def _imported_since(before: set[str]) -> list[str]:
    """Modules that came in while judging; not the user's own, which may do anything when they are imported."""
    new = [name for name in sys.modules if name not in before]
    return [name for name in new if not is_users_module(sys.modules[name])]


def limit(memory_mb: int, file_bytes: int) -> None:
    """Limits of this process: memory beyond what it has now, the size of a file, no core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, file_bytes)
    _lower(resource.RLIMIT_DATA, _data_bytes() + memory_mb * _MIB)


def _lower(which: int, most: int) -> None:
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def _data_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def is_async(function: Any) -> bool:
    """Whether calling a function gives something to wait for."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _listed(messages: Any) -> list[Any]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


def _as_data(message: Any) -> Any:
    return message_to_data(message) if isinstance(message, Message) else message
