"""What changed between runs as text: whether the measure changed, and one line for each difference."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from agentv.comparison.changes.run_change import RunChange
from agentv.comparison.comparison import Comparison, Matrix, Side
from agentv.errors import plural
from agentv.report.figures import fenced, letter, markdown, one_line, visible
from agentv.report.figures import lines as text_lines
from agentv.report.terminal import Line

_LONGEST_VALUE = 60
_LONGEST_LINE = 500
_DIFF_LINES, _DIFF_WIDTH, _DIFF_CHARACTERS = 20, 110, 3_000
_CLAUSES, _LISTED = 3, 30
_SHORT_HASH = 7
_STOPPED = {
    "running": "still running",
    "interrupted": "interrupted",
    "budget": "stopped by its budget",
    "fail-fast": "stopped by --fail-fast",
    "stopped": "stopped",
}


class _Between:
    """The changes between the first run and another one."""

    def __init__(self, changes: Sequence[RunChange], first: Side, other: Side, place: int) -> None:
        self.changes = changes
        self.measure = [change for change in changes if change.is_measure]
        self.names = letter(0), letter(place)
        self._unknown = [name for name, side in zip(self.names, (first, other), strict=True) if not side.has_settings]

    @property
    def title(self) -> str:
        between = f"between {self.names[0]} and {self.names[1]}"
        if self._unknown:
            store = "stores" if len(self._unknown) == 1 else "store"
            unknown = f"{' and '.join(self._unknown)} {store} no settings, evaluators, versions or commit"
            return f"What changed {between} is not fully known: {unknown}"
        if not self.changes:
            return f"Nothing changed {between}: same settings, cases, scoring and versions"
        if not self.listed:
            subject, _, values = change_text(self.changes[0], self.names).partition(": ")
            return f"Nothing but the {subject} changed {between}: {values}"
        return f"What changed {between}"

    @property
    def listed(self) -> Sequence[RunChange]:
        """The changes to list below the title; none if the title is enough."""
        is_trivial = len(self.changes) == 1 and self.changes[0].kind == "commit" and not self._unknown
        return () if is_trivial else self.changes[:_LISTED]

    @property
    def more(self) -> str:
        """A line for the changes that are not listed; empty if all are."""
        more = len(self.changes) - len(self.listed)
        return f"and {more:,} more; use --json for all" if self.listed and more else ""


def _between(comparison: Comparison | Matrix) -> list[_Between]:
    """Return the changes between the first run and each of the others."""
    changes = (comparison.what_changed,) if isinstance(comparison, Comparison) else comparison.what_changed
    others = zip(changes, comparison.sides[1:], strict=True)
    return [_Between(change, comparison.sides[0], side, place) for place, (change, side) in enumerate(others, 1)]


def _measure_changed(comparison: Comparison | Matrix) -> str:
    """State that the measure changed, and how."""
    parts = [(between, _clauses(between)) for between in _between(comparison) if between.measure]
    if isinstance(comparison, Comparison):
        return f"The measure changed: {parts[0][1]}"
    return f"The measure changed: {'; '.join(f'in {between.names[1]}, {clauses}' for between, clauses in parts)}"


def _clauses(between: _Between) -> str:
    clauses = list(dict.fromkeys(_clause(change, between.names) for change in between.measure))
    more = len(clauses) - _CLAUSES
    parts = clauses[:_CLAUSES] + ([f"{more} more"] if more > 0 else [])
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _clause(change: RunChange, names: tuple[str, str]) -> str:
    if change.kind == "tool":
        return f"{names[0]} is {change.before} and {names[1]} is {change.after}"
    name = f"'{one_line(change.name, _LONGEST_VALUE)}'"
    if change.kind == "judge":
        return f"judge {name} changed"
    if change.kind == "evaluator":
        if not change.field:
            return f"evaluator {name} is only in {_only_in(change, names)}"
        return f"evaluator {name} has another judge" if change.field == "judge" else f"evaluator {name} differs"
    what = change.field if change.kind == "references" else f"the {change.kind}"
    partly = "" if change.cases == change.of else f" in {change.cases or 0:,} of {plural(change.of or 0, 'case')}"
    return f"{what} {'differ' if what.endswith('s') else 'differs'}{partly}"


def _only_in(change: RunChange, names: tuple[str, str]) -> str:
    return names[0] if change.after is None else names[1]


def run_notes(comparison: Comparison | Matrix) -> Iterator[str]:
    """Yield warnings about the runs: a changed measure that is compared anyway, and runs that lack results."""
    if comparison.is_comparable and any(comparison.measure_changes):
        yield f"{_measure_changed(comparison)}. Compared anyway (--allow-changed-measure)"
    for place, side in enumerate(comparison.sides):
        if (stopped := side.unfinished) is not None:
            progress = f"{stopped.done:,} of {plural(stopped.planned, stopped.unit)}"
            yield f"{letter(place)} is unfinished: {progress} ({_STOPPED[stopped.reason]})"


def no_verdict_lines(comparison: Comparison | Matrix) -> list[Line]:
    """Return the headline of runs that were scored differently, and what to do; nothing if they are comparable."""
    if comparison.is_comparable:
        return []
    first, *rest = _remedy(comparison)
    lines: list[Line] = [(one_line(f"{_measure_changed(comparison)}. No verdict.", _LONGEST_LINE), "bold yellow")]
    return [*lines, (first, ""), *((f"  {visible(line)}" if line in comparison.remedy else line, "") for line in rest)]


def no_verdict_markdown(comparison: Comparison | Matrix) -> Iterator[str]:
    """Yield the same as Markdown."""
    yield from (f"### {markdown(f'{_measure_changed(comparison)}. No verdict.', _LONGEST_LINE)}", "")
    first, *rest = _remedy(comparison)
    yield from (first, "")
    if comparison.remedy:
        yield from (fenced("\n".join(comparison.remedy), _DIFF_CHARACTERS), "", rest[-1], "")


def _remedy(comparison: Comparison | Matrix) -> list[str]:
    anyway = "pass --allow-changed-measure to compare anyway"
    if not comparison.remedy:
        return [f"Score the runs in the same way with `agentv rescore`, or {anyway}."]
    return ["To make the runs comparable, run:", *comparison.remedy, f"Or {anyway}."]


def change_lines(comparison: Comparison | Matrix) -> list[Line]:
    """Return what changed between the first run and each of the others, for a terminal."""
    lines: list[Line] = []
    for between in _between(comparison):
        lines.append((between.title, "bold" if between.listed else ""))
        for change in between.listed:
            style = "yellow" if change.is_measure else ""
            lines.append((f"  {change_text(change, between.names)}", style))
            for line in text_lines(change.diff, _DIFF_LINES, _DIFF_WIDTH) if change.diff else ():
                lines.append((f"      {line}", {"+": "green", "-": "red"}.get(line[:1], "dim")))
        lines += [(f"  {between.more}", "dim")] if between.more else []
    return lines


def change_data(comparison: Comparison | Matrix) -> list[dict[str, Any]]:
    """Return the same for a page, with all changes."""
    return [
        {
            "title": between.title,
            "changes": [
                {"text": change_text(change, between.names), "diff": change.diff, "is_measure": change.is_measure}
                for change in (between.changes if between.listed else ())
            ],
        }
        for between in _between(comparison)
    ]


def change_markdown(comparison: Comparison | Matrix) -> Iterator[str]:
    """Yield the same as Markdown."""
    for between in _between(comparison):
        yield from (f"{'#### ' if between.listed else ''}{markdown(between.title, _LONGEST_LINE)}", "")
        for change in between.listed:
            yield f"- {markdown(change_text(change, between.names), _LONGEST_LINE)}"
            block = fenced(change.diff, _DIFF_CHARACTERS, "diff") if change.diff else ""
            yield from (f"  {line}" for line in ("", *block.split("\n"), "") if block)
        yield from (f"- {between.more}", "") if between.more else ("",)


def change_text(change: RunChange, names: tuple[str, str] = ("A", "B")) -> str:
    """Describe one difference in a line."""
    subject = _subject(change)
    if change.kind == "dataset":
        labels = {"only in A": f"only in {names[0]}", "only in B": f"only in {names[1]}"}
        which = labels.get(change.field, "with another input (not paired)")
        return f"{subject}: {plural(change.cases or 0, 'case')} {which}"
    if change.kind in ("target", "evaluator") and not change.field:
        return f"{subject}: only in {_only_in(change, names)}"
    field = "" if change.field in ("", "name") else f"{change.field} "
    how = f"{_value(change.before)} → {_value(change.after)}"
    if change.diff or change.before is change.after is None:
        how = "changed"
    return f"{subject}: {field}{how}{_affected(change)}"


def _subject(change: RunChange) -> str:
    name = one_line(change.name, _LONGEST_VALUE)
    kind = {"version": "", "commit": "git commit"}.get(change.kind, change.kind)
    return f"{kind} {name}".strip()


def _affected(change: RunChange) -> str:
    if change.cases is None:
        return ""
    example = "" if change.example is None else f", for example {one_line(change.example, _LONGEST_VALUE)}"
    return f" ({change.cases:,} of {plural(change.of or 0, 'case')}{example})"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:_SHORT_HASH] if _is_hash(text) else one_line(text, _LONGEST_VALUE) or '""'


def _is_hash(text: str) -> bool:
    """Whether a text is the hash of a file or a commit, of which the start is enough."""
    return len(text) in (32, 40, 64) and set(text) <= set("0123456789abcdef")
