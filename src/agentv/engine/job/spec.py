"""The spec of a run: plain data from which workers are built, in this process or another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agentv.engine.job.answer import Answer, failed, make_record
from agentv.engine.job.request import CaseRequest
from agentv.executors.budget import BudgetTerms
from agentv.model.call_trace import ReceiverAddress
from agentv.model.evaluator import EvaluatorSpec
from agentv.model.job import Job
from agentv.model.response import TargetFailure
from agentv.model.result import Result
from agentv.settings.settings_reader import RunDefaults
from agentv.targets.target import Target

if TYPE_CHECKING:
    from agentv.engine.job.job_context import JobContext
    from agentv.executors.executor import Limits

MOST_AT_ONCE = 1000
MAX_OUTAGE_S = 600.0


class RunFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files and folders in which a run stores its calls; None for those it does not store.

    With `returns_answers`, workers return answers without a score, because they cannot write to the run folder.
    """

    cache_folder: str | None = None
    record_file: str | None = None
    prompts_folder: str | None = None
    traces_folder: str | None = None
    logs_folder: str | None = None
    workspaces_folder: str | None = None
    answers_folder: str | None = None
    returns_answers: bool = False
    batches_folder: str | None = None


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The data from which the workers of a run are built.

    `answering` are the targets that answer jobs, `users` those that play simulated users, `judges` and `embedders`
    those that evaluators call; `targets` has the settings of all targets. Paths in these settings are relative to
    `home`; `folders` are the dataset folders. `replay` is a file that answers in place of targets: a recording for all
    of them, results for those in `answering`. `jobs` is the number of jobs; `most_given` limits how many jobs with a
    provided answer are scored concurrently. `budget` is what is left of the budget, if there is one.
    `receiver` receives the spans of targets with `traces`.
    With `stops_at_outage`, a job whose judge has been down for too long stops the run; else it is an error.
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
    max_outage_s: float = MAX_OUTAGE_S
    defaults: RunDefaults = RunDefaults()
    files: RunFiles = RunFiles()
    replay: str | None = None
    include_trace: bool = False
    jobs: int = MOST_AT_ONCE
    most_given: int | None = None
    budget: BudgetTerms | None = None
    stops_at_outage: bool = True
    receiver: ReceiverAddress | None = None

    def open(self, limits: Limits) -> JobContext:
        """Build the worker of this process and open its targets. Raises the error of a target that cannot be opened."""
        from agentv.engine.job import job_context, run_job  # late: a spec is also made where no job runs

        return job_context.JobContext(self, limits, run_job.run_job)

    def failed(self, job: Job, message: str) -> Result:
        """Return the error record of a job that no worker could run."""
        return _error_record(job, TargetFailure("process", message), self.run_id, 1)


def skipped(job: Job, message: str, run_id: str) -> Result:
    """Return the error record of a job that was not started."""
    return _error_record(job, TargetFailure("process", message, stage="setup"), run_id, 0)


def _error_record(job: Job, failure: TargetFailure, run_id: str, attempts: int) -> Result:
    request = CaseRequest(job.case, prompt_id=job.prompt, trial=job.trial)
    return make_record(job, failed(Answer(request=request, response=None, attempts=attempts), failure), run_id)
