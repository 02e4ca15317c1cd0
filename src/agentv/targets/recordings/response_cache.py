"""A cache of responses on disk, keyed by everything that affects them."""

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import file_errors
from agentv.model.case import case_to_data
from agentv.model.response import Request, Responder, ResponderWrapper, Response
from agentv.model.values import digest, to_json
from agentv.support.private_files import make_folder, read_file, write_file
from agentv.targets.recordings.call_flights import CallFlights
from agentv.targets.recordings.recorder import StoredResponse, request_digest_of, restored, stored

SCHEMA_VERSION = 1
_MAX_BYTES = 256 * 1024 * 1024

Redact = Callable[[bytes], bytes]


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A cache file. It includes the key to detect files under a wrong name."""

    schema_version: int
    key: str
    response: StoredResponse


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Entry).decode


class ResponseCache:
    """A folder with one file per response, which several processes may use concurrently.

    Read and write errors are ignored: the run must not lose a response because of the cache. `redact` removes secrets;
    a response that contains one is not cached, because it would come back changed.
    """

    def __init__(self, folder: str, redact: Redact | None = None) -> None:
        self._folder = Path(folder)
        self._redact = redact
        self._numbers = count()
        with file_errors(f"Cannot create the cache {folder}"):
            make_folder(self._folder)

    def get(self, key: str) -> Response | None:
        """Return the response for a key, or None if there is no valid one."""
        try:
            entry = _decode(read_file(self._path(key), _MAX_BYTES))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if entry.schema_version != SCHEMA_VERSION or entry.key != key:
            return None
        return restored(entry.response, cached=True)

    def put(self, key: str, response: Response) -> None:
        """Store a response atomically."""
        try:
            data = _encode(_Entry(SCHEMA_VERSION, key, stored(response)))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return  # a user's function returned data that JSON cannot represent
        if self._redact is not None and self._redact(data) != data:
            return
        path = self._path(key)
        temporary = path.with_name(f".{key}.{os.getpid()}-{next(self._numbers)}.tmp")
        try:
            make_folder(path.parent)
            write_file(temporary, data)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def key(self, fingerprint: str, preview: dict[str, Any] | None, request: Request) -> str:
        """Return a hash of everything that affects a response: the settings, the request, the messages and the trial.

        If the target does not preview its request, the whole case is included.
        """
        line = to_json(preview if preview is not None else case_to_data(request.case))
        if self._redact is not None:
            line = self._redact(line)  # the key must not depend on an API key in an address
        return digest([fingerprint, line.decode("utf-8", "replace"), request_digest_of(request), request.trial])

    def _path(self, key: str) -> Path:
        # Subfolders keep the number of files per folder small.
        return self._folder / key[:2] / f"{key}.json"


class CachedResponder(ResponderWrapper):
    """A target with a cache. Failures are not cached. Equal calls at the same time are made once.

    A call waits at most as long as its timeout for an equal one of another process; any time if `is_batched`.
    """

    def __init__(
        self, inner: Responder, cache: ResponseCache, flights: CallFlights, fingerprint: str, *, is_batched: bool
    ) -> None:
        super().__init__(inner)
        self._cache = cache
        self._flights = flights
        self._fingerprint = fingerprint
        self._is_batched = is_batched

    async def respond(self, request: Request) -> Response:
        """Return the cached response, or call the target."""
        key = self._cache.key(self._fingerprint, self.sends(request), request)
        if (cached := self._cache.get(key)) is not None:
            return cached
        async with self._flights.flight(key, request, None if self._is_batched else request.timeout_s):
            if (cached := self._cache.get(key)) is not None:
                return cached
            response = await self._inner.respond(request)
            self._cache.put(key, response)
            return response
