"""Calls to targets as a run makes them: limited per endpoint, timed, tried again where that makes sense."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import msgspec

from agentv.engine.calls.batching import MOST_IN_BATCH, is_batching
from agentv.engine.calls.layers import Layers
from agentv.engine.calls.limiter import Limiter
from agentv.engine.calls.retry import RetryPolicy, policy_of
from agentv.engine.job.spec import RunSpec
from agentv.engine.run_options import first_given
from agentv.errors import UsageError
from agentv.model.judgement import Wanted
from agentv.model.response import Responder, Response, TargetFailure
from agentv.targets.replay.recorder import AS_IT_IS, Variant
from agentv.targets.replay.recording import RecordedResponder, Recording, choose
from agentv.targets.target import Target

API_START, API_MOST = 10, 200
API_TIMEOUT_S, PROCESS_TIMEOUT_S = 300.0, 1800.0


class Answered(msgspec.Struct, frozen=True, gc=False):
    """A call that ended: with a response or a failure, after so many attempts."""

    response: Response | None
    failure: TargetFailure | None
    attempts: int


class LiveTarget:
    """A target that is open, with its layers, its limiter and its policy for trying again."""

    def __init__(
        self, settings: Target, responder: Responder, limiter: Limiter, spec: RunSpec, *, per_call: int = 1
    ) -> None:
        self.settings = settings
        self.responder = responder
        self.limiter = limiter
        defaults = spec.defaults
        retries = first_given(spec.max_retries, settings.max_retries, defaults.max_retries)
        self.policy: RetryPolicy = policy_of(settings, retries)
        if spec.replay is not None:
            self.policy = msgspec.structs.replace(self.policy, initial_delay_s=0.0, max_delay_s=0.0)  # nobody to spare
        self.timeout_s = first_given(settings.timeout_seconds, defaults.timeout_seconds) or (
            API_TIMEOUT_S if settings.is_api else PROCESS_TIMEOUT_S
        )
        self._said_timeout_s = spec.timeout_s
        self._per_call = per_call

    @property
    def most_at_once(self) -> int:
        """Questions that it can have to answer at the same time."""
        return self.limiter.most * self._per_call

    async def call(self, request: Any, timeout_s: float | None = None) -> Answered:
        """One answer, or the failure of the last attempt. `timeout_s` is what the case says."""
        request.timeout_s = self._said_timeout_s or timeout_s or self.timeout_s
        attempts = 0
        while True:
            attempts += 1
            request.attempt = attempts
            try:
                return Answered(await self.responder.respond(request), None, attempts)
            except TargetFailure as failure:
                delay = self.policy.delay_s(failure, attempts - 1)
                if delay is None:
                    return Answered(None, failure, attempts)
                await asyncio.sleep(delay)


class Targets:
    """The open targets of a run. Those with the same endpoint share one limiter."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._names = frozenset(target.name for target in spec.targets)
        self._live: dict[tuple[str, bool], LiveTarget] = {}
        self._varied: dict[tuple[str, Variant], LiveTarget] = {}
        self._limiters: dict[str, Limiter] = {}
        self._layers = Layers(spec.layers)
        self._recording = None if spec.replay is None else Recording(spec.replay)

    def get(self, name: str, *, embeddings: bool = False) -> LiveTarget:
        """A target by name, opened on first use; with `embeddings`, what it makes vectors with."""
        live = self._live.get((name, embeddings))
        if live is None:
            live = self._live[name, embeddings] = self._opened(self._spec.target(name), embeddings=embeddings)
        return live

    def wanting(self, name: str, wanted: Wanted) -> LiveTarget:
        """A target for calls that want something special: itself, or one more like it with those settings.

        Evaluators want few different things, so there are few of them; the endpoint's limit is one for all.
        """
        live = self.get(name)
        settings = live.settings.wanting(wanted)
        if settings == live.settings:
            return live
        variant = Variant(wanted.model, wanted.temperature, wanted.form)
        varied = self._varied.get((name, variant))
        if varied is None:
            varied = self._varied[name, variant] = self._opened(settings, variant)
        return varied

    @property
    def names(self) -> frozenset[str]:
        """The targets that can be asked for."""
        return self._names

    @property
    def concurrency(self) -> int:
        """Calls that may be in flight now, over all endpoints."""
        return sum(limiter.limit for limiter in self._limiters.values())

    @property
    def waits_s(self) -> float:
        """How long the endpoint that asked for the longest pause is left alone yet."""
        return max((limiter.closed_for_s for limiter in self._limiters.values()), default=0.0)

    async def aclose(self) -> None:
        """Closes what was opened; nothing keeps the others from closing."""
        live = [*self._live.values(), *self._varied.values()]
        self._live, self._varied = {}, {}
        await asyncio.gather(*(each.responder.aclose() for each in live), return_exceptions=True)
        self._layers.close()
        if self._recording is not None:
            self._recording.close()

    @property
    def is_replaying(self) -> bool:
        """Whether a recording answers for everybody."""
        return self._recording is not None and self._recording.is_recording

    @property
    def missing(self) -> list[str]:
        """What was asked and is not in what is replayed."""
        return [] if self._recording is None else self._recording.missing

    def _opened(self, settings: Target, variant: Variant = AS_IT_IS, *, embeddings: bool = False) -> LiveTarget:
        home = self._spec.home
        replayed = self._replayed(settings, variant)
        if replayed is not None:
            limiter = self._limiter(settings, replayed.endpoint)
            return LiveTarget(settings, self._layers.around_replay(settings, replayed, variant), limiter, self._spec)
        responder = settings.open_embeddings(home) if embeddings else _opened(settings, home)
        limiter = self._limiter(settings, responder.endpoint)
        layered = self._layers.around(settings, responder, limiter, variant)
        per_call = MOST_IN_BATCH if is_batching(responder) else 1
        return LiveTarget(settings, layered, limiter, self._spec, per_call=per_call)

    def _replayed(self, settings: Target, variant: Variant) -> Responder | None:
        """What answers in the place of a target, where something does."""
        recording = self._recording
        if recording is None or not (recording.is_recording or settings.name in self._spec.answering):
            return None
        name = settings.name if recording.is_recording else choose(recording, settings.name)
        return RecordedResponder(recording, name, variant)

    def _limiter(self, settings: Target, endpoint: str) -> Limiter:
        limiter = self._limiters.get(endpoint)
        if limiter is None:
            start, most = concurrency_of(settings, self._spec.workers, self._spec.defaults.workers)
            limiter = self._limiters[endpoint] = Limiter(start, most)
        return limiter


def concurrency_of(settings: Target, workers: int | None, configured: int | None = None) -> tuple[int, int]:
    """Calls at once, at the start and at most: what the user says, else by the kind of target."""
    said = first_given(workers, settings.workers, configured)
    if said:
        return said, said
    if settings.is_api:
        return API_START, API_MOST
    return (cores := os.cpu_count() or 1), cores


def _opened(settings: Target, home: str) -> Responder:
    try:
        return settings.open(home)
    except NotImplementedError:
        message = f"Target '{settings.name}': provider '{settings.provider}' cannot be called"
        raise UsageError(message, hint="Its class has no method `open`") from None
