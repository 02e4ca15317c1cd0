"""Run a plan: write every record as soon as it exists, then the summary and the manifest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import msgspec

from agentv.engine.cases.case_lines import CaseLines
from agentv.engine.cases.case_stream import CaseStream, ChangedFilesError
from agentv.engine.cases.dependencies import DependencyGate
from agentv.engine.cost import CostUnknown, costs_so_far, stored_cost
from agentv.engine.gates import ErrorWatch, Stop, Verdict, judge, with_missing
from agentv.engine.interrupts import InterruptibleLoop, call_later, first_error
from agentv.engine.job.answer import now
from agentv.engine.job.artifacts import ANSWERS
from agentv.engine.job.spec import skipped
from agentv.engine.run_manifest import new_manifest, resumed_manifest
from agentv.engine.run_plan import RunPlan
from agentv.engine.run_project import RESULTS
from agentv.engine.scoring.judge_calls import format_notes
from agentv.engine.work_spec import receiver_of, work_spec
from agentv.executors.executor import Executor, ExecutorOptions, UnfinishedJob
from agentv.model.case import EvalCase
from agentv.model.job import Job
from agentv.model.manifest import RunSummary, SpanCounts
from agentv.model.result import Result
from agentv.registry import EXECUTORS
from agentv.runs.catalogue import RunJournal
from agentv.runs.folder import RunFolder, new_run_id
from agentv.runs.job_index import DoneJobs
from agentv.runs.redaction import REPLACEMENT, Redactor
from agentv.runs.store import RunStore
from agentv.runs.summary import Snapshot, SummaryBuilder, TargetDetails
from agentv.support.hash_table import HashTable
from agentv.support.processes.process_gate import raise_descriptor_limit

if TYPE_CHECKING:
    from agentv.engine.answers.answer_log import UnscoredAnswers
    from agentv.engine.traces.span_receiver import SpanReceiver

_LARGE_BYTES = 16 * 1024
ABANDONED = (
    "The last process of this run ended without a summary: it was killed, or code of a target or an evaluator ended it "
    "(os._exit, a crash of a library). With --executor process, such a job becomes an error and the run continues."
)


class Observer:
    """Receives run events. The CLI renders them; the Python API ignores them."""

    def watch(self, running: RunInProgress) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context that is active while the run executes, e.g. a progress display."""
        return nullcontext()

    def result(self, result: Result) -> None:
        """Receive a record after it was written."""

    def note(self, text: str) -> None:
        """Receive a message for the user."""

    def decided(self, job: Job, why: str) -> None:
        """Receive why a job runs, or why its earlier record is kept."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run; see `RunManifest` for the costs that are not in its summary."""

    folder: Path
    summary: RunSummary
    details: dict[str, TargetDetails]
    verdict: Verdict
    duration_ms: float
    skipped_cases: int = 0
    stopped: Stop | None = None
    stopped_early: bool = False
    unrecorded_usd: float = 0.0
    stored_usd: float = 0.0
    spans: SpanCounts | None = None


def open_store(plan: RunPlan, out: str | None = None, *, resume: bool = False, listed: bool = True) -> RunStore:
    """Open the run folder: the one to resume, the named one, or a new one in the project.

    With `listed`, `agentv runs` also lists a run outside the project's results folder.
    """
    redact = Redactor(plan.project.secrets).redact_line
    if resume and out is not None and RunFolder(out).manifest_path.is_file():
        return RunStore(RunFolder.open(out, redact).located())
    path = Path(plan.project.root) / RESULTS / new_run_id() if out is None else Path(out)
    folder = RunFolder.create(path, redact)
    if listed and out is not None:
        RunJournal(plan.project.root).add_run(path)
    return RunStore(folder.located())


def open_executor(plan: RunPlan) -> Executor:
    """Return the executor named by the options."""
    options = plan.options
    kind = EXECUTORS.find(options.executor or "local")
    executor: Executor = kind(ExecutorOptions(processes=options.processes, ray_address=options.ray_address))
    return executor


def run(plan: RunPlan, store: RunStore, executor: Executor, observer: Observer) -> Outcome:
    """Run every job of a plan that is not done yet; write its records and summary."""
    started, folder = time.perf_counter(), store.folder
    raise_descriptor_limit()
    try:
        with folder.lock() as lock, receiver_of(plan) as receiver:
            running = RunInProgress(plan, store, executor, observer, receiver)
            if lock.was_abandoned and store.manifest is not None:
                observer.note(ABANDONED)
            try:
                with observer.watch(running), call_later(plan.options.deadline_s, running.end_late):
                    missing = running.loop.run(executor.run(running.spec, running.jobs(), running.emit))
            except (CostUnknown, BaseExceptionGroup) as raised:
                error = first_error(raised)
                if isinstance(error, CostUnknown):  # resuming the run would fail in the same way
                    folder.write_manifest(msgspec.structs.replace(running.manifest, exit_code=error.exit_code))
                raise error from None
            finally:
                running.close()
            return _finish(plan, running, missing or (), started)
    finally:
        if not folder.manifest_path.is_file():  # nothing was started: remove the new folder
            with suppress(OSError):
                folder.path.rmdir()


class RunInProgress:
    """The state of a run while it executes. Used in one event loop, except where noted."""

    def __init__(
        self, plan: RunPlan, store: RunStore, executor: Executor, observer: Observer, receiver: SpanReceiver | None
    ) -> None:
        begun = store.manifest
        manifest = new_manifest(plan, store.path) if begun is None else resumed_manifest(plan, begun)
        # The files of a resumed run change, and so do their digests.
        self.manifest = msgspec.structs.replace(manifest, digests={})
        self.plan = plan
        self.store = store
        self.cases = CaseStream(plan)
        self.loop = InterruptibleLoop()
        self.costs = costs_so_far(plan, store)
        self.receiver = receiver
        address = None if receiver is None else receiver.address
        self.spec = work_spec(plan, self.manifest.run_id, store.path, self.costs.left_usd, address)
        self.summary = SummaryBuilder(self.manifest.run_id, plan.checked.most_per_case)
        self._executor = executor
        self._observer = observer
        self.has_begun = False
        self.outage: str | None = None
        self._stopped: Stop | None = "budget" if self.costs.is_used_up else None
        options, jobs = plan.options, plan.checked.total
        self._errors = ErrorWatch(options.gates, jobs, keep_going=options.keep_going)
        self._judges = set(plan.checked.judges)
        self._lines = CaseLines(plan.evaluators)
        self._done = DoneJobs()
        self._answers: UnscoredAnswers | None = None
        self._hidden_names: Redactor | None = None
        self._written = HashTable()
        waits = plan.checked.dependencies.waits_for and plan.rescored is None
        self._gate = DependencyGate(plan.checked.dependencies, self._skip) if waits else None

    @property
    def stopped(self) -> Stop | None:
        """The reason the run stopped before its last job; None if it did not."""
        return "interrupted" if self.loop.interrupted and self._stopped != "deadline" else self._stopped

    def end_late(self) -> None:
        """Stop the run like `interrupt`, because its time is over."""
        self._stopped = self._stopped or "deadline"
        self.interrupt()

    def snapshot(self) -> Snapshot:
        """Return the progress so far; may be called from another thread."""
        load = self._executor.load()
        seen = self.summary.snapshot(self.plan.checked.total, load.concurrency, load.waits_s)
        return msgspec.structs.replace(
            seen, down=load.down, down_s=load.down_s, unreached=load.unreached, text=load.text
        )

    def interrupt(self) -> None:
        """Stop the run, from any thread: cancel jobs in flight, keep completed ones."""
        self.loop.interrupt()

    def jobs(self) -> Iterator[Job | None]:
        """Yield the jobs left to run. The first pull opens the files; by then the executor has opened its targets.

        None means that the next job waits for others that it depends on.
        """
        self._begin()
        early_stop, gate = self.plan.early_stop, self._gate
        for chunk in self.cases.chunks():
            for job in self._open_jobs(chunk):
                if self.stopped is not None:
                    return
                if self.plan.answers is None:
                    if gate is None or gate.admits(job):
                        yield self._answers.given_to(job) if self._answers else job
                    continue
                decision = self.plan.answers.decide(job)
                self._observer.decided(job, decision.why)
                if decision.record is None:
                    if gate is None or gate.admits(decision.job):
                        yield decision.job
                elif self.plan.rescored is not None:
                    self.emit(msgspec.structs.replace(decision.record, run_id=self.manifest.run_id))
                else:
                    self._keep(msgspec.structs.replace(decision.record, run_id=self.manifest.run_id))
        if early_stop is not None and early_stop.decided:
            self._stopped = self._stopped or "decided"
        if gate is not None:
            yield from gate.held_jobs(lambda: self.stopped is not None)

    def emit(self, result: Result | UnfinishedJob) -> bool:
        """Write the record of a job that ran; return whether the run has to stop."""
        if self._gate is not None:
            self._gate.ended()
        if isinstance(result, UnfinishedJob):
            self.costs.unrecorded_usd += result.cost_usd
            self._stopped = self._stopped or ("budget" if result.outage is None else "judge_outage")
            self.outage = self.outage or result.outage
            return True
        result = self._keep(result)
        self._observer.result(result)
        options = self.plan.options
        for note in format_notes(result.evaluator_results, self._judges) if self._judges else ():
            self._observer.note(note)
        self._stopped = self._stopped or self._errors.add(result)
        if options.fail_fast and (result.verdict == "fail" or result.status == "error"):
            self._stopped = self._stopped or "fail_fast"
        if self.costs.has_budget:
            self.costs.add(result)
            if self.costs.is_used_up:
                self._stopped = self._stopped or "budget"
        return self._stopped is not None

    def close(self) -> None:
        """Close the files, so that every record is on disk."""
        if self.plan.answers is not None:
            self.plan.answers.close()
        self.store.close()

    def _begin(self) -> None:
        """Write the manifest, open the files, and add the results from before the run was resumed."""
        store, self.has_begun = self.store, True
        if store.manifest is None:  # written first: a folder with other files and without a manifest is not a run
            store.folder.write_manifest(self.manifest)
        if store.start_writing(self.loop.call_soon, self.loop.call_from_thread):
            self._observer.note("The last record is incomplete; its job runs again.")
        if store.manifest not in (None, self.manifest):
            store.folder.write_manifest(self.manifest)
        for case in store.cases():
            self._written.add([hash((case.dataset_path, case.id))])
        if store.manifest is None:
            return
        from agentv.engine.answers.answer_log import UnscoredAnswers  # late: few runs are resumed

        self._done = store.done_jobs()
        self._answers = UnscoredAnswers(store.path, self._done)
        for result in RunStore.open(store.path).records():
            self.summary.add(result)
            self._stopped = self._stopped or self._errors.add(result)
            if REPLACEMENT in f"{result.eval_id}{result.target}":
                self._hidden_names = Redactor(self.plan.project.secrets)
            if self._gate is not None:
                self._gate.add_result(result)
            if self.plan.early_stop is not None and self.plan.rescored is None:
                self.plan.early_stop.known(result)
        if len(self._done) >= self.plan.checked.total:
            self._observer.note("All jobs in this run are already complete.")

    def _is_done(self, job: Job) -> bool:
        key, hidden = job.key, self._hidden_names
        if key in self._done or hidden is None:
            return key in self._done
        return (
            key._replace(eval_id=hidden.redact_name(key.eval_id), target=hidden.redact_name(key.target)) in self._done
        )

    def _open_jobs(self, cases: list[EvalCase]) -> list[Job]:
        """Return the jobs of some cases that are not done, after writing these cases to disk together."""
        jobs: list[Job] = []
        lines: list[bytes] = []
        plan, has_done, compares_files = self.plan, len(self._done) > 0, self.cases.compares_files
        early_stop = plan.early_stop if plan.rescored is None else None
        for case in cases:
            fingerprints = plan.source.fingerprints(case)
            if compares_files:
                self.cases.read(case, fingerprints)
            found = plan.source.jobs(case, fingerprints[1])
            planned = len(found)
            if has_done:
                found = [job for job in found if not self._is_done(job)]
            is_recorded = len(found) < planned  # the case is stored, unless its line was lost
            if early_stop is not None:
                found = [job for job in found if job.target in early_stop.open]
            if not found and not is_recorded:
                continue
            jobs += found
            if not self._written or hash((case.path, case.id)) not in self._written:
                lines.append(self._lines.line(case, fingerprints))
                if len(lines[-1]) > _LARGE_BYTES:  # it contains files
                    self.store.append_cases(lines)
                    lines.clear()
        if lines:
            self.store.append_cases(lines)
        return jobs

    def _skip(self, job: Job, why: str) -> None:
        self.emit(skipped(job, why, self.manifest.run_id))

    def _keep(self, result: Result) -> Result:
        """Write a record; return it as written, without secrets."""
        if self.plan.early_stop is not None and self.plan.rescored is None:
            self.plan.early_stop.result(result)
        if self._gate is not None:
            self._gate.add_result(result)
        result = self.store.append(result)
        self.summary.add(result)
        return result


def _finish(plan: RunPlan, running: RunInProgress, missing: tuple[str, ...], started: float) -> Outcome:
    """Write the summary and manifest of a run that ended."""
    folder, checked, stopped = running.store.folder, plan.checked, running.stopped
    early_stop, manifest = plan.early_stop, running.manifest
    summary, details = running.summary.build(checked.jobs, checked.cases_by_target), running.summary.details()
    if stopped is None:
        _refuse_changes(running, has_missing_jobs=_has_missing_jobs(plan, summary))
    if early_stop is not None:
        from agentv.engine.early_stop import catch_up, label  # late: few runs stop early

        if plan.rescored is not None:
            summary = catch_up(summary, early_stop, plan.rescored, folder.path)
        summary = label(summary, early_stop, folder.path)
    verdict = judge(summary, plan.options.gates, stopped, checked.thresholds)
    if stopped == "judge_outage":
        verdict = Verdict(verdict.exit_code, (f"Stopped: {running.outage}", *verdict.reasons))
    verdict = with_missing(verdict, missing)
    digests = {**running.store.digests, folder.summary_path.name: folder.write_summary(summary)}
    is_complete = stopped in (None, "decided")
    stored_usd = 0.0 if is_complete else stored_cost(running.store)
    unrecorded_usd = running.costs.unrecorded_usd + stored_usd
    if is_complete:
        rmtree(folder.path / ANSWERS, ignore_errors=True)
    spans = manifest.spans if running.receiver is None else running.receiver.counts().added_to(manifest.spans)
    stops = (target.early_stop for target in summary.targets.values())
    spared = manifest.stopped_early or any(stop is not None and stop.not_needed > 0 for stop in stops)
    folder.write_manifest(
        msgspec.structs.replace(
            manifest,
            finished_at=manifest.finished_at or now() if is_complete else None,
            stopped_early=is_complete and spared,
            exit_code=verdict.exit_code,
            counts=summary.counts(checked.cases),
            unrecorded_cost_usd=unrecorded_usd,
            stored_cost_usd=stored_usd,
            spans=spans,
            digests=digests,
        )
    )
    return Outcome(
        folder=folder.shown,
        summary=summary,
        details=details,
        verdict=verdict,
        duration_ms=round((time.perf_counter() - started) * 1000, 1),
        skipped_cases=plan.cases.sink.skipped,
        stopped=stopped,
        stopped_early=is_complete and spared,
        unrecorded_usd=unrecorded_usd,
        stored_usd=stored_usd,
        spans=spans,
    )


def _refuse_changes(running: RunInProgress, *, has_missing_jobs: bool) -> None:
    folder = running.store.folder
    try:
        running.cases.refuse_changes(folder.shown, has_missing_jobs=has_missing_jobs)
    except ChangedFilesError as error:  # some records are wrong, so the run cannot be resumed
        folder.write_manifest(msgspec.structs.replace(running.manifest, exit_code=error.exit_code))
        raise


def _has_missing_jobs(plan: RunPlan, summary: RunSummary) -> bool:
    """Whether jobs are missing for another reason than early stopping."""
    stop = plan.early_stop
    return any(
        target.skipped and not (stop is not None and name in stop.bets and stop.side(name) is not None)
        for name, target in summary.targets.items()
    )
