"""Labels on the served page: those of a run, a new one, and the agreement between labellers and with the judge."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from agentv.engine.job.answer import now
from agentv.engine.scoring.grades import verdict_of
from agentv.errors import UsageError
from agentv.extensions.judge.agreement import labeller_agreement
from agentv.extensions.judge.calibrate import answers_of, calibrate
from agentv.extensions.judge.label_file import LabelFile
from agentv.extensions.judge.labels import (
    AnswerKey,
    Drawn,
    Label,
    Labels,
    LabelValue,
    answer_hash,
    answer_key,
    checked_labeller,
    draw_order,
    passed_over,
)
from agentv.model.evaluator import Verdicts
from agentv.report.services import LabelError, LabelledRun, RankedAnswers

LONGEST_COMMENT = 10_000
_OVERALL = "overall verdict of all evaluators"
_SEED = 0
"""The seed of `agentv judge label`, whose order the page continues."""


class LabelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A label from the page. `id` is the case that the page shows in the row; a score replaces the label.

    Without a label and a score, the earlier label is withdrawn.
    """

    row: Annotated[int, msgspec.Meta(ge=0)]
    id: str
    label: Literal["pass", "fail", "skip"] | None = None
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    comment: Annotated[str, msgspec.Meta(max_length=LONGEST_COMMENT)] = ""


class FilePageLabels:
    """The labels of one person in a file. Raises AgentvError if it is not a label file."""

    def __init__(self, path: str, labeller: str) -> None:
        self.path = Path(path)
        self.labeller = checked_labeller(labeller)
        if not self.path.parent.is_dir():
            raise UsageError(f"Cannot write {path}", f"The folder {self.path.parent} does not exist")
        self._file = LabelFile(self.path)

    def rank(self, dataset: str, eval_id: str, answer: str) -> int:
        """Return the rank of an answer in the random order; never 0."""
        return _rank_of(AnswerKey(dataset, eval_id, answer_hash(answer)))

    def overview(self, answers: RankedAnswers) -> dict[str, Any]:
        """Return the labels of this person in a run, and the next answer to label."""
        labels = self._file.labels
        own = self._own(labels, answers)
        noted = {_rank_of(key): key for key in labels.noted_by(self.labeller)}
        keys = {rank: key for rank, key in noted.items() if rank in answers}
        keys |= {rank: label.key for rank, label in own.items()}
        entries = [
            {"rows": rows, **_entry(labels, keys[rank], self.labeller)} for rank, rows in answers.rows(keys).items()
        ]
        return {
            "labeller": self.labeller,
            "file": str(self.path),
            **_progress(answers, own),
            "entries": entries,
            "unanswered": answers.unanswered(),
        }

    def agreement(self, run: LabelledRun) -> dict[str, Any]:
        """Return how often labellers agree with each other, and this one with the judge."""
        labels = self._file.labels
        answers = answers_of(run.store.records())
        keys = {answer.key for answer in answers.judged} | answers.others
        calibration = calibrate(answers, labels.by(self.labeller), _OVERALL, 0)
        judge = {
            "n": calibration.labelled,
            "agreed": calibration.confusion[0][0] + calibration.confusion[1][1],
            "confusion": calibration.confusion,
            "accuracy": calibration.accuracy,
            "kappa": calibration.kappa,
            "picked": calibration.chosen,
            "warnings": calibration.warnings,
        }
        return {
            "labeller": self.labeller,
            "labellers": dict(labels.labellers(keys)),
            "pairs": labeller_agreement(labels, keys),
            "judge": judge,
        }

    def add(self, run: LabelledRun, answers: RankedAnswers, body: bytes) -> dict[str, Any]:
        """Add a label, and return it with the next answer to label. Raises LabelError."""
        try:
            request = msgspec.json.decode(body, type=LabelRequest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LabelError(f"The label is not valid: {error}") from None
        record = run.record(request.row)
        key = answer_key(record)
        if record.eval_id != request.id:
            raise UsageError(f"Row {request.row} is case {record.eval_id}, not {request.id}", hint="Reload the page")
        if key is None:
            raise UsageError(f"Case {record.eval_id} has no answer to label")
        value = _label(request, _verdicts(run.case(request.row)))
        drawn, turned = self._drawn(answers, key, value)
        label = Label(
            timestamp=now(),
            **key._asdict(),
            label=value,
            score=request.score,
            comment=request.comment,
            drawn=drawn,
            labeller=self.labeller,
            run_id=record.run_id,
        )
        self._file.add(*turned, label)
        labels = self._file.labels
        rows = answers.rows({_rank_of(key)})[_rank_of(key)]
        return {"rows": rows, **_entry(labels, key, self.labeller), **_progress(answers, self._own(labels, answers))}

    def _own(self, labels: Labels, answers: RankedAnswers) -> dict[int, Label]:
        """Return the labels of this labeller for answers of a run, by rank."""
        ranked = {_rank_of(label.key): label for label in labels.all_by(self.labeller)}
        return {rank: label for rank, label in ranked.items() if rank in answers}

    def _drawn(self, answers: RankedAnswers, key: AnswerKey, value: LabelValue | None) -> tuple[Drawn, list[Label]]:
        """Return how an answer was drawn, and picked answers that this label makes part of the random sample.

        The next answer in the random order is drawn at random; any other one was picked. Once all answers are labelled,
        none is picked.
        """
        if value is None:
            return "chosen", []
        labels, rank = self._file.labels, _rank_of(key)
        own = self._own(labels, answers)
        following = answers.next(own)
        is_last = answers.next({*own, rank}) is None
        is_drawn = is_last or (following is not None and following[0] == rank)
        before = own[rank].drawn if rank in own else "chosen"
        if not is_drawn or before == "suggested":
            return before, []

        def is_passed(other: AnswerKey) -> bool:
            place = _rank_of(other)
            return place != rank and place in answers and (is_last or place < rank)

        return "random", passed_over(labels, self.labeller, is_passed)


def _rank_of(key: AnswerKey) -> int:
    return int.from_bytes(draw_order(key, _SEED), "big") or 1


def _progress(answers: RankedAnswers, own: Mapping[int, Label]) -> dict[str, Any]:
    skipped = sum(label.label == "skip" for label in own.values())
    following = answers.next(own)
    return {
        "answers": answers.count,
        "labelled": len(own) - skipped,
        "skipped": skipped,
        "next": None if following is None else following[1],
    }


def _entry(labels: Labels, key: AnswerKey, labeller: str) -> dict[str, Any]:
    """Return the label of this labeller, and those of others once this one has labelled the answer."""
    own = labels.of(key, labeller)
    others = [] if own is None else [label for label in labels.all_of(key) if label.labeller != labeller]
    return {
        "label": None if own is None else own.label,
        "score": None if own is None else own.score,
        "comment": labels.comment(key, labeller),
        "drawn": None if own is None else own.drawn,
        "others": [
            {"labeller": label.labeller, "label": label.label, "score": label.score, "comment": label.comment}
            for label in others
        ],
    }


def _label(request: LabelRequest, verdicts: Verdicts) -> LabelValue | None:
    if request.score is None:
        return request.label
    if request.label is not None:
        raise LabelError("A label has a verdict or a score, not both")
    return "pass" if verdict_of(request.score, verdicts) == "pass" else "fail"


def _verdicts(case: Mapping[str, Any] | None) -> Verdicts:
    """Return the limits of the case, which decide whether a score is a pass."""
    limits = ((case or {}).get("execution") or {}).get("verdicts") or {}
    try:
        return msgspec.convert(limits, Verdicts)
    except msgspec.ValidationError:
        return Verdicts()
