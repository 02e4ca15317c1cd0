"""A run opened for reports: its results any number of times, the cases behind them, its figures. Knows no format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from agentv.errors import AgentvError
from agentv.model.manifest import RunManifest, RunSummary
from agentv.model.result import Result
from agentv.runs.folder import RunFolder
from agentv.runs.store import read_run
from agentv.runs.summary import SummaryBuilder, TargetDetails


class KeptCase(msgspec.Struct, frozen=True, gc=False):
    """A line of `cases.jsonl`: what finds it, and the whole of it as JSON. `line` is where its dataset has it."""

    id: str
    dataset_path: str = ""
    line: int | None = None
    data: bytes = b""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What all results come to. `evaluators` are the names of all that were asked, `jobs` those that were planned.

    `lost` are records that the run counted when it ended, and that are no longer in its file.
    """

    summary: RunSummary
    details: dict[str, TargetDetails]
    evaluators: tuple[str, ...]
    done: int
    jobs: int
    lost: int = 0

    @property
    def spared(self) -> int:
        """The jobs that were not needed, because enough was known before them."""
        return sum(each.early_stop.not_needed for each in self.summary.targets.values() if each.early_stop)

    @property
    def unfinished(self) -> bool:
        """Whether jobs are missing that were wanted."""
        return self.done + self.spared < self.jobs

    @property
    def standing(self) -> str:
        """What of the run is not there, in a sentence; empty when all of it is."""
        if not self.unfinished:
            return ""
        gone = f"; {self.lost:,} records that the run wrote are gone from its results" if self.lost else ""
        return f"{self.done:,} of {self.jobs:,} jobs are done{gone}"


_decode_case = msgspec.json.Decoder(KeptCase).decode


class OpenedRun:
    """A run folder, or a file of records, which may be AgentV's. Raises UsageError when it is neither."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        read_run(self.path)  # says at once when there is no run
        self.manifest = _manifest(self.path)
        self.run_id = self.manifest.run_id if self.manifest else self.path.stem

    def results(self) -> Iterator[Result]:
        """The results in the order in which they ended, one at a time."""
        return read_run(self.path)

    def cases(self) -> Iterator[KeptCase]:
        """The cases as the run kept them, one at a time; none where it is a file of records only."""
        path = RunFolder(self.path).cases_path
        if not path.is_file():
            return
        with path.open("rb", buffering=1 << 18) as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    return  # half a line of a run that was killed, or is being written
                try:
                    found = _decode_case(line)
                except msgspec.DecodeError as error:
                    raise AgentvError(f"Cannot read {path}", str(error)) from error
                yield msgspec.structs.replace(found, data=line)

    def lines(self) -> dict[tuple[str, str], int]:
        """The line of each case in its dataset, by the dataset's path and the case's id, as far as it was kept."""
        return {(case.dataset_path, case.id): case.line for case in self.cases() if case.line}

    def figures(self) -> Figures:
        """Everything counted, in one pass."""
        # Clustering by case is what several trials need, and changes nothing where each case has one result.
        builder = SummaryBuilder(self.run_id, jobs_per_case=2)
        evaluators: dict[str, None] = {}
        done = 0
        for result in self.results():
            builder.add(result)
            done += 1
            for found in result.evaluator_results:
                if found.name not in evaluators:
                    evaluators[found.name] = None
        kept = self._kept_summary()
        summary, details = _labelled(builder.build(*self._planned(kept)), builder.details(), kept)
        counts = self.manifest.counts if self.manifest else None
        return Figures(
            summary=summary,
            details=details,
            evaluators=tuple(evaluators),
            done=done,
            jobs=max(done, counts.jobs if counts else 0),
            lost=max(0, _recorded(kept) - done),
        )

    def _kept_summary(self) -> RunSummary | None:
        try:
            return RunFolder(self.path).read_summary()
        except AgentvError:
            return None

    def _planned(self, kept: RunSummary | None) -> tuple[dict[str, int], dict[str, int]]:
        """Jobs and cases of each target, where the folder tells: the summary of a run that ended, or its one target."""
        if kept is not None:
            targets = kept.targets.items()
            return {name: target.jobs for name, target in targets}, {name: target.cases for name, target in targets}
        manifest = self.manifest
        if manifest is None or manifest.counts is None or len(manifest.targets) != 1:
            return {}, {}
        name = manifest.targets[0].name
        return {name: manifest.counts.jobs}, {name: manifest.counts.cases}


def _recorded(kept: RunSummary | None) -> int:
    """The records that a run counted when it ended."""
    return sum(each.scored + each.errors + each.unscored for each in kept.targets.values()) if kept else 0


def _labelled(
    summary: RunSummary, details: dict[str, TargetDetails], kept: RunSummary | None
) -> tuple[RunSummary, dict[str, TargetDetails]]:
    """The same figures, with the intervals that a run with `--stop-when` kept: those hold at any moment."""
    targets, further = dict(summary.targets), dict(details)
    for name, before in (kept.targets if kept else {}).items():
        early, found = before.early_stop, targets.get(name)
        if early is None or found is None or found.scored != before.scored:
            continue
        targets[name] = msgspec.structs.replace(
            found,
            ci95=before.ci95,
            evaluators=before.evaluators,
            prompts=before.prompts,
            trials=before.trials,
            early_stop=early,
        )
        if name in further:
            share = early.ci95 if early.measure == "pass_rate" else None
            further[name] = msgspec.structs.replace(further[name], pass_ci95=share)
    return msgspec.structs.replace(summary, targets=targets), further


def _manifest(path: Path) -> RunManifest | None:
    folder = RunFolder(path)
    return folder.read_manifest() if folder.manifest_path.is_file() else None
