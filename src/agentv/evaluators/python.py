"""The Python evaluator: a function of the user's that gets the answer and returns a score."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from agentv.evaluators.base import Evaluator, Seconds
from agentv.evaluators.scoring import as_sentences, as_share, file_finder, missed, passed
from agentv.functions import FunctionError, describe, load
from agentv.model.judgement import Judgement
from agentv.model.score import EvaluatorFailure, Score

if TYPE_CHECKING:
    import asyncio

_FUNCTION = re.compile(r"(.+\.py|[^\W\d][\w.]*):[^\W\d][\w.]*")


class Context(Judgement):
    """What the function gets: the judgement, with the evaluator's own `config`."""

    config: dict[str, Any]


class PythonFunction(Evaluator, frozen=True, kw_only=True):
    """A function named as `file.py:name` or `module:name`."""

    aliases: ClassVar[dict[str, str]] = {"value": "function"}
    files: ClassVar[tuple[str, ...]] = ("function",)

    function: str
    timeout_seconds: Seconds = 60.0
    config: dict[str, Any] = {}

    def complaints(self) -> list[str]:
        """A function named in no known form, code written out included."""
        if _FUNCTION.fullmatch(self.function):
            return []
        return ["'function' must name a function as 'file.py:name' or 'module:name'; code itself is not run"]

    async def evaluate(self, judgement: Judgement) -> Score:
        """Calls the function: an async one here, any other in a thread, so that it may take its time."""
        import asyncio  # late: settings are read without it, and it takes 40 ms

        function = self._load(judgement)
        call = _Call(self.function, function, _context(judgement, self.config))
        try:
            async with asyncio.timeout(self.timeout_seconds):
                returned = await (call.awaited() if _is_async(function) else call.in_thread())
        except TimeoutError:
            raise EvaluatorFailure(f"{self.function} took longer than {self.timeout_seconds:g} s") from None
        return _score(self.function, returned)

    def _load(self, judgement: Judgement) -> Callable[[Context], Any]:
        try:
            function = load(self.function, file_finder(judgement))
        except FunctionError as error:
            raise EvaluatorFailure(str(error)) from error
        if not callable(function):
            raise EvaluatorFailure(f"{self.function} is no function but {type(function).__name__}")
        return function  # type: ignore[no-any-return]


class _Call:
    """One call of the function, whose exceptions become failures that name the user's line."""

    def __init__(self, name: str, function: Callable[[Context], Any], context: Context) -> None:
        self._name = name
        self._function = function
        self._context = context

    async def awaited(self) -> Any:
        """The result of an async function."""
        return await self._finished(self._function(self._context))

    async def in_thread(self) -> Any:
        """The result of a plain function. Its thread does not keep the process alive when it never ends."""
        import asyncio  # late: as above
        import contextvars
        import threading

        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        variables = contextvars.copy_context()

        def run() -> None:
            try:
                outcome: tuple[Any, BaseException | None] = (variables.run(self._function, self._context), None)
            except BaseException as error:
                outcome = (None, self._failure(error))
            try:
                loop.call_soon_threadsafe(_settle, done, *outcome)
            except RuntimeError:
                # The run has ended meanwhile and nobody waits for this any more.
                return

        threading.Thread(target=run, name=f"agentv {self._name}", daemon=True).start()
        returned = await done
        return await self._finished(returned) if inspect.isawaitable(returned) else returned

    async def _finished(self, running: Awaitable[Any]) -> Any:
        import asyncio  # late: as above

        try:
            return await running
        except (Exception, SystemExit) as error:
            raise self._failure(error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody asked us to stop: the function cancelled something of its own and let that out.
            raise self._failure(error) from error

    def _failure(self, error: BaseException) -> EvaluatorFailure:
        if isinstance(error, EvaluatorFailure):
            return error
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        return EvaluatorFailure(f"{self._name} failed: {describe(error, getattr(code, 'co_filename', ''))}")


def _settle(done: asyncio.Future[Any], returned: Any, failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is not None:
        done.set_exception(failure)
    else:
        done.set_result(returned)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _context(judgement: Judgement, config: dict[str, Any]) -> Context:
    """The judgement for one function alone: lists that it changes are not those that other evaluators see."""
    kind = type(judgement)
    context = Context.__new__(Context)
    for name, value in vars(judgement).items():
        if not isinstance(getattr(kind, name, None), cached_property):
            setattr(context, name, value)
    context.config = dict(config)
    return context


def _score(name: str, returned: Any) -> Score:
    if isinstance(returned, bool):
        return passed(f"{name} returned True") if returned else missed(f"{name} returned False")
    if isinstance(returned, Score):
        return msgspec.structs.replace(
            returned,
            score=as_share(_plain_number(returned.score), name),
            hits=as_sentences(returned.hits, f"'hits' of {name}"),
            misses=as_sentences(returned.misses, f"'misses' of {name}"),
        )
    number = _plain_number(returned)
    if not isinstance(number, int | float):
        kind = type(returned).__name__
        raise EvaluatorFailure(f"{name} must return a Score, a number or a bool, got {kind}")
    return Score(as_share(number, name))


def _plain_number(value: Any) -> Any:
    """Fractions, booleans and the numbers of other libraries as a float; anything that is no number as it is."""
    return float(value) if isinstance(value, Real) else value
