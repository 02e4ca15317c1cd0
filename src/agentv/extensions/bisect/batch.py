"""Evaluate a batch of cases in a worktree, in a process of its own: the code of targets differs between commits."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from agentv.engine.prepare import prepare
from agentv.engine.run import open_executor, open_store, run
from agentv.engine.run_in_progress import Observer
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import Fingerprints, JobSource
from agentv.errors import AgentvError
from agentv.model.case import EvalCase, Texts
from agentv.model.job import Job
from agentv.support.user_code import describe


class CaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Cases to evaluate, by id, and the number of the trial. Records are written to the run folder `out`.

    With `skip_missing`, cases that the commit's own datasets do not have are left out.
    """

    options: EvalOptions
    trial: int
    out: str
    skip_missing: bool = False


class NumberedTrial(JobSource):
    """The jobs of another source with one trial, as the trial with this number."""

    def __init__(self, inner: JobSource, trial: int) -> None:
        self._inner = inner
        self._trial = trial

    def counts(self, case: EvalCase) -> dict[str, int]:
        return self._inner.counts(case)

    def fingerprints(self, case: EvalCase, texts: Texts | None = None) -> Fingerprints:
        return self._inner.fingerprints(case, texts)

    def jobs(self, case: EvalCase, fingerprint: str | None = None) -> list[Job]:
        return [msgspec.structs.replace(job, trial=self._trial) for job in self._inner.jobs(case, fingerprint)]


class BatchEnding(msgspec.Struct, frozen=True):
    """The exit code of a batch and its messages."""

    exit_code: int
    messages: str


def run_batch(batch: CaseBatch, folder: Path, variables: dict[str, str]) -> BatchEnding:
    """Evaluate a batch in a new process, in a folder of its worktree. Ctrl-C ends it after its records are written."""
    # Without -P, modules in the folder could replace Python's own.
    command = [sys.executable, "-P", "-m", "agentv.extensions.bisect.batch"]
    with subprocess.Popen(  # noqa: S603 - our own program
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches it once, from here
    ) as process:
        try:
            _, messages = process.communicate(msgspec.json.encode(batch))
        except BaseException:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate()
            except BaseException:
                process.kill()
                raise
            raise
    return BatchEnding(process.returncode, messages.decode(errors="replace").strip())


def main() -> None:
    """Read a batch from stdin, evaluate it, and exit with the code of the run."""
    batch = msgspec.json.decode(sys.stdin.buffer.read(), type=CaseBatch)
    try:
        code = _evaluate(batch)
    except AgentvError as error:
        print(error, file=sys.stderr)
        code = error.exit_code
    except Exception as error:  # the code of this commit, or a bug: both make the commit unusable
        print(describe(error, os.getcwd()), file=sys.stderr)
        code = 1
    sys.exit(code)


def _evaluate(batch: CaseBatch) -> int:
    options = batch.options
    if batch.skip_missing:
        options = msgspec.structs.replace(options, cases=tuple(_existing(options)))
        if not options.cases:
            return 0
    plan = prepare(options, options.open_cases(_ignore, _ignore))
    plan = msgspec.structs.replace(plan, source=NumberedTrial(plan.source, batch.trial))
    outcome = run(plan, open_store(plan, batch.out), open_executor(plan), Observer())
    for reason in outcome.verdict.reasons:
        print(reason, file=sys.stderr)
    return outcome.verdict.exit_code


def _existing(options: EvalOptions) -> Iterator[str]:
    """Yield the ids of the options that a case has."""
    ids = set(options.cases)
    for case in msgspec.structs.replace(options, cases=()).open_cases(_ignore, _ignore).stream():
        if case.id in ids:
            ids.discard(case.id)
            yield case.id


def _ignore(_: object) -> None:
    """Ignore a warning or a note: the working tree was checked before the search."""


if __name__ == "__main__":
    main()
