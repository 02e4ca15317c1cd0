"""The jobs of a run that have no record yet. Their cases are stored before they run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from agentv.engine.cases.case_stream import CaseStream
from agentv.engine.run_plan import Fingerprints, RunPlan, evaluators_of, named_evaluators
from agentv.engine.scoring.fingerprints import EvaluatorFiles
from agentv.model.case import EvalCase, Texts, texts_of
from agentv.model.evaluator import EvaluatorSpec, execution_to_data
from agentv.model.job import Job
from agentv.model.values import to_json
from agentv.runs.job_index import DoneJobs
from agentv.runs.redaction import Redactor
from agentv.runs.store import RunStore
from agentv.support.hash_table import HashTable

_LARGE_BYTES = 16 * 1024

SharedJson = tuple[bytes, bytes, bytes]
FingerprintedCase = tuple[EvalCase, Fingerprints, Texts | None]
"""A case, its fingerprints, and its texts if it has nothing else."""


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

    def leave_out(self, done_jobs: DoneJobs, hidden_names: Redactor | None) -> None:
        """Leave out jobs that are done, and stored cases. `hidden_names` redacts names as in records with secrets."""
        self._done, self._hidden_names = done_jobs, hidden_names
        for case in self._store.cases():
            self._stored.add([hash((case.dataset_path, case.id))])

    def chunks(self) -> Iterator[list[Job]]:
        """Yield the jobs of a few cases at a time; the cases are on disk by then."""
        return map(self._jobs_of, self.cases.chunks())

    def _jobs_of(self, cases: list[EvalCase]) -> list[Job]:
        """Store cases and return their jobs. Each step is done for all cases, while its code is in the CPU's cache."""
        plan, has_done, compares_files = self._plan, len(self._done) > 0, self.cases.compares_files
        early_stop, stored = plan.live_early_stop, self._stored if len(self._stored) else None
        texts = list(map(texts_of, cases))
        fingerprinted = list(zip(cases, map(plan.source.fingerprints, cases, texts), texts, strict=True))
        planned_jobs = [plan.source.jobs(case, fingerprints[1]) for case, fingerprints, _ in fingerprinted]
        if stored is None and early_stop is None and not has_done and not compares_files and all(planned_jobs):
            self._store_cases(fingerprinted)  # the common case: everything is new
            return list(chain.from_iterable(planned_jobs))
        jobs: list[Job] = []
        new_cases: list[FingerprintedCase] = []
        for (case, fingerprints, case_texts), case_jobs in zip(fingerprinted, planned_jobs, strict=True):
            if compares_files:
                self.cases.read(case, fingerprints)
            planned = len(case_jobs)
            if has_done:
                case_jobs = [job for job in case_jobs if not self._is_done(job)]
            is_recorded = len(case_jobs) < planned  # the case is stored, unless its line was lost
            if early_stop is not None:
                case_jobs = [job for job in case_jobs if job.target in early_stop.open]
            if not case_jobs and not is_recorded:
                continue
            jobs += case_jobs
            if stored is None or hash((case.path, case.id)) not in stored:
                new_cases.append((case, fingerprints, case_texts))
        self._store_cases(new_cases)
        return jobs

    def _store_cases(self, cases: list[FingerprintedCase]) -> None:
        lines: list[bytes] = []
        for case, fingerprints, texts in cases:
            lines.append(self._lines.line(case, fingerprints, texts))
            if len(lines[-1]) > _LARGE_BYTES:  # it contains files
                self._store.append_cases(lines)
                lines.clear()
        if lines:
            self._store.append_cases(lines)

    def _is_done(self, job: Job) -> bool:
        key, hidden = job.key, self._hidden_names
        if key in self._done or hidden is None:
            return key in self._done
        return (
            key._replace(eval_id=hidden.redact_name(key.eval_id), target=hidden.redact_name(key.target)) in self._done
        )


class CaseLines:
    """Encodes cases with their evaluators: those of the command, if `given`, else their own."""

    def __init__(self, evaluators: tuple[EvaluatorSpec, ...] | None) -> None:
        self._given = evaluators
        self._files = EvaluatorFiles(own=evaluators is not None)
        self._last: tuple[object, str, bytes] = (None, "", b"")
        self._last_shared: tuple[object, object, SharedJson] = (None, None, (b"", b"", b""))

    def line(self, case: EvalCase, fingerprints: Fingerprints, texts: Texts | None) -> bytes:
        """Return the line of a case with its newline."""
        evaluators = self._evaluators_json(case)
        if texts is not None:
            return self._text_line(case, fingerprints, texts, evaluators)
        from agentv.datasets.case.prompts import resolved_data  # late: minijinja is slow to import

        data = resolved_data(case)
        del data["evaluators"]
        data["dataset_path"] = case.path
        if case.line:
            data["line"] = case.line
        data["input_fingerprint"], data["fingerprint"] = fingerprints
        return b"%b,%b\n" % (to_json(data)[:-1], evaluators)

    def _text_line(self, case: EvalCase, fingerprints: Fingerprints, texts: Texts, evaluators: bytes) -> bytes:
        """Return the same for a case of plain texts, the most common kind, built by hand for speed."""
        case_input, expected, outcome = texts
        dataset, execution, path = self._shared_json(case)
        talk, line = case.conversation_id, case.place.line + case.offset
        return b"".join((
            b'{"id":', to_json(case.id), dataset,
            b"" if talk is None else b',"conversation_id":' + to_json(talk),
            b',"expected_outcome":' + outcome if case.expected_outcome else b"",
            b',"input":[{"role":"user","content":', case_input,
            b'}],"expected_output":[{"role":"assistant","content":' + expected if expected else b"", execution,
            b',"metadata":' + to_json(case.metadata) if case.metadata else b"",
            b',"tags":' + to_json(case.tags) if case.tags else b"", path,
            b',"line":%d,"input_fingerprint":"' % line if line else b',"input_fingerprint":"', fingerprints[0].encode(),
            b'","fingerprint":"', fingerprints[1].encode(), b'",', evaluators, b"\n",
        ))  # fmt: skip

    def _shared_json(self, case: EvalCase) -> SharedJson:
        """Return what the lines of consecutive cases have in common: the dataset, the settings, and the path."""
        origin, execution = case.place.origin, case.execution
        last_origin, last_execution, shared = self._last_shared
        if last_origin is origin and last_execution is execution:
            return shared
        shared = (
            b',"dataset":%b' % to_json(origin.dataset) if origin.dataset else b"",
            b'}],"execution":%b' % to_json(execution_to_data(execution)),
            b',"dataset_path":%b' % to_json(origin.path) if origin.path else b"",
        )
        self._last_shared = (origin, execution, shared)
        return shared

    def _evaluators_json(self, case: EvalCase) -> bytes:
        """Return the evaluator part of a case line; computed once for consecutive cases that share evaluators."""
        evaluators, files = self._given, self._files
        last_specs, folder, fragment = self._last
        if last_specs is case.evaluators and folder == case.place.origin.base_dir and not case.details.turns:
            return fragment
        specs = case.evaluators if evaluators is None else evaluators
        fingerprints, named_files = files.each_with_files(case, named_evaluators(case, evaluators))
        data = {
            "evaluators": [spec.to_data() for spec in specs],
            "evaluators_fingerprint": files.fingerprint(case, evaluators_of(case, evaluators)),
            "evaluator_fingerprints": fingerprints,
            **({"evaluator_files": named_files} if named_files else {}),
        }
        fragment = to_json(data)[1:]
        if not case.turns:
            self._last = (case.evaluators, case.place.origin.base_dir, fragment)
        return fragment
