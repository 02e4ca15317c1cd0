"""Scores one answer by one entry: builds its evaluator, cleans the answer, gives it its judges, takes what it says."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from agentv.engine.calls.open_targets import OpenTargets
from agentv.engine.scoring.grading import evaluator_result, failed_result, misses_gate
from agentv.engine.scoring.judge_calls import JudgeCalls, Judging, KeepPrompt
from agentv.evaluators.resolution import evaluator_of
from agentv.model.evaluator import Evaluator, EvaluatorFailure, EvaluatorSpec
from agentv.model.execution import Verdicts
from agentv.model.judgement import Judgement
from agentv.model.response import TargetFailure
from agentv.model.result import EvaluatorResult
from agentv.support.transform import apply_transform

_REMEMBERED = 1024
_NO_TRACE = "The stored record has no messages, so nobody knows which tools were called"


class Answerer(msgspec.Struct, frozen=True, gc=False):
    """Whose answer is scored, in which job, and from which score on it passes.

    `judge` is named by the entry around this one. `keep_prompt` is told what judges are asked, before they are.
    """

    target: str
    verdicts: Verdicts | None = None
    judge: str | tuple[str, ...] | None = None
    keep_prompt: KeepPrompt | None = None
    job: str = ""


class Scorer:
    """The evaluators of one run in this process. `judge` is the one that the command names, in the place of all."""

    def __init__(self, targets: OpenTargets, judge: str | None = None) -> None:
        self._judging = Judging(targets, judge)
        self._resolved: dict[int, tuple[EvaluatorSpec, Evaluator]] = {}

    async def score(self, spec: EvaluatorSpec, judgement: Judgement, answerer: Answerer) -> EvaluatorResult:
        """What one entry says of an answer: a score, or the reason why there is none."""
        result = self.score_plainly(spec, judgement, answerer.verdicts)
        if result is not None:
            return result
        calls: JudgeCalls | None = None
        try:
            evaluator = self._evaluator(spec, judgement)
            judgement = _cleaned(spec, judgement)
            named = spec.target or answerer.judge
            judges = self._judging.judges(evaluator.needs.judge or named, answerer.target)
            calls = JudgeCalls(self._judging, judgement.case, spec.name, judges, answerer.keep_prompt, answerer.job)
            if evaluator.needs.embedder:
                judgement = judgement.with_embed(partial(calls.embed, spec.target))
            inner = msgspec.structs.replace(answerer, judge=named, job=f"{spec.name}@{answerer.job}")
            own = judgement.for_evaluator(calls.ask, judges, lambda member: self._member(member, judgement, inner))
            result = evaluator_result(spec, await evaluator.evaluate(own), answerer.verdicts)
        except Exception as error:
            result = _failed(spec, error)
        return result if calls is None else _with_calls(result, calls)

    async def _member(
        self, spec: EvaluatorSpec, judgement: Judgement, answerer: Answerer
    ) -> tuple[EvaluatorResult, bool]:
        result = await self.score(spec, judgement, answerer)
        return result, misses_gate(spec, result, answerer.verdicts)

    async def score_all(
        self, specs: Sequence[EvaluatorSpec], judgement: Judgement, answerer: Answerer
    ) -> list[EvaluatorResult]:
        """The same of several, in their order. Judges are asked at the same time; what runs code goes one by one.

        Two programs may work in the same folder, and each was written as if it were alone there.
        """
        if len(specs) == 1:
            return [await self.score(specs[0], judgement, answerer)]
        numbered = list(enumerate(specs))
        async with asyncio.TaskGroup() as group:
            asked = {
                number: group.create_task(self.score(spec, judgement, answerer))
                for number, spec in numbered
                if self._is_judge(spec, judgement)
            }
            ran = {
                number: await self.score(spec, judgement, answerer) for number, spec in numbered if number not in asked
            }
        return [asked[number].result() if number in asked else ran[number] for number, _ in numbered]

    def _is_judge(self, spec: EvaluatorSpec, judgement: Judgement) -> bool:
        """Whether an entry asks models and runs no code of the user's; what is wrong with it is said when it scores."""
        try:
            evaluator = self._evaluator(spec, judgement)
        except Exception:
            return False
        return not evaluator.runs_code

    def score_plainly(
        self, spec: EvaluatorSpec, judgement: Judgement, verdicts: Verdicts | None
    ) -> EvaluatorResult | None:
        """The same of a type that waits for nothing, without an event loop's detour, which costs more than a check.

        None for the other types.
        """
        try:
            evaluator = self._evaluator(spec, judgement)
            if not evaluator.is_plain:
                return None
            return evaluator_result(spec, evaluator.score(_cleaned(spec, judgement)), verdicts)
        except Exception as error:
            return _failed(spec, error)

    def _evaluator(self, spec: EvaluatorSpec, judgement: Judgement) -> Evaluator:
        evaluator = spec.evaluator
        if evaluator is None:
            # By identity: cases share their specs, and hashing one takes longer than a check does.
            known = self._resolved.get(id(spec))
            if known is None:
                if len(self._resolved) >= _REMEMBERED:
                    self._resolved.clear()  # memory must not grow with the number of cases
                known = self._resolved[id(spec)] = (spec, evaluator_of(spec, judgement.find_file))
            evaluator = known[1]
        if not judgement.has_trace and evaluator.needs.trace:
            raise EvaluatorFailure(_NO_TRACE)
        return evaluator


def _cleaned(spec: EvaluatorSpec, judgement: Judgement) -> Judgement:
    if spec.transform is None:
        return judgement
    return judgement.with_answer(apply_transform(judgement.candidate_answer, spec.transform, judgement.find_file))


def _failed(spec: EvaluatorSpec, error: Exception) -> EvaluatorResult:
    if isinstance(error, EvaluatorFailure):
        return failed_result(spec, str(error), error.members)
    if isinstance(error, TargetFailure | ValueError):
        return failed_result(spec, str(error))
    # Somebody's own evaluator broke: that is this case's error and not the end of the run.
    return failed_result(spec, f"{type(error).__name__}: {error}")


def _with_calls(result: EvaluatorResult, calls: JudgeCalls) -> EvaluatorResult:
    """The result with what its evaluator asked, and what that took, whether it scored or not."""
    request = calls.request
    if request is None:
        return result
    known: dict[str, Any] = {"token_usage": calls.usage, "evaluator_provider_request": request}
    given = {name: value for name, value in known.items() if getattr(result, name) is None}
    if result.cost_usd is None:
        # What its members cost is part of what a composite costs.
        costs = [calls.cost_usd, *map(judge_cost, result.evaluator_results)]
        given["cost_usd"] = None if None in costs else math.fsum(cost for cost in costs if cost is not None)
    return msgspec.structs.replace(result, **given)


def judge_cost(result: EvaluatorResult) -> float | None:
    """What the judges of an evaluator and its members cost: nothing where none was asked, None where one is unknown."""
    if result.cost_usd is not None:
        return result.cost_usd
    if result.evaluator_provider_request is not None:
        return None
    costs = [judge_cost(member) for member in result.evaluator_results]
    return None if None in costs else math.fsum(cost for cost in costs if cost is not None)
