"""What goes around every target of a run: its recording, its cache, its endpoint's limit. Built where the jobs run."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import msgspec

from agentv.engine.calls.batching import BatchingResponder, is_batching
from agentv.engine.calls.limiter import Limiter
from agentv.engine.calls.prices import PricedResponder, price_of
from agentv.model.response import Request, Responder, Response, TargetFailure
from agentv.runs.redaction import Redactor
from agentv.runs.writer import ResultWriter
from agentv.targets.fingerprint import files_of, fingerprint_of
from agentv.targets.replay.cache import CachedResponder, ResponseCache
from agentv.targets.replay.recorder import AS_IT_IS, RecordingResponder, Variant
from agentv.targets.replay.stored_response import sent_by
from agentv.targets.target import Target

_OVERLOADED = frozenset({503, 529})


class LayerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run keeps what its targets are asked and answer, as plain data. None: it does not.

    `home` is the folder that paths in targets' settings start from, `folders` are those of the datasets.
    """

    cache_folder: str | None = None
    record_file: str | None = None
    prompts_folder: str | None = None
    traces_folder: str | None = None
    logs_folder: str | None = None
    workspaces_folder: str | None = None
    secrets: frozenset[str] = frozenset()
    home: str = ""
    folders: tuple[str, ...] = ()


class Layers:
    """The layers of one run, from outside in: recording, cache, limit, target. The layers that nobody wants are not."""

    def __init__(self, settings: LayerSettings) -> None:
        redact = Redactor(settings.secrets).redact_line
        self._settings = settings
        self._cache = None if settings.cache_folder is None else ResponseCache(settings.cache_folder, redact)
        self._recording = None if settings.record_file is None else ResultWriter(settings.record_file, redact)

    def around(
        self, settings: Target, responder: Responder, limiter: Limiter, variant: Variant = AS_IT_IS
    ) -> Responder:
        """A target with its layers; `variant` is what makes it another than the one of its name."""
        price = price_of(settings)
        layered: Responder = LimitedResponder(
            responder if price is None else PricedResponder(responder, price), limiter
        )
        if is_batching(responder):
            layered = BatchingResponder(responder, layered, limiter)
        if self._cache is not None and settings.is_cacheable:
            # Outside the limit: what is on disk needs no place at the endpoint.
            layered = CachedResponder(layered, self._cache, self._fingerprint(settings))
        return self.around_replay(settings, layered, variant)

    def around_replay(self, settings: Target, responder: Responder, variant: Variant = AS_IT_IS) -> Responder:
        """What is left of the layers around answers from a file: no endpoint is spared, and nothing is cached."""
        if self._recording is None:
            return responder
        return RecordingResponder(responder, settings.name, self._recording.write, variant)

    def _fingerprint(self, settings: Target) -> str:
        files = files_of(settings, self._settings.home, self._settings.folders)
        return fingerprint_of(settings, self._settings.secrets, files)

    def close(self) -> None:
        """Ends the recording; every line of it is on disk for good."""
        if self._recording is not None:
            self._recording.close()


class LimitedResponder:
    """A target behind the limit of its endpoint: waits for a place, and tells the limiter how the call went."""

    def __init__(self, inner: Responder, limiter: Limiter) -> None:
        self.endpoint = inner.endpoint
        self._inner = inner
        self._limiter = limiter

    async def respond(self, request: Request) -> Response:
        """One call, timed where the target does not say how long it took."""
        limiter = self._limiter
        if not limiter.try_enter():
            await limiter.enter()
        try:
            if request.prepare is not None:
                await request.prepare(request.attempt, request.timeout_s)
            started = time.perf_counter()
            response = await self._inner.respond(request)
        except TargetFailure as failure:
            limiter.leave(
                ok=False,
                refused=failure.error_class == "rate_limit",
                overloaded=failure.status in _OVERLOADED,
                retry_after_s=failure.retry_after_s,
            )
            raise
        except BaseException:
            limiter.leave(ok=False)
            raise
        limiter.leave(retry_after_s=response.wait_s)
        if response.duration_ms is None:
            elapsed = (time.perf_counter() - started) * 1000
            response = msgspec.structs.replace(response, duration_ms=round(elapsed, 3))
        return response

    def sends(self, request: Request) -> dict[str, Any] | None:
        """What the target would send."""
        return sent_by(self._inner, request)

    async def aclose(self) -> None:
        """Closes the target."""
        await self._inner.aclose()


def sent_or_none(responder: Responder, request: Request) -> dict[str, Any] | None:
    """What a target sends; None where no request can be made, which the call itself will say."""
    with suppress(TargetFailure):
        return sent_by(responder, request)
    return None
