"""Datasets as pytest files: each case is a test item that fails, or errors if it could not be scored."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from agentv.datasets.formats.dataset_format import data_files, suggested
from agentv.datasets.loader import ignore
from agentv.datasets.selection import Selection
from agentv.engine.gates.exit_code import judge
from agentv.engine.gates.gate_options import Gates
from agentv.engine.prepare import prepare
from agentv.engine.run import open_executor, open_store, run
from agentv.engine.run_in_progress import Observer
from agentv.engine.run_options import EvalOptions
from agentv.errors import EXIT_UNDECIDED, AgentvError
from agentv.model.case import EvalCase
from agentv.model.result import Result
from agentv.report.figures import number, visible
from agentv.report.junit import headline, story
from agentv.runs.store import RunStore
from agentv.runs.summary import SummaryBuilder
from agentv.settings.project import is_too_wide
from agentv.support.hashes import relative_path
from agentv.trust.roots import trusting

NAMED = ("*.eval.yaml", "*.eval.yml", "*.eval.jsonl")
THRESHOLDS = "thresholds"


class DatasetCollector:
    """Collects datasets that are named on the command line or match the patterns."""

    def __init__(self, config: pytest.Config) -> None:
        self._patterns = [*config.getini("agentv_evals")] or list(NAMED)
        self._root = config.rootpath

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> EvalFile | None:
        """Return the collector of a dataset; None for other files."""
        if not suggested(file_path.name) or data_files(str(file_path)):
            return None
        relative = file_path.relative_to(self._root) if file_path.is_relative_to(self._root) else file_path
        names = (relative.as_posix(), file_path.name)
        if parent.session.isinitpath(file_path) or any(fnmatch(name, p) for name in names for p in self._patterns):
            return EvalFile.from_parent(parent, path=file_path)
        return None


class EvalFile(pytest.File):
    """A dataset. Its cases run together with the first of them; in an xdist worker, one by one."""

    def collect(self) -> Iterator[pytest.Item]:
        self._results: dict[str, list[Result]] = {}
        self.lines: dict[str, bytes] = {}  # the cases as stored by the run, by id
        self._failed = ""
        try:
            with trusting(self._trusted):
                cases = EvalOptions(paths=(self._shown,)).open_cases(self.warn, ignore).load()
        except AgentvError as error:
            raise self.CollectError(str(error)) from error
        self.thresholds = {name: least for case in cases for name, least in (case.execution.thresholds or {}).items()}
        option = self.config.getoption
        self.gates = Gates(threshold=option("--agentv-threshold"), gate_on=option("--agentv-gate-on"))
        for case in cases:
            # Escaped, because pytest prints the names of tests.
            name = visible(case.id).replace("\n", "\\n").replace("\t", "\\t")
            yield self._grouped(EvalItem.from_parent(self, name=name, case=case))
        if self.has_threshold:
            is_taken = any(case.id == THRESHOLDS for case in cases)
            name = f"{THRESHOLDS} of all cases" if is_taken else THRESHOLDS
            yield self._grouped(ThresholdItem.from_parent(self, name=name))

    @property
    def _shown(self) -> str:
        """The path, relative to the current folder if it is below it."""
        path = relative_path(self.path)
        return str(self.path) if path.startswith(os.pardir) else path

    @property
    def _trusted(self) -> list[str]:
        """The root of the tests, whose code pytest runs anyway, and the folders that the user trusts."""
        root = str(self.config.rootpath)
        return [*([] if is_too_wide(root) else [root]), *self.config.getoption("--agentv-trust")]

    @property
    def has_threshold(self) -> bool:
        """Whether the file has a threshold for its mean scores."""
        return bool(self.thresholds) or self.gates.threshold is not None

    def _grouped(self, item: pytest.Item) -> pytest.Item:
        """Run all items of a file with thresholds in one xdist worker."""
        if self.has_threshold and self.config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(self.nodeid))
        return item

    def results_of(self, item: EvalItem) -> list[Result]:
        """Return the results of a case for all targets, prompts and trials."""
        if item.case.id not in self._results:
            alone = hasattr(self.config, "workerinput")
            self._run([item] if alone else [other for other in self._chosen() if other.case.id not in self._results])
        return self._results[item.case.id]

    def all_results(self) -> list[Result]:
        """Return the results of all selected cases. Fails if other xdist workers have some of them."""
        missing = [item for item in self._chosen() if item.case.id not in self._results]
        if missing and hasattr(self.config, "workerinput"):
            _fail("Cases of this file ran in several xdist workers. Use --dist loadfile or --dist loadgroup.")
        if missing:
            self.results_of(missing[0])
        return [result for results in self._results.values() for result in results]

    def _chosen(self) -> list[EvalItem]:
        return [item for item in self.session.items if isinstance(item, EvalItem) and item.parent is self]

    def _run(self, items: list[EvalItem]) -> None:
        names = frozenset((item.case.dataset, item.case.id) for item in items)
        with tempfile.TemporaryDirectory() as folder:
            try:
                if not self._failed:
                    with trusting(self._trusted):
                        self._evaluate(names, folder)
            except AgentvError as error:
                self._failed = str(error)  # an invalid target or evaluator fails every case
            if self._failed:  # outside the handler, or pytest would also print the exception
                _fail(self._failed)
            for result in RunStore.open(folder).records():
                self._results.setdefault(result.eval_id, []).append(result)
            for line in Path(folder, "cases.jsonl").read_bytes().splitlines(keepends=True):
                self.lines[str(msgspec.json.decode(line)["id"])] = line

    def _evaluate(self, names: frozenset[tuple[str, str]], folder: str) -> None:
        option = self.config.getoption
        options = EvalOptions(
            paths=(self._shown,), targets=tuple(option("--agentv-target")), trials=option("--agentv-trials")
        )
        cases = options.open_cases(ignore, ignore)
        plan = prepare(options, msgspec.structs.replace(cases, selection=Selection(named=names)))
        outcome = run(plan, open_store(plan, folder, listed=False), open_executor(plan), Observer())
        if outcome.stopped == "interrupted":
            raise KeyboardInterrupt


class EvalItem(pytest.Item):
    """A case. Errors are raised in `setup`, where pytest counts them as errors; failures in `runtest`."""

    def __init__(self, *, case: EvalCase, **options: Any) -> None:
        super().__init__(**options)
        self.case = case

    @property
    def file(self) -> EvalFile:
        """The dataset of the case."""
        assert isinstance(self.parent, EvalFile)
        return self.parent

    def setup(self) -> None:
        self.results = self.file.results_of(self)
        for result in self.results:
            self.user_properties.append((f"score {result.target}", number(result.score)))
        if errors := [result for result in self.results if result.status == "error"]:
            _fail(_details(errors))

    def runtest(self) -> None:
        failed = [result for result in self.results if result.verdict == "fail"]
        if failed and self.file.has_threshold:
            pytest.xfail(f"scored {', '.join(number(result.score) for result in failed)}; only the threshold counts")
        if failed:
            _fail(_details(failed))
        if all(result.status == "unscored" for result in self.results):
            pytest.skip("no evaluator scores this case")

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self.case.line - 1 if self.case.line else None, f"case {self.name}"


class ThresholdItem(pytest.Item):
    """The thresholds of a file: the mean of each target, and of each evaluator with a threshold."""

    def setup(self) -> None:
        assert isinstance(self.parent, EvalFile)
        self._file = self.parent
        self._found = self._file.all_results()

    def runtest(self) -> None:
        summary = SummaryBuilder(self.name, jobs_per_case=2).add_all(self._found).build()
        verdict = judge(summary, self._file.gates, None, self._file.thresholds)
        if verdict.exit_code:
            label = "Can't tell: " if verdict.exit_code == EXIT_UNDECIDED else ""
            _fail("\n".join(label + reason for reason in verdict.reasons))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


def _details(results: list[Result]) -> str:
    return "\n\n".join(f"{headline(result)}\n{story(result)}" for result in results)


def _fail(text: str) -> NoReturn:
    """End an item without a traceback: as an error in `setup`, as a failure in `runtest`."""
    pytest.fail(text, pytrace=False)
