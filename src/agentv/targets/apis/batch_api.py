"""The protocol of batch APIs: many requests in one file, answered within a day at half the price."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import TYPE_CHECKING, Protocol

import msgspec

from agentv.model.response import Request, Responder, Response, TargetFailure
from agentv.registry import service

if TYPE_CHECKING:
    from agentv.targets.target import Target

Outcome = Response | TargetFailure


class UnreadableResults(TargetFailure):
    """Some lines of the results of a batch cannot be read."""


class BatchState(msgspec.Struct, frozen=True):
    """The state of a batch. `failure` is what happened to requests without a result, once it `is_over`."""

    is_over: bool
    done: int
    total: int
    failure: TargetFailure


class Submission(msgspec.Struct, frozen=True):
    """A batch that may have been submitted: its label, the ids of its requests, and when this was (Unix time)."""

    label: str
    ids: Collection[str]
    at_s: float


class BatchPlace(msgspec.Struct, frozen=True):
    """The folder with the log of a target's batches, the name of the target, and the run."""

    folder: str
    target: str
    run: str


class BatchApi(Protocol):
    """A provider's batches. `max_requests` and `max_bytes` are its limits for one batch."""

    max_requests: int
    max_bytes: int

    def line(self, id: str, request: Request) -> bytes:
        """Return one request of a batch as JSON."""
        ...

    async def submit(self, label: str, lines: list[bytes]) -> str:
        """Submit a batch and return its id. Raises TargetFailure; the batch may exist nevertheless."""
        ...

    async def find(self, submission: Submission, known_ids: Collection[str]) -> str | None:
        """Return the id of a submission whose response was lost; None if it never arrived. Others have `known_ids`."""
        ...

    async def state(self, id: str) -> BatchState:
        """Return the state of a batch. Raises TargetFailure."""
        ...

    def results(self, id: str) -> AsyncIterator[tuple[str, Outcome]]:
        """Yield the results of a batch that is over, in any order. Raises TargetFailure.

        Raises UnreadableResults after all results that can be read, if there are others.
        """
        ...

    async def aclose(self) -> None: ...


def batch_queue(target: Target) -> Callable[..., Responder]:
    """Return the wrapper that sends the requests of a target in batches. Raises UsageError if it is not installed."""
    queue: Callable[..., Responder] = service("batch-queue", f"Target '{target.name}' in batch mode")
    return queue
