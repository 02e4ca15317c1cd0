"""What GitHub Actions shows of a run: a summary of the step, and notes beside the lines of the dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentv.errors import AgentvError
from agentv.model.result import Result
from agentv.report.figures import job_name, number, one_line
from agentv.report.markdown import markdown_lines, notable
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore
from agentv.runs.summary import reason_of

MOST_SHOWN = 10
"""GitHub shows ten errors and ten warnings of a step, and drops the rest in silence."""

_LONGEST_SUMMARY = 1_000_000
_LONGEST_REASON = 500


def workflow_command(severity: str, properties: Mapping[str, object], text: str) -> str:
    """A line that GitHub takes for a note; properties without a value are left out."""
    told = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in properties.items() if value is not None)
    return f"::{severity} {told}::{_escaped(text)}"


def notes_of(run: RunStore) -> Iterator[str]:
    """A note for each job that did not pass, at the line of its case: errors first, then the worst."""
    lines = run.case_lines()
    found = notable(run, MOST_SHOWN)
    problems = [*found.errors, *found.failed]
    for result in problems[:MOST_SHOWN]:
        yield _note("error", run, result, lines.get((result.dataset_path, result.eval_id)))
    for result in found.borderline:
        yield _note("warning", run, result, lines.get((result.dataset_path, result.eval_id)))
    counts = found.counts
    shown = min(len(problems), MOST_SHOWN) + len(found.borderline)
    total = sum(counts.values())
    if total > shown:
        told = f"{counts['failed']:,} failed, {counts['borderline']:,} borderline, {counts['errors']:,} errors"
        yield workflow_command("notice", {"title": "agentv"}, f"{told}: {shown} of {total:,} are noted")


def append_step_summary(run: RunStore, figures: Figures, file: str) -> None:
    """Adds the Markdown report to the file that GitHub shows; more than it takes is cut at a line."""
    text, size = [], 0
    for line in markdown_lines(run, figures):
        size += len(line.encode()) + 1
        if size > _LONGEST_SUMMARY:
            text.append("… cut here: the whole report is in the run's folder.")
            break
        text.append(line)
    try:
        with Path(file).open("a", encoding="utf-8", newline="\n") as stream:
            stream.write("\n".join([*text, ""]))
    except OSError as error:
        raise AgentvError(f"Cannot write {file}", error.strerror or str(error)) from error


def _note(severity: str, run: RunStore, result: Result, line: int | None) -> str:
    reason = one_line(reason_of(result), _LONGEST_REASON)
    figure = f"{result.error.error_class} error" if result.error else f"score {number(result.score)}"
    name = job_name(result.eval_id, result.prompt, result.trial)
    place = {
        "file": _in_repository(result.dataset_path, run) if result.dataset_path else None,
        "line": line,
        "title": one_line(f"{name} ({result.target})", 120),
    }
    return workflow_command(severity, place, f"{figure}: {reason}" if reason else figure)


def _in_repository(path: str, run: RunStore) -> str:
    """A path as GitHub knows it: from the folder that was checked out."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if not workspace:
        return path
    # Paths are from where the run was started: here, or somewhere above its folder.
    folders = [Path(), *run.path.absolute().parents]
    found = next((folder / path for folder in folders if (folder / path).exists()), path)
    return os.path.relpath(found, workspace)


def _escaped(text: str, also: str = "") -> str:
    for char in "%\r\n" + also:
        text = text.replace(char, f"%{ord(char):02X}")
    return text
