"""A job: one case, one target, one prompt, one trial. Plain data that can travel to another process."""

from __future__ import annotations

from typing import Protocol

import msgspec

from agentv.model.case import EvalCase
from agentv.model.response import Response
from agentv.model.result import EvaluatorResult, JobKey, Result


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that exists already, so that no target is called: of an earlier run, or a canned one.

    `text` is the answer after its target's transform. `kept` are results of evaluators that still hold, by name;
    `record` is the earlier record that the answer comes from. Without `has_trace`, its tool calls are unknown.
    """

    response: Response
    text: str
    kept: dict[str, EvaluatorResult] = {}
    record: Result | None = None
    has_trace: bool = True


class Job(msgspec.Struct, frozen=True, gc=False):
    """What is answered and scored exactly once. Without an `answer`, the target is called."""

    case: EvalCase
    target: str
    prompt: str | None = None
    trial: int = 1
    fingerprint: str | None = None
    answer: GivenAnswer | None = None

    @property
    def key(self) -> JobKey:
        """Return the identity of the job."""
        return JobKey(self.case.path, self.case.id, self.target, self.prompt, self.trial)


class Decision(msgspec.Struct, frozen=True):
    """A record that needs no work, or the job to run, with its answer where there is one; and why."""

    why: str
    job: Job
    record: Result | None = None


class AnswerSource(Protocol):
    """Where answers come from instead of live targets."""

    def decide(self, job: Job) -> Decision: ...

    def close(self) -> None: ...
