"""Call a user's function with the arguments that its parameters name, and read the value it returns.

Async functions run in the event loop; sync functions run in threads, which adds about 40 µs per call. A thread cannot
be stopped: after a timeout or cancellation it continues, and its result is dropped.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from agentv.errors import AgentvError
from agentv.model.case import case_to_data
from agentv.model.message import message_to_data
from agentv.model.response import Request, Response, TargetFailure
from agentv.support.user_code import describe
from agentv.targets.answers import response_from_value
from agentv.targets.apis.model_api import embedding_texts
from agentv.targets.python import FunctionTarget

KNOWN: dict[str, Callable[[Request], Any]] = {
    "messages": lambda request: [message_to_data(message) for message in request.messages],
    "prompt": lambda request: request.prompt,
    "case": lambda request: request.case,
    "variables": lambda request: dict(request.case.variables or {}),
    "trial": lambda request: request.trial,
    "texts": embedding_texts,
}
"""The arguments of a function by parameter name."""

_ALWAYS = {name: get for name, get in KNOWN.items() if name != "texts"}
"""The arguments of a function with `**kwargs`. `texts` is only for embeddings."""

Getter = Callable[[Request], Any]
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class FunctionResponder:
    """Calls one function, in the event loop if it is async, else in a thread."""

    def __init__(self, settings: FunctionTarget, home: str) -> None:
        call = settings.call
        label = settings.reference or getattr(call, "__qualname__", settings.name)
        self.endpoint = f"python:{label}"
        self._call = call
        self._home = home or os.getcwd()
        self._positional, self._by_name = _arguments(call, label)
        # A callable object is async if its `__call__` method is.
        self._is_async = any(map(inspect.iscoroutinefunction, (call, type(call).__call__)))
        self._threads: _Threads | None = None

    async def respond(self, request: Request) -> Response:
        timer = asyncio.timeout(request.timeout_s)
        try:
            async with timer:
                return response_from_value(await self._called(request))
        except TargetFailure:
            raise
        except TimeoutError as error:
            if not timer.expired():
                raise self._failure(error) from error
            raise TargetFailure("timeout", f"The function did not return within {request.timeout_s:g} s") from None
        except BaseException as error:
            # Even a KeyboardInterrupt is the function's own: Ctrl-C reaches the run in another way.
            if isinstance(error, GeneratorExit) or _is_cancelled(error):
                raise
            raise self._failure(error) from error

    def sends(self, request: Request) -> dict[str, Any]:
        """Return the arguments by name, with the case as `agentv cases` prints it."""
        wanted = (*self._positional, *self._by_name.values())
        found = {name: get(request) for name, get in KNOWN.items() if get in wanted}
        return {**found, "case": case_to_data(request.case)} if "case" in found else found

    async def aclose(self) -> None:
        """Stop idle threads without waiting for running functions."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()

    async def _called(self, request: Request) -> Any:
        positional = [get(request) for get in self._positional]
        by_name = {name: get(request) for name, get in self._by_name.items()}
        if self._is_async:
            return await self._call(*positional, **by_name)
        if self._threads is None:
            self._threads = _Threads()
        result = await self._threads.run(lambda: self._call(*positional, **by_name))
        return await result if inspect.isawaitable(result) else result

    def _failure(self, error: BaseException) -> TargetFailure:
        return TargetFailure("process", describe(error, self._home))


class _Threads:
    """Threads that are created on demand; the run limits concurrency.

    Not a ThreadPoolExecutor: Python waits for its threads at exit, so a function that never returns would keep the
    program from ending. No locks are needed, because everything but `_work` runs in the event loop.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._made = 0
        self._idle = 0

    async def run(self, call: Callable[[], Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._idle:
            self._idle -= 1
        else:
            self._made += 1
            Thread(target=self._work, daemon=True, name=f"agentv-function-{self._made}").start()
        self._calls.put((future, call))
        return await future

    def close(self) -> None:
        for _ in range(self._made):
            self._calls.put(None)

    def _work(self) -> None:
        while (task := self._calls.get()) is not None:
            future, call = task
            result: Any = None
            error: BaseException | None = None
            try:
                result = call()
            except BaseException as raised:  # errors belong to the call, not to this thread
                error = raised
            try:
                future.get_loop().call_soon_threadsafe(self._finished, future, result, error)
            except RuntimeError:
                return  # the event loop is closed, so no call is waiting

    def _finished(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._idle += 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            # A future does not accept StopIteration.
            future.set_exception(RuntimeError(f"StopIteration: {error}").with_traceback(error.__traceback__))
        else:
            future.set_exception(error)


def _is_cancelled(error: BaseException) -> bool:
    """Whether the current task is cancelled; the function itself may also raise CancelledError."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _arguments(call: Callable[..., Any], label: str) -> tuple[list[Getter], dict[str, Getter]]:
    """Return positional and keyword arguments: by parameter name, and the prompt for one other parameter."""
    if not callable(call):
        raise AgentvError(f"Cannot use '{label}'", f"It is not a function but of type {type(call).__name__}")
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        return [KNOWN["prompt"]], {}  # built-in functions may have no signature
    unknown = [each for each in parameters if each.name not in KNOWN and each.kind not in _VARIADIC]
    required = [each.name for each in unknown if each.default is each.empty]
    if len(required) > 1:
        hint = f"A function may have the parameters {', '.join(KNOWN)}, and one other"
        raise AgentvError(f"Cannot call '{label}'", f"It has unknown parameters: {', '.join(required)}", hint)
    if not required and unknown and not any(each.name in KNOWN for each in parameters):
        required = [unknown[0].name]
    positional: list[Getter] = []
    by_name: dict[str, Getter] = {}
    for each in parameters:
        get = KNOWN["prompt"] if each.name in required else KNOWN.get(each.name)
        if each.kind is each.VAR_KEYWORD:
            by_name = {**_ALWAYS, **by_name}
        elif each.kind is each.VAR_POSITIONAL and len(parameters) == 1:
            positional.append(KNOWN["prompt"])
        elif get is not None and each.kind is each.POSITIONAL_ONLY:
            positional.append(get)
        elif get is not None:
            by_name[each.name] = get
    return positional, by_name
