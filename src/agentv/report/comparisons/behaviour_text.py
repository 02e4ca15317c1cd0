"""Regressions as text: where tool calls diverge, groups of failures, and aligned trajectories."""

from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.comparison.behaviour.regressions import CaseBehaviour, DivergenceCount, Regressions
from agentv.comparison.behaviour.trajectory import Divergence, Step
from agentv.errors import plural
from agentv.report.figures import code, counted, fenced, markdown, one_line
from agentv.report.summary_text import failure_headline, failure_lines, failure_markdown
from agentv.report.terminal import Line

_LONGEST_NAME = 40
_LONGEST_INPUT = 60
_MOST_TOOLS = 5
_MOST_STEPS = 12
_STEPS_BEFORE = 2
_SIGNS = {"same": "=", "arguments": "~", "only in A": "-", "only in B": "+"}
_STYLES = {"=": "dim", "~": "yellow", "-": "red", "+": "green"}
_LONGEST_BLOCK = 3_000


def regression_title(regressions: Regressions) -> str:
    """State the number of cases that became worse."""
    scope = "" if regressions.examined == regressions.total else f"; the {regressions.examined:,} largest were examined"
    passing = f"; {regressions.still_pass:,} of {regressions.examined:,} still pass" if regressions.still_pass else ""
    return f"Regressions: {plural(regressions.total, 'case')}{scope}{passing}"


def divergence_lines(regressions: Regressions) -> Iterator[str]:
    """Yield where the tool calls of the regressions diverge, most frequent first."""
    if not regressions.with_calls:
        return
    of = plural(regressions.examined, "regression")
    for item in regressions.divergences[:_MOST_TOOLS]:
        yield f"{item.count:,} of {of} diverge at `{one_line(item.tool, _LONGEST_NAME)}` ({_kinds(item)}): {_ids(item)}"
    if rest := regressions.divergences[_MOST_TOOLS:]:
        yield f"{sum(item.count for item in rest):,} of {of} diverge at {plural(len(rest), 'other tool')}"
    if equal := regressions.with_calls - regressions.diverged:
        yield f"{equal:,} of {of} make the same tool calls in A and B"


def _kinds(group: DivergenceCount) -> str:
    return counted(group.kinds) if len(group.kinds) > 1 else next(iter(group.kinds))


def _ids(group: DivergenceCount) -> str:
    return ", ".join(one_line(id, _LONGEST_NAME) for id in group.examples)


def regression_lines(regressions: Regressions) -> list[Line]:
    """Return the regressions as lines for a terminal."""
    lines: list[Line] = [(regression_title(regressions), "bold")]
    lines += [(f"  {text}", "") for text in divergence_lines(regressions)]
    if regressions.failures.failures:
        lines.append((f"  {failure_headline(regressions.failures, 'regression')} in B", ""))
        lines += [(f"    {text}", "") for text in failure_lines(regressions.failures)]
    return lines


def regression_markdown(regressions: Regressions) -> Iterator[str]:
    """Yield the regressions as Markdown."""
    yield from (f"#### {regression_title(regressions)}", "")
    for text in divergence_lines(regressions):
        yield f"- {markdown(text, 500)}"
    if regressions.failures.failures:
        yield from ("", f"{failure_headline(regressions.failures, 'regression')} in B:", "")
        yield from (*failure_markdown(regressions.failures), "")
    else:
        yield ""


def behaviour_lines(behaviour: CaseBehaviour) -> Iterator[Line]:
    """Yield the aligned tool calls of a case."""
    yield f"      tool calls: {divergence_text(behaviour.divergence)}", ""
    for text in step_lines(behaviour):
        yield f"        {text}", _STYLES.get(text[:1], "dim")


def behaviour_markdown(behaviour: CaseBehaviour) -> Iterator[str]:
    """Yield the aligned tool calls of a case as Markdown."""
    yield from (f"Tool calls: {markdown(divergence_text(behaviour.divergence), 300)}", "")
    yield from (fenced("\n".join(step_lines(behaviour)), _LONGEST_BLOCK, "diff"), "")


def step_lines(behaviour: CaseBehaviour) -> Iterator[str]:
    """Yield a line per step; equal steps long before the first difference and long tails are left out."""
    first = next((place for place, step in enumerate(behaviour.steps) if step.kind != "same"), len(behaviour.steps))
    start = max(0, first - _STEPS_BEFORE) if first < len(behaviour.steps) else 0
    if start:
        yield f"  … {plural(start, 'equal step')}"
    steps = behaviour.steps[start : start + _MOST_STEPS]
    for place, step in enumerate(steps, start):
        yield f"{_SIGNS[step.kind]} {_step(step)}" + ("  <- first difference" if place == first else "")
    if rest := len(behaviour.steps) - start - len(steps):
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


def divergence_text(divergence: Divergence | None) -> str:
    """State where two sequences of tool calls first differ."""
    if divergence is None:
        return "the same in A and B"
    before, after = (name and code(name, _LONGEST_NAME) for name in (divergence.before, divergence.after))
    how = {
        "other arguments": f"{before} has other arguments in B",
        "other tool": f"A calls {before}, B calls {after}",
        "stopped": f"A calls {before}, B has ended",
        "went on": f"A has ended, B calls {after}",
    }[divergence.kind]
    return f"they diverge at step {divergence.step:,}: {how}"
