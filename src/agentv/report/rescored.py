"""What a second scoring changed, as people read it: before → after, each with the number of jobs it stands on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentv.report.figures import number
from agentv.report.text import one_line
from agentv.results.delta import Change, Delta

_LONGEST_NAME = 40


def delta_lines(deltas: Mapping[str, Delta], source: str) -> list[str]:
    """All of it, line by line."""
    lines = [f"Compared with {source}"]
    for target, delta in deltas.items():
        lines += ["", one_line(target, _LONGEST_NAME), *(f"  {line}" for line in _target(delta))]
    return lines


def _target(delta: Delta) -> Iterator[str]:
    scored = delta.scores
    yield f"mean        {_change(scored)}, over the {scored.n} of {delta.jobs} jobs scored both times"
    if scored.n:
        yield f"passed      {delta.passed[0]} → {delta.passed[1]} of {scored.n}"
    errors = f"errors      {delta.errors[0]} → {delta.errors[1]} of {delta.jobs}"
    yield errors + (f" ({delta.mended} mended, {delta.broken} new)" if delta.mended or delta.broken else "")
    if delta.carried:
        yield f"kept        {delta.carried} of {delta.jobs} records as they were"
    flips = ", ".join(f"{count} {kind}" for kind, count in delta.flips.items())
    yield f"flipped     {sum(delta.flips.values())} of {scored.n} verdicts" + (f": {flips}" if flips else "")
    for flip in delta.flipped:
        name = one_line(flip.eval_id, _LONGEST_NAME) + (f" (trial {flip.trial})" if flip.trial > 1 else "")
        yield f"  {name}: {flip.before} {number(flip.score_before)} → {flip.after} {number(flip.score_after)}"
    hidden = sum(delta.flips.values()) - len(delta.flipped)
    if hidden > 0:
        yield f"  and {hidden} more"
    width = max(map(len, delta.evaluators), default=0)
    if delta.evaluators:
        yield "evaluators"
    for name, change in delta.evaluators.items():
        yield f"  {one_line(name, _LONGEST_NAME):<{min(width, _LONGEST_NAME)}}  {_change(change)}, n = {change.n}"


def _change(change: Change) -> str:
    if change.before is None or change.after is None:
        return "unknown"
    return f"{number(change.before)} → {number(change.after)} ({change.after - change.before:+.3f})"
