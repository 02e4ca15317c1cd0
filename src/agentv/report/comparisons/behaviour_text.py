"""Regressions as text: where tool calls diverge, groups of failures, and aligned trajectories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.comparison.behaviour.regressions import CaseBehaviour, DivergenceCount, Regressions
from agentv.comparison.behaviour.trajectory import Divergence, Step
from agentv.errors import plural
from agentv.report.failure_text import failure_headline, failure_lines, failure_markdown
from agentv.report.figures import code, counted, fenced, markdown, one_line
from agentv.report.terminal import Line

_LONGEST_NAME = 40
_LONGEST_INPUT = 60
_MOST_TOOLS = 5
_MOST_STEPS = 12
_STEPS_BEFORE = 2
_SIGNS = {"same": "=", "arguments": "~", "only in A": "-", "only in B": "+"}
_STYLES = {"=": "dim", "~": "yellow", "-": "red", "+": "green"}
_LONGEST_BLOCK = 3_000


def regression_title(found: Regressions) -> str:
    """State the number of cases that became worse."""
    shown = "" if found.examined == found.total else f"; the {found.examined:,} largest were examined"
    passing = f"; {found.still_pass:,} of {found.examined:,} still pass" if found.still_pass else ""
    return f"Regressions: {plural(found.total, 'case')}{shown}{passing}"


def divergence_lines(found: Regressions) -> Iterator[str]:
    """Yield where the tool calls of the regressions diverge, most frequent first."""
    if not found.with_calls:
        return
    of = plural(found.examined, "regression")
    for each in found.divergences[:_MOST_TOOLS]:
        yield f"{each.count:,} of {of} diverge at `{one_line(each.tool, _LONGEST_NAME)}` ({_kinds(each)}): {_ids(each)}"
    rest = found.divergences[_MOST_TOOLS:]
    if rest:
        yield f"{sum(each.count for each in rest):,} of {of} diverge at {plural(len(rest), 'other tool')}"
    if equal := found.with_calls - found.diverged:
        yield f"{equal:,} of {of} make the same tool calls in A and B"


def _kinds(found: DivergenceCount) -> str:
    return counted(found.kinds) if len(found.kinds) > 1 else next(iter(found.kinds))


def _ids(found: DivergenceCount) -> str:
    return ", ".join(one_line(id, _LONGEST_NAME) for id in found.examples)


def regression_lines(found: Regressions) -> list[Line]:
    """Return the regressions as lines for a terminal."""
    lines: list[Line] = [(regression_title(found), "bold")]
    lines += [(f"  {text}", "") for text in divergence_lines(found)]
    if found.failures.failures:
        lines.append((f"  {failure_headline(found.failures, 'regression')} in B", ""))
        lines += [(f"    {text}", "") for text in failure_lines(found.failures)]
    return lines


def regression_markdown(found: Regressions) -> Iterator[str]:
    """Yield the regressions as Markdown."""
    yield from (f"#### {regression_title(found)}", "")
    for text in divergence_lines(found):
        yield f"- {markdown(text, 500)}"
    if found.failures.failures:
        yield from ("", f"{failure_headline(found.failures, 'regression')} in B:", "")
        yield from (*failure_markdown(found.failures), "")
    else:
        yield ""


def behaviour_lines(found: CaseBehaviour) -> Iterator[Line]:
    """Yield the aligned tool calls of a case."""
    yield f"      tool calls: {divergence_text(found.divergence)}", ""
    for text in step_lines(found):
        yield f"        {text}", _STYLES.get(text[:1], "dim")


def behaviour_markdown(found: CaseBehaviour) -> Iterator[str]:
    """Yield the aligned tool calls of a case as Markdown."""
    yield from (f"Tool calls: {markdown(divergence_text(found.divergence), 300)}", "")
    yield from (fenced("\n".join(step_lines(found)), _LONGEST_BLOCK, "diff"), "")


def step_lines(found: CaseBehaviour) -> Iterator[str]:
    """Yield a line per step; equal steps long before the first difference and long tails are left out."""
    first = next((place for place, step in enumerate(found.steps) if step.kind != "same"), len(found.steps))
    start = max(0, first - _STEPS_BEFORE) if first < len(found.steps) else 0
    if start:
        yield f"  … {plural(start, 'equal step')}"
    shown = found.steps[start : start + _MOST_STEPS]
    for place, step in enumerate(shown, start):
        yield f"{_SIGNS[step.kind]} {_step(step)}" + ("  <- first difference" if place == first else "")
    if rest := len(found.steps) - start - len(shown):
        yield f"  … {plural(rest, 'more step')}"


def _step(step: Step) -> str:
    name = one_line(step.tool, _LONGEST_NAME)
    if step.kind == "arguments":
        return f"{name} {_input(step.before)} → {_input(step.after)}"
    return f"{name} {_input(step.after if step.kind == 'only in B' else step.before)}".rstrip()


def _input(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return one_line(text, _LONGEST_INPUT)


def divergence_text(found: Divergence | None) -> str:
    """State where two sequences of tool calls first differ."""
    if found is None:
        return "the same in A and B"
    before, after = (name and code(name, _LONGEST_NAME) for name in (found.before, found.after))
    how = {
        "other arguments": f"{before} has other arguments in B",
        "other tool": f"A calls {before}, B calls {after}",
        "stopped": f"A calls {before}, B has ended",
        "went on": f"A has ended, B calls {after}",
    }[found.kind]
    return f"they diverge at step {found.step:,}: {how}"
