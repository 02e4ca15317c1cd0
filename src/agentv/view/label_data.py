"""Handlers for labels: those of a run, a new one, and the agreement between labellers and with the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from agentv.calibration.agreement import labeller_agreement
from agentv.calibration.calibrate import answers_of, calibrate
from agentv.calibration.label_file import LabelFile
from agentv.calibration.label_order import passed_over
from agentv.calibration.labels import AnswerKey, Drawn, Label, Labels, LabelValue, answer_key
from agentv.engine.job.answer import now
from agentv.engine.scoring.grades import verdict_of
from agentv.errors import UsageError
from agentv.model.evaluator import Verdicts
from agentv.view.answer_rows import AnswerRows, rank_of
from agentv.view.served_run import ServedRun
from agentv.view.state import STATE, ViewState, json_response

LONGEST_COMMENT = 10_000
_OVERALL = "overall verdict of all evaluators"


class LabelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A label from the page. `id` is the case that the page shows in the row; a score replaces the label.

    Without a label and a score, the earlier label is withdrawn.
    """

    row: Annotated[int, msgspec.Meta(ge=0)]
    id: str
    label: Literal["pass", "fail", "skip"] | None = None
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    comment: Annotated[str, msgspec.Meta(max_length=LONGEST_COMMENT)] = ""


class LabelledRun(msgspec.Struct, frozen=True):
    """A served run, its answers by row, the label file and the labeller."""

    run: ServedRun
    answers: AnswerRows
    file: LabelFile
    labeller: str

    def given(self, labels: Labels) -> dict[int, Label]:
        """Return the labels of this labeller for answers of this run, by rank."""
        ranked = {rank_of(label.key): label for label in labels.all_by(self.labeller)}
        return {rank: label for rank, label in ranked.items() if rank in self.answers}


async def labels(request: web.Request) -> web.Response:
    """Return the labels of one labeller in a run, and the next answer to label."""
    return await _answer(request, _overview)


async def agreement(request: web.Request) -> web.Response:
    """Return how often labellers agree with each other, and this one with the judge."""
    return await _answer(request, _agreement)


async def add_label(request: web.Request) -> web.Response:
    """Append a label to the file, and return it with the next answer to label."""
    try:
        given = msgspec.json.decode(await request.read(), type=LabelRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"The label is not valid: {error}") from None
    return await _answer(request, lambda labelled: _added(labelled, given))


async def _answer(request: web.Request, respond: Any) -> web.Response:
    state = request.app[STATE]
    run = state.served_run(request.match_info["id"])
    return json_response(await asyncio.to_thread(lambda: respond(_labelled_run(state, run))))


def _labelled_run(state: ViewState, run: ServedRun) -> LabelledRun:
    if state.label_file is None:
        raise web.HTTPForbidden(
            text="The page shows no labels. Start agentv view with --label FILE to see and save labels."
        )
    answers = state.answers.get(run) or state.answers.setdefault(run, AnswerRows(run.store))
    answers.follow()
    return LabelledRun(run, answers, state.label_file, state.labeller)


def _overview(labelled: LabelledRun) -> dict[str, Any]:
    labels = labelled.file.labels
    given = labelled.given(labels)
    noted = {rank_of(key): key for key in labels.noted_by(labelled.labeller)}
    keys = {rank: key for rank, key in noted.items() if rank in labelled.answers}
    keys |= {rank: label.key for rank, label in given.items()}
    entries = [
        {"rows": rows, **_entry(labels, keys[rank], labelled.labeller)}
        for rank, rows in labelled.answers.rows(keys).items()
    ]
    return {
        "labeller": labelled.labeller,
        "file": str(labelled.file.path),
        **_progress(labelled, given),
        "entries": entries,
        "unanswered": labelled.answers.unanswered(),
    }


def _progress(labelled: LabelledRun, given: Mapping[int, Label]) -> dict[str, Any]:
    skipped = sum(label.label == "skip" for label in given.values())
    following = labelled.answers.next(given)
    return {
        "answers": labelled.answers.count,
        "labelled": len(given) - skipped,
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


def _added(labelled: LabelledRun, given: LabelRequest) -> dict[str, Any]:
    record = labelled.run.record(given.row)
    key = answer_key(record)
    if record.eval_id != given.id:
        raise UsageError(f"Row {given.row} is case {record.eval_id}, not {given.id}", hint="Reload the page")
    if key is None:
        raise UsageError(f"Case {record.eval_id} has no answer to label")
    label = _label(given, _verdicts(labelled.run.case(given.row)))
    before = labelled.file.labels
    drawn, turned = _drawn(labelled, before, key, label)
    value = Label(
        timestamp=now(),
        **key._asdict(),
        label=label,
        score=given.score,
        comment=given.comment,
        drawn=drawn,
        labeller=labelled.labeller,
        run_id=record.run_id,
    )
    labelled.file.add(*turned, value)
    labels = labelled.file.labels
    rows = labelled.answers.rows({rank_of(key)})[rank_of(key)]
    return {"rows": rows, **_entry(labels, key, labelled.labeller), **_progress(labelled, labelled.given(labels))}


def _label(given: LabelRequest, verdicts: Verdicts) -> LabelValue | None:
    if given.score is None:
        return given.label
    if given.label is not None:
        raise web.HTTPBadRequest(text="A label has a verdict or a score, not both")
    return "pass" if verdict_of(given.score, verdicts) == "pass" else "fail"


def _verdicts(case: Mapping[str, Any] | None) -> Verdicts:
    """Return the limits of the case, which decide whether a score is a pass."""
    written = ((case or {}).get("execution") or {}).get("verdicts") or {}
    try:
        return msgspec.convert(written, Verdicts)
    except msgspec.ValidationError:
        return Verdicts()


def _drawn(
    labelled: LabelledRun, labels: Labels, key: AnswerKey, label: LabelValue | None
) -> tuple[Drawn, list[Label]]:
    """Return how an answer was drawn, and picked answers that this label makes part of the random sample.

    The next answer in the random order is drawn at random; any other one was picked. Once all answers are labelled,
    none is picked.
    """
    if label is None:
        return "chosen", []
    given, rank = labelled.given(labels), rank_of(key)
    following = labelled.answers.next(given)
    is_last = labelled.answers.next({*given, rank}) is None
    is_drawn = is_last or (following is not None and following[0] == rank)
    before = given[rank].drawn if rank in given else "chosen"
    if not is_drawn or before == "suggested":
        return before, []

    def is_passed(other: AnswerKey) -> bool:
        place = rank_of(other)
        return place != rank and place in labelled.answers and (is_last or place < rank)

    return "random", passed_over(labels, labelled.labeller, is_passed)


def _agreement(labelled: LabelledRun) -> dict[str, Any]:
    labels = labelled.file.labels
    answers = answers_of(labelled.run.store.records())
    keys = {each.key for each in answers.judged} | answers.others
    found = calibrate(answers, labels.by(labelled.labeller), _OVERALL, 0)
    judge = {
        "n": found.labelled,
        "agreed": found.confusion[0][0] + found.confusion[1][1],
        "confusion": found.confusion,
        "accuracy": found.accuracy,
        "kappa": found.kappa,
        "picked": found.chosen,
        "warnings": found.warnings,
    }
    return {
        "labeller": labelled.labeller,
        "labellers": dict(labels.labellers(keys)),
        "pairs": labeller_agreement(labels, keys),
        "judge": judge,
    }
