"""One judgement through the pool: what is sent, what the judge asks on its way, what comes back with its costs."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import msgspec

from agentv.evaluators.code.programs import payload
from agentv.evaluators.pool.judging import Asked
from agentv.evaluators.pool.pool import WorkerPool
from agentv.evaluators.pool.setup import Setup
from agentv.evaluators.pool.wire import frame, framed
from agentv.model.evaluator import EvaluatorFailure, Score
from agentv.model.judgement import Judgement
from agentv.model.message import PART_KINDS, Message
from agentv.model.values import freeze


async def judge_with(
    pool: WorkerPool,
    setup: Setup,
    judgement: Judgement,
    config: dict[str, Any],
    timeout_s: float,
    variables: Mapping[str, str] = {},
) -> Score:
    """The score that a function gives. `variables` are in its environment meanwhile. Raises EvaluatorFailure."""
    try:
        body = frame([payload(judgement, config), variables])
    except (TypeError, ValueError) as error:
        raise EvaluatorFailure(f"The answer cannot be written as JSON: {error}") from None
    data = await pool.judge(setup, Asked(body, timeout_s, _Questions(judgement).answer))
    try:
        return msgspec.convert(data, Score)
    except msgspec.ValidationError as error:
        raise EvaluatorFailure(f"{setup.name}: its process sent no score: {error}") from None


class _Questions:
    """What a judge may ask the run while it judges. Answers are pickled: they go to a process of ours, never back."""

    def __init__(self, judgement: Judgement) -> None:
        self._judgement = judgement

    async def answer(self, question: str, arguments: list[Any]) -> bytes:
        """The answer, or the exception that the judge's call raises."""
        try:
            answer = await self._answer(question, arguments)
        except Exception as error:
            answer = EvaluatorFailure(str(error))
        return framed(pickle.dumps(answer))

    async def _answer(self, question: str, arguments: list[Any]) -> Any:
        if question == "case":
            return self._judgement.case
        if question != "ask" or self._judgement.ask is None:
            raise EvaluatorFailure("There is no model to ask")
        target, messages = arguments
        return await self._judgement.ask(target, tuple(as_message(each) for each in messages))


def as_message(data: Any) -> Message:
    """A message as a judge writes it."""
    if not isinstance(data, dict) or data.get("role") not in ("system", "user", "assistant", "tool"):
        raise EvaluatorFailure(f"A message needs a role and content, got {data!r:.100}")
    content = data.get("content")
    if isinstance(content, list) and all(isinstance(each, dict) and each.get("type") in PART_KINDS for each in content):
        return Message(data["role"], tuple(PART_KINDS[each["type"]](each["value"]) for each in content))
    return Message(data["role"], freeze(content))
