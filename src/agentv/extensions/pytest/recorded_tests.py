"""Stores test outcomes as a run: of collected datasets, and of tests made by `agentv.cases`."""

from collections.abc import Generator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentv.datasets.case.prompts import resolved_data
from agentv.engine.job.answer import now
from agentv.errors import AgentvError, plural, start_of
from agentv.model.case import EvalCase
from agentv.model.manifest import Counts, DatasetEntry, RunManifest, TargetEntry
from agentv.model.result import ErrorInfo, ExecutionMetrics, Result, Stage
from agentv.model.values import to_json
from agentv.report.figures import safe_text, visible
from agentv.report.formats import format_of, write_report
from agentv.report.summary_text import headlines
from agentv.runs.folder import RESULTS_FOLDER, RunFolder, new_run_id
from agentv.runs.record import decode_record, encode_record
from agentv.runs.redaction import Redactor
from agentv.runs.store import RunStore
from agentv.settings.project import project_root
from agentv.support.hashes import relative_path
from agentv.support.private_files import write_file
from agentv.trust.env_file import load_environment
from agentv.version import __version__

_LONGEST_REASON = 2_000
_NOTES = "agentv_notes"


class RunRecorder:
    """Attaches records to test reports, and writes the run from them. Under xdist these are different processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._files = list(config.getoption("--agentv-report-to"))
        try:
            for file in self._files:
                format_of(file)  # report a wrong extension before the tests run
        except AgentvError as error:
            raise pytest.UsageError(str(error)) from error
        self._started_at = now()
        self._by_test: dict[str, list[str]] = {}
        self._cases: dict[tuple[str, str], str] = {}
        self._path: Path | None = None
        self._headlines: list[str] = []
        self._problem: AgentvError | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the records of a case to its report, as text that can be sent to another process."""
        report = yield
        setattr(report, _NOTES, _notes(item, call, report))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the records."""
        notes: dict[str, Any] | None = getattr(report, _NOTES, None)
        if notes is not None:
            self._by_test[report.nodeid] = notes["records"]  # the last attempt of a rerun test counts
            self._cases.setdefault(tuple(notes["key"]), notes["case"])

    def pytest_sessionfinish(self) -> None:
        """Write the run and its reports in the main process."""
        if hasattr(self._config, "workerinput") or not self._by_test:
            return
        try:
            self._path = self._written()
        except AgentvError as error:
            self._problem = error

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the pass rate and errors of each target, and the location of the run."""
        if self._problem is not None:
            terminalreporter.write_line(f"agentv: {safe_text(str(self._problem))}", red=True)
        if self._path is not None:
            count = sum(map(len, self._by_test.values()))
            for text in self._headlines:
                terminalreporter.write_line(f"agentv: {safe_text(text)}")
            terminalreporter.write_line(f"agentv: {plural(count, 'result')} in {relative_path(self._path)}")

    def _written(self) -> Path:
        root = project_root(str(self._config.rootpath))
        run_id = new_run_id(datetime.fromisoformat(self._started_at))
        redact = Redactor(load_environment(root, root).secrets).redact_line
        folder = RunFolder.create(Path(root) / RESULTS_FOLDER / run_id, redact)
        results = [msgspec.structs.replace(result, run_id=run_id) for result in self._results()]
        folder.write_manifest(self._manifest(run_id, results))
        write_file(folder.cases_path, b"".join(redact(line.encode()) for line in self._cases.values()))
        write_file(folder.results_path, b"".join(redact(encode_record(result)) for result in results))
        opened = RunStore.open(folder.path)
        figures = opened.figures()
        folder.write_summary(figures.summary)
        self._headlines = headlines(figures.summary)
        for file in self._files or [str(folder.path / "report.html")]:
            write_report(format_of(file), opened, figures, file)
        return folder.path

    def _results(self) -> Iterator[Result]:
        """Yield the results of all tests; repeated jobs are numbered as trials."""
        trials_by_job: dict[tuple[Any, ...], set[int]] = {}
        for line in (line for lines in self._by_test.values() for line in lines):
            result = decode_record(line.encode())
            job = (result.dataset_path, result.dataset, result.eval_id, result.target, result.prompt)
            trials = trials_by_job.setdefault(job, set())
            trial = max(trials) + 1 if result.trial in trials else result.trial
            trials.add(trial)
            yield msgspec.structs.replace(result, trial=trial)

    def _manifest(self, run_id: str, results: list[Result]) -> RunManifest:
        datasets = {result.dataset_path: result.dataset for result in results}
        return RunManifest(
            run_id=run_id,
            started_at=self._started_at,
            finished_at=now(),
            versions={"agentv": __version__, "pytest": pytest.__version__},
            datasets=tuple(
                DatasetEntry(path=path, name=name, digest="", cases=sum(key[0] == path for key in self._cases))
                for path, name in datasets.items()
            ),
            targets=tuple(
                TargetEntry(name=name, provider="pytest", fingerprint="")
                for name in dict.fromkeys(result.target for result in results)
            ),
            counts=Counts(cases=len(self._cases), jobs=len(results)),
        )


def _notes(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> dict[str, Any] | None:
    """Return the records and the case of the phase that decides a test; None for other phases."""
    if report.when != "call" and not (report.when == "setup" and report.failed):
        return None
    if hasattr(item, "case") and hasattr(item, "results"):
        records = [encode_record(result).decode() for result in item.results]
        line = item.file.lines.get(item.case.id, b"").decode()  # type: ignore[attr-defined]
        key = (item.results[0].dataset_path, item.case.id) if records else None
        return {"records": records, "case": line, "key": key} if records else None
    params = getattr(getattr(item, "callspec", None), "params", {})
    case = next((value for value in params.values() if isinstance(value, EvalCase)), None)
    if case is None or report.skipped:
        return None
    data = {**resolved_data(case), "dataset_path": case.path, "line": case.line}
    record = encode_record(_result(item, case, call, report)).decode()
    return {"records": [record], "case": to_json(data).decode() + "\n", "key": (case.path, case.id)}


def _further(item: pytest.Item, case: EvalCase) -> str:
    """Return the parameters of a test other than the case, named as pytest does."""
    spec = item.callspec  # type: ignore[attr-defined]
    names = []
    for name, value in spec.params.items():
        if isinstance(value, EvalCase):
            names += [] if value is case else [value.id]
        else:
            plain = isinstance(value, str | int | float | bool | None)
            called = getattr(value, "__name__", f"{name}{spec.indices[name]}")
            names.append(visible(str(value) if plain else called))
    return f"[{'-'.join(names)}]" if names else ""


def _result(item: pytest.Item, case: EvalCase, call: pytest.CallInfo[None], report: pytest.TestReport) -> Result:
    """Return a test as a result: a pass scores 1, a failed assertion 0, any other exception is an error."""
    raised = call.excinfo
    asserted = raised is not None and raised.errisinstance((AssertionError, pytest.fail.Exception))
    reason = "" if raised is None else start_of(visible(raised.exconly(tryshort=True)), _LONGEST_REASON)
    stage: Stage = "setup" if report.when == "setup" else "target"
    error = None if raised is None or (asserted and report.when == "call") else ErrorInfo("process", reason, stage)
    score = None if error else 0.0 if raised else 1.0
    return Result(
        timestamp=now(),
        run_id="",
        eval_id=case.id,
        dataset=case.dataset,
        dataset_path=case.path,
        conversation_id=case.conversation_id,
        cluster=case.cluster,
        target=item.nodeid.split("[", 1)[0] + _further(item, case),
        trial=1,
        status="error" if error else "ok",
        score=score,
        verdict=None if score is None else "pass" if score else "fail",
        misses=(reason,) if raised and not error else (),
        candidate_answer=getattr(item, "agentv_answer", None),
        error=error,
        execution_metrics=ExecutionMetrics(duration_ms=round(call.duration * 1000, 3)),
        tags=case.tags,
        metadata=dict(case.metadata),
    )
