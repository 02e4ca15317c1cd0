"""A recording: every call as a line, with what was asked and what came of it. A wrapper that writes and passes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agentv.model.message import message_to_data
from agentv.model.response import Request, Responder, Response, TargetFailure
from agentv.model.result import ErrorClass
from agentv.targets.replay.stored_response import StoredResponse, question_digest, sent_by, stored, text_only

SCHEMA_VERSION = 2

Write = Callable[[bytes], None]
"""Takes a line that ends in a newline; what it returns from is on disk."""


class Variant(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a call wants besides the target's own settings, in few words; `form` is the title of a schema."""

    model: str | None = None
    temperature: float | None = None
    form: str | None = None

    @property
    def key(self) -> str:
        """The same for the same wishes; empty for none."""
        wishes = (self.model, self.temperature, self.form)
        return "" if wishes == (None, None, None) else msgspec.json.encode(wishes).decode()

    def without_form(self) -> Variant:
        """The same for a target that keeps to no form."""
        return Variant(self.model, self.temperature)


AS_IT_IS = Variant()


class RecordedFailure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename={"error_class": "class"}):
    """A call that was not answered."""

    error_class: ErrorClass
    message: str
    status: int | None = None


class RecordedCall(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A line: which call it was, what was asked with its hash, and the answer or the failure.

    A judge's call has the case id `judge:ID`, a simulated user's `user:ID`; `prompt` then says for whom and which job.
    """

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    dataset: str
    dataset_path: str
    eval_id: str
    target: str
    prompt: str | None
    trial: int
    attempt: int = 1
    repeat: int = 0
    variant: str = ""
    request_digest: str
    request: list[dict[str, Any]]
    response: StoredResponse | None = None
    failure: RecordedFailure | None = None
    cached: bool = False


class RecordingResponder:
    """A target whose calls are written down, those that fail too: a replay has to fail as they did."""

    def __init__(self, inner: Responder, target: str, write: Write, variant: Variant = AS_IT_IS) -> None:
        self.endpoint = inner.endpoint
        self._inner = inner
        self._target = target
        self._write = write
        self._variant = variant.key

    async def respond(self, request: Request) -> Response:
        """The target's answer, on disk before it goes on."""
        try:
            response = await self._inner.respond(request)
        except TargetFailure as failure:
            failed = RecordedFailure(failure.error_class, failure.message, failure.status)
            self._write(_line(self._call(request, failure=failed)))
            raise
        self._write(self._answered(request, response))
        return response

    def sends(self, request: Request) -> dict[str, Any] | None:
        """What the target would send."""
        return sent_by(self._inner, request)

    async def aclose(self) -> None:
        """Closes the target; the file is its owner's to close."""
        await self._inner.aclose()

    def _answered(self, request: Request, response: Response) -> bytes:
        try:
            return _line(self._call(request, response=stored(response), cached=response.cached))
        except (TypeError, ValueError, OverflowError, RecursionError):
            # Data of a user's function that no JSON can hold must not cost the answer.
            return _line(self._call(request, response=stored(text_only(response))))

    def _call(self, request: Request, **known: Any) -> RecordedCall:
        return RecordedCall(
            dataset=request.case.dataset,
            dataset_path=request.case.path,
            eval_id=request.case.id,
            target=self._target,
            prompt=request.prompt_id,
            trial=request.trial,
            attempt=request.attempt,
            repeat=request.repeat,
            variant=self._variant,
            request_digest=question_digest(request),
            request=[message_to_data(message) for message in request.messages],
            **known,
        )


def _line(call: RecordedCall) -> bytes:
    return msgspec.json.encode(call) + b"\n"
