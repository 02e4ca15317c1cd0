"""Markdown report for pull requests, and GitHub annotations: figures first, then the results that did not pass."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import BinaryIO

import msgspec

from agentv.errors import file_errors, plural
from agentv.model.result import Result, reason_of, transformed_answer
from agentv.report.comparisons.frontier_text import TITLE, frontier_rows, frontier_sentence, run_frontier
from agentv.report.figures import cell, interval, job_name, markdown, markdown_table, number, one_line, visible
from agentv.report.formats import ReportFormat
from agentv.report.summary_text import (
    answer_notes,
    early_stop_line,
    failure_headline,
    failure_markdown,
    headlines,
    noise_notes,
    trial_notes,
)
from agentv.report.target_facts import column_labels, columns
from agentv.runs.run_figures import Figures
from agentv.runs.store import RunStore
from agentv.runs.target_summary import PartSummary, TargetSummary
from agentv.support.hashes import relative_path

_KINDS = {"fail": "failed", "borderline": "borderline"}


class Notable(msgspec.Struct, frozen=True, kw_only=True):
    """The worst results of each kind, and the total of each kind."""

    failed: list[Result]
    borderline: list[Result]
    errors: list[Result]
    counts: dict[str, int]


def notable(run: RunStore, most: int) -> Notable:
    """Return at most `most` results of each kind in one pass with bounded memory."""
    counts = {"failed": 0, "borderline": 0, "errors": 0}
    results: dict[str, list[Result]] = {kind: [] for kind in counts}
    for result in run.records():
        kind = "errors" if result.status == "error" else _KINDS.get(result.verdict or "")
        if kind is None:
            continue
        counts[kind] += 1
        results[kind].append(result)
        if len(results[kind]) >= 4 * most:
            results[kind] = _worst(results[kind], most)
    return Notable(**{kind: _worst(items, most) for kind, items in results.items()}, counts=counts)


def _worst(results: list[Result], most: int) -> list[Result]:
    """Return the results with the lowest scores; ties and errors keep their order."""
    return nsmallest(most, results, key=lambda result: result.score or 0.0)


MOST_SHOWN = 20

_LONGEST_NAME = 60
_LONGEST_REASON = 160


def write(run: RunStore, figures: Figures, stream: BinaryIO) -> None:
    """Write the report. Text from models and users is in code spans."""
    stream.write("".join(f"{line}\n" for line in markdown_lines(run, figures)).encode())


def markdown_lines(run: RunStore, figures: Figures) -> Iterator[str]:
    """Yield the lines of the report."""
    yield from (f"## Run {cell(run.run_id, _LONGEST_NAME)}", "")
    for text in headlines(figures.summary):
        yield from (f"**{markdown(text, 2 * _LONGEST_REASON)}.**", "")
    if figures.unfinished:
        yield from (f"**Unfinished**: {figures.missing_note}.", "")
    yield from _targets(figures)
    yield from _frontier(run, figures)
    yield from _parts(figures, "evaluator", lambda target: target.evaluators)
    yield from _parts(figures, "prompt", lambda target: target.prompts)
    if figures.failures is not None and len(figures.failures.groups) > 1:
        yield from (f"### Failure groups: {failure_headline(figures.failures)}", "")
        yield from (*failure_markdown(figures.failures), "")
    results = notable(run, MOST_SHOWN)
    yield from _cases("Failed", results.failed, results.counts["failed"])
    yield from _cases("Borderline", results.borderline, results.counts["borderline"])
    yield from _cases("Errors (not scored)", results.errors, results.counts["errors"])


def _targets(figures: Figures) -> Iterator[str]:
    yield from _head("target", *column_labels("markdown"))
    for name, target in figures.summary.targets.items():
        mean, *others = columns("markdown", target, figures.details.get(name)).values()
        value, biased, note = mean.partition(";")
        yield _row(cell(name, _LONGEST_NAME), f"**{value}**{biased}{note}", *others)
    yield ""
    for name, target in figures.summary.targets.items():
        for what, text in answer_notes(target):
            yield from (f"{cell(name, _LONGEST_NAME)}: {what}, {text}", "")
        if chances := "; ".join(f"{chance} {text}" for chance, text in trial_notes(target)):
            yield from (f"{cell(name, _LONGEST_NAME)}: {markdown(chances, 2 * _LONGEST_REASON)}", "")
        for kind, text in noise_notes(target):
            yield from (f"{cell(name, _LONGEST_NAME)}: {kind}, {markdown(text, 2 * _LONGEST_REASON)}", "")
        if target.early_stop is not None:
            stop = " ".join(early_stop_line(target.early_stop).split())
            yield from (f"{cell(name, _LONGEST_NAME)}: {cell(stop, 2 * _LONGEST_REASON)}", "")


def _frontier(run: RunStore, figures: Figures) -> Iterator[str]:
    if points := run_frontier(run, figures):
        head, *rows = frontier_rows(points, [cell(name, _LONGEST_NAME) for name in figures.summary.targets])
        yield from (f"### {TITLE}", "", *markdown_table(head, rows), "")
        yield from (frontier_sentence(points, [cell(point.label, _LONGEST_NAME) for point in points]), "")


def _parts(
    figures: Figures, title: str, parts_of: Callable[[TargetSummary], Mapping[str, PartSummary]]
) -> Iterator[str]:
    rows = [
        _row(cell(name, _LONGEST_NAME), cell(part, _LONGEST_NAME), number(f.mean), interval(f.ci95), f"{f.n:,}")
        for name, target in figures.summary.targets.items()
        for part, f in parts_of(target).items()
    ]
    if rows:
        yield from _head("target", title, "mean", "95 % interval", "n")
        yield from (*rows, "")


def _cases(title: str, results: Sequence[Result], total: int) -> Iterator[str]:
    if not results:
        return
    yield from (f"### {title}: {total:,}", "")
    yield from _head("case", "target", "error" if results[0].error else "score", "reason")
    for result in results:
        figure = result.error.error_class if result.error else number(result.score)
        reason = cell(reason_of(result), _LONGEST_REASON) + _answers(result)
        name = job_name(result.eval_id, result.prompt, result.trial)
        yield _row(cell(name, _LONGEST_NAME), cell(result.target, _LONGEST_NAME), figure, reason)
    if total > len(results):
        yield from ("", f"… and {total - len(results):,} more.")
    yield ""


def _answers(result: Result) -> str:
    """Return the text that was scored and the raw answer for a cell, if a transform changed it or failed."""
    answer = transformed_answer(result)
    texts = [] if answer is None else answer.texts
    return "".join(f"<br>{markdown(title, _LONGEST_NAME)}: {cell(text, _LONGEST_REASON)}" for title, text in texts)


def _head(*names: str) -> tuple[str, str]:
    return _row(*names), _row(*("---" for _ in names))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


MARKDOWN = ReportFormat(
    write=write,
    extensions=(".md", ".markdown"),
    file_name="report.md",
    help="Write Markdown for a pull request: figures and the results that did not pass.",
)


MOST_NOTES = 10
"""GitHub shows at most ten errors and ten warnings of a step."""

_LONGEST_SUMMARY = 1_000_000
_LONGEST_NOTE = 500


def workflow_command(severity: str, properties: Mapping[str, object], text: str) -> str:
    """Return a GitHub workflow command, without the properties that are None."""
    fields = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in properties.items() if value is not None)
    return visible(f"::{severity} {fields}::{_escaped(text)}")


def notes_of(run: RunStore) -> Iterator[str]:
    """Yield annotations for jobs that did not pass, at the lines of their cases; errors first, then the worst."""
    lines = run.case_lines()
    results = notable(run, MOST_NOTES)
    problems = [*results.errors, *results.failed]
    entries = [("error", result) for result in problems[:MOST_NOTES]]
    entries += [("warning", result) for result in results.borderline]
    for severity, result in entries:
        yield _note(severity, run, result, lines.get((result.dataset_path, result.eval_id)))
    counts = results.counts
    if (total := sum(counts.values())) > len(entries):
        kinds = f"{counts['failed']:,} failed, {counts['borderline']:,} borderline, {plural(counts['errors'], 'error')}"
        yield workflow_command("notice", {"title": "agentv"}, f"{kinds}; {len(entries)} of {total:,} are annotated")


def append_step_summary(run: RunStore, figures: Figures, file: str) -> None:
    """Append the Markdown report to the step summary, cut at GitHub's size limit."""
    text, size = [], 0
    for line in markdown_lines(run, figures):
        size += len(line.encode()) + 1
        if size > _LONGEST_SUMMARY:
            text.append(
                "… cut here: the step summary is too long. Write the full report with `agentv report RUN --markdown`."
            )
            break
        text.append(line)
    with file_errors(f"Cannot write {file}"), Path(file).open("a", encoding="utf-8", newline="\n") as stream:
        stream.write("\n".join([*text, ""]))


def _note(severity: str, run: RunStore, result: Result, line: int | None) -> str:
    reason = one_line(reason_of(result), _LONGEST_NOTE)
    figure = f"{result.error.error_class} error" if result.error else f"score {number(result.score)}"
    name = job_name(result.eval_id, result.prompt, result.trial)
    place = {
        "file": _in_repository(result.dataset_path, run) if result.dataset_path else None,
        "line": line,
        "title": one_line(f"{name} ({result.target})", 120),
    }
    return workflow_command(severity, place, f"{figure}: {reason}" if reason else figure)


def _in_repository(path: str, run: RunStore) -> str:
    """Return a path relative to the checked-out repository."""
    if not (workspace := os.environ.get("GITHUB_WORKSPACE")):
        return path
    # Paths are relative to where the run was started: this folder, or one above the run folder.
    folders = [Path(), *run.path.absolute().parents]
    location = next((folder / path for folder in folders if (folder / path).exists()), path)
    return relative_path(location, workspace)


def _escaped(text: str, also: str = "") -> str:
    for char in "%\r\n" + also:
        text = text.replace(char, f"%{ord(char):02X}")
    return text
