"""Import a run of another tool into a run folder, one job at a time."""

from array import array
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agentv.errors import AgentvError, file_errors, plural
from agentv.extensions.interop.imports.foreign_values import safe_name
from agentv.extensions.interop.imports.run import (
    ForeignCase,
    ForeignGrade,
    ForeignJob,
    ForeignResults,
    ForeignRun,
    is_score,
    mean_score,
    verdict_of,
)
from agentv.model.case import EvalCase, case_to_data
from agentv.model.manifest import DatasetEntry, ImportSource, RunManifest, TargetEntry
from agentv.model.message import message_to_data, tool_calls_in
from agentv.model.result import ErrorInfo, EvaluatorResult, ExecutionMetrics, Result, Status, TraceSummary
from agentv.model.values import digest, hash_bytes, to_json
from agentv.runs.folder import RunFolder, content_digest, new_run_id
from agentv.runs.record import encode_record
from agentv.runs.summary import SummaryBuilder
from agentv.runs.writer import Redact

_BUFFERED_BYTES = 1 << 20
_MOST_NOTES = 20
_MOST_NAMED = 8
_LONGEST_ID, _ID_DIGITS = 60, 12


def source_digest(importer: ForeignResults, path: Path) -> str:
    """Return a hash of the files of a run, independent of where they are."""
    files = [(file.name, content_digest(file)) for file in importer.files(path)]
    return digest(files)


def import_run_id(importer: ForeignResults, path: Path) -> str:
    """Return a new run id with the time at which the other tool started the run."""
    try:
        return new_run_id(datetime.fromisoformat(importer.open(path).started_at))
    except ValueError:  # unknown
        return new_run_id(datetime.fromtimestamp(path.stat().st_mtime, UTC))


def import_run(
    importer: ForeignResults, path: Path, folder: RunFolder, *, source: str = "", run_id: str = ""
) -> RunManifest:
    """Write a run of another tool to an empty run folder. Raises AgentvError if it cannot be read completely.

    Without a `run_id`, the id is the tool's own and a hash of the content, because some tools use an id again. A scorer
    with a value outside 0 to 1 has metrics, not scores. If an earlier value of it was taken for a score, the run is
    read again.
    """
    source = source or source_digest(importer, path)
    metrics: frozenset[str] = frozenset()
    while True:
        run = importer.open(path)
        run.id = run_id or f"{safe_name(run.id)[:_LONGEST_ID] or 'imported'}-{source[:_ID_DIGITS]}"
        writing = _Import(run, metrics, folder, by_first=importer.scores_by_first)
        with file_errors(f"Cannot write {folder.path}"):
            writing.write()
        if writing.metrics == metrics:
            break
        metrics = frozenset(writing.metrics)
    if not writing.jobs:
        raise AgentvError(f"Cannot read {path}", f"It is {importer.title} without results", importer.empty_hint)
    return writing.finish(importer, path, source)


class _KnownCase(msgspec.Struct):
    """The names of the cases that share an id, by a hash of their content."""

    names: dict[int, str]


class _Import:
    """Writes the cases and records of one run. `metrics` are the scorers with values outside 0 to 1."""

    def __init__(self, run: ForeignRun, metrics: frozenset[str], folder: RunFolder, by_first: bool) -> None:
        self._run = run
        self._by_first = by_first
        self._firsts: dict[str, str | None] = {}
        self._others: dict[str, None] = {}
        self._folder = folder
        self._redact: Redact = folder.redact or (lambda line: line)
        self._known_metrics = metrics
        self.metrics = set(metrics)
        self.run_id = run.id
        self.jobs = 0
        self._cases: dict[tuple[str, str], _KnownCase | int] = {}
        self._datasets: Counter[str] = Counter()
        self._trials: dict[int, int] = {}
        self._targets: dict[str, None] = {}
        self._judges: dict[str, None] = {}
        self._evaluators: dict[str, str] = {}
        self._summary = SummaryBuilder(self.run_id, jobs_per_case=2)
        self._lines: tuple[list[bytes], list[bytes]] = [], []
        self._sizes = array("q", (0, 0))
        self.renamed = 0

    def write(self) -> None:
        """Write all cases and records."""
        paths = self._folder.cases_path, self._folder.results_path
        with paths[0].open("wb") as cases, paths[1].open("wb") as results:
            for job in self._run.jobs:
                self._add(job)
                if sum(self._sizes) > _BUFFERED_BYTES:
                    self._flush(cases, results)
            self._flush(cases, results)

    def _flush(self, *files: object) -> None:
        for place, (file, lines) in enumerate(zip(files, self._lines, strict=True)):
            file.writelines(lines)  # type: ignore[attr-defined]
            lines.clear()
            self._sizes[place] = 0

    def _put(self, place: int, line: bytes) -> None:
        line = self._redact(line)
        self._lines[place].append(line)
        self._sizes[place] += len(line)

    def _weighted(self, grades: tuple[ForeignGrade, ...], dataset: str) -> tuple[ForeignGrade, ...]:
        """Return the grades with a weight of 0 for all but the first scorer of a dataset, if it gives the score."""
        if not self._by_first or not grades:
            return grades
        scorers = [grade.scorer or grade.name for grade in grades]
        if self._firsts.get(dataset) is None:
            candidates = (name for name, grade in zip(scorers, grades, strict=True) if not self._is_metric(grade))
            self._firsts[dataset] = next(candidates, None)
        first = self._firsts[dataset]
        self._others.update((name, None) for name in scorers if name != first)
        return tuple(
            grade if name == first else msgspec.structs.replace(grade, weight=0.0)
            for name, grade in zip(scorers, grades, strict=True)
        )

    def _add(self, job: ForeignJob) -> None:
        job = msgspec.structs.replace(job, grades=self._weighted(job.grades, job.case.dataset))
        specs = tuple(grade.spec for grade in job.grades) if job.evaluators is None else job.evaluators
        case = job.case.build(specs)
        fingerprints = case.fingerprints
        is_new, eval_id = self._named(job.case, hash((fingerprints[1], job.case.identity)))
        if is_new:
            self._put(0, _case_line(job.case, case, eval_id, fingerprints))
            self._evaluators.update((spec.name, spec.fingerprint) for spec in specs)
        result = self._result(job, eval_id, fingerprints[1])
        self._put(1, encode_record(result))
        self._summary.add(result)
        self._targets[job.target] = None
        self._judges.update((grade.judge, None) for grade in job.grades if grade.judge)
        self.jobs += 1

    def _named(self, case: ForeignCase, content: int) -> tuple[bool, str]:
        """Return whether a case is new, and its id; a number is added to an id that has another content."""
        key = case.dataset, case.id
        if (entry := self._cases.get(key)) is None:
            self._cases[key] = content
            self._datasets[case.dataset] += 1
            return True, case.id
        if entry == content:
            return False, case.id
        if isinstance(entry, int):
            entry = self._cases[key] = _KnownCase({entry: case.id})
        if content in entry.names:
            return False, entry.names[content]
        number = len(entry.names) + 1
        while (case.dataset, name := f"{case.id}-{number}") in self._cases:
            number += 1
        entry.names[content] = name
        self._cases[case.dataset, name] = content
        self._datasets[case.dataset] += 1
        self.renamed += 1
        return True, name

    def _result(self, job: ForeignJob, eval_id: str, fingerprint: str) -> Result:
        outcomes = [self._outcome(grade) for grade in job.grades]
        error = job.error or _failed_grade(job.grades)
        score = None if error else self._score(job)
        status: Status = "error" if error else "unscored" if score is None else "ok"
        calls = Counter(call.tool for call in tool_calls_in(job.messages))
        usage = job.usage, job.cost_usd, job.duration_ms, job.stop_reason
        return Result(
            timestamp=job.timestamp or self._run.started_at,
            run_id=self.run_id,
            eval_id=eval_id,
            dataset=job.case.dataset,
            dataset_path=job.case.dataset,
            conversation_id=job.case.conversation_id,
            target=job.target,
            prompt=job.prompt,
            trial=self._trial(job, eval_id),
            status=status,
            score=score,
            verdict=verdict_of(score, job.passed),
            partial_score=self._partial(job) if error else None,
            reasoning=job.reasoning,
            candidate_answer=job.answer,
            output_messages=tuple(map(message_to_data, job.messages)) if len(job.messages) > 1 or calls else (),
            evaluator_results=tuple(outcomes),
            error=error,
            warnings=(*job.warnings, *self._warnings(job)),
            trace_summary=_trace(calls) if calls else None,
            execution_metrics=None
            if usage == (None,) * 4
            else ExecutionMetrics(
                token_usage=job.usage, cost_usd=job.cost_usd, duration_ms=job.duration_ms, stop_reason=job.stop_reason
            ),
            cached=job.cached,
            fingerprint=fingerprint,
            tags=job.case.tags,
            metadata=job.metadata,
        )

    def _trial(self, job: ForeignJob, eval_id: str) -> int:
        """Return the number of a trial: the tool's own, or the next one that is free."""
        key = hash((job.case.dataset, eval_id, job.target, job.prompt))
        if job.trial is None:
            self._trials[key] = self._trials.get(key, 0) + 1
            return self._trials[key]
        # The tool may have stored the same trial twice, for example after a retry.
        if (exact := hash((key, job.trial))) in self._trials:
            where = f" ({job.place})" if job.place else ""
            what = f"Trial {job.trial} of case '{eval_id}' of target {job.target} is there twice{where}"
            raise AgentvError("Cannot import the results", what)
        self._trials[exact] = 1
        return job.trial

    def _is_metric(self, grade: ForeignGrade) -> bool:
        if grade.value is not None and not is_score(grade.value):
            self.metrics.add(grade.name)
            return True
        return grade.name in self._known_metrics

    def _score(self, job: ForeignJob) -> float | None:
        if job.score is None:
            return mean_score(grade for grade in job.grades if not self._is_metric(grade))
        total = ForeignGrade(name=_TOTAL, value=job.score)
        return None if self._is_metric(total) else job.score

    def _partial(self, job: ForeignJob) -> float | None:
        """Return the mean of the grades that there are, if only some failed."""
        return None if job.error else mean_score(grade for grade in job.grades if not self._is_metric(grade))

    def _outcome(self, grade: ForeignGrade) -> EvaluatorResult:
        is_metric = self._is_metric(grade)
        score = None if grade.value is None or is_metric else float(grade.value)
        details = grade.details
        if is_metric and grade.value is not None:
            details = {"value": grade.value, **(details if isinstance(details, dict) else {})}
        # The model is stored in the way in which our own judges store theirs, so that comparisons notice a change.
        request = {"calls": [{"target": grade.judge, "model": grade.judge}]} if grade.judge else None
        return EvaluatorResult(
            name=grade.name,
            type=grade.type or grade.name,
            score=score,
            weight=0.0 if is_metric else grade.weight,
            verdict=verdict_of(score, grade.passed),
            reasoning=grade.reasoning,
            details=details,
            error=None if grade.error is None else ErrorInfo("evaluator", grade.error, "evaluator"),
            token_usage=grade.usage,
            cost_usd=grade.cost_usd,
            evaluator_provider_request=request,
        )

    def _warnings(self, job: ForeignJob) -> Iterator[str]:
        for grade in job.grades:
            if grade.name in self.metrics and grade.value is not None:
                yield f"{grade.name} is {grade.value:g}: a metric that is not from 0 to 1, so it is not a score"
        if _TOTAL in self.metrics and job.score is not None:
            yield f"The score is {job.score:g}: not from 0 to 1, so the case is not scored"

    def finish(self, importer: ForeignResults, path: Path, source: str) -> RunManifest:
        """Write the summary and the manifest."""
        folder, run = self._folder, self._run
        summary = self._summary.build({}, {})
        digests = {file.name: content_digest(file) for file in (folder.cases_path, folder.results_path)}
        digests[folder.summary_path.name] = folder.write_summary(summary)
        counts = summary.counts(sum(self._datasets.values()))
        if run.is_unfinished and (run.planned_jobs or 0) > counts.jobs:
            missing = (run.planned_jobs or 0) - counts.jobs
            counts = msgspec.structs.replace(counts, jobs=counts.jobs + missing, skipped=missing)
        manifest = RunManifest(
            run_id=self.run_id,
            started_at=run.started_at or datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(),
            finished_at=None if run.is_unfinished else run.finished_at or run.started_at or _UNKNOWN_TIME,
            imported_from=ImportSource(
                format=importer.title, path=str(path), digest=source, notes=tuple(self._notes())[:_MOST_NOTES]
            ),
            options=run.options,
            versions=run.versions,
            datasets=tuple(
                DatasetEntry(path=name, name=name, digest=hash_bytes(name.encode()), cases=count)
                for name, count in self._datasets.items()
            ),
            targets=tuple(_entry(name, run.targets.get(name, {})) for name in self._targets),
            judges=tuple(_entry(name, run.judges.get(name, {})) for name in self._judges),
            fingerprints=self._evaluators,
            git_commit=run.git_commit,
            counts=counts,
            digests=digests,
        )
        folder.write_manifest(manifest)
        return manifest

    def _notes(self) -> Iterator[str]:
        yield from dict.fromkeys(self._run.notes)
        firsts = list(dict.fromkeys(name for name in self._firsts.values() if name is not None))
        if firsts and self._others:
            others = ", ".join(list(self._others)[:_MOST_NAMED])
            names = "' or '".join(firsts[:_MOST_NAMED])
            yield f"The score is that of '{names}', the first scorer; the others are evaluators only: {others}"
        for name in sorted(self.metrics):
            what = "The total score" if name == _TOTAL else f"'{name}'"
            yield f"{what} has values outside 0 to 1: kept as a metric, not counted as a score"
        if self.renamed:
            yield f"{plural(self.renamed, 'case')} had the id of another case: a number was added"


_TOTAL = "\0total"
_UNKNOWN_TIME = "1970-01-01T00:00:00+00:00"


def _failed_grade(grades: tuple[ForeignGrade, ...]) -> ErrorInfo | None:
    """Return the error of a job whose answer could not be graded completely."""
    failed = next((grade for grade in grades if grade.error is not None and grade.weight > 0), None)
    return None if failed is None else ErrorInfo("evaluator", f"{failed.name}: {failed.error}", "evaluator")


def _trace(calls: Counter[str]) -> TraceSummary:
    names = tuple(sorted(calls))
    return TraceSummary(sum(calls.values()), names, {name: calls[name] for name in names})


def _entry(name: str, settings: dict[str, object]) -> TargetEntry:
    provider = str(settings.get("provider") or "imported")
    return TargetEntry(name=name, provider=provider, fingerprint=digest(settings), settings=dict(settings))


def _case_line(foreign: ForeignCase, case: EvalCase, eval_id: str, fingerprints: tuple[str, str]) -> bytes:
    """Return the line of a case in `cases.jsonl`."""
    data = case_to_data(case)
    data |= {"id": eval_id, "dataset": foreign.dataset, "dataset_path": foreign.dataset}
    data["input_fingerprint"], data["fingerprint"] = fingerprints
    data.pop("execution", None)
    prints = {spec.name: spec.fingerprint for spec in case.evaluators}
    weights = {spec.name: spec.weight for spec in case.evaluators}
    data["evaluators_fingerprint"] = digest([prints, weights]) if prints else ""
    data["evaluator_fingerprints"] = prints
    return to_json(data) + b"\n"
