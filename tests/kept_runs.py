"""Runs in the results folder of a project, written without an eval: small, and with any figures."""

from pathlib import Path

from agentv.model.manifest import Counts, DatasetEntry, RunManifest, TargetEntry
from agentv.runs.folder import RunFolder
from agentv.runs.record import encode_record
from agentv.runs.summary import RunSummary
from agentv.runs.target_summary import TargetSummary
from made_results import made

KEPT = Path(".agentv/results")


def summary_of(mean, n=400, errors=0):
    """The figures of a target with this mean."""
    half = 1.96 * (mean * (1 - mean) / n) ** 0.5
    return TargetSummary(
        cases=n + errors, jobs=n + errors, scored=n, errors=errors, unscored=0, skipped=0, mean=mean,
        ci95=(mean - half, mean + half), pass_rate=mean,
    )  # fmt: skip


def keep(day, mean=0.8, *, name="gpt", dataset="support", finished=True, passed=(), **manifest):
    """Write a run of that day of November; `passed` are the results of its cases. Return its id."""
    run_id = f"202611{day:02d}-120000-000{day % 10}"
    folder = RunFolder.create(KEPT / run_id)
    moment = f"2026-11-{day:02d}T12:00:00.000Z"
    known = {
        "run_id": run_id,
        "started_at": moment,
        "finished_at": moment if finished else None,
        "datasets": (DatasetEntry(path=f"evals/{dataset}.jsonl", name=dataset, digest="0", cases=400),),
        "targets": (TargetEntry(name=name, provider="python", fingerprint="0"),),
        "counts": Counts(cases=400, jobs=400),
        "git_commit": "0123456789abcdef",
    }
    folder.write_manifest(RunManifest(**known | manifest))
    records = (
        made(eval_id=f"case-{case}", dataset=dataset, target=name, score=float(score))
        for case, score in enumerate(passed)
    )
    folder.results_path.write_bytes(b"".join(map(encode_record, records)))
    if finished:
        folder.write_summary(RunSummary(run_id=run_id, targets={name: summary_of(mean)}))
    return run_id
