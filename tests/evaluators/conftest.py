"""Score answers without a run, with evaluators built from entries the way a run builds them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentv.engine.job.request import CaseRequest
from agentv.evaluators.base import Evaluator
from agentv.evaluators.code.judge_host import JudgeHost
from agentv.model.case import EvalCase
from agentv.model.environment import Environment
from agentv.model.evaluator import EvaluatorFailure, EvaluatorSpec, Score
from agentv.model.job import Judgement
from agentv.model.message import Message
from agentv.model.response import Response
from agentv.model.values import freeze
from agentv.settings.evaluator_reader import evaluator_of

NOTHING = object()


class Scoring:
    """Scores answers by entries. `expected` is the value of `expected_output` in a dataset."""

    def judgement(self, answer: str = "", expected: Any = NOTHING, **more: Any) -> Judgement:
        messages = more.pop("messages", None) or (Message("assistant", answer),)
        figures = {key: more.pop(key) for key in ("usage", "cost_usd", "duration_ms", "calls_unknown") if key in more}
        case = EvalCase(
            id="one",
            expected_outcome=more.pop("outcome", "It works"),
            input=more.pop("input", "What is asked?"),
            expected_output=() if expected is NOTHING else (Message("assistant", freeze(expected)),),
            details=more.pop("details", EvalCase("x").details),
        )
        response = Response(messages=tuple(messages), **figures)
        return Judgement(CaseRequest(case), response, candidate_answer=answer, **more)

    def evaluator(self, type_: str, **settings: Any) -> Evaluator:
        return evaluator_of(EvaluatorSpec(type=type_, name=type_, settings=freeze(settings)))

    def score(
        self, type_: str, settings: dict[str, Any], answer: str = "", expected: Any = NOTHING, **more: Any
    ) -> Score:
        return self.run(self.evaluator(type_, **settings), self.judgement(answer, expected, **more))

    def run(self, evaluator: Evaluator, judgement: Judgement) -> Score:
        """Score as a run does: plain types directly, others in an event loop."""
        score = evaluator.score(judgement) if evaluator.is_plain else asyncio.run(evaluator.evaluate(judgement))
        assert 0 <= score.score <= 1
        assert all(isinstance(sentence, str) for sentence in (*score.hits, *score.misses))
        return score

    def hosted(self, call: Callable[[JudgeHost], Awaitable[Any]]) -> Any:
        """Call a coroutine function with a judge host, and close the host afterwards."""

        async def run() -> Any:
            host = JudgeHost(Environment())
            try:
                return await call(host)
            finally:
                await host.aclose()

        return asyncio.run(run())

    def failure(self, *arguments: Any, **more: Any) -> str:
        """Return the message of an evaluator that cannot score."""
        with pytest.raises(EvaluatorFailure) as raised:
            self.score(*arguments, **more)
        return str(raised.value)


@pytest.fixture
def scoring() -> Scoring:
    return Scoring()
