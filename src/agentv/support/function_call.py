"""Call a user's function with the arguments that its parameters name.

Async functions run in the event loop; sync functions run in threads, which adds about 40 µs per call. A thread cannot
be stopped: after a timeout or cancellation it continues, and its result is dropped.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

from agentv.errors import AgentvError

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Source = TypeVar("Source")


class FunctionCall(Generic[Source]):
    """A function and its arguments.

    `known` has the arguments by parameter name; `default` is the argument of a single parameter with another name. A
    function with `**kwargs` gets those in `always`.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        label: str,
        getters: Mapping[str, Callable[[Source], Any]],
        default: str,
        always: frozenset[str] | None = None,
    ) -> None:
        self._call = call
        self._known = getters
        self._positional, self._by_name = _parameters(call, label, getters, default)
        if _VARIADIC[1] in {parameter.kind for parameter in _signature(call)}:
            self._by_name = {name: name for name in getters if name in (always or getters)} | self._by_name
        # A callable object is async if its `__call__` method is.
        self._is_async = any(map(inspect.iscoroutinefunction, (call, type(call).__call__)))

    @property
    def names(self) -> list[str]:
        """The known arguments that the function takes, in the order of `known`."""
        used = {*self._positional, *self._by_name.values()}
        return [name for name in self._known if name in used]

    async def call(self, source: Source, threads: DaemonThreads) -> Any:
        """Return the result of the function for the arguments from `source`."""
        positional = [self._known[name](source) for name in self._positional]
        by_name = {parameter: self._known[name](source) for parameter, name in self._by_name.items()}
        if self._is_async:
            return await self._call(*positional, **by_name)
        result = await threads.run(lambda: self._call(*positional, **by_name))
        return await result if inspect.isawaitable(result) else result


class DaemonThreads:
    """Threads that are created on demand; the run limits concurrency.

    Not a ThreadPoolExecutor: Python waits for its threads at exit, so a function that never returns would keep the
    program from ending. No locks are needed, because everything but `_work` runs in the event loop.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._made = 0
        self._idle = 0

    async def run(self, call: Callable[[], Any]) -> Any:
        """Call a function in a thread and return its result."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._idle:
            self._idle -= 1
        else:
            self._made += 1
            Thread(target=self._work, daemon=True, name=f"agentv-function-{self._made}").start()
        self._calls.put((future, call))
        return await future

    def close(self) -> None:
        """Stop idle threads without waiting for running functions."""
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
        elif isinstance(error, StopIteration | GeneratorExit):
            # A future does not accept StopIteration, and GeneratorExit would close the coroutine that waits for it.
            message = f"{type(error).__name__}: {error}"
            future.set_exception(RuntimeError(message).with_traceback(error.__traceback__))
        else:
            future.set_exception(error)


def is_cancelled(error: BaseException) -> bool:
    """Whether the current task is cancelled; the function itself may also raise CancelledError."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _signature(call: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function; one positional parameter for a built-in without a signature."""
    try:
        return list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("value", inspect.Parameter.POSITIONAL_ONLY)]


def _parameters(
    call: Callable[..., Any], label: str, names: Collection[str], default: str
) -> tuple[list[str], dict[str, str]]:
    """Return the names of the positional arguments, and those of the keyword arguments by parameter."""
    if not callable(call):
        raise AgentvError(f"Cannot use '{label}'", f"It is not a function but of type {type(call).__name__}")
    parameters = _signature(call)
    unknown = [parameter for parameter in parameters if parameter.name not in names and parameter.kind not in _VARIADIC]
    required = [parameter.name for parameter in unknown if parameter.default is parameter.empty]
    if len(required) > 1:
        hint = f"A function may have the parameters {', '.join(names)}, and one other"
        raise AgentvError(f"Cannot call '{label}'", f"It has unknown parameters: {', '.join(required)}", hint)
    if not required and unknown and not any(parameter.name in names for parameter in parameters):
        required = [unknown[0].name]
    positional: list[str] = []
    by_name: dict[str, str] = {}
    for parameter in parameters:
        name = default if parameter.name in required else parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL and len(parameters) == 1:
            positional.append(default)
        elif name in names and parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(name)
        elif name in names and parameter.kind not in _VARIADIC:
            by_name[parameter.name] = name
    return positional, by_name
