"""The jobs of a run that have no record yet. Their cases are stored before they run."""

from __future__ import annotations

from collections.abc import Iterator

from agentv.engine.cases.case_lines import CaseLines
from agentv.engine.cases.case_stream import CaseStream
from agentv.engine.run_plan import RunPlan
from agentv.model.case import EvalCase
from agentv.model.job import Job
from agentv.runs.job_index import DoneJobs
from agentv.runs.redaction import Redactor
from agentv.runs.store import RunStore
from agentv.support.hash_table import HashTable

_LARGE_BYTES = 16 * 1024


class PendingJobs:
    """Yields the jobs of a plan that have no record, after appending their cases to the store."""

    def __init__(self, plan: RunPlan, store: RunStore) -> None:
        self.cases = CaseStream(plan)
        self._plan = plan
        self._store = store
        self._lines = CaseLines(plan.evaluators)
        self._done = DoneJobs()
        self._hidden_names: Redactor | None = None
        self._stored = HashTable()

    def leave_out(self, done: DoneJobs, hidden_names: Redactor | None) -> None:
        """Leave out jobs that are done, and stored cases. `hidden_names` redacts names as in records with secrets."""
        self._done, self._hidden_names = done, hidden_names
        for case in self._store.cases():
            self._stored.add([hash((case.dataset_path, case.id))])

    def chunks(self) -> Iterator[list[Job]]:
        """Yield the jobs of a few cases at a time; the cases are on disk by then."""
        return map(self._jobs_of, self.cases.chunks())

    def _jobs_of(self, cases: list[EvalCase]) -> list[Job]:
        jobs: list[Job] = []
        lines: list[bytes] = []
        plan, has_done, compares_files = self._plan, len(self._done) > 0, self.cases.compares_files
        early_stop = plan.live_early_stop
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
            if not self._stored or hash((case.path, case.id)) not in self._stored:
                lines.append(self._lines.line(case, fingerprints))
                if len(lines[-1]) > _LARGE_BYTES:  # it contains files
                    self._store.append_cases(lines)
                    lines.clear()
        if lines:
            self._store.append_cases(lines)
        return jobs

    def _is_done(self, job: Job) -> bool:
        key, hidden = job.key, self._hidden_names
        if key in self._done or hidden is None:
            return key in self._done
        return (
            key._replace(eval_id=hidden.redact_name(key.eval_id), target=hidden.redact_name(key.target)) in self._done
        )
