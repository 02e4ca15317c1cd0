"""The calibration of a judge as text for a terminal."""

from collections.abc import Iterator

from agentv.errors import plural
from agentv.extensions.judge.agreement import Figure, LabellerAgreement
from agentv.extensions.judge.calibrate import Calibration
from agentv.report.figures import interval, number, one_line, percent

_LONGEST_NAME = 40
_LONGEST_REASON = 100


def calibration_lines(figures: Calibration) -> list[str]:
    """Return the calibration as lines."""
    return [*_basis(figures), *_agreement(figures), *_pass_rate(figures), *_disagreements(figures), *_next(figures)]


def _basis(figures: Calibration) -> Iterator[str]:
    for warning in figures.warnings:
        yield f"Warning: {warning}"
    yield f"Judge       {figures.judge}"
    how = f", {figures.suggested} of them suggested" if figures.suggested else ""
    yield f"Labels      {figures.labelled:,} of {plural(figures.answers, 'answer')}{how}"
    not_used = {
        "labellers disagree": figures.disputed,
        "answer picked by the labeller, not drawn at random": figures.chosen,
        "skipped by the labeller": figures.skipped,
        "answer of this run, but not selected": figures.unjudged,
        "answer not in this run": figures.unmatched,
    }
    for why, count in not_used.items():
        if count:
            yield f"            {plural(count, 'label')} not used: {why}"
    if figures.unscored:
        yield f"            {plural(figures.unscored, 'answer')} not included: no verdict from this judge"
    if len(figures.labellers) > 1:
        counts = (f"{_labeller(name)} {count:,}" for name, count in figures.labellers.items())
        yield f"Labellers   {', '.join(counts)}"
    for pair in figures.agreement:
        yield f"            {_pair(pair)}"
    for note in figures.notes:
        yield f"Note: {note}"


def _pair(agreement: LabellerAgreement) -> str:
    """Return the agreement of two labellers."""
    names = " and ".join(map(_labeller, agreement.labellers))
    if not agreement.n:
        return f"{names}: no answer has labels of both"
    return f"{names} agree on {agreement.agreed:,} of {plural(agreement.n, 'answer')}, kappa {_shown(agreement.kappa)}"


def _labeller(name: str) -> str:
    return one_line(name, _LONGEST_NAME) or "(no name)"


def _agreement(figures: Calibration) -> Iterator[str]:
    if not figures.labelled:
        return
    (both, missed), (let_through, caught) = figures.confusion
    yield ""
    yield "                judge: pass   judge: not pass"
    yield f"person: pass    {both:>11}   {missed:>15}"
    yield f"person: fail    {let_through:>11}   {caught:>15}"
    yield ""
    yield f"accuracy        {_shown(figures.accuracy)}"
    yield f"Cohen's kappa   {_shown(figures.kappa)}"
    yield f"passes good     {both:,} of {plural(both + missed, 'answer')} that a person passed"
    yield f"fails bad       {caught:,} of {plural(let_through + caught, 'answer')} that a person failed"


def _pass_rate(figures: Calibration) -> Iterator[str]:
    yield ""
    yield "Pass rate"
    yield f"  judge         {percent(figures.judge_pass_rate)} of {plural(figures.answers, 'answer')}, uncorrected"
    for name, figure in (
        ("labels alone", figures.labels_alone),
        ("Rogan-Gladen", figures.rogan_gladen),
        ("PPI++", figures.ppi),
    ):
        if figure is not None and figure.ci95 is not None:
            low, high = figure.ci95
            yield f"  {name:<13} {percent(figure.value)} (95 % interval {low * 100:.1f} to {high * 100:.1f} %)"
        elif figures.labelled:
            yield f"  {name:<13} -"


def _disagreements(figures: Calibration) -> Iterator[str]:
    if not figures.disagreements:
        return
    yield ""
    yield "Disagreements, most confident mistakes first"
    for each in figures.disagreements:
        verdicts = f"person {each.person}, judge {each.judge} {number(each.score)}"
        reason = one_line(each.reason, _LONGEST_REASON)
        yield f"  {one_line(each.eval_id, _LONGEST_NAME)}: {verdicts}" + (f": {reason}" if reason else "")


def _next(figures: Calibration) -> Iterator[str]:
    if not figures.next:
        return
    yield ""
    yield f"Label {plural(len(figures.next), 'answer')} next"
    for why in dict.fromkeys(answer.why for answer in figures.next):
        names = [one_line(answer.eval_id, _LONGEST_NAME) for answer in figures.next if answer.why == why]
        yield f"  {len(names)}: {why}"
        yield f"     {', '.join(names)}"


def _shown(figure: Figure | None) -> str:
    if figure is None:
        return "unknown"
    if figure.ci95 is None:
        return f"{number(figure.value)} (too few labels for an interval, n = {figure.n})"
    return f"{number(figure.value)} (95 % interval {interval(figure.ci95)}, n = {figure.n})"
