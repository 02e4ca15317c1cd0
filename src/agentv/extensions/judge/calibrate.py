"""Compare a judge's verdicts with human labels, and choose the answers to label next."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from agentv.errors import plural
from agentv.extensions.judge.agreement import FEWEST_LABELS, Figure, LabellerAgreement, figure, labeller_agreement
from agentv.extensions.judge.corrected_rate import balance_p_value, next_labels, prediction_powered, rogan_gladen
from agentv.extensions.judge.labels import AnswerKey, Labels, answer_key, draw_order
from agentv.model.result import Result, Verdict
from agentv.stats.intervals import clopper_pearson
from agentv.stats.judge_calibration import IntervalEstimate, Labelled, Stratum, accuracy, confusion, kappa

MOST_SHOWN = 10
FEWEST_IN_A_STRATUM = 2
FEWEST_FOR_PPI = 5
UNBALANCED = 0.01
"""The p-value below which the labelled answers are not considered a random sample."""


class JudgedAnswer(msgspec.Struct, frozen=True, gc=False):
    """One answer with the judge's verdict. `runs` are the run, and the one its answer was taken from."""

    key: AnswerKey
    verdict: Verdict
    score: float
    reason: str = ""
    runs: tuple[str, ...] = ()


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


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How well a judge agrees with human labels. Figures that cannot be estimated are None; `notes` give the reasons.
    `warnings` are problems of the labels that affect every figure.

    `confusion` has the label in rows and the judge in columns, pass before fail. `answers` counts the answers that the
    judge scored; identical answers to the same case count once. `unmatched` counts labels of answers that are not in
    the run, `unjudged` labels of answers that are in the run but have no verdict of the judge. `elsewhere` counts
    labels of another run with different answers: they are not a random sample of this run. `chosen` counts labels of
    answers that the labeller picked: they are not used, since a person rarely picks at random.
    """

    judge: str
    answers: int
    labelled: int
    suggested: int
    chosen: int
    disputed: int
    skipped: int
    unmatched: int
    unjudged: int
    unscored: int
    elsewhere: int
    confusion: tuple[tuple[int, int], tuple[int, int]]
    accuracy: Figure | None
    kappa: Figure | None
    judge_pass_rate: float
    labels_alone: Figure | None
    rogan_gladen: Figure | None
    ppi: Figure | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    disagreements: tuple[Disagreement, ...]
    next: tuple[Suggestion, ...]
    labellers: dict[str, int]
    agreement: tuple[LabellerAgreement, ...]


def answers_of(results: Iterable[Result], evaluator: str | None = None, target: str | None = None) -> Answers:
    """Collect the answers of a run with the verdict of one evaluator, or with the overall verdict.

    Answers of targets other than `target` count as not judged. Identical answers to the same case are one answer, so
    that a single label does not count several times.
    """
    by_key: dict[AnswerKey, JudgedAnswer] = {}
    others: set[AnswerKey] = set()
    unscored = 0
    for result in results:
        if (key := answer_key(result)) is None:
            continue
        is_selected = target is None or result.target == target
        verdict = _verdict(result, evaluator) if is_selected else None
        if verdict is None:
            unscored += is_selected
            others.add(key)
        else:
            runs = tuple(filter(None, (result.run_id, result.carried_from)))
            by_key.setdefault(key, JudgedAnswer(key, *verdict, runs))
    return Answers(judged=list(by_key.values()), others=frozenset(others.difference(by_key)), unscored=unscored)


AnswersOfRun = Callable[[str], "frozenset[AnswerKey] | None"]
"""Returns the answers of another run by its id; None if the run cannot be read."""


def calibrate(
    answers: Answers, labels: Labels, judge: str, count: int = 20, answers_of_run: AnswersOfRun = lambda _: None
) -> Calibration:
    """Calibrate a judge with labels, and suggest `count` answers to label next."""
    judged = answers.judged
    labelled = _labelled(judged, labels)
    sample = _sample(answers, labels, labelled, answers_of_run)
    passed = sum(item.verdict == "pass" for item in judged)
    strata, items, is_random = sample.strata, list(labelled.values()), sample.is_random
    notes = _notes(sample, items)
    corrected = rogan_gladen(items, passed, len(judged)) if is_random and len(items) >= FEWEST_LABELS else None
    if is_random and len(items) >= FEWEST_LABELS and corrected is None and len({item.label for item in items}) > 1:
        notes.append("Rogan-Gladen cannot correct this judge: it passes bad answers at least as often as good ones")
    mean = sum(item.score for item in judged) / len(judged) if judged else 0.0
    judged_keys = {item.key for item in judged}
    return Calibration(
        judge=judge,
        answers=len(judged),
        labelled=len(items),
        suggested=sample.suggested,
        chosen=sum(_is_chosen(item.key, labels) for item in judged),
        disputed=sum(labels.verdict(item.key) == "disputed" for item in judged),
        skipped=sum(labels.skipped(item.key) for item in judged),
        unmatched=sum(key not in judged_keys and key not in answers.others for key in labels.keys),
        unjudged=sum(key in answers.others for key in labels.keys),
        unscored=answers.unscored,
        elsewhere=sample.elsewhere,
        confusion=confusion(items),
        accuracy=figure(accuracy(strata) if items else None, 1 if len(strata) == 1 else FEWEST_LABELS),
        kappa=figure(kappa(strata) if items else None, FEWEST_LABELS),
        judge_pass_rate=passed / len(judged) if judged else 0.0,
        labels_alone=figure(_label_pass_rate(items) if is_random else None),
        rogan_gladen=figure(corrected),
        ppi=figure(prediction_powered(strata, mean) if sample.drawn >= FEWEST_FOR_PPI else None),
        warnings=tuple(sample.warnings),
        notes=tuple(notes),
        disagreements=tuple(_disagreements(judged, labelled)),
        next=tuple(suggestions(judged, labels, count)),
        labellers=dict(labels.labellers(judged_keys)),
        agreement=labeller_agreement(labels, judged_keys),
    )


class _Sample(msgspec.Struct, frozen=True, kw_only=True):
    """How the labelled answers were drawn.

    `drawn` counts the labels that are a random sample, of all answers or within verdicts; `elsewhere` the others.
    """

    strata: list[Stratum]
    drawn: int
    suggested: int
    elsewhere: int
    is_balanced: bool
    warnings: list[str]

    @property
    def is_random(self) -> bool:
        """Whether the labels are a random sample of all answers."""
        return not self.suggested and not self.elsewhere and self.is_balanced and self.drawn > 0


def _sample(
    answers: Answers, labels: Labels, labelled: dict[AnswerKey, Labelled], answers_of_run: AnswersOfRun
) -> _Sample:
    """Group the answers into strata whose labels are random samples.

    Answers labelled in another run whose answers differ form a stratum of their own, in which all are labelled.
    """
    foreign = _labelled_elsewhere(answers, labels, labelled, answers_of_run)
    own = {key: value for key, value in labelled.items() if key not in foreign}
    rest = [answer for answer in answers.judged if answer.key not in foreign]
    suggested = sum(labels.drawn(key) == "suggested" for key in own)
    passed, own_passes = sum(answer.verdict == "pass" for answer in rest), sum(answer.passed for answer in own.values())
    is_balanced = bool(suggested) or balance_p_value(own_passes, len(own), passed, len(rest)) >= UNBALANCED
    by_verdict = suggested or not is_balanced
    strata = _by_verdict(rest, own) if by_verdict else [Stratum("all", len(rest), tuple(own.values()))]
    warnings = []
    if foreign:
        foreign_labels = tuple(value for key, value in labelled.items() if key in foreign)
        strata = [Stratum("labelled in another run", len(foreign_labels), foreign_labels), *strata]
        what = f"{plural(len(foreign), 'label')} from another run, whose answers differ from those of this run"
        warnings.append(f"{what}: not a random sample. Only labels of this run can stand for its other answers")
    if not is_balanced:
        shares = f"the judge passed {own_passes / len(own):.0%} of them, but {passed / len(rest):.0%} of all answers"
        warnings.append(f"The labelled answers are not a random sample: {shares}. Figures are reweighted by verdict")
    return _Sample(
        strata=[stratum for stratum in strata if stratum.size],
        drawn=len(own),
        suggested=suggested,
        elsewhere=len(foreign),
        is_balanced=is_balanced,
        warnings=warnings,
    )


def _labelled_elsewhere(
    answers: Answers, labels: Labels, labelled: Iterable[AnswerKey], answers_of_run: AnswersOfRun
) -> set[AnswerKey]:
    """Return the answers that were labelled only in other runs, if those runs gave other answers to some cases.

    Such labels exist only for answers that did not change, and those are usually the better ones. If the other run
    cannot be read, one label of a different answer to a case of this run shows that its answers differ.
    """
    runs = {answer.key: answer.runs for answer in answers.judged}
    present = {*runs, *answers.others}
    cases = {key[:2] for key in present}
    differing = {run for key in labels.keys if key not in present and key[:2] in cases for run in labels.runs(key)}

    def differs(run: str) -> bool:
        theirs = answers_of_run(run)
        return run in differing if theirs is None else not theirs.issuperset(runs)

    others = {run for key in labelled for run in labels.runs(key) if run not in runs[key]}
    unlike = {run for run in others if differs(run)}
    return {key for key in labelled if not labels.runs(key) & set(runs[key]) and labels.runs(key) <= unlike}


def _notes(sample: _Sample, items: Sequence[Labelled]) -> list[str]:
    """Explain which figures are missing."""
    notes = []
    bare = next((stratum.name for stratum in sample.strata if not stratum.labelled), None)
    if sample.elsewhere and bare == "all":
        notes.append("No other answers of this run are labelled, so its figures cannot be estimated")
    elif bare is not None and items:
        notes.append(f"No answers with the judge's verdict '{bare}' are labelled, so the figures do not cover them")
    if items and not sample.is_random:
        why = "some labels were suggested" if sample.suggested else "the labels are not a random sample"
        notes.append(f"Rogan-Gladen needs randomly drawn labels, but {why}")
    elif items and len({item.label for item in items}) < 2:
        notes.append("Rogan-Gladen needs both answers labelled pass and answers labelled fail")
    if items and len(items) < FEWEST_LABELS:
        notes.append(f"Intervals of kappa and Rogan-Gladen need at least {FEWEST_LABELS} labels")
    return notes


def suggestions(judged: Sequence[JudgedAnswer], labels: Labels, count: int, seed: int = 0) -> list[Suggestion]:
    """Return the answers to label next.

    The number per verdict is chosen to narrow the confidence interval most. Within a verdict they are drawn at random,
    since picking unusual answers would bias the estimates.
    """
    strata = _by_verdict(judged, _labelled(judged, labels))
    picks = []
    for stratum, number in zip(strata, next_labels(strata, count), strict=True):
        verdicts = stratum.name.split(" or ")
        unlabelled = [answer.key for answer in judged if answer.verdict in verdicts and _is_open(answer.key, labels)]
        wrong = sum(answer.label != answer.passed for answer in stratum.labelled)
        n = len(stratum.labelled)
        why = f"judge's verdict {stratum.name}: wrong on {wrong} of {n} labelled, {stratum.size} in total"
        if not n:
            why = f"judge's verdict {stratum.name}: none of {stratum.size} labelled"
        keys = sorted(unlabelled, key=lambda key: draw_order(key, seed))[:number]
        picks += [(key, why) for key in keys]
    # A random order, so that it does not reveal the judge's verdicts to the labeller.
    picks.sort(key=lambda each: draw_order(each[0], seed))
    return [Suggestion(**key._asdict(), why=why) for key, why in picks]


def _verdict(result: Result, evaluator: str | None) -> tuple[Verdict, float, str] | None:
    if evaluator is None:
        reason = result.misses[0] if result.misses else result.reasoning or ""
        return None if result.verdict is None or result.score is None else (result.verdict, result.score, reason)
    for entry in result.evaluator_results:
        if entry.name == evaluator and entry.verdict is not None and entry.score is not None:
            return entry.verdict, entry.score, entry.reasoning or (entry.misses[0] if entry.misses else "")
    return None


def _labelled(judged: Sequence[JudgedAnswer], labels: Labels) -> dict[AnswerKey, Labelled]:
    """Return the labelled answers, without disputed ones and those that the labeller picked."""
    return {
        answer.key: Labelled(label == "pass", answer.verdict == "pass", answer.score)
        for answer in judged
        if (label := labels.verdict(answer.key)) in ("pass", "fail") and not _is_chosen(answer.key, labels)
    }


def _is_chosen(key: AnswerKey, labels: Labels) -> bool:
    return labels.drawn(key) == "chosen" and labels.verdict(key) in ("pass", "fail")


def _is_open(key: AnswerKey, labels: Labels) -> bool:
    """Return whether an answer may be suggested: it is not labelled, or its labeller picked it."""
    return _is_chosen(key, labels) or (labels.verdict(key) is None and not labels.skipped(key))


def _by_verdict(judged: Sequence[JudgedAnswer], labelled: dict[AnswerKey, Labelled]) -> list[Stratum]:
    """Return a stratum for each verdict. Borderline and fail are merged while either has too few labels."""
    strata = []
    for verdict in ("pass", "borderline", "fail"):
        own = [answer.key for answer in judged if answer.verdict == verdict]
        strata.append(Stratum(verdict, len(own), tuple(labelled[key] for key in own if key in labelled)))
    lower = [stratum for stratum in strata[1:] if stratum.size]
    if len(lower) == 2 and any(len(stratum.labelled) < FEWEST_IN_A_STRATUM for stratum in lower):
        one, other = lower
        lower = [Stratum("borderline or fail", one.size + other.size, one.labelled + other.labelled)]
    return [stratum for stratum in (strata[0], *lower) if stratum.size]


def _disagreements(judged: Sequence[JudgedAnswer], labelled: dict[AnswerKey, Labelled]) -> list[Disagreement]:
    """Return the disagreements, starting with the judge's most confident mistakes."""
    wrong = [item for item in judged if item.key in labelled and labelled[item.key].label != labelled[item.key].passed]
    wrong.sort(key=lambda each: -abs(each.score - labelled[each.key].label))
    return [
        Disagreement(
            eval_id=item.key.eval_id,
            dataset=item.key.dataset,
            person="pass" if labelled[item.key].label else "fail",
            judge=item.verdict,
            score=item.score,
            reason=item.reason,
        )
        for item in wrong[:MOST_SHOWN]
    ]


def _label_pass_rate(labelled: Sequence[Labelled]) -> IntervalEstimate | None:
    """Estimate the pass rate from the labels alone, without the judge."""
    n, passed = len(labelled), sum(item.label for item in labelled)
    return IntervalEstimate(passed / n, *clopper_pearson(passed, n), n) if n else None
