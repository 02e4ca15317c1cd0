"""What a worker is built from: the spec of a run, plain data that can travel to another process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agentv.engine.job.answer import Answer, failed, make_record
from agentv.engine.job.request import Question
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.job import Job
from agentv.model.response import TargetFailure
from agentv.model.result import Result
from agentv.settings.settings_reader import RunDefaults
from agentv.targets.target import Target

if TYPE_CHECKING:
    from agentv.engine.job.run_job import JobContext
    from agentv.executors.executor import Limits

MOST_AT_ONCE = 1000


class RunFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run keeps what its targets are asked and answer; None where it does not."""

    cache_folder: str | None = None
    record_file: str | None = None
    prompts_folder: str | None = None
    traces_folder: str | None = None
    logs_folder: str | None = None
    workspaces_folder: str | None = None


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the workers of a run are built from.

    `answering` are the targets that answer jobs, `users` those that play simulated users, `judges` and `embedders`
    those that evaluators call; `targets` has the settings of all that may be called. `home` is the folder that paths in
    targets' settings start from, `folders` are those of the datasets. `replay` is a file that answers instead of
    targets: a recording for all, results for those in `answering`. `jobs` is how many there are, `most_given` how many
    of those with a given answer are scored at once.
    """

    run_id: str
    targets: tuple[Target, ...]
    answering: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    embedders: tuple[str, ...] = ()
    home: str = "."
    folders: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    judge: str | None = None
    evaluators: tuple[EvaluatorSpec, ...] | None = None
    workers: int | None = None
    timeout_s: float | None = None
    max_retries: int | None = None
    defaults: RunDefaults = RunDefaults()
    files: RunFiles = RunFiles()
    replay: str | None = None
    include_trace: bool = False
    jobs: int = MOST_AT_ONCE
    most_given: int | None = None

    def target(self, name: str) -> Target:
        """Return the settings of a target."""
        return next(target for target in self.targets if target.name == name)

    def open(self, limits: Limits) -> JobContext:
        """Build the worker of this process, its targets open. Raises what is wrong with one of them."""
        from agentv.engine.job.run_job import JobContext  # late: a spec is made where no job runs, too

        return JobContext(self, limits)

    def failed(self, job: Job, message: str) -> Result:
        """Return the record of a job that no worker could run."""
        answer = Answer(request=Question(job.case, prompt_id=job.prompt, trial=job.trial), response=None)
        return make_record(job, failed(answer, TargetFailure("process", message)), self.run_id)
