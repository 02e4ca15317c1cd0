"""Merge the runs of several shards into one run folder. A merge can be repeated, or completed after a kill."""

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from agentv.engine.cost import MAY_DIFFER
from agentv.errors import UsageError
from agentv.model.manifest import DatasetEntry, RunLink, RunManifest, SpanCounts, merged_contents
from agentv.model.values import to_json
from agentv.runs.damage import check_run, damage_error
from agentv.runs.folder import RunFolder, content_digest, new_run_id, write_whole
from agentv.runs.folder_lock import is_locked
from agentv.runs.job_index import keyed_lines
from agentv.runs.run_figures import planned_jobs
from agentv.runs.store import RunStore
from agentv.runs.summary import RunSummary, SummaryBuilder


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a merge. `missing` shards were not passed; `unfinished` runs were passed but have not ended."""

    path: Path
    runs: int
    records: int
    missing: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()


def merge_runs(paths: Sequence[Path | str], out: Path | str) -> Merged:
    """Write the union of shard runs to a run folder. Raises UsageError if they are not shards of one evaluation."""
    shards = _Shards([RunStore.open(path) for path in paths])
    folder = _open_folder(Path(out), shards)
    with folder.lock():
        folder.remove_temporary_files()
        earlier = RunStore.open(folder.path) if folder.manifest_path.is_file() else None
        manifest = shards.manifest(earlier.manifest if earlier else None)
        parts = [*([earlier] if earlier else []), *shards.runs]
        try:
            if earlier is None:
                # Written first, so that a killed merge leaves an unfinished run, which the next merge completes.
                folder.write_manifest(manifest)
            write_whole(folder.cases_path, _cases(parts))
            write_whole(folder.results_path, _records(parts))
        except UsageError:
            if earlier is None:
                shutil.rmtree(folder.path)
            raise
        summary = shards.summary(RunStore.open(folder.path), manifest.run_id)
        digests = {path.name: content_digest(path) for path in (folder.cases_path, folder.results_path)}
        digests[folder.summary_path.name] = folder.write_summary(summary)
        counts = summary.counts(sum(entry.cases for entry in manifest.datasets))
        merged = msgspec.structs.replace(manifest, finished_at=shards.finished_at, counts=counts, digests=digests)
        folder.write_manifest(merged)
    return Merged(
        path=folder.path,
        runs=len(shards.runs),
        records=counts.ok + counts.unscored + counts.errors,
        missing=shards.missing,
        unfinished=shards.unfinished,
    )


class _Shards:
    """The runs of a merge, in the order of their ids, checked to be shards of one evaluation."""

    def __init__(self, runs: Sequence[RunStore]) -> None:
        by_id = {manifest.run_id: (run, manifest) for run in runs if (manifest := _mergeable(run))}
        self.runs = [by_id[run_id][0] for run_id in sorted(by_id)]
        self.manifests = [by_id[run_id][1] for run_id in sorted(by_id)]
        for one, other in combinations(range(len(self.runs)), 2):
            difference = next(_differences(self.manifests[one], self.manifests[other]), None)
            if difference is not None:
                headline = f"{self.runs[one].path} and {self.runs[other].path} are not shards of the same evaluation"
                raise UsageError(headline, difference, "Create shards with: agentv eval --shard 1/4 …")
        numbers = [manifest.options.get("shard") for manifest in self.manifests]
        counts = {shard[1] for shard in numbers if shard}
        if len(counts) > 1:
            detail = f"They differ in the number of shards: {' and '.join(map(str, sorted(counts)))}"
            raise UsageError("The runs are not shards of the same evaluation", detail)
        for run, manifest in zip(self.runs, self.manifests, strict=True):
            _refuse_damage(run, manifest)
        indexes = {shard[0] for shard in numbers if shard}
        whole = max(counts, default=0) if all(numbers) else 0
        self.missing = tuple(f"{number}/{whole}" for number in range(1, whole + 1) if number not in indexes)
        ends = [manifest.finished_at for manifest in self.manifests]
        self.unfinished = tuple(str(run.path) for run, end in zip(self.runs, ends, strict=True) if end is None)
        is_complete = not self.missing and not self.unfinished
        self.finished_at = max(filter(None, ends)) if is_complete else None

    def _spans(self) -> SpanCounts | None:
        """Return the spans that all runs received together; None if none received any."""
        total: SpanCounts | None = None
        for manifest in self.manifests:
            total = total if manifest.spans is None else manifest.spans.added_to(total)
        return total

    def manifest(self, earlier: RunManifest | None) -> RunManifest:
        """Return the manifest of the union, unfinished and without a shard, so that resuming it runs missing jobs."""
        first = self.manifests[0]
        links = {link.run_id: link for link in (earlier.merged_from if earlier else ())}
        links |= {run.run_id: RunLink(run_id=run.run_id, path=str(run.path), digest=run.digest()) for run in self.runs}
        started_at = min(manifest.started_at for manifest in self.manifests)
        commits = {manifest.git_commit for manifest in self.manifests}
        fingerprints = defaultdict[str, set[str]](set)  # omitted if they differ between shards
        for name, fingerprint in (item for part in self.manifests for item in part.fingerprints.items()):
            fingerprints[name].add(fingerprint)
        return msgspec.structs.replace(
            first,
            run_id=earlier.run_id if earlier else new_run_id(datetime.fromisoformat(started_at)),
            merged_from=tuple(links[run_id] for run_id in sorted(links)),
            started_at=started_at,
            finished_at=None,
            exit_code=None,
            spans=self._spans(),
            options={name: value for name, value in first.options.items() if name not in MAY_DIFFER},
            datasets=tuple(self._dataset(index) for index in range(len(first.datasets))),
            targets=tuple({entry.name: entry for part in self.manifests for entry in part.targets}.values()),
            judges=tuple({entry.name: entry for part in self.manifests for entry in part.judges}.values()),
            fingerprints={name: next(iter(part)) for name, part in fingerprints.items() if len(part) == 1},
            git_commit=first.git_commit if len(commits) == 1 else None,
            counts=None,
            digests={},
        )

    def _dataset(self, index: int) -> DatasetEntry:
        entries = [manifest.datasets[index] for manifest in self.manifests]
        return msgspec.structs.replace(
            entries[0],
            contents=merged_contents(*(entry.contents for entry in entries)),
            cases=sum(entry.cases for entry in entries),
        )

    def summary(self, merged: RunStore, run_id: str) -> RunSummary:
        """Return the figures of the merged run, from its records and the jobs that the shards planned."""
        jobs: Counter[str] = Counter()
        cases: Counter[str] = Counter()
        for run, manifest in zip(self.runs, self.manifests, strict=True):
            planned, selected = planned_jobs(manifest, run.summary())
            jobs.update(planned)
            cases.update(selected)
        return SummaryBuilder(run_id, jobs_per_case=2).add_all(merged.records()).build(jobs, cases)


def _mergeable(run: RunStore) -> RunManifest:
    """Return the manifest of a run that can be merged. Raises UsageError for others."""
    if (manifest := run.manifest) is None:
        raise UsageError(f"Cannot merge {run.path}", "It is not a run folder", "Pass folders written by agentv eval")
    why, hint = "", ""
    if is_locked(run.path):
        why, hint = "A process is writing to it", "Wait until the run ends"
    elif manifest.rescored_from is not None or manifest.merged_from:
        why, hint = "It was merged or rescored", "Pass the runs of the shards instead"
    elif manifest.draw is not None:
        why = "It drew its cases with --cases-budget, on its own"
    elif option := next((name for name in ("stop_when", "until") if manifest.options.get(name) is not None), ""):
        why = f"It used --{option.replace('_', '-')}, so each shard stopped at a different point"
    if why:
        raise UsageError(f"Cannot merge {run.path}", why, hint)
    return manifest


def _refuse_damage(run: RunStore, manifest: RunManifest) -> None:
    """Raise AgentvError for a finished run that lost cases or records, for example in an incomplete upload."""
    lost = [item for item in check_run(run.path).problems if item.kind != "changed"] if manifest.finished_at else ()
    if lost:
        raise damage_error(run.path, lost)


def _differences(first: RunManifest, other: RunManifest) -> Iterator[str]:
    """Yield the differences that keep two runs from being shards of one evaluation."""
    before, after = _required(first), _required(other)
    for name in (*before, *(name for name in after if name not in before)):
        if before.get(name) != after.get(name):
            yield f"They differ in {name}"
    # A manifest lists only the targets and judges that the cases of its shard need.
    for kind, entries, others in (("target", first.targets, other.targets), ("judge", first.judges, other.judges)):
        fingerprints = {entry.name: entry.fingerprint for entry in entries}
        for entry in others:
            if fingerprints.get(entry.name, entry.fingerprint) != entry.fingerprint:
                yield f"They differ in the {kind} {entry.name}"


def _required(manifest: RunManifest) -> dict[str, Any]:
    """Return everything that must be equal, by its name in messages."""
    return {
        "the paths": manifest.paths,
        "the seed": manifest.seed,
        "`execution` of .agentv/config.yaml": manifest.defaults,
        **{f"the version of {name}": value for name, value in manifest.versions.items()},
        **{f"the dataset {entry.path}": entry.digest for entry in manifest.datasets},
        **{f"the option {name}": value for name, value in manifest.options.items() if name not in MAY_DIFFER},
    }


def _open_folder(out: Path, shards: _Shards) -> RunFolder:
    """Create a folder, or open that of an earlier merge of the same runs."""
    folder = RunFolder(out)
    if not folder.manifest_path.is_file():
        return RunFolder.create(out)
    run_ids = {link.run_id for link in folder.read_manifest().merged_from}
    if not run_ids or not run_ids <= {manifest.run_id for manifest in shards.manifests}:
        detail = "It contains another run" if not run_ids else "It is a merge of other runs"
        raise UsageError(f"The run folder already exists: {out}", detail, "Choose another folder with --out")
    return folder


def _cases(runs: Sequence[RunStore]) -> Iterator[bytes]:
    """Yield each case once. Raises UsageError if a case, its evaluators, or their files differ between runs."""
    contents: dict[int, int] = {}
    evaluators: dict[int, int] = {}
    for run in runs:
        for case in run.cases():
            own = case.fields
            settings = (os.path.dirname(case.dataset_path), to_json([own.get("evaluators"), own.get("turns")]))
            fingerprints = hash(to_json(case.evaluator_fingerprints))
            if evaluators.setdefault(hash(settings), fingerprints) != fingerprints:
                raise _conflict(run, f"An evaluator of case {case.id} in {case.dataset_path} differs between the runs")
            key, content = hash((case.dataset_path, case.id)), hash(case.data)
            if key not in contents:
                contents[key] = content
                yield case.data
            elif contents[key] != content:
                raise _conflict(run, f"Case {case.id} in {case.dataset_path} differs between the runs")


def _records(runs: Sequence[RunStore]) -> Iterator[bytes]:
    """Yield each record once. Raises UsageError for a job with two different records."""
    contents: dict[int, int] = {}
    for run in runs:
        for key, _, line in keyed_lines(run.folder.results_path):
            code, content = hash(key), hash(line)
            if code not in contents:
                contents[code] = content
                yield line
            elif contents[code] != content:
                raise _conflict(run, f"Another run has a different record for {key}")


def _conflict(run: RunStore, detail: str) -> UsageError:
    return UsageError(
        f"Cannot merge {run.path}", detail, "Merge runs without common jobs, or identical copies of a run"
    )
