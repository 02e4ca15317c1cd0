"""The cache, recording and replay of a run's calls."""

from __future__ import annotations

from agentv.engine.job.spec import RunSpec
from agentv.executors.executor import Limits
from agentv.model.job import OverrideKey
from agentv.model.response import Responder
from agentv.runs.redaction import Redactor
from agentv.runs.writer import ResultWriter
from agentv.targets.recordings.recorder import RecordingResponder
from agentv.targets.recordings.replay import RecordedResponder, Recording, choose_target
from agentv.targets.recordings.response_cache import CachedResponder, CallFlights, ResponseCache
from agentv.targets.target import Target, file_hashes, fingerprint_of


class KeptCalls:
    """Wraps targets so that their calls are cached, recorded or replayed."""

    def __init__(self, spec: RunSpec, limits: Limits) -> None:
        redact = Redactor(spec.secrets).redact_line
        cache, record = spec.files.cache_folder, spec.files.record_file
        self._spec = spec
        self._cache = None if cache is None else ResponseCache(cache, redact)
        self._flights = None if cache is None else CallFlights(cache, limits.slots.lent_slot)
        if self._flights is not None:
            limits.on_stop(self._flights.stop)
        self._record = None if record is None else ResultWriter(record, redact)
        self._replay = None if spec.replay is None else Recording(spec.replay)

    @property
    def is_replaying(self) -> bool:
        """Whether a recording answers every call."""
        return self._replay is not None and self._replay.is_recording

    @property
    def missing(self) -> tuple[str, ...]:
        """The calls missing from the replay."""
        return () if self._replay is None else tuple(self._replay.missing)

    def cached(self, settings: Target, responder: Responder) -> Responder:
        """Wrap a target with the cache, if there is one and the target is cacheable."""
        if self._cache is None or self._flights is None or not settings.is_cacheable:
            return responder
        files = file_hashes(settings, self._spec.home, self._spec.folders)
        fingerprint = fingerprint_of(settings, self._spec.secrets, files)
        return CachedResponder(responder, self._cache, self._flights, fingerprint, is_batched=settings.is_batched)

    def recorded(self, settings: Target, responder: Responder, variant: OverrideKey) -> Responder:
        """Wrap a target so that its calls are recorded, if the run has a recording."""
        if self._record is None:
            return responder
        return RecordingResponder(responder, settings.name, self._record.write, variant)

    def replayed(self, settings: Target, variant: OverrideKey) -> Responder | None:
        """Return the replay that answers for a target; None if the target is called."""
        replay, answering = self._replay, (*self._spec.answering, *self._spec.users)
        if replay is None or not (replay.is_recording or settings.name in answering):
            return None
        name = settings.name if replay.is_recording else choose_target(replay, settings.name)
        return RecordedResponder(replay, name, variant)

    def close(self) -> None:
        """Close the files."""
        for file in (self._record, self._replay):
            if file is not None:
                file.close()
