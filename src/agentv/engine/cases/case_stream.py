"""Stream the cases of a run in chunks, and notice datasets that change during the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from agentv.engine.run_plan import Cases, Fingerprints, RunPlan
from agentv.errors import AgentvError, DatasetChangedError
from agentv.model.case import EvalCase
from agentv.model.manifest import merged_contents

_CHUNK = 64
"""Cases written together, before the first of them runs."""


class CaseStream:
    """The cases of a plan, read a second time. If a dataset changed, no more cases are read."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._contents: dict[str, str] = {}
        # The hash covers the cases that name files, and all of them must be read.
        self.compares_files = plan.rescored is None and plan.early_stop is None
        self.compares_files &= any(entry.contents for entry in plan.checked.datasets)
        self._datasets = {file: source.path for source in plan.cases.sources for file in source.files}
        self._changed: str | None = None
        self._cwd = _working_directory()

    def chunks(self) -> Iterator[list[EvalCase]]:
        """Yield the cases in chunks, until a dataset changes."""
        early_stop, cases = self._plan.live_early_stop, self._plan.cases
        try:
            if early_stop is None:
                stream = cases.stream_again()
                yield from iter(lambda: list(islice(stream, _CHUNK)), [])
            else:
                yield from early_stop.chunks(cases, self._plan.source)
        except Exception as error:
            self._check_working_directory()
            self._changed = error.path if isinstance(error, DatasetChangedError) else _changed_dataset(cases)
            if self._changed is None:
                raise

    def _check_working_directory(self) -> None:
        """Raise AgentvError if the paths of the datasets have another meaning than at the start."""
        paths = [source.path for source in self._plan.cases.sources]
        cwd = _working_directory()
        if cwd != self._cwd and not all(map(os.path.isabs, paths)):
            detail = f"It was {self._cwd} and is {cwd}: a target or an evaluator called os.chdir"
            hint = "Name the datasets by an absolute path, or remove os.chdir, then continue with --resume"
            raise AgentvError("The working directory changed during the run", detail, hint)

    def read(self, case: EvalCase, fingerprints: Fingerprints) -> None:
        """Take note of a case, if `compares_files`: the files that cases name must not change."""
        if case.names_files and case.path in self._datasets:
            path = self._datasets[case.path]
            self._contents[path] = merged_contents(self._contents.get(path, ""), fingerprints[1])

    def refuse_changes(self, folder: Path, *, has_missing_jobs: bool) -> None:
        """Raise DatasetChangedError if a dataset, or a file that its cases name, changed during the run."""
        advice = f"--changed-since {folder} carries over the records of unchanged cases"
        if self._changed is None and has_missing_jobs:
            self._changed = _changed_dataset(self._plan.cases)
        if self._changed is not None or has_missing_jobs:
            name = "The datasets" if self._changed is None else f"The dataset {self._changed}"
            detail = f"The run stopped. Its records in {folder} come from the dataset before the change"
            hint = f"Restore the file and continue with --resume, or start a new run; {advice}"
            raise DatasetChangedError(f"{name} changed during the run", detail, hint, path=self._changed)
        if not self.compares_files:
            return
        for entry in self._plan.checked.datasets:
            if self._contents.get(entry.path, "") != entry.contents:
                headline = f"Files that the cases of {entry.path} name changed during the run"
                detail = f"Some records in {folder} come from the changed files"
                raise ChangedFilesError(headline, detail, f"Start a new run; {advice}", path=entry.path)


class ChangedFilesError(DatasetChangedError):
    """Some records come from other files than planned, so the run cannot be resumed."""


def _changed_dataset(cases: Cases) -> str | None:
    """Return the first dataset that changed; None if there is none."""
    try:
        cases.sink.stamps.check_all()
    except DatasetChangedError as changed:
        return changed.path
    return None


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a deleted folder"
