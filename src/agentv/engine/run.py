"""Run a plan: write every record as soon as it exists, then the summary and the manifest."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from agentv.engine.cases.case_stream import ChangedFilesError
from agentv.engine.cost import CostUnknown, stored_cost
from agentv.engine.gates.case_gates import CaseVerdict, judge_cases
from agentv.engine.gates.exit_code import Stop, Verdict, judge, with_missing
from agentv.engine.interrupts import call_later, first_error
from agentv.engine.job.answer import now
from agentv.engine.job.artifacts import ANSWERS
from agentv.engine.run_in_progress import Observer, RunInProgress
from agentv.engine.run_plan import RunPlan
from agentv.engine.run_project import RESULTS
from agentv.engine.work_spec import receiver_of
from agentv.executors.budget import BudgetTerms
from agentv.executors.budget_file import BudgetFile, ShardSpending
from agentv.executors.executor import Executor, ExecutorOptions
from agentv.model.manifest import RunManifest
from agentv.registry import EXECUTORS
from agentv.runs.catalogue import RunJournal
from agentv.runs.folder import RunFolder, new_run_path
from agentv.runs.redaction import Redactor
from agentv.runs.store import RunStore
from agentv.runs.summary import RunSummary
from agentv.runs.target_summary import TargetDetails
from agentv.support.processes.process_gate import raise_descriptor_limit

ABANDONED = (
    "The last process of this run ended without a summary: it was killed, or code of a target or an evaluator ended it "
    "(os._exit, a crash of a library). With --executor process, such a job becomes an error and the run continues."
)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run. Its manifest has the costs that are not in its summary.

    `shards` is what all shards on this machine have spent, if they share a budget. `notes` are about gates that were
    not checked.
    """

    folder: Path
    manifest: RunManifest
    summary: RunSummary
    details: dict[str, TargetDetails]
    verdict: Verdict
    duration_ms: float
    skipped_cases: int = 0
    stopped: Stop | None = None
    shards: ShardSpending | None = None
    notes: tuple[str, ...] = ()


def open_store(plan: RunPlan, out: str | None = None, *, resume: bool = False, listed: bool = True) -> RunStore:
    """Open the run folder: the one to resume, the named one, or a new one in the project.

    With `listed`, `agentv runs` also lists a run outside the project's results folder.
    """
    redact = Redactor(plan.project.secrets).redact_line
    if resume and out is not None and RunFolder(out).manifest_path.is_file():
        return RunStore(RunFolder.open(out, redact).located())
    path = new_run_path(Path(plan.project.root) / RESULTS) if out is None else Path(out)
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
            return _finish(running, missing or (), started)
    finally:
        if not folder.manifest_path.is_file():  # nothing was started: remove the new folder
            with suppress(OSError):
                folder.path.rmdir()


def _finish(running: RunInProgress, missing: tuple[str, ...], started: float) -> Outcome:
    """Write the summary and manifest of a run that ended; `missing` are calls that a replay lacks."""
    plan, stopped = running.plan, running.unfinished
    summary = _summary(running, stopped)
    cases = _case_verdict(running)
    verdict = judge(summary, plan.options.gates, stopped, plan.gate_thresholds, cases)
    if stopped in ("judge_outage", "outage"):
        verdict = Verdict(verdict.exit_code, (f"Stopped: {running.outage}", *verdict.reasons))
    spending = _spending(running.budget)
    if stopped == "budget" and spending is not None and spending.shards > 1:
        spent = f"Stopped: the budget is used up: {spending.shards} shards have spent ${spending.usd:.4f} together"
        verdict = Verdict(verdict.exit_code, (spent,))
    verdict = with_missing(verdict, missing)
    folder = running.store.folder
    digests = {**running.store.digests, folder.summary_path.name: folder.write_summary(summary)}
    manifest = msgspec.structs.replace(
        _manifest(running, summary, stopped), exit_code=verdict.exit_code, digests=digests
    )
    if manifest.finished_at is not None and (folder.path / ANSWERS).exists():
        from shutil import rmtree  # late: most runs have no such folder

        rmtree(folder.path / ANSWERS, ignore_errors=True)
    folder.write_manifest(manifest)
    return Outcome(
        folder=folder.shown,
        manifest=manifest,
        summary=summary,
        details=running.summary.details(),
        verdict=verdict,
        duration_ms=round((time.perf_counter() - started) * 1000, 1),
        skipped_cases=plan.cases.sink.skipped,
        stopped=stopped,
        shards=spending,
        notes=cases.notes,
    )


def _case_verdict(running: RunInProgress) -> CaseVerdict:
    """Return the verdict of the gates that look at single cases; an empty one if there are none."""
    plan = running.plan
    gates = plan.case_gates
    if not gates.decides_something:
        return CaseVerdict()
    return judge_cases(gates, plan.cases.sources, RunStore.open(running.store.path).records())


def _spending(budget: BudgetTerms | None) -> ShardSpending | None:
    """Return what all shards have spent, if they share a budget."""
    if budget is None or budget.share is None:
        return None
    try:
        return BudgetFile(budget.share).spending()
    except (OSError, ImportError, msgspec.MsgspecError):
        return None  # the user has been warned


def _summary(running: RunInProgress, stopped: Stop | None) -> RunSummary:
    """Return the final summary. Raises DatasetChangedError if a complete run read changed files."""
    plan, path = running.plan, running.store.path
    summary = running.summary.build(plan.checked.jobs, plan.checked.cases_by_target)
    if running.manifest.draw is not None:
        summary = msgspec.structs.replace(summary, draw=running.manifest.draw)
    if stopped is None:
        _refuse_changes(running, has_missing_jobs=_has_missing_jobs(plan, summary))
    if plan.early_stop is None:
        return summary
    from agentv.engine.early_stop import catch_up, label  # late: few runs stop early

    if plan.rescored is not None:
        summary = catch_up(summary, plan.early_stop, plan.rescored, path)
    return label(summary, plan.early_stop, path)


def _manifest(running: RunInProgress, summary: RunSummary, stopped: Stop | None) -> RunManifest:
    """Return the manifest with the counts and costs at the end. It has a time of completion if no job is left."""
    manifest, receiver = running.manifest, running.receiver
    is_complete = stopped in (None, "decided")
    stops = (target.early_stop for target in summary.targets.values())
    spared = manifest.stopped_early or any(stop is not None and stop.not_needed > 0 for stop in stops)
    stored_usd = 0.0 if is_complete else stored_cost(running.store)
    return msgspec.structs.replace(
        manifest,
        finished_at=manifest.finished_at or now() if is_complete else None,
        stopped_early=is_complete and spared,
        counts=summary.counts(running.plan.checked.cases),
        unrecorded_cost_usd=running.costs.unrecorded_usd + stored_usd,
        stored_cost_usd=stored_usd,
        spans=manifest.spans if receiver is None else receiver.counts().added_to(manifest.spans),
    )


def _refuse_changes(running: RunInProgress, *, has_missing_jobs: bool) -> None:
    folder = running.store.folder
    try:
        running.pending.cases.refuse_changes(folder.shown, has_missing_jobs=has_missing_jobs)
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
