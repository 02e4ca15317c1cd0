"""Kept until the engine uses the run store."""

from pathlib import Path

from agentv.runs.done_jobs import DoneJobs as DoneJobs


def scan(path: Path | str) -> DoneJobs:
    """The done jobs of a `results.jsonl`."""
    return DoneJobs.read(Path(path))
