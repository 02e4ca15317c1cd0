"""Groups of failures as text, shared by the terminal, Markdown and HTML output."""

from __future__ import annotations

from collections.abc import Iterator

from agentv.errors import plural
from agentv.report.figures import cell, one_line
from agentv.runs.failure_groups import FailureGroup, FailureGroups

MOST_GROUPS = 10
_LONGEST_NAME = 40
_LONGEST_WORDING = 80
_LONGEST_SEQUENCE = 60


def failure_headline(found: FailureGroups, noun: str = "result") -> str:
    """State how many results did not pass, and how many of these are errors."""
    errors = f", {plural(found.errors, 'error')} among them" if found.errors else ""
    return f"{found.failures:,} of {plural(found.results, noun)} did not pass{errors}"


def failure_lines(found: FailureGroups) -> Iterator[str]:
    """Yield a line for each of the largest groups, and one for the rest."""
    width = len(f"{found.groups[0].count:,}") if found.groups else 0
    for group in found.groups[:MOST_GROUPS]:
        yield f"{group.count:>{width},}  {group_text(group)}"
    rest = found.groups[MOST_GROUPS:]
    if rest:
        yield f"{sum(group.count for group in rest):,} more in {plural(len(rest), 'smaller group')}; use --json for all"


def group_text(group: FailureGroup) -> str:
    """Describe a group in one line, with examples."""
    return f"{group_cause(group)}: {_examples(group)}"


def group_cause(group: FailureGroup) -> str:
    """Describe what the failures of a group have in common."""
    return ", ".join(filter(None, (cause_text(group), _tag(group), _wording(group), _tools(group))))


def cause_text(group: FailureGroup) -> str:
    """Return the error class or evaluator of a group."""
    name = one_line(group.cause, _LONGEST_NAME)
    return f"error {name}" if group.kind == "error" else name


def failure_markdown(found: FailureGroups) -> Iterator[str]:
    """Yield a Markdown table of the largest groups."""
    shown = found.groups[:MOST_GROUPS]
    yield from ("| failures | cause | tag | wording | tool calls | for example |", "|---|---|---|---|---|---|")
    for group in shown:
        tag = "" if group.tag is None else f"{cell(group.tag, _LONGEST_NAME)} ({_tag_rate(group)})"
        wording = "" if group.wording is None else cell(group.wording, _LONGEST_WORDING)
        tools = "" if group.tools is None else f"{cell(group.tools[0], _LONGEST_SEQUENCE)} ({group.tools[1]:,})"
        cause, examples = cell(cause_text(group), _LONGEST_NAME), cell(_examples(group), 3 * _LONGEST_NAME)
        yield f"| {group.count:,} of {found.failures:,} | {cause} | {tag} | {wording} | {tools} | {examples} |"
    if len(found.groups) > len(shown):
        rest = found.groups[len(shown) :]
        yield from ("", f"… and {sum(group.count for group in rest):,} more in {plural(len(rest), 'smaller group')}.")


def _tag(group: FailureGroup) -> str:
    return "" if group.tag is None else f"tag {one_line(group.tag, _LONGEST_NAME)} ({_tag_rate(group)})"


def _tag_rate(group: FailureGroup) -> str:
    return f"{group.tag_failures or 0:,} of {group.tag_results or 0:,} fail"


def _wording(group: FailureGroup) -> str:
    return "" if group.wording is None else f"wording like “{one_line(group.wording, _LONGEST_WORDING)}”"


def _tools(group: FailureGroup) -> str:
    if group.tools is None:
        return ""
    sequence, count = group.tools
    return f"tool calls {one_line(sequence, _LONGEST_SEQUENCE)} ({count:,} of {group.count:,})"


def _examples(group: FailureGroup) -> str:
    return ", ".join(one_line(id, _LONGEST_NAME) for id in group.examples)
