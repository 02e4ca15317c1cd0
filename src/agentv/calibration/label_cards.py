"""What a person is shown to label an answer: the case and the answer, and nothing of who gave it or how it scored."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import msgspec

from agentv.calibration.calibrate import draw_order
from agentv.calibration.labels import AnswerKey, Labels, answer_key
from agentv.engine.answers.stored import StoredAnswers
from agentv.engine.answers.stored_cases import StoredCases
from agentv.engine.job.request import Question
from agentv.model.case import EvalCase
from agentv.model.judgement import Judgement
from agentv.model.response import answer
from agentv.model.result import Result
from agentv.model.values import to_json


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to label. `calls` are its tool calls, a line each."""

    key: AnswerKey
    answer: str
    calls: tuple[str, ...] = ()
    question: str = ""
    expected_outcome: str = ""
    reference: str = ""
    context: tuple[str, ...] = ()


def cards(
    results: Iterable[Result], labels: Labels, labeller: str, count: int, wanted: Iterable[AnswerKey] | None, seed: int
) -> list[Card]:
    """So many answers that this person has not labelled, in an order that is random and the same every time.

    `wanted` are the answers to take, in their order; without them any. Holds no more than it gives back.
    """
    order = None if wanted is None else {key: place for place, key in enumerate(wanted)}
    seen: set[AnswerKey] = set()

    def open_ones() -> Iterator[tuple[bytes, AnswerKey, Result]]:
        for result in results:
            key = answer_key(result)
            if key is None or key in seen or labels.of(key, labeller) is not None:
                continue
            if order is None or key in order:
                seen.add(key)
                yield (draw_order(key, seed) if order is None else order[key].to_bytes(8)), key, result

    chosen = heapq.nsmallest(count, open_ones(), key=lambda each: each[0])
    return [Card(key=key, answer=result.candidate_answer or "", calls=_calls(result)) for _, key, result in chosen]


def with_cases(found: list[Card], cases: Iterable[EvalCase]) -> list[Card]:
    """The cards with what their cases say. A card whose case is not there stays without."""
    wanted = {(card.key.dataset, card.key.eval_id) for card in found} | {("", card.key.eval_id) for card in found}
    known: dict[tuple[str, str], EvalCase] = {}
    for case in cases:
        for name in (case.dataset, ""):
            if (name, case.id) in wanted:
                known[name, case.id] = case
    return [_filled(card, known.get((card.key.dataset, card.key.eval_id))) for card in found]


def stored_cases(run: StoredAnswers) -> StoredCases:
    """The cases of a run out of its folder. Raises UsageError for files of results, which hold none."""
    run.check_cases("Name the datasets that were run, behind the run")
    return StoredCases(run.store)


def _filled(card: Card, case: EvalCase | None) -> Card:
    if case is None:
        return card
    question = Question(case, prompt_id=case.prompts[0].id if case.prompts else None)
    return msgspec.structs.replace(
        card,
        question=question.prompt,
        expected_outcome=case.expected_outcome,
        reference=Judgement(question, answer(""), candidate_answer="").reference_answer,
        context=case.context,
    )


def _calls(result: Result) -> tuple[str, ...]:
    calls = (call for message in result.output_messages for call in message.get("tool_calls") or ())
    return tuple(
        f"{call.get('tool', '?')} {to_json(call['input']).decode() if call.get('input') is not None else ''}".strip()
        for call in calls
        if isinstance(call, dict)
    )
