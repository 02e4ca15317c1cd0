"""The open targets of a run in one process, each with its wrappers. Targets of one endpoint share a limit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.engine.calls.batches import MAX_BATCH, BatchWrapper, is_batching
from agentv.engine.calls.payments import Payments
from agentv.engine.calls.prices import BatchPrice, PriceWrapper, price_of
from agentv.engine.calls.retry import FallbackWrapper, RetryWrapper, policy_of
from agentv.engine.calls.wrappers import LimitWrapper, WorkspaceWrapper
from agentv.engine.job.spec import RunSpec
from agentv.engine.run_defaults import first_given
from agentv.errors import UsageError
from agentv.executors.executor import Limits
from agentv.executors.limiter import EndpointLimit
from agentv.model.call_trace import ReceiverAddress, is_traced
from agentv.model.job import NO_OVERRIDES, CallOverrides, OverrideKey
from agentv.model.response import Request, Responder, Response, TargetFailure
from agentv.registry import service
from agentv.runs.redaction import Redactor
from agentv.support.processes.process_gate import most_connections
from agentv.support.user_code import may_import
from agentv.targets.apis.batch_api import BatchPlace, batch_queue
from agentv.targets.target import ModelApi, Target

if TYPE_CHECKING:
    from agentv.engine.calls.kept_calls import KeptCalls
    from agentv.engine.calls.line_log import LineLog

_AS_CONFIGURED = CallOverrides()

API_START, API_MOST = 10, 200
MOST_BATCHED = 50_000
"""Concurrent jobs of a target in batch mode: those of one batch."""
API_TIMEOUT_S, PROCESS_TIMEOUT_S = 300.0, 1800.0


class OpenTarget(msgspec.Struct, frozen=True, gc=False):
    """A target that can be called. `responder` has all wrappers, `alone` all but the fallbacks; `most` is the useful
    number of concurrent calls."""

    settings: Target
    responder: RetryWrapper | FallbackWrapper
    alone: RetryWrapper
    most: int
    needs_workspace: bool


class OpenTargets:
    """Opens targets by name on first use, and closes them all together."""

    def __init__(self, spec: RunSpec, limits: Limits) -> None:
        self._spec = spec
        self._limits = limits
        self._open: dict[tuple[str, bool], OpenTarget] = {}
        self._variants: dict[tuple[str, OverrideKey], OpenTarget] = {}
        self._kept: KeptCalls | None = None
        if spec.replay or spec.files.cache_folder or spec.files.record_file:
            from agentv.engine.calls.kept_calls import KeptCalls  # late: few runs keep or replay calls

            self._kept = KeptCalls(spec, limits)
        self.payments = None if spec.budget is None else Payments(limits.budget(spec.budget))
        self._settings = {target.name: target for target in spec.targets}
        self.names = frozenset(self._settings)

    def get(self, name: str, *, embeddings: bool = False) -> OpenTarget:
        """Return a target; with `embeddings`, its embedding model."""
        target = self._open.get((name, embeddings))
        if target is None:
            target = self._open[name, embeddings] = self._opened(self._settings[name], embeddings=embeddings)
        return target

    def variant(self, name: str, overrides: CallOverrides) -> OpenTarget:
        """Return the target with overridden settings: itself if nothing differs, else a variant.

        Evaluators use few different settings, so there are few variants; all share the endpoint's limit.
        """
        target = self.get(name)
        settings = target.settings.with_overrides(overrides)
        if settings == target.settings:
            return target
        variant = OverrideKey(overrides.model, overrides.temperature, overrides.form)
        varied = self._variants.get((name, variant))
        if varied is None:
            varied = self._variants[name, variant] = self._opened(settings, variant, overrides)
        return varied

    def settings(self, name: str) -> Target | None:
        """Return the settings of a target without opening it; None if it is unknown."""
        return self._settings.get(name)

    @property
    def is_replaying(self) -> bool:
        """Whether a recording answers every call."""
        return self._kept is not None and self._kept.is_replaying

    @property
    def missing(self) -> tuple[str, ...]:
        """The calls missing from the replay."""
        return () if self._kept is None else self._kept.missing

    async def aclose(self) -> None:
        """Close all targets, even if closing one fails."""
        targets = [*self._open.values(), *self._variants.values()]
        self._open, self._variants = {}, {}
        await asyncio.gather(*(target.responder.aclose() for target in targets), return_exceptions=True)
        if self._kept is not None:
            self._kept.close()

    def _opened(
        self,
        settings: Target,
        variant: OverrideKey = NO_OVERRIDES,
        overrides: CallOverrides = _AS_CONFIGURED,
        *,
        embeddings: bool = False,
    ) -> OpenTarget:
        spec, recordings = self._spec, self._kept
        if embeddings and isinstance(settings, ModelApi):
            settings = msgspec.structs.replace(settings, tools=())
        responder = None if recordings is None else recordings.replayed(settings, variant)
        is_live = responder is None
        if responder is None:
            responder = settings.open_embeddings(spec.home) if embeddings else _opened(settings, spec.home)
        start, most = self._concurrency_of(settings)
        lane = getattr(settings, "model", None) or settings.name
        limiter = self._limits.limit(responder.endpoint, start, most, f"{lane} embeddings" if embeddings else lane)
        limiter.names.add(settings.name)
        per_call = MAX_BATCH if is_batching(responder) else 1
        if settings.is_batched and is_live and spec.files.batches_folder is not None and not embeddings:
            wrapped, most = self._queued(settings, responder, spec.files.batches_folder), MOST_BATCHED
        else:
            wrapped = self._wrapped(settings, responder, limiter) if is_live else responder
        if recordings is not None:
            wrapped = recordings.recorded(settings, wrapped, variant)
        alone = self._retried(settings, wrapped, limiter)
        has_fallbacks = settings.fallback_targets and not embeddings
        responder = self._with_fallbacks(settings, alone, overrides) if has_fallbacks else alone
        return OpenTarget(settings, responder, alone, most * per_call, settings.needs_workspace)

    def _concurrency_of(self, settings: Target) -> tuple[int, int]:
        """Return the initial and maximum concurrency, within what the number of open files allows."""
        spec = self._spec
        start, most = concurrency_of(settings, spec.workers, spec.defaults.workers, self._limits.cores)
        if not settings.is_api:
            return start, most
        called = {*spec.answering, *spec.users, *spec.judges, *spec.embedders}
        room = most_connections(len(called))
        return min(start, room), min(most, room)

    def _with_fallbacks(self, settings: Target, alone: RetryWrapper, overrides: CallOverrides) -> FallbackWrapper:
        """Add the target's fallbacks. They keep their own model and format; their own fallbacks are not called."""
        has_schema = overrides.schema is not None
        overrides = msgspec.structs.replace(overrides, model=None, schema=None)
        fallbacks = {
            name: lambda name=name: self.variant(name, overrides).alone
            for name in settings.fallback_targets
            if name != settings.name
        }
        return FallbackWrapper(alone, fallbacks, has_schema=has_schema)

    def _wrapped(self, settings: Target, responder: Responder, limiter: EndpointLimit) -> Responder:
        """Wrap a live target, innermost first; leave out wrappers that are not configured."""
        price, payments = price_of(settings), self.payments
        is_batched = is_batching(responder)

        def priced(model: Responder) -> Responder:
            model = model if price is None else PriceWrapper(model, price, settings)
            return model if payments is None or is_batched else payments.wrapped(model, settings)

        wrapped = self._with_tools(settings, priced(responder), priced)
        has_tools = isinstance(settings, ModelApi) and bool(settings.tools)
        limited = LimitWrapper(wrapped, limiter, self._max_outage_s(settings), settings.name, timed=settings.is_live)
        limited.is_repeatable = settings.is_api and not has_tools
        wrapped = limited
        if is_batching(responder):
            wrapped = BatchWrapper(responder, wrapped, limiter, self._line_log(settings))
            wrapped = wrapped if payments is None else payments.wrapped(wrapped, settings)
        if self._spec.receiver is not None and is_traced(settings):
            wrapped = self._traced(settings, wrapped, self._spec.receiver)
        # The cache is outside the limit: cached responses need no place at the endpoint.
        return wrapped if self._kept is None else self._kept.cached(settings, wrapped)

    def _traced(self, settings: Target, responder: Responder, receiver: ReceiverAddress) -> Responder:
        """Add the spans of each call to its response. The call has left its place at the endpoint by then."""
        wrapper = service("span-wrapper", f"Target '{settings.name}' with `traces`")
        wrapped: Responder = wrapper(responder, settings, receiver, self._limits.slots)
        return wrapped

    def _line_log(self, settings: Target) -> LineLog | None:
        folder = self._spec.files.answers_folder
        if folder is None:
            return None
        from agentv.engine.calls.line_log import LineLog  # late: few targets answer many cases with one call

        return LineLog(folder, settings.name, Redactor(self._spec.secrets).redact_line)

    def _queued(self, settings: Target, responder: Responder, folder: str) -> Responder:
        """Wrap a target in batch mode. Its requests need no place at the endpoint."""
        spec, price = self._spec, price_of(settings)
        queue, place = batch_queue(settings), BatchPlace(folder, settings.name, spec.run_id)
        wrapped: Responder = queue(responder, settings.open_batches(spec.home), place, self._limits)
        if price is not None:
            wrapped = PriceWrapper(wrapped, BatchPrice(price), settings)
        if self.payments is not None:
            wrapped = self.payments.wrapped(wrapped, settings)
        wrapped = WorkspaceWrapper(wrapped)
        return wrapped if self._kept is None else self._kept.cached(settings, wrapped)

    def _with_tools(
        self, settings: Target, responder: Responder, priced: Callable[[Responder], Responder]
    ) -> Responder:
        """Add the tools that the target runs. Each call of the model has its own price."""
        toolbox = settings.open_tools(self._spec.home) if isinstance(settings, ModelApi) and may_import() else None
        if toolbox is None or not isinstance(settings, ModelApi):
            return responder
        from agentv.engine.calls.tool_loop import ToolLoopWrapper, names_of  # late: few targets run tools

        own, home = settings.declared_tools, self._spec.home

        def open_with(declared: tuple[dict[str, Any], ...]) -> Responder:
            return priced(_opened(msgspec.structs.replace(settings, tools=(*own, *declared)), home))

        return ToolLoopWrapper(responder, open_with, toolbox, names_of(own), settings.max_turns)

    def _max_outage_s(self, settings: Target) -> float:
        """Return how long calls wait for an endpoint that is down: not at all if a fallback can answer."""
        return 0.0 if settings.fallback_targets else self._spec.max_outage_s

    def _retried(self, settings: Target, responder: Responder, limiter: EndpointLimit) -> RetryWrapper:
        """Add the outermost wrappers, which replayed targets also have."""
        spec, defaults = self._spec, self._spec.defaults
        policy = policy_of(settings, first_given(spec.max_retries, settings.max_retries, defaults.max_retries))
        if spec.replay is not None:  # there is no endpoint to protect
            policy = msgspec.structs.replace(policy, initial_delay_s=0.0, max_delay_s=0.0)
        usual_s = API_TIMEOUT_S if settings.is_api else PROCESS_TIMEOUT_S
        own_s = first_given(settings.timeout_seconds, defaults.timeout_seconds) or usual_s
        policy = msgspec.structs.replace(policy, timeout_s=own_s, command_timeout_s=spec.timeout_s)
        return RetryWrapper(responder, policy, limiter, self._limits.slots, settings.name)


class Unopened:
    """Takes the place of a target in a user's file, which is not imported to show prompts."""

    def __init__(self, name: str) -> None:
        self.endpoint = name

    async def respond(self, request: Request) -> Response:  # noqa: ARG002
        """Raise an error: the target is not open."""
        raise TargetFailure("process", f"'{self.endpoint}' is not open")

    async def aclose(self) -> None:
        """Do nothing."""


def concurrency_of(
    settings: Target, workers: int | None, configured: int | None = None, cores: int | None = None
) -> tuple[int, int]:
    """Return the initial and maximum concurrency: the configured one, else by the kind of target."""
    fixed = first_given(workers, settings.workers, configured)
    if fixed:
        return fixed, fixed
    if settings.is_api:
        return API_START, API_MOST
    cores = cores or os.cpu_count() or 1
    return cores, cores


def _opened(settings: Target, home: str) -> Responder:
    if not may_import() and ".py:" in settings.provider:
        return Unopened(settings.name)
    try:
        return settings.open(home)
    except NotImplementedError:
        message = f"Target '{settings.name}': provider '{settings.provider}' cannot be called"
        raise UsageError(message, hint="Its class does not define `open`") from None
