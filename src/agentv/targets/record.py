"""A recording: every answered call as a line that the `replay` provider reads. A wrapper that writes and passes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agentv.model.response import Request, Responder, Response
from agentv.targets.sending import question_digest, sent_by
from agentv.targets.stored import StoredResponse, stored, text_only

SCHEMA_VERSION = 1

Write = Callable[[bytes], None]
"""Takes a line that ends in a newline; what it returns from is on disk."""


class RecordedCall(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A line: which call it was, a hash of what was asked, and the answer. A judge's call has the case id `judge`."""

    schema_version: int = SCHEMA_VERSION
    dataset: str
    dataset_path: str
    eval_id: str
    target: str
    prompt: str | None
    trial: int
    request_digest: str
    response: StoredResponse


class RecordingResponder:
    """A target whose answers are written down. Failures are not: there is nothing to answer with again."""

    def __init__(self, inner: Responder, target: str, write: Write) -> None:
        self.endpoint = inner.endpoint
        self._inner = inner
        self._target = target
        self._write = write

    async def respond(self, request: Request) -> Response:
        """The target's answer, on disk before it goes on."""
        response = await self._inner.respond(request)
        self._write(self._line(request, response))
        return response

    def sends(self, request: Request) -> dict[str, Any] | None:
        """What the target would send."""
        return sent_by(self._inner, request)

    async def aclose(self) -> None:
        """Closes the target; the file is its owner's to close."""
        await self._inner.aclose()

    def _line(self, request: Request, response: Response) -> bytes:
        try:
            return msgspec.json.encode(self._call(request, response)) + b"\n"
        except (TypeError, ValueError, OverflowError, RecursionError):
            # Data of a user's function that no JSON can hold must not cost the answer.
            return msgspec.json.encode(self._call(request, text_only(response))) + b"\n"

    def _call(self, request: Request, response: Response) -> RecordedCall:
        return RecordedCall(
            dataset=request.case.dataset,
            dataset_path=request.case.path,
            eval_id=request.case.id,
            target=self._target,
            prompt=getattr(request, "prompt_id", None),
            trial=request.trial,
            request_digest=question_digest(request),
            response=stored(response),
        )
