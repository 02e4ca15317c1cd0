"""The spec of a run for workers on other machines: secrets stay behind and come from the environment there."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec

from agentv.engine.job.run_job import JobContext
from agentv.engine.job.spec import RunSpec
from agentv.errors import TargetsError, UsageError
from agentv.executors.executor import Limits
from agentv.model.job import Job
from agentv.model.result import Result
from agentv.runs.record import decode_record, encode_record
from agentv.runs.redaction import Redactor
from agentv.settings.environment import is_secret_field
from agentv.targets.catalog import PortableTargets, Targets, refuse_to_send
from agentv.targets.target import Target, explicit_settings


class PortableSpec(msgspec.Struct, frozen=True):
    """A spec that has only the targets without secrets, and the entries of the others as their file has them."""

    spec: RunSpec
    targets: PortableTargets

    def open(self, limits: Limits) -> RedactingWorker:
        """Build the worker of this process. Raises UsageError for a variable that is not set on this machine."""
        targets = self.targets.load()
        settings = (*self.spec.targets, *self._filled(targets))
        spec = msgspec.structs.replace(self.spec, targets=settings, home=targets.home, secrets=targets.secrets)
        return RedactingWorker(spec.open(limits), Redactor(targets.secrets))

    def _filled(self, targets: Targets) -> Iterator[Target]:
        spec = self.spec
        needed = {*spec.answering, *spec.users, *spec.judges, *spec.embedders}
        for name in targets.names:
            try:
                yield targets.unresolved(name) if spec.replay is not None else targets.get(name)
            except TargetsError as error:
                if name in needed:
                    hint = "Set it in the environment in which the workers of this node are started"
                    headline = f"{error.headline} on node {socket.gethostname()}"
                    raise UsageError(headline, error.detail, hint) from None

    def failed(self, job: Job, message: str) -> Result:
        """Return the record of a job that no worker could run."""
        return self.spec.failed(job, message)


class RedactingWorker:
    """A worker whose records have its secrets removed before they leave the machine: the driver may not know them."""

    def __init__(self, worker: JobContext, redactor: Redactor) -> None:
        self.capacity = worker.capacity
        self._worker = worker
        self._redact = redactor.redact_line

    @property
    def missing(self) -> tuple[str, ...]:
        """The calls that are not in what is replayed."""
        return self._worker.missing

    async def run(self, job: Job) -> Result:
        """Return the record of one job."""
        result = await self._worker.run(job)
        line = encode_record(result)
        redacted = self._redact(line)
        return result if redacted is line else decode_record(redacted)

    async def aclose(self) -> None:
        """Close the targets, and end what evaluators have running."""
        await self._worker.aclose()


def portable(spec: RunSpec, file: Targets) -> PortableSpec:
    """Return a spec without its secrets. Raises UsageError for one that cannot do without."""
    if spec.files.record_file is not None:
        hint = "Leave --record out, or use an executor on this machine"
        raise UsageError("Calls on other machines cannot be recorded", "Only this machine can write the file", hint)
    from_file = [target.name for target in spec.targets if target.name in file.names]
    others = tuple(target for target in spec.targets if target.name not in file.names)
    for target in others:
        for field, value in explicit_settings(target).items():
            if value and is_secret_field((field,)):
                refuse_to_send(target.name, (field,))
    bare = msgspec.structs.replace(spec, targets=others, home=str(spec.home), secrets=frozenset())
    return PortableSpec(bare, file.portable(from_file))
