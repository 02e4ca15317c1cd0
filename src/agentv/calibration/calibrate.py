"""Compare a judge's verdicts with human labels, and choose the answers to label next."""

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


class JudgedAnswer(msgspec.Struct, frozen=True, gc=False):
    """One answer with the judge's verdict."""

    key: AnswerKey
    verdict: Verdict
    score: float
    reason: str = ""


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a run. `others` have no verdict of the judge; `unscored` counts those of the judged target."""

    judged: Sequence[JudgedAnswer]
    others: frozenset[AnswerKey] = frozenset()
    unscored: int = 0


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """An answer on which the judge and the labels disagree."""

    eval_id: str
    dataset: str
    person: Literal["pass", "fail"]
    judge: Verdict
    score: float
    reason: str = ""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to label next, and the reason."""

    eval_id: str
    dataset: str
    answer: str
    why: str


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate with its 95% confidence interval and the number of labels it is based on."""

    value: float
    ci95: tuple[float, float]
    n: int


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How well a judge agrees with human labels. Figures that cannot be estimated are None; `notes` give the reasons.

    `confusion` has the label in rows and the judge in columns, pass before fail. `answers` counts the answers that the
    judge scored; identical answers to the same case count once. `unmatched` counts labels of answers that are not in
    the run, `unjudged` labels of answers that are in the run but have no verdict of the judge.
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
    """Collect the answers of a run with the verdict of one evaluator, or with the overall verdict.

    Answers of targets other than `target` count as not judged. Identical answers to the same case are one answer, so
    that a single label does not count several times.
    """
    found: dict[AnswerKey, JudgedAnswer] = {}
    others: set[AnswerKey] = set()
    unscored = 0
    for result in results:
        key = answer_key(result)
        if key is None:
            continue
        is_selected = target is None or result.target == target
        verdict = _verdict(result, evaluator) if is_selected else None
        if verdict is None:
            unscored += is_selected
            others.add(key)
        else:
            found.setdefault(key, JudgedAnswer(key, *verdict))
    return Answers(judged=list(found.values()), others=frozenset(others.difference(found)), unscored=unscored)


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
        notes.append(f"No answers with the judge's verdict '{bare}' are labelled, so the figures do not cover them")
    known = list(labelled.values())
    passed = sum(each.verdict == "pass" for each in judged)
    corrected = None
    if suggested:
        notes.append("Rogan-Gladen needs randomly drawn labels, but some labels were suggested")
    elif known:
        corrected = rogan_gladen(known, passed, len(judged))
        if len({each.label for each in known}) < 2:
            notes.append("Rogan-Gladen needs both answers labelled pass and answers labelled fail")
        elif corrected is None:
            notes.append("Rogan-Gladen cannot correct this judge: it passes bad answers at least as often as good ones")
    mean = sum(each.score for each in judged) / len(judged) if judged else 0.0
    judged_keys = {each.key for each in judged}
    return Calibration(
        judge=judge,
        answers=len(judged),
        labelled=len(known),
        suggested=suggested,
        disputed=sum(labels.verdict(each.key) == "disputed" for each in judged),
        skipped=sum(labels.skipped(each.key) for each in judged),
        unmatched=sum(key not in judged_keys and key not in answers.others for key in labels.keys),
        unjudged=sum(key in answers.others for key in labels.keys),
        unscored=answers.unscored,
        confusion=confusion(known),
        accuracy=_figure(accuracy(strata) if known else None),
        kappa=_figure(kappa(strata) if known else None),
        judge_pass_rate=passed / len(judged) if judged else 0.0,
        labels_alone=_figure(None if suggested else _label_pass_rate(known)),
        rogan_gladen=_figure(corrected),
        ppi=_figure(prediction_powered(strata, mean) if len(known) > 1 else None),
        notes=tuple(notes),
        disagreements=tuple(_disagreements(judged, labelled)),
        next=tuple(suggestions(judged, labels, count)),
    )


def suggestions(judged: Sequence[JudgedAnswer], labels: Labels, count: int, seed: int = 0) -> list[Suggestion]:
    """Return the answers to label next.

    The number per verdict is chosen to narrow the confidence interval most. Within a verdict they are drawn at random,
    since picking unusual answers would bias the estimates.
    """
    strata = _by_verdict(judged, _labelled(judged, labels))
    found = []
    for stratum, number in zip(strata, next_labels(strata, count), strict=True):
        verdicts = stratum.name.split(" or ")
        unlabelled = [
            each.key
            for each in judged
            if each.verdict in verdicts and labels.verdict(each.key) is None and not labels.skipped(each.key)
        ]
        wrong = sum(each.label != each.passed for each in stratum.labelled)
        n = len(stratum.labelled)
        why = f"judge's verdict {stratum.name}: wrong on {wrong} of {n} labelled, {stratum.size} in total"
        if not n:
            why = f"judge's verdict {stratum.name}: none of {stratum.size} labelled"
        chosen = sorted(unlabelled, key=lambda key: draw_order(key, seed))[:number]
        found += [(key, why) for key in chosen]
    # A random order, so that it does not reveal the judge's verdicts to the labeller.
    found.sort(key=lambda each: draw_order(each[0], seed))
    return [Suggestion(**key._asdict(), why=why) for key, why in found]


def draw_order(key: AnswerKey, seed: int) -> bytes:
    """Return the rank of an answer in a random order that is determined by the seed."""
    return hashlib.blake2b("\0".join((str(seed), *key)).encode("utf-8", "replace"), digest_size=8).digest()


def _verdict(result: Result, evaluator: str | None) -> tuple[Verdict, float, str] | None:
    if evaluator is None:
        reason = result.misses[0] if result.misses else result.reasoning or ""
        return None if result.verdict is None or result.score is None else (result.verdict, result.score, reason)
    for found in result.evaluator_results:
        if found.name == evaluator and found.verdict is not None and found.score is not None:
            return found.verdict, found.score, found.reasoning or (found.misses[0] if found.misses else "")
    return None


def _labelled(judged: Sequence[JudgedAnswer], labels: Labels) -> dict[AnswerKey, Labelled]:
    """Return the labelled answers, without disputed ones."""
    return {
        each.key: Labelled(label == "pass", each.verdict == "pass", each.score)
        for each in judged
        if (label := labels.verdict(each.key)) in ("pass", "fail")
    }


def _by_verdict(judged: Sequence[JudgedAnswer], labelled: dict[AnswerKey, Labelled]) -> list[Stratum]:
    """Return a stratum for each verdict. Borderline and fail are merged while either has too few labels."""
    strata = []
    for verdict in ("pass", "borderline", "fail"):
        own = [each.key for each in judged if each.verdict == verdict]
        strata.append(Stratum(verdict, len(own), tuple(labelled[key] for key in own if key in labelled)))
    lower = [stratum for stratum in strata[1:] if stratum.size]
    if len(lower) == 2 and any(len(stratum.labelled) < FEWEST_IN_A_STRATUM for stratum in lower):
        one, other = lower
        lower = [Stratum("borderline or fail", one.size + other.size, one.labelled + other.labelled)]
    return [stratum for stratum in (strata[0], *lower) if stratum.size]


def _disagreements(judged: Sequence[JudgedAnswer], labelled: dict[AnswerKey, Labelled]) -> list[Disagreement]:
    """Return the disagreements, starting with the judge's most confident mistakes."""
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


def _label_pass_rate(labelled: Sequence[Labelled]) -> IntervalEstimate | None:
    """Estimate the pass rate from the labels alone, without the judge."""
    n = len(labelled)
    rate = sum(each.label for each in labelled) / n if n else 0.0
    bounds = wilson(rate, n)
    return None if bounds is None else IntervalEstimate(rate, *bounds, n)


def _figure(estimate: IntervalEstimate | None) -> Figure | None:
    return estimate and Figure(value=estimate.value, ci95=(estimate.low, estimate.high), n=estimate.n)
