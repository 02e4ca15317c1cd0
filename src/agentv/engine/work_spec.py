"""The data from which the workers of a run are built."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from agentv.engine.job.job_context import JobContext
from agentv.engine.job.run_job import run_job
from agentv.engine.job.spec import MAX_OUTAGE_S, RunSpec
from agentv.engine.run_defaults import first_given
from agentv.engine.run_plan import RunPlan
from agentv.errors import TargetsError, UsageError
from agentv.executors.budget import BudgetTerms
from agentv.executors.executor import Limits, UnfinishedJob, WorkSpec
from agentv.model.call_trace import ReceiverAddress, SpanReceiver, is_traced
from agentv.model.job import Job
from agentv.model.result import Result
from agentv.registry import service
from agentv.runs.record import decode_record, encode_record
from agentv.settings.environment import is_secret_field
from agentv.targets.catalog import PortableTargets, Targets, refuse_to_send
from agentv.targets.target import Target, explicit_settings


class _OpenReceiver(Protocol):
    def __call__(self, port: int | None, *, may_be_any: bool) -> AbstractContextManager[SpanReceiver]: ...


def receiver_of(plan: RunPlan) -> AbstractContextManager[SpanReceiver | None]:
    """Return a context that receives the spans of targets with `traces`; None if there are no such targets."""
    traced = [target for target in plan.targets if is_traced(target)]
    if not traced or not plan.called or plan.project.replay is not None:
        return nullcontext()
    if plan.project.is_remote:
        message = f"Target '{traced[0].name}' has `traces`, which are received on this machine only"
        raise UsageError(message, hint="Use --executor local or --executor process, or remove `traces`")
    are_commands = all(target.is_command for target in traced)
    open_receiver: _OpenReceiver = service("span-receiver", f"Target '{traced[0].name}' with `traces`")
    return open_receiver(plan.options.trace_port, may_be_any=are_commands)


def work_spec(
    plan: RunPlan, run_id: str, folder: Path, budget: BudgetTerms | None, receiver: ReceiverAddress | None
) -> WorkSpec:
    """Return the spec of a run whose files are in `folder`; `budget` is what is left of its budget."""
    spec = msgspec.structs.replace(_spec(plan, run_id, folder), receiver=receiver)
    if not all(target.is_free for target in plan.targets):
        spec = msgspec.structs.replace(spec, budget=budget)
    if not plan.project.is_remote:
        return spec

    return portable(spec, plan.project.file)


def _spec(plan: RunPlan, run_id: str, folder: Path) -> RunSpec:
    options, project, checked = plan.options, plan.project, plan.checked
    return RunSpec(
        run_id=run_id,
        targets=tuple(map(partial(_batched, plan), plan.targets)) if options.batch else plan.targets,
        answering=plan.called,
        users=checked.users if plan.called else (),
        judges=tuple(checked.judges),
        embedders=checked.embedders,
        home=project.home,
        folders=project.folders,
        secrets=project.secrets,
        judge=options.judge,
        evaluators=plan.evaluators,
        workers=first_given(options.workers, checked.workers),
        timeout_s=options.timeout_s,
        max_retries=options.max_retries,
        max_outage_s=MAX_OUTAGE_S if options.max_outage_s is None else options.max_outage_s,
        stops_at_outage=options.max_outage_s != 0 and not options.keep_going,
        defaults=project.defaults,
        files=project.run_files(options, folder),
        replay=project.replay,
        include_trace=options.include_trace,
        jobs=checked.total,
        most_given=plan.most_given,
    )


def _batched(plan: RunPlan, target: Target) -> Target:
    """Return a target in batch mode, if it answers jobs."""
    return msgspec.structs.replace(target, batch=True) if target.name in plan.called else target


class PortableSpec(msgspec.Struct, frozen=True):
    """A spec without secrets: variables in target settings are filled in by the worker."""

    spec: RunSpec
    targets: PortableTargets

    def open(self, limits: Limits) -> JobContext:
        """Build the worker of this process. Raises UsageError if a variable is not set on this machine."""
        targets = self.targets.load()
        settings = (*self.spec.targets, *self._filled(targets))
        spec = msgspec.structs.replace(self.spec, targets=settings, home=targets.home, secrets=targets.secrets)
        return JobContext(spec, limits, run_redacted)

    def _filled(self, targets: Targets) -> Iterator[Target]:
        spec = self.spec
        needed = {*spec.answering, *spec.users, *spec.judges, *spec.embedders}
        for name in targets.names:
            try:
                yield targets.unresolved(name) if spec.replay is not None else targets.get(name)
            except TargetsError as error:
                if name in needed:
                    hint = "Set it in the environment of the workers on this node"
                    headline = f"{error.headline} on node {socket.gethostname()}"
                    raise UsageError(headline, error.detail, hint) from None

    def failed(self, job: Job, message: str) -> Result:
        """Return the error record of a job that no worker could run."""
        return self.spec.failed(job, message)


async def run_redacted(job: Job, context: JobContext) -> Result | UnfinishedJob:
    """Return the record of one job without secrets: the driver may not have the secrets of this machine."""
    result = await run_job(job, context)
    if isinstance(result, UnfinishedJob):
        return result
    line = encode_record(result)
    redacted = context.redact_line(line)
    return result if redacted is line else decode_record(redacted)


def portable(spec: RunSpec, file: Targets) -> PortableSpec:
    """Return the spec without secrets. Raises UsageError if a secret is not a variable of the targets file."""
    if spec.files.record_file is not None:
        hint = "Remove --record, or use an executor that runs on this machine"
        raise UsageError("Calls on other machines cannot be recorded", "Only this machine can write the file", hint)
    from_file = [target.name for target in spec.targets if target.name in file.names]
    others = tuple(target for target in spec.targets if target.name not in file.names)
    for target in others:
        for field, value in explicit_settings(target).items():
            if value and is_secret_field((field,)):
                refuse_to_send(target.name, (field,))
    # Other machines cannot write to the run folder.
    files = msgspec.structs.replace(spec.files, answers_folder=None, batches_folder=None, returns_answers=True)
    bare = msgspec.structs.replace(spec, targets=others, home=str(spec.home), secrets=frozenset(), files=files)
    return PortableSpec(bare, file.portable(from_file))
