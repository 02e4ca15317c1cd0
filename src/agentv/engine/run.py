"""One run, from a plan that was checked to results on disk. Every record is written the moment it exists."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from agentv.datasets.case.prompts import resolved_data
from agentv.engine.answers.carried import Earlier
from agentv.engine.early_stop import Stopping
from agentv.engine.gates import Stop
from agentv.engine.interrupts import interruptible
from agentv.engine.job.run_job import Worker
from agentv.engine.job.spec import Job
from agentv.engine.run_options import EvalOptions
from agentv.engine.run_plan import Checked, Plan
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.engine.scoring.scorer import judge_cost
from agentv.errors import AgentvError
from agentv.model.case import EvalCase
from agentv.model.result import EvaluatorResult, Result
from agentv.model.values import to_json
from agentv.registry import EXECUTORS
from agentv.runs.folder import RunFolder
from agentv.runs.record import decode_record, encode_record
from agentv.runs.scan import DoneJobs, scan
from agentv.runs.store import read_run
from agentv.runs.summary import Snapshot, SummaryBuilder
from agentv.runs.writer import ResultWriter
from agentv.support.hash_set import HashTable

MOST_AT_ONCE = 1000
REFUSED_AT_FIRST = 20
"""Jobs that end in `auth` before any other has ended in another way: the rest would too."""
_AHEAD = 64
"""Cases that are written down together, before the first of them is run."""
_LARGE_BYTES = 16 * 1024


class Observer:
    """Is told what happens. The command line draws from it; the Python API lets it be."""

    def result(self, result: Result) -> None:
        """A job is done and on disk."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def decided(self, job: Job, why: str) -> None:
        """A job is run, or an earlier record of it is carried over, for this reason."""


class CostUnknown(AgentvError):
    """A budget that turns out not to be holdable. The run cannot go on: it would find the same."""

    def __init__(self, headline: str, noun: str) -> None:
        detail = "A budget cannot be held without a price, so the run has ended; what was answered is kept"
        super().__init__(headline, detail, f"Start a run without --budget-usd, or use a {noun} that reports its cost")


class Running:
    """A run in progress: the state that its workers share, all in one event loop."""

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        worker: Worker,
        checked: Checked,
        options: EvalOptions,
        observer: Observer,
        earlier: Earlier | None = None,
        stopping: Stopping | None = None,
    ) -> None:
        self._earlier = earlier
        self._stopping = stopping
        self._folder = folder
        self._plan = plan
        self._worker = worker
        self._options = options
        self._observer = observer
        self._checked = checked
        self.stopped: Stop | None = None
        self.summary = SummaryBuilder(worker.run_id, checked.most_per_case)
        self._cost = 0.0
        self._refused: int | None = 0
        self._results = ResultWriter(folder.results_path)
        self._cases = ResultWriter(folder.cases_path, folder.redact)
        self._files = EvaluatorFiles()
        self._given_evaluators = [spec.to_data() for spec in plan.evaluators or ()]
        self._done = DoneJobs()
        self._written = HashTable()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[Any] | None = None
        if self._results.cut_bytes:
            observer.note("The last record was not written whole and its job is run again")
        self._take_up()

    def snapshot(self) -> Snapshot:
        """Where the run stands; may be asked from another thread."""
        targets = self._worker.targets
        return self.summary.snapshot(self._checked.total, targets.concurrency, targets.waits_s)

    async def run(self) -> None:
        """Runs what is not done yet. Returns when all is done or the run was stopped; what is done is on disk."""
        executor = EXECUTORS.find(self._options.executor)(self._workers())
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        try:
            with interruptible(self._interrupt):
                if self.stopped is None:
                    await executor.run(self._jobs(), self._work, self._emit)
        except asyncio.CancelledError:
            if self.stopped != "interrupted":
                raise
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            await self._worker.aclose()

    def interrupt(self) -> None:
        """Stops the run from another thread, as Ctrl-C does: what is in flight is cancelled, what is done is kept."""
        if self.stopped is None:
            self.stopped = "interrupted"
        if self._loop is not None and self._main is not None:
            with suppress(RuntimeError):  # the loop is closed: the run has ended by itself
                self._loop.call_soon_threadsafe(self._main.cancel)

    def close(self) -> None:
        """Ends the files; every record is on disk for good."""
        self._results.close()
        self._cases.close()

    def _take_up(self) -> None:
        """What an earlier process of this run has done: counted, and not done again."""
        decode = msgspec.json.Decoder(_CaseKey).decode
        with self._folder.cases_path.open("rb") as lines:
            for line in lines:
                written = decode(line)
                self._written.add([hash((written.dataset_path, written.id))])
        if self._folder.results_path.stat().st_size == 0:
            return
        self._done = scan(self._folder.results_path)
        for result in read_run(self._folder.results_path):
            self.summary.add(result)
            self._spend(result)
            if self._stopping is not None:
                self._stopping.known(result)
        if len(self._done) >= self._checked.total:
            self._observer.note("Every job of this run was done already: nothing is asked")

    def _work(self, job: Job) -> Awaitable[Result]:
        """What is done for one job."""
        return self._worker.run(job)

    def _workers(self) -> int:
        """Enough workers to fill every endpoint's limit and every batch; each costs a few kilobytes."""
        called = {*self._checked.jobs, *self._checked.judges}
        most = sum(live.most_at_once for live in map(self._worker.targets.get, called))
        return max(1, min(MOST_AT_ONCE, most, self._checked.total))

    def _jobs(self) -> Iterator[Job]:
        if self._stopping is not None:
            yield from self._jobs_until_decided(self._stopping)
            return
        cases = self._plan.cases.stream_again()
        while chunk := list(islice(cases, _AHEAD)):
            yield from self._jobs_of(chunk)

    def _jobs_until_decided(self, stopping: Stopping) -> Iterator[Job]:
        """The jobs of what belongs together, unit by unit in random order, as long as something is not known."""
        for cases in stopping.units(self._plan.cases):
            stopping.begin([job for case in cases for job in self._plan.jobs_of(case)])
            if stopping.decided:
                self.stopped = self.stopped or "decided"
            if self.stopped is not None:
                return
            yield from self._jobs_of(cases)

    def _jobs_of(self, cases: list[EvalCase]) -> Iterator[Job]:
        """The jobs of some cases. All of them are written down first: one write for many is what makes it cheap."""
        jobs: list[Job] = []
        lines: list[bytes] = []
        has_done = len(self._done) > 0
        for case in cases:
            prints = self._plan.prints_of(case)
            open_jobs = self._plan.jobs_of(case, prints[1])
            if has_done:
                open_jobs = [job for job in open_jobs if job.key not in self._done]
            if self._stopping is not None:
                open_jobs = [job for job in open_jobs if job.target in self._stopping.open]
            if open_jobs:
                jobs += open_jobs
                lines += self._case_line(case, prints)
                if lines and len(lines[-1]) > _LARGE_BYTES:  # it has files in it
                    self._cases.write_all(lines)
                    lines.clear()
        if lines:
            self._cases.write_all(lines)
        for job in jobs:
            if self.stopped is not None:
                return
            if self._earlier is None or not self._carried(job, self._earlier):
                yield job

    def _carried(self, job: Job, earlier: Earlier) -> bool:
        """Whether an earlier run's record stands for this job; then it is in this run's results too."""
        decision = earlier.decide(job)
        self._observer.decided(job, decision.why)
        if decision.record is None:
            return False
        self._keep(msgspec.structs.replace(decision.record, run_id=self._worker.run_id))
        return True

    def _case_line(self, case: EvalCase, prints: tuple[str, str]) -> list[bytes]:
        """A case stands in the folder before its first record does, so that the folder explains itself."""
        if self._written and hash((case.path, case.id)) in self._written:
            return []
        data = resolved_data(case)
        data["dataset_path"] = case.path
        if case.line:
            data["line"] = case.line
        data["input_fingerprint"], data["fingerprint"] = prints
        specs = self._plan.evaluators_of(case)
        if self._plan.evaluators is not None:
            data["evaluators"] = self._given_evaluators
        data["evaluators_fingerprint"] = self._files.fingerprint(case, specs)
        data["evaluator_fingerprints"] = self._files.each(case, self._plan.checks_of(case))
        return [to_json(data) + b"\n"]

    def _keep(self, result: Result) -> Result:
        """Writes a record. What is summed up and shown afterwards is what was written, secrets taken out."""
        line = encode_record(result)
        if self._stopping is not None:
            self._stopping.result(result)
        if self._folder.redact is not None and (redacted := self._folder.redact(line)) is not line:
            line, result = redacted, decode_record(redacted)
        self._results.write(line)
        self.summary.add(result)
        return result

    def _emit(self, result: Result) -> None:
        result = self._keep(result)
        self._observer.result(result)
        if self._refused is not None:
            self._refused = self._refused + 1 if result.error and result.error.error_class == "auth" else None
            if self._refused == REFUSED_AT_FIRST:
                self.stopped = self.stopped or "auth"
        if self._options.fail_fast and (result.verdict == "fail" or result.status == "error"):
            self.stopped = self.stopped or "fail_fast"
        if self._options.budget_usd is not None:
            self._spend(result)

    def _spend(self, result: Result) -> None:
        """Counts what a job cost, under a budget. What an earlier run answered was paid there."""
        if self._options.budget_usd is None or result.carried_from is not None:
            return
        self._cost += self._cost_of(result)
        if self._cost >= self._options.budget_usd:
            self.stopped = self.stopped or "budget"

    def _cost_of(self, result: Result) -> float:
        """What a job cost: the answer, a simulated user, the judges. Raises AgentvError when that is not known."""
        metrics = None if result.cached else result.execution_metrics
        is_unknown = result.status != "error" and not result.cached and (metrics is None or metrics.cost_usd is None)
        if is_unknown and not self._worker.targets.get(result.target).settings.is_free:
            raise CostUnknown(f"The target '{result.target}' does not say what its answers cost", "target")
        own = metrics.cost_usd if metrics is not None and metrics.cost_usd is not None else 0.0
        return own + _user_cost(result) + math.fsum(map(self._judge_cost, result.evaluator_results))

    def _judge_cost(self, found: EvaluatorResult) -> float:
        """What an evaluator cost. Raises AgentvError when a judge that it asked has a price and does not say it."""
        cost = judge_cost(found)
        if cost is not None:
            return cost
        for call in (found.evaluator_provider_request or {}).get("calls", ()):
            settings = self._worker.targets.get(call["target"]).settings
            if "reply" in call and "cost_usd" not in call and not settings.is_free:
                raise CostUnknown(f"The judge '{call['target']}' does not say what its answers cost", "judge")
        own = [call.get("cost_usd", 0.0) for call in (found.evaluator_provider_request or {}).get("calls", ())]
        return math.fsum((*own, *map(self._judge_cost, found.evaluator_results)))

    def _interrupt(self) -> None:
        self.stopped = "interrupted"
        assert self._main is not None
        self._main.cancel()


class _CaseKey(msgspec.Struct):
    id: str
    dataset_path: str = ""


def _user_cost(result: Result) -> float:
    """What a simulated user cost."""
    metrics = None if result.conversation is None else result.conversation.user_metrics
    if metrics is None:
        return 0.0
    if metrics.cost_usd is None:
        raise CostUnknown(f"The simulated user of '{result.eval_id}' does not say what its messages cost", "target")
    return metrics.cost_usd


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The exception that ended a group of workers: they all end for the same reason."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def milliseconds_since(started: float) -> float:
    """The time since a reading of `time.perf_counter`."""
    return round((time.perf_counter() - started) * 1000, 1)
