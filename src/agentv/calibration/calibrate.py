"""Compare a judge's verdicts with people's labels, and choose the answers to label next."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from agentv.calibration.labels import AnswerKey, Labels, answer_key
from agentv.model.result import Result, Verdict
from agentv.stats.intervals import wilson
from agentv.stats.judge_calibration import (
    IntervalEstimate,
    Labelled,
    Stratum,
    accuracy,
    confusion,
    kappa,
    next_labels,
    prediction_powered,
    rogan_gladen,
)

MOST_SHOWN = 10
FEWEST_IN_A_STRATUM = 2


class Judged(msgspec.Struct, frozen=True, gc=False):
    """One answer and the judge's verdict."""

    key: AnswerKey
    verdict: Verdict
    score: float
    reason: str = ""


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a run. `others` have no verdict of the judge; `unscored` counts them."""

    judged: Sequence[Judged]
    others: frozenset[AnswerKey] = frozenset()
    unscored: int = 0


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """An answer on which judge and labellers disagree."""

    eval_id: str
    dataset: str
    person: Literal["pass", "fail"]
    judge: Verdict
    score: float
    reason: str = ""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer whose label would help, and why."""

    eval_id: str
    dataset: str
    answer: str
    why: str


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with its 95 % interval and the number of labels behind it."""

    value: float
    ci95: tuple[float, float]
    n: int


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How well a judge agrees with people. Figures that cannot be estimated are None; `notes` give the reasons.

    `confusion` has the person in rows and the judge in columns, pass before fail. `answers` counts those that the judge
    scored, the same words to the same case once. `unmatched` labels are of answers that the run does not have,
    `unjudged` ones of answers that it has, and of which the judge said nothing.
    """

    judge: str
    answers: int
    labelled: int
    suggested: int
    disputed: int
    skipped: int
    unmatched: int
    unjudged: int
    unscored: int
    confusion: tuple[tuple[int, int], tuple[int, int]]
    accuracy: Figure | None
    kappa: Figure | None
    judge_pass_rate: float
    labels_alone: Figure | None
    rogan_gladen: Figure | None
    ppi: Figure | None
    notes: tuple[str, ...]
    disagreements: tuple[Disagreement, ...]
    next: tuple[Suggestion, ...]


def answers_of(results: Iterable[Result], evaluator: str | None = None, target: str | None = None) -> Answers:
    """The answers of a run with the verdict of one evaluator, or of all together, and those without one.

    Those of other targets than the one that is named have none here. The same words to the same case are one answer:
    labelled once, they would else count as often as they were said.
    """
    found: dict[AnswerKey, Judged] = {}
    others: set[AnswerKey] = set()
    without = 0
    for result in results:
        key = answer_key(result)
        if key is None:
            continue
        is_wanted = target is None or result.target == target
        said = _verdict(result, evaluator) if is_wanted else None
        if said is None:
            without += is_wanted
            others.add(key)
        else:
            found.setdefault(key, Judged(key, *said))
    return Answers(judged=list(found.values()), others=frozenset(others.difference(found)), unscored=without)


def calibrate(answers: Answers, labels: Labels, judge: str, count: int = 20) -> Calibration:
    """Calibrate a judge with labels, and suggest `count` answers to label next."""
    judged = answers.judged
    labelled = _labelled(judged, labels)
    notes: list[str] = []
    suggested = sum(labels.drawn(key) == "suggested" for key in labelled)
    by_verdict = _by_verdict(judged, labelled)
    strata = by_verdict if suggested else [Stratum("all", len(judged), tuple(labelled.values()))]
    bare = next((stratum.name for stratum in strata if stratum.size and not stratum.labelled), None)
    if suggested and bare is not None:
        notes.append(f"None of the answers that the judge calls '{bare}' is labelled, so nothing is known of them")
    told = list(labelled.values())
    passed = sum(each.verdict == "pass" for each in judged)
    corrected = None
    if suggested:
        notes.append("Rogan-Gladen takes labels drawn at random, and some here were suggested")
    elif told:
        corrected = rogan_gladen(told, passed, len(judged))
        if len({each.label for each in told}) < 2:
            notes.append("Rogan-Gladen needs answers that a person passed and some that a person failed")
        elif corrected is None:
            why = "it passes bad answers as often as good ones, or more often"
            notes.append(f"Rogan-Gladen cannot correct this judge: {why}")
    mean = sum(each.score for each in judged) / len(judged) if judged else 0.0
    known = {each.key for each in judged}
    return Calibration(
        judge=judge,
        answers=len(judged),
        labelled=len(told),
        suggested=suggested,
        disputed=sum(labels.verdict(each.key) == "disputed" for each in judged),
        skipped=sum(labels.skipped(each.key) for each in judged),
        unmatched=sum(key not in known and key not in answers.others for key in labels.keys),
        unjudged=sum(key in answers.others for key in labels.keys),
        unscored=answers.unscored,
        confusion=confusion(told),
        accuracy=_figure(accuracy(strata) if told else None),
        kappa=_figure(kappa(strata) if told else None),
        judge_pass_rate=passed / len(judged) if judged else 0.0,
        labels_alone=_figure(None if suggested else _alone(told)),
        rogan_gladen=_figure(corrected),
        ppi=_figure(prediction_powered(strata, mean) if len(told) > 1 else None),
        notes=tuple(notes),
        disagreements=tuple(_disagreements(judged, labelled)),
        next=tuple(suggestions(judged, labels, count)),
    )


def suggestions(judged: Sequence[Judged], labels: Labels, count: int, seed: int = 0) -> list[Suggestion]:
    """The answers to label next: as many of each verdict as narrow the interval most, drawn at random inside it.

    Drawn at random, they keep the figures honest: picking the strange ones by hand would bias what is estimated.
    """
    strata = _by_verdict(judged, _labelled(judged, labels))
    wanted = next_labels(strata, count)
    found = []
    for stratum, number in zip(strata, wanted, strict=True):
        verdicts = stratum.name.split(" or ")
        open_ones = [
            each
            for each in judged
            if each.verdict in verdicts and labels.verdict(each.key) is None and not labels.skipped(each.key)
        ]
        wrong = sum(each.label != each.passed for each in stratum.labelled)
        n = len(stratum.labelled)
        why = f"the judge says {stratum.name}; it was wrong on {wrong} of {n} labelled ones of {stratum.size}"
        if not n:
            why = f"the judge says {stratum.name}; none of these {stratum.size} is labelled"
        chosen = sorted(open_ones, key=lambda each: draw_order(each.key, seed))[:number]
        found += [
            Suggestion(eval_id=each.key.eval_id, dataset=each.key.dataset, answer=each.key.answer, why=why)
            for each in chosen
        ]
    # In an order that gives no verdict away: whoever labels them must not see what the judge said.
    return sorted(found, key=lambda each: draw_order(AnswerKey(each.dataset, each.eval_id, each.answer), seed))


def draw_order(key: AnswerKey, seed: int) -> bytes:
    """A rank in a random order that is always the same."""
    return hashlib.blake2b("\0".join((str(seed), *key)).encode("utf-8", "replace"), digest_size=8).digest()


def _verdict(result: Result, evaluator: str | None) -> tuple[Verdict, float, str] | None:
    if evaluator is None:
        reason = result.misses[0] if result.misses else result.reasoning or ""
        return None if result.verdict is None or result.score is None else (result.verdict, result.score, reason)
    for found in result.evaluator_results:
        if found.name == evaluator and found.verdict is not None and found.score is not None:
            return found.verdict, found.score, found.reasoning or (found.misses[0] if found.misses else "")
    return None


def _labelled(judged: Sequence[Judged], labels: Labels) -> dict[AnswerKey, Labelled]:
    """The labelled answers, without disputed ones."""
    return {
        each.key: Labelled(said == "pass", each.verdict == "pass", each.score)
        for each in judged
        if (said := labels.verdict(each.key)) in ("pass", "fail")
    }


def _by_verdict(judged: Sequence[Judged], labelled: dict[AnswerKey, Labelled]) -> list[Stratum]:
    """A stratum for each verdict; borderline and fail are joined while either has too few labels."""
    strata = []
    for verdict in ("pass", "borderline", "fail"):
        own = [each.key for each in judged if each.verdict == verdict]
        strata.append(Stratum(verdict, len(own), tuple(labelled[key] for key in own if key in labelled)))
    lower = [stratum for stratum in strata[1:] if stratum.size]
    if len(lower) == 2 and any(len(stratum.labelled) < FEWEST_IN_A_STRATUM for stratum in lower):
        both = Stratum("borderline or fail", lower[0].size + lower[1].size, lower[0].labelled + lower[1].labelled)
        lower = [both]
    return [stratum for stratum in (strata[0], *lower) if stratum.size]


def _disagreements(judged: Sequence[Judged], labelled: dict[AnswerKey, Labelled]) -> list[Disagreement]:
    """Disagreements, the judge's most confident mistakes first."""
    wrong = [each for each in judged if each.key in labelled and labelled[each.key].label != labelled[each.key].passed]
    wrong.sort(key=lambda each: -abs(each.score - labelled[each.key].label))
    return [
        Disagreement(
            eval_id=each.key.eval_id,
            dataset=each.key.dataset,
            person="pass" if labelled[each.key].label else "fail",
            judge=each.verdict,
            score=each.score,
            reason=each.reason,
        )
        for each in wrong[:MOST_SHOWN]
    ]


def _alone(labelled: Sequence[Labelled]) -> IntervalEstimate | None:
    """The pass rate of the labels, without the judge."""
    n = len(labelled)
    share = sum(each.label for each in labelled) / n if n else 0.0
    bounds = wilson(share, n)
    return None if bounds is None else IntervalEstimate(share, *bounds, n)


def _figure(estimate: IntervalEstimate | None) -> Figure | None:
    return estimate and Figure(value=estimate.value, ci95=(estimate.low, estimate.high), n=estimate.n)
