"""How far a judge can be trusted, as people read it: every figure with its interval and the labels it stands on."""

from __future__ import annotations

from collections.abc import Iterator

from agentv.report.figures import interval, number, percent
from agentv.report.text import one_line
from agentv.results.calibration import Calibration, Figure

_LONGEST_NAME = 40
_LONGEST_REASON = 100


def calibration_lines(found: Calibration) -> list[str]:
    """All of it, line by line."""
    return [*_basis(found), *_agreement(found), *_pass_rate(found), *_disagreements(found), *_next(found)]


def _basis(found: Calibration) -> Iterator[str]:
    yield f"Judge       {found.judge}"
    how = f", {found.suggested} of them suggested" if found.suggested else ""
    yield f"Labels      {found.labelled} of {found.answers} answers{how}"
    left_out = {
        "on which labellers do not agree": found.disputed,
        "skipped by those who saw them": found.skipped,
        "of answers of this run that are not among these": found.unjudged,
        "of answers that are not in this run": found.unmatched,
    }
    for what, count in left_out.items():
        if count:
            yield f"            {count} more {what}"
    if found.unscored:
        yield f"            {found.unscored} answers have no verdict of this judge and are left out"
    for note in found.notes:
        yield f"Note: {note}"


def _agreement(found: Calibration) -> Iterator[str]:
    if not found.labelled:
        return
    (both, missed), (let_through, caught) = found.confusion
    yield ""
    yield "                judge: pass   judge: not pass"
    yield f"person: pass    {both:>11}   {missed:>15}"
    yield f"person: fail    {let_through:>11}   {caught:>15}"
    yield ""
    yield f"accuracy        {_shown(found.accuracy)}"
    yield f"Cohen's kappa   {_shown(found.kappa)}"
    yield f"passes good     {both} of {both + missed} answers that a person passed"
    yield f"fails bad       {caught} of {let_through + caught} answers that a person failed"


def _pass_rate(found: Calibration) -> Iterator[str]:
    yield ""
    yield "Pass rate"
    yield f"  judge         {percent(found.judge_pass_rate)} of {found.answers} answers, taken at its word"
    for name, figure in (
        ("labels alone", found.labels_alone),
        ("Rogan-Gladen", found.rogan_gladen),
        ("PPI++", found.ppi),
    ):
        if figure is not None:
            low, high = figure.ci95
            yield f"  {name:<13} {percent(figure.value)} (95 % interval {low * 100:.1f} to {high * 100:.1f} %)"
        elif found.labelled:
            yield f"  {name:<13} -"


def _disagreements(found: Calibration) -> Iterator[str]:
    if not found.disagreements:
        return
    yield ""
    yield "Not agreed, the surest mistakes first"
    for each in found.disagreements:
        said = f"person {each.person}, judge {each.judge} {number(each.score)}"
        reason = one_line(each.reason, _LONGEST_REASON)
        yield f"  {one_line(each.eval_id, _LONGEST_NAME)}: {said}" + (f": {reason}" if reason else "")


def _next(found: Calibration) -> Iterator[str]:
    if not found.next:
        return
    yield ""
    yield f"Label these {len(found.next)} next"
    for why in dict.fromkeys(each.why for each in found.next):
        names = [one_line(each.eval_id, _LONGEST_NAME) for each in found.next if each.why == why]
        yield f"  {len(names)}: {why}"
        yield f"     {', '.join(names)}"


def _shown(figure: Figure | None) -> str:
    if figure is None:
        return "unknown"
    return f"{number(figure.value)} (95 % interval {interval(figure.ci95)}, n = {figure.n})"
