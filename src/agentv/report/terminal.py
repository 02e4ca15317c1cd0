"""The summary of a run for a terminal: the mean of each target with its interval and details."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

import msgspec

from agentv.errors import plural
from agentv.model.result import TransformedAnswer
from agentv.report.figures import (
    aligned,
    bars,
    can_show_bars,
    counted,
    duration,
    fitted,
    fitting,
    interval,
    job_name,
    number,
    one_line,
    safe_text,
)
from agentv.report.summary_text import LONGEST_NAME, headlines
from agentv.report.target_facts import column_labels, columns, detail_facts
from agentv.runs.summary import RunSummary
from agentv.runs.target_summary import CaseNote, PartSummary, TargetDetails, TargetSummary

_LONGEST_REASON = 100
_FIGURES_WIDTH = 40
_SPARE = ("cost", "passed", "errors", "95 % interval")
_STYLES = {"early_stop": "bold", "cost_usd": "dim", "judge_cost_usd": "dim", "duration_ms": "dim"}

Line = tuple[str, str]
"""Text and its style on a terminal; an empty style is the default."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The summary to print: a sentence for each target, `notes`, the figures, and `commands` to run next.

    `failures` are lines about the results that did not pass, with a title first.
    """

    summary: RunSummary
    details: Mapping[str, TargetDetails]
    duration_ms: float | None = None
    notes: Sequence[str] = ()
    commands: Sequence[str] = ()
    failures: Sequence[str] = ()


def print_ending(ending: Ending, stream: TextIO, interactive: bool) -> None:
    """Print the summary, with colour and line breaks on a terminal."""
    width = width_of(stream) if interactive else None
    print_lines(summary_lines(ending, can_show_bars(stream.encoding), width), stream, interactive)


def width_of(stream: TextIO) -> int | None:
    """Return the width of a terminal; None for other streams."""
    if not stream.isatty():
        return None
    width = os.environ.get("COLUMNS", "")
    if width.isdecimal() and int(width):
        return int(width)
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or None
    return None


def print_lines(lines: Sequence[Line], stream: TextIO, interactive: bool) -> None:
    """Print lines, coloured and wrapped on a terminal, plain elsewhere."""
    if not interactive:
        stream.write(fitting("".join(f"{safe_text(text)}\n" for text, _ in lines), stream.encoding))
        stream.flush()  # messages on stderr may follow
        return
    from rich import console, text  # late: only a terminal needs it, and it takes 50 ms

    terminal = console.Console(file=stream, highlight=False, soft_wrap=False)
    for line, style in lines:
        terminal.print(text.Text(safe_text(line), style=style))


def table_lines(rows: Sequence[Sequence[str]]) -> list[Line]:
    """Return a table, header first, as lines."""
    head, *body = aligned(rows)
    return [(head, "dim"), *((row, "") for row in body)]


def note_lines(notes: Iterable[str]) -> list[Line]:
    """Return notes as lines."""
    return [(f"Note: {one_line(note, 500)}", "yellow") for note in notes]


def summary_lines(ending: Ending, drawn: bool, width: int | None = None) -> list[Line]:
    """Return the lines of the summary. `drawn` is whether the stream can show bars."""
    failed = any(target.errors for target in ending.summary.targets.values())
    lines: list[Line] = [(text, "bold red" if failed else "bold") for text in headlines(ending.summary)]
    lines += [("", ""), *((note, "") for note in ending.notes)]
    if ending.notes:
        lines.append(("", ""))
    lines += _overview(ending, width)
    for name, summary in ending.summary.targets.items():
        lines += [("", ""), *_target(name, summary, ending.details.get(name), drawn, width)]
    if ending.failures:
        title, *groups = ending.failures
        lines += [("", ""), (title, "bold"), *((_cut(f"  {group}", width), "") for group in groups)]
    if ending.commands:
        lines += [("", ""), ("Next", "bold"), *((f"  {command}", "cyan") for command in ending.commands)]
    return lines


def _overview(ending: Ending, width: int | None) -> list[Line]:
    """Return a table with one row per target; columns that do not fit are in the details below."""
    longest = LONGEST_NAME if width is None else max(12, min(LONGEST_NAME, width - _FIGURES_WIDTH))
    rows = [["target", *column_labels("terminal")]]
    for name, target in ending.summary.targets.items():
        rows.append([one_line(name, longest), *columns("terminal", target, ending.details.get(name)).values()])
    head, *body = fitted(rows, width, _SPARE).lines
    took = "" if ending.duration_ms is None else f" in {duration(ending.duration_ms)}"
    return [(f"Run {ending.summary.run_id}{took}", ""), ("", ""), (head, "dim"), *((row, "") for row in body)]


def _target(
    name: str, target: TargetSummary, details: TargetDetails | None, can_draw: bool, width: int | None
) -> Iterator[Line]:
    yield one_line(name, LONGEST_NAME), "bold"
    for fact in detail_facts(target, details):
        line = f"  {fact.label:<11} {fact.text}"
        if fact.key == "bins":
            line = f"  {fact.label:<9} 0 {bars(fact.value, can_draw)} 1"
        yield line, _STYLES.get(fact.key, "")
    yield from _parts("evaluators", target.evaluators)
    yield from _parts("prompts", target.prompts)
    if details is not None:
        yield from _errors(target, details, width)
        yield from _cases("worst", details.worst, "score", width)
        yield from _cases("slowest", details.slowest, "time", width)


def _parts(title: str, parts: Mapping[str, PartSummary]) -> Iterator[Line]:
    if not parts:
        return
    yield f"  {title}", ""
    rows = []
    for name, part in parts.items():
        errors = f", {plural(part.errors, 'error')}" if part.errors else ""
        basis = f"(95 % interval {interval(part.ci95)}, n = {part.n}{errors})"
        rows.append(["  ", one_line(name, LONGEST_NAME), number(part.mean), basis])
    yield from ((row, "") for row in aligned(rows))


def _errors(target: TargetSummary, details: TargetDetails, width: int | None) -> Iterator[Line]:
    if not target.errors:
        return
    yield f"  errors      {target.errors} of {target.jobs - target.skipped}: {counted(details.error_classes)}", "red"
    if target.ci95_with_errors is not None:
        counted_as = f"the mean with {plural(target.errors, 'error')} counted as 0 and as 1"
        yield f"    95 % interval {interval(target.ci95_with_errors)} of {counted_as}", "red"
    rows = [["  ", name, _named(note), one_line(note.reason, _LONGEST_REASON)] for name, note in details.errors.items()]
    for row, note in zip(aligned(rows), details.errors.values(), strict=True):
        yield _cut(row, width), "red"
        yield from _answers(note, width)


def _cases(title: str, notes: Sequence[CaseNote], measure: str, width: int | None) -> Iterator[Line]:
    if not notes:
        return
    yield f"  {title}", ""
    rows = []
    for note in notes:
        figure = number(note.score) if measure == "score" else duration(note.duration_ms)
        rows.append(["  ", figure, _named(note), one_line(note.reason, _LONGEST_REASON)])
    for row, note in zip(aligned(rows), notes, strict=True):
        yield _cut(row, width), "yellow" if measure == "score" else "dim"
        yield from _answers(note, width) if measure == "score" else ()


def _answers(note: CaseNote, width: int | None) -> Iterator[Line]:
    """Yield the text that was scored and the raw answer, if a transform changed it or failed."""
    if note.raw_answer is None:
        return
    for title, text in TransformedAnswer(note.raw_answer, note.scored_answer, note.scored_by).texts:
        line = f"      {one_line(title, LONGEST_NAME)}: {one_line(text, _LONGEST_REASON) or '(empty)'}"
        yield _cut(line, width), "dim"


def _cut(line: str, width: int | None) -> str:
    """Cut a line to the width of the terminal."""
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def _named(note: CaseNote) -> str:
    return job_name(one_line(note.eval_id, LONGEST_NAME), note.prompt, note.trial)
