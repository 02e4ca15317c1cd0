"""The state of a run while it executes: its jobs, records, costs and progress, and the reason to stop it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import msgspec

from agentv.engine.answers.answer_log import AnswerLog, UnscoredAnswers
from agentv.engine.cases.dependencies import DependencyGate
from agentv.engine.cases.pending_jobs import PendingJobs
from agentv.engine.cost import budget_terms, costs_so_far
from agentv.engine.gates.exit_code import ErrorWatch, Stop
from agentv.engine.interrupts import InterruptibleLoop
from agentv.engine.job.artifacts import ANSWERS
from agentv.engine.job.spec import skipped
from agentv.engine.run_manifest import new_manifest, resumed_manifest
from agentv.engine.run_plan import RunPlan
from agentv.engine.scoring.judge_calls import format_notes
from agentv.engine.work_spec import work_spec
from agentv.executors.executor import Executor, UnfinishedJob
from agentv.model.call_trace import SpanReceiver
from agentv.model.job import AnswerSource, Job
from agentv.model.result import Result
from agentv.runs.redaction import REPLACEMENT, Redactor
from agentv.runs.store import RunStore, Written
from agentv.runs.summary import Snapshot, SummaryBuilder


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
        self.pending = PendingJobs(plan, store)
        self.loop = InterruptibleLoop()
        self.costs = costs_so_far(plan, store)
        self.receiver = receiver
        address = None if receiver is None else receiver.address
        self.budget = budget_terms(plan, self.manifest, self.costs)
        self.spec = work_spec(plan, self.manifest.run_id, store.path, self.budget, address)
        self.summary = SummaryBuilder(self.manifest.run_id, plan.checked.most_per_case)
        self._executor = executor
        self._observer = observer
        self._is_observed = type(observer).result is not Observer.result
        self.has_begun = False
        self.outage: str | None = None
        self._down: set[str] = set()
        self._earlier = 0
        self._stopped: Stop | None = "budget" if self.costs.is_used_up else None
        self._errors = ErrorWatch(plan.options.gates, plan.checked.total, keep_going=plan.options.keep_going)
        self._judges = set(plan.checked.judges)
        self._answers: UnscoredAnswers | None = None
        self._returned: AnswerLog | None = None
        self._early_stop = plan.live_early_stop
        waits = plan.checked.dependencies.waits_for and plan.rescored is None
        self._gate = DependencyGate(plan.checked.dependencies, self._skip) if waits else None

    @property
    def stopped(self) -> Stop | None:
        """The reason the run stopped before its last job; None if it did not."""
        return "interrupted" if self.loop.interrupted and self._stopped != "deadline" else self._stopped

    @property
    def unfinished(self) -> Stop | None:
        """The reason why jobs have no record at the end; None if all have one."""
        return self.stopped or ("outage" if self._down else None)

    def end_late(self) -> None:
        """Stop the run like `interrupt`, because its time is over."""
        self._stop("deadline")
        self.interrupt()

    def interrupt(self) -> None:
        """Stop the run, from any thread: cancel jobs in flight, keep completed ones."""
        self.loop.interrupt()

    def snapshot(self) -> Snapshot:
        """Return the progress so far; may be called from another thread."""
        load = msgspec.structs.asdict(self._executor.load())
        load["down_targets"] = tuple(f"judge {name}" if name in self._judges else name for name in load["down_targets"])
        total, earlier = self.plan.checked.total, self._earlier
        return msgspec.structs.replace(self.summary.snapshot(), total=total, earlier=earlier, **load)

    def jobs(self) -> Iterator[Job | None]:
        """Yield the jobs left to run. The first pull opens the files; by then the executor has opened its targets.

        None means that the next job waits for others that it depends on.
        """
        self._begin()
        early_stop, gate = self._early_stop, self._gate
        for jobs in self.pending.chunks():
            for job in jobs:
                if self._stopped is not None or self.loop.interrupted:
                    return
                if job.target in self._down:
                    continue
                ready = job if self.plan.answers is None else self._decided(job, self.plan.answers)
                if ready is not None and (gate is None or gate.admits(ready)):
                    yield self._answers.given_to(ready) if self._answers else ready
        if early_stop is not None and early_stop.decided:
            self._stop("decided")
        if gate is not None:
            yield from gate.held_jobs(lambda: self.stopped is not None)

    def emit(self, result: Result | UnfinishedJob) -> bool:
        """Write the record of a job that ran; return whether the run has to stop."""
        if self._gate is not None:
            self._gate.ended()
        if isinstance(result, UnfinishedJob):
            self.costs.unrecorded_usd += result.cost_usd
            self.outage = self.outage or result.outage
            if result.answer is not None:
                self._store_answer(result.answer)
            if result.target is None:
                self._stop("budget" if result.outage is None else "judge_outage")
                return True
            self._down.add(result.target)
            if self._down.issuperset(self.plan.checked.jobs):
                self._stop("outage")
            return self._stopped is not None
        self._keep(result, self._written)
        if result.error is not None or not self._errors.has_ended:
            self._stopped = self._stopped or self._errors.add(result)
        if self._judges:
            self._stopped = self._stopped or self._errors.add_verdicts(result)
        if self.plan.options.fail_fast and (result.verdict == "fail" or result.status == "error"):
            self._stop("fail_fast")
        if self.costs.has_budget:
            self.costs.add(result)
            if self.costs.is_used_up:
                self._stop("budget")
        return self._stopped is not None

    def close(self) -> None:
        """Close the files, so that every record is on disk."""
        if self.plan.answers is not None:
            self.plan.answers.close()
        if self._returned is not None:
            self._returned.close()
        self.store.close()

    def _store_answer(self, line: bytes) -> None:
        """Store an answer without a score that a worker on another machine returned."""
        if self._returned is None:
            self._returned = AnswerLog(str(self.store.path / ANSWERS), Redactor(self.plan.project.secrets).redact_line)
        self._returned.write(line)

    def _stop(self, reason: Stop) -> None:
        """Let no more jobs start. The first reason is kept."""
        self._stopped = self._stopped or reason

    def _begin(self) -> None:
        """Write the manifest, open the files, and add the results from before the run was resumed."""
        store, self.has_begun = self.store, True
        if store.manifest is None:  # written first: a folder with other files and without a manifest is not a run
            store.folder.write_manifest(self.manifest)
        if store.start_writing(self.loop.call_soon, self.loop.call_from_thread):
            self._observer.note("The last record is incomplete; its job runs again.")
        if store.manifest is not None:
            if store.manifest != self.manifest:
                store.folder.write_manifest(self.manifest)
            self._add_earlier_records()

    def _add_earlier_records(self) -> None:
        hidden_names = None
        for result in RunStore.open(self.store.path).records():
            self._earlier += 1
            self.summary.add(result)
            self._stopped = self._stopped or self._errors.add(result, is_earlier=True)
            if REPLACEMENT in f"{result.eval_id}{result.target}":
                hidden_names = Redactor(self.plan.project.secrets)
            if self._gate is not None:
                self._gate.add_result(result)
            if self._early_stop is not None:
                self._early_stop.known(result)
        done_jobs = self.store.done_jobs()
        self.pending.leave_out(done_jobs, hidden_names)
        self._answers = UnscoredAnswers(self.store.path, done_jobs)
        if len(done_jobs) >= self.plan.checked.total:
            self._observer.note("All jobs in this run are already complete.")

    def _decided(self, job: Job, answers: AnswerSource) -> Job | None:
        """Return the job that has to run; None if there is a record for it, which is kept."""
        decision = answers.decide(job)
        self._observer.decided(job, decision.why)
        if decision.record is None:
            return decision.job
        record = msgspec.structs.replace(decision.record, run_id=self.manifest.run_id)
        if self.plan.rescored is None:
            self._earlier += 1
            self._keep(record, self.summary.add_all)
        else:
            self.emit(record)
        return None

    def _skip(self, job: Job, why: str) -> None:
        self.emit(skipped(job, why, self.manifest.run_id))

    def _keep(self, result: Result, on_write: Written) -> None:
        """Write a record. `on_write` receives it without secrets."""
        if self.plan.draw is not None:
            result = self.plan.draw.with_probability(result)
        if self._early_stop is not None:
            self._early_stop.result(result)
        if self._gate is not None:
            self._gate.add_result(result)
        self.store.append(result, on_write)

    def _written(self, results: list[Result]) -> None:
        self.summary.add_all(results)
        for result in results if self._is_observed or self._judges else ():
            self._observer.result(result)
            for note in format_notes(result.evaluator_results, self._judges) if self._judges else ():
                self._observer.note(note)
