"""A job: one case, one target, one prompt, one trial. Plain data that travels to wherever it is run."""

from __future__ import annotations

import msgspec

from agentv.engine.calls.layers import LayerSettings
from agentv.model.case import EvalCase
from agentv.model.evaluator import EvaluatorSpec
from agentv.settings.config import RunDefaults
from agentv.targets.target import Target

JobKey = tuple[str, str, str, str | None, int]


class Job(msgspec.Struct, frozen=True, gc=False):
    """What is to be answered and scored exactly once."""

    case: EvalCase
    target: str
    prompt: str | None = None
    trial: int = 1
    fingerprint: str | None = None

    @property
    def key(self) -> JobKey:
        """What makes it the same job in another process, or on another day."""
        return self.case.path, self.case.id, self.target, self.prompt, self.trial


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a worker needs to run jobs, as plain data; the live objects are built from it where they run.

    `replay` is a file that answers in the place of targets: a recording for all, results for those in `answering`.
    """

    run_id: str
    targets: tuple[Target, ...]
    home: str = "."
    judge: str | None = None
    evaluators: tuple[EvaluatorSpec, ...] | None = None
    workers: int | None = None
    timeout_s: float | None = None
    max_retries: int | None = None
    defaults: RunDefaults = RunDefaults()
    layers: LayerSettings = LayerSettings()
    replay: str | None = None
    answering: tuple[str, ...] = ()
    include_trace: bool = False

    def target(self, name: str) -> Target:
        """The settings of a target by its name."""
        return next(target for target in self.targets if target.name == name)
