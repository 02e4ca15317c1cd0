"""The spec of a run for workers on other machines, which take secrets from their own environment."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec

from agentv.engine.job.run_job import JobContext, run_job
from agentv.engine.job.spec import RunSpec
from agentv.errors import TargetsError, UsageError
from agentv.executors.executor import Limits, UnfinishedJob
from agentv.model.job import Job
from agentv.model.result import Result
from agentv.runs.record import decode_record, encode_record
from agentv.settings.environment import is_secret_field
from agentv.targets.catalog import PortableTargets, Targets, refuse_to_send
from agentv.targets.target import Target, explicit_settings


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
