"""Cards for labelling: the case and the answer, without its target or score."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

import msgspec

from agentv.calibration.labels import AnswerKey, answer_key
from agentv.engine.answers.stored import StoredCases
from agentv.engine.job.request import Question
from agentv.model.case import EvalCase
from agentv.model.judgement import Judgement
from agentv.model.response import answer
from agentv.model.result import Result
from agentv.model.values import to_json
from agentv.runs.store import RunStore


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to label. `calls` are its tool calls, a line each."""

    key: AnswerKey
    answer: str
    calls: tuple[str, ...] = ()
    question: str = ""
    expected_outcome: str = ""
    reference: str = ""
    context: tuple[str, ...] = ()


def cards(results: Iterable[Result], count: int, order: Callable[[AnswerKey], bytes | None]) -> list[Card]:
    """The first `count` answers by their `order`, each once; None leaves an answer out. Holds no more than that."""
    seen: set[AnswerKey] = set()

    def ranked() -> Iterator[tuple[bytes, AnswerKey, Result]]:
        for result in results:
            key = answer_key(result)
            if key is not None and key not in seen and (place := order(key)) is not None:
                seen.add(key)
                yield place, key, result

    chosen = heapq.nsmallest(count, ranked(), key=lambda each: each[0])
    return [Card(key=key, answer=result.candidate_answer or "", calls=_calls(result)) for _, key, result in chosen]


def with_cases(found: list[Card], cases: Iterable[EvalCase]) -> list[Card]:
    """Fill the cards from their cases; a card without a case stays as it is."""
    wanted = {(card.key.dataset, card.key.eval_id) for card in found} | {("", card.key.eval_id) for card in found}
    known: dict[tuple[str, str], EvalCase] = {}
    for case in cases:
        for name in (case.dataset, ""):
            if (name, case.id) in wanted:
                known[name, case.id] = case
    return [_filled(card, known.get((card.key.dataset, card.key.eval_id))) for card in found]


def stored_cases(run: RunStore) -> StoredCases:
    """The cases in a run's folder. Raises UsageError for files of results, which have none."""
    run.check_cases("Name the datasets that were run, after the run")
    return StoredCases(run)


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
