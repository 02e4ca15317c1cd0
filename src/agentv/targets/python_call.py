"""Call a user's function as a target, and read the value it returns."""

import asyncio
import copy
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from agentv.model.case import EvalCase, case_to_data
from agentv.model.message import message_to_data, messages_as_json
from agentv.model.response import Request, Response, TargetFailure
from agentv.model.result import ErrorClass
from agentv.registry import service
from agentv.support.byte_gate import LARGE_BYTES, hold_bytes
from agentv.support.function_call import DaemonThreads, FunctionCall, is_cancelled
from agentv.support.user_code import describe
from agentv.targets.answers import response_from_value
from agentv.targets.apis.model_api import embedding_texts
from agentv.targets.python import FunctionTarget


def _promptfoo_context(case: EvalCase) -> dict[str, Any]:
    """Return the third argument of a provider of promptfoo."""
    variables = dict(case.variables or {})
    test = {"vars": dict(variables), "metadata": dict(case.metadata or {}), "description": case.id}
    return {"vars": variables, "test": test}


KNOWN: dict[str, Callable[[Request], Any]] = {
    "messages": lambda request: [message_to_data(message) for message in request.messages],
    "prompt": lambda request: request.prompt,
    "case": lambda request: request.case,
    "variables": lambda request: dict(request.case.variables or {}),
    "trial": lambda request: request.trial,
    "options": lambda _: {},
    "context": lambda request: _promptfoo_context(request.case),
    "texts": embedding_texts,
}
"""The arguments of a function by parameter name."""

_ALWAYS = frozenset(KNOWN) - {"texts", "options", "context"}
"""The arguments of a function with `**kwargs`. `texts` is only for embeddings; the others are those of promptfoo."""


_REMEMBERED = 16
"""The number of answers that the usual size is mainly a mean of."""


class FunctionResponder:
    """Calls one function, in the event loop if it is async, else in a thread."""

    def __init__(self, settings: FunctionTarget, home: str) -> None:
        call = settings.call
        label = settings.reference or getattr(call, "__qualname__", settings.name)
        self.endpoint = f"python:{label}"
        self._home = home or os.getcwd()
        self._arguments = dict(KNOWN)
        if settings.chat_format == "json":
            self._arguments["prompt"] = lambda request: messages_as_json(request.messages)
        config = settings.config or {}
        self._arguments["options"] = lambda _: {"config": copy.deepcopy(config), "env": {}}
        call = call if settings.config is None else service("promptfoo-call", "A provider of promptfoo")(call)
        self._function: FunctionCall[Request] = FunctionCall(call, label, self._arguments, "prompt", _ALWAYS)
        self._has_options = {"options", "context"} <= set(self._function.names)
        self._has_config = settings.config is not None
        self._threads = DaemonThreads()
        self._answers = 0
        self._usual_bytes = 0.0

    def respond(self, request: Request) -> Awaitable[Response]:
        """Call the function; first wait for memory if its answers so far were large."""
        return self._respond(request) if self._usual_bytes <= LARGE_BYTES else self._respond_later(request)

    async def _respond_later(self, request: Request) -> Response:
        reserved = int(self._usual_bytes)
        await hold_bytes(reserved)
        started = time.perf_counter()
        response = await self._respond(request, reserved)
        if response.duration_ms is not None:
            return response
        # The time that the call waited is not the function's.
        return msgspec.structs.replace(response, duration_ms=1000 * (time.perf_counter() - started))

    async def _respond(self, request: Request, reserved: int = 0) -> Response:
        timer, task = asyncio.timeout(request.timeout_s), asyncio.current_task()
        try:
            async with timer:
                value = await self._function.call(request, self._threads)
            size = len(value) if isinstance(value, str) else _size_of(value)
            if size > LARGE_BYTES or self._usual_bytes:
                self._learn(size)
                await hold_bytes(size - reserved)
            is_provider = self._is_provider(value)
            read = service("promptfoo-response", "A provider of promptfoo") if is_provider else response_from_value
            return cast("Response", read(value))
        except TargetFailure:
            raise
        except TimeoutError as error:
            if not timer.expired():
                raise self._failure(error) from error
            raise TargetFailure("timeout", f"The function did not return within {request.timeout_s:g} s") from None
        except BaseException as error:
            # Even a KeyboardInterrupt is the function's own: Ctrl-C reaches the run in another way.
            if is_cancelled(error) or (isinstance(error, GeneratorExit) and _is_closed(task)):
                raise
            raise self._failure(error) from error

    def _is_provider(self, value: Any) -> bool:
        """Whether the function is a provider of promptfoo: one with a `config`, or that returns its kind of object."""
        has_keys = isinstance(value, dict) and bool(value.keys() & {"output", "error"})
        return self._has_options and (self._has_config or has_keys)

    def _learn(self, size: int) -> None:
        """Update the usual size of answers, a mean in which the last ones count most."""
        self._answers = min(_REMEMBERED, self._answers + 1)
        self._usual_bytes += (size - self._usual_bytes) / self._answers

    def sends(self, request: Request) -> dict[str, Any]:
        """Return the arguments by name, with the case as `agentv cases` prints it."""
        arguments = {name: self._arguments[name](request) for name in self._function.names}
        return {**arguments, "case": case_to_data(request.case)} if "case" in arguments else arguments

    async def aclose(self) -> None:
        """Stop idle threads without waiting for running functions."""
        self._threads.close()

    def _failure(self, error: BaseException) -> TargetFailure:
        kind: ErrorClass = "timeout" if isinstance(error, TimeoutError) else "process"
        return TargetFailure(kind, describe(error, self._home))


def _size_of(value: object) -> int:
    """Return the length of the texts in the object that a function returned."""
    return sum(len(text) for text in value.values() if isinstance(text, str)) if isinstance(value, dict) else 0


def _is_closed(task: asyncio.Task[Any] | None) -> bool:
    """Whether the coroutine of a task is closed from outside, rather than running in its task."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:  # no event loop is running
        return True
