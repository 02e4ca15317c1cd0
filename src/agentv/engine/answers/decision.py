"""What becomes of a job before it is run: its target is called, its answer is given, or an earlier record is kept."""

from __future__ import annotations

from typing import Protocol

import msgspec

from agentv.model.job import Job
from agentv.model.result import Result


class Decision(msgspec.Struct, frozen=True):
    """A record that needs no work, or the job to run, with its answer where there is one; and why."""

    why: str
    job: Job
    record: Result | None = None


class AnswerSource(Protocol):
    """Where answers come from instead of live targets."""

    def decide(self, job: Job) -> Decision: ...

    def close(self) -> None: ...
