"""Answers on disk, found by everything that shaped them: a wrapper that asks a target only what is not there yet."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import file_errors
from agentv.model.case import case_to_data
from agentv.model.response import Request, Responder, Response
from agentv.model.values import digest, to_json
from agentv.targets.recorder import StoredResponse, preview_request, request_digest_of, restored, stored

SCHEMA_VERSION = 1

Redact = Callable[[bytes], bytes]


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """One file. The key stands in it too, so that an entry under a wrong name is none."""

    schema_version: int
    key: str
    response: StoredResponse


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Entry).decode


class ResponseCache:
    """A folder of answers, one file each. Several processes may use it at once.

    What cannot be read is no entry. What cannot be written is not kept: an answer that was paid for goes on to the run
    all the same. `redact` takes secrets out of lines; an answer that has one in it is not kept, because it would come
    back as another answer.
    """

    def __init__(self, folder: str, redact: Redact | None = None) -> None:
        self._folder = Path(folder)
        self._redact = redact
        self._numbers = count()
        with file_errors(f"Cannot create the cache {folder}"):
            self._folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Response | None:
        """The answer under a key; None when there is none, or none that is whole."""
        try:
            entry = _decode(self._path(key).read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if entry.schema_version != SCHEMA_VERSION or entry.key != key:
            return None
        return restored(entry.response, cached=True)

    def put(self, key: str, response: Response) -> None:
        """Keeps an answer: whole under its name, or not at all."""
        try:
            data = _encode(_Entry(SCHEMA_VERSION, key, stored(response)))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return  # data of a user's function that no JSON can hold
        if self._redact is not None and self._redact(data) != data:
            return
        path = self._path(key)
        temporary = path.with_name(f".{key}.{os.getpid()}-{next(self._numbers)}.tmp")
        try:
            path.parent.mkdir(exist_ok=True)
            temporary.write_bytes(data)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def key(self, fingerprint: str, sent: dict[str, Any] | None, request: Request) -> str:
        """A hash of all that shapes an answer: the target's settings, what is sent, the question, the trial.

        Where nobody says what is sent, it may be anything of the case.
        """
        line = to_json(sent if sent is not None else case_to_data(request.case))
        if self._redact is not None:
            line = self._redact(line)  # a new API key in an address is the same address
        return digest([fingerprint, line.decode("utf-8", "replace"), request_digest_of(request), request.trial])

    def _path(self, key: str) -> Path:
        # A folder has few thousand files at most in this way, whatever the cache holds.
        return self._folder / key[:2] / f"{key}.json"


class CachedResponder:
    """A target behind the cache. Failures are not kept."""

    def __init__(self, inner: Responder, cache: ResponseCache, fingerprint: str) -> None:
        self.endpoint = inner.endpoint
        self._inner = inner
        self._cache = cache
        self._fingerprint = fingerprint

    async def respond(self, request: Request) -> Response:
        """The answer that is kept, else the target's."""
        key = self._cache.key(self._fingerprint, self.sends(request), request)
        found = self._cache.get(key)
        if found is not None:
            return found
        response = await self._inner.respond(request)
        self._cache.put(key, response)
        return response

    def sends(self, request: Request) -> dict[str, Any] | None:
        """What the target would send."""
        return preview_request(self._inner, request)

    async def aclose(self) -> None:
        """Closes the target."""
        await self._inner.aclose()
