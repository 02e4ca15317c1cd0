"""Score an answer with the evaluators of its case: apply transforms, provide judges, and record their calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from agentv.engine.calls.open_targets import OpenTargets
from agentv.engine.scoring.grades import evaluator_result, failed_result, misses_gate
from agentv.engine.scoring.judge_calls import JudgeCalls, Judging, ScoringContext
from agentv.model.evaluator import Evaluator, EvaluatorFailure, EvaluatorSpec, Verdicts
from agentv.model.job import Judgement
from agentv.model.response import TargetFailure
from agentv.model.result import EvaluatorResult
from agentv.settings.evaluator_reader import evaluator_of
from agentv.settings.transform import TransformFailure, apply_transform
from agentv.support.hash_table import OwnedCache

_NO_TRACE = "The stored record has no messages, so its tool calls are unknown"


class Scorer:
    """Scores answers in this process. `judge` is the judge named by the command, which replaces all others."""

    def __init__(self, targets: OpenTargets, judge: str | None = None) -> None:
        self._judging = Judging(targets, judge)
        self._resolved: OwnedCache[int, tuple[EvaluatorSpec, Evaluator]] = OwnedCache()

    def score_now(self, spec: EvaluatorSpec, judgement: Judgement, verdicts: Verdicts | None) -> EvaluatorResult | None:
        """Score with an evaluator that does no I/O, without the event loop; None for other evaluators."""
        try:
            evaluator = spec.evaluator
            if evaluator is None or not judgement.has_trace:
                evaluator = self._evaluator(spec, judgement)
            if type(evaluator).evaluate is not Evaluator.evaluate and not evaluator.is_plain:
                return None
            if spec.transform is None:
                return evaluator_result(spec, evaluator.score(judgement), verdicts)
            transformed = _transformed(spec, judgement)
            result = evaluator_result(spec, evaluator.score(transformed), verdicts)
            return _with_answer(result, judgement, transformed)
        except Exception as error:
            return _failed(spec, error)

    async def score(self, spec: EvaluatorSpec, judgement: Judgement, context: ScoringContext) -> EvaluatorResult:
        """Score an answer with one evaluator of any type."""
        result = self.score_now(spec, judgement, context.verdicts)
        return await self._score(spec, judgement, context) if result is None else result

    async def score_all(
        self, specs: Sequence[EvaluatorSpec], judgement: Judgement, context: ScoringContext
    ) -> list[EvaluatorResult]:
        """Score concurrently with the evaluators that `score_now` cannot run; return results in their order.

        Evaluators that run user code run one after another, because they may work in the same folder.
        """
        if len(specs) == 1:
            return [await self._score(specs[0], judgement, context)]
        results: dict[int, EvaluatorResult] = {}

        async def score(number: int) -> None:
            results[number] = await self._score(specs[number], judgement, context)

        runs_code = [self._evaluator(spec, judgement).runs_code for spec in specs]
        async with asyncio.TaskGroup() as group:
            for number, alone in enumerate(runs_code):
                if not alone:
                    group.create_task(score(number))
            for number, alone in enumerate(runs_code):
                if alone:
                    await score(number)
        return [results[number] for number in range(len(specs))]

    async def _score(self, spec: EvaluatorSpec, judgement: Judgement, context: ScoringContext) -> EvaluatorResult:
        calls: JudgeCalls | None = None
        original = judgement
        try:
            evaluator = self._evaluator(spec, judgement)
            judgement = _transformed(spec, judgement)
            judge_names = spec.target or context.judge
            judges = self._judging.judges(evaluator.needs.judge or judge_names, context.target)
            calls = JudgeCalls(self._judging, judgement.case, spec.name, judges, context)
            inner = msgspec.structs.replace(context, judge=judge_names, job=f"{spec.name}@{context.job}")

            async def score_member(member: EvaluatorSpec) -> tuple[EvaluatorResult, bool]:
                result = await self.score(member, judgement, inner)
                return result, misses_gate(member, result, context.verdicts)

            own = msgspec.structs.replace(
                judgement,
                ask=calls.ask,
                judges=judges,
                score_member=score_member,
                embed=partial(calls.embed, spec.target) if evaluator.needs.embedder else judgement.embed,
            )
            result = evaluator_result(spec, await evaluator.evaluate(own), context.verdicts)
        except Exception as error:
            result = _failed(spec, error)
        result = _with_answer(result, original, judgement)
        return result if calls is None else _with_calls(result, calls)

    def _evaluator(self, spec: EvaluatorSpec, judgement: Judgement) -> Evaluator:
        evaluator = spec.evaluator
        if evaluator is None:
            # By identity: cases share their specs, and hashing one takes longer than a simple evaluator.
            entry = self._resolved.get(id(spec))
            if entry is None:
                self._resolved.make_room(judgement.case)
                entry = self._resolved[id(spec)] = (spec, evaluator_of(spec, judgement.find_file))
            evaluator = entry[1]
        if not judgement.has_trace and evaluator.needs.trace:
            raise EvaluatorFailure(_NO_TRACE)
        return evaluator


def _transformed(spec: EvaluatorSpec, judgement: Judgement) -> Judgement:
    if spec.transform is None:
        return judgement
    more = (judgement.find_file, judgement.case.variables, judgement.response.metadata)
    return judgement.with_value(apply_transform(judgement.candidate_value, spec.transform, *more))


def _with_answer(result: EvaluatorResult, before: Judgement, after: Judgement) -> EvaluatorResult:
    """Add the text that was scored to a result, if the evaluator's transform changed it."""
    text = after.candidate_answer
    return result if text == before.candidate_answer else msgspec.structs.replace(result, candidate_answer=text)


def _failed(spec: EvaluatorSpec, error: Exception) -> EvaluatorResult:
    if isinstance(error, TransformFailure):
        return failed_result(spec, str(error), error_class="invalid_response")
    if isinstance(error, EvaluatorFailure):
        return failed_result(spec, str(error), error.members, suspicious=error.suspicious)
    if isinstance(error, TargetFailure | ValueError):
        return failed_result(spec, str(error))
    # A custom evaluator raised: an error of this case, not of the run.
    return failed_result(spec, f"{type(error).__name__}: {error}")


def _with_calls(result: EvaluatorResult, calls: JudgeCalls) -> EvaluatorResult:
    """Add the judge calls, their tokens and cost to a result."""
    request = calls.request
    if request is None:
        return result
    fields: dict[str, Any] = {"token_usage": calls.usage, "evaluator_provider_request": request}
    additions = {name: value for name, value in fields.items() if getattr(result, name) is None}
    if result.cost_usd is None:
        # The cost of a composite includes the cost of its members.
        costs = [calls.cost_usd, *map(total_cost, result.evaluator_results)]
        additions["cost_usd"] = None if None in costs else math.fsum(cost for cost in costs if cost is not None)
    return msgspec.structs.replace(result, **additions)


def total_cost(result: EvaluatorResult) -> float | None:
    """Return the cost of an evaluator and its members: 0 if no judge was called, None if a cost is unknown."""
    if result.cost_usd is not None:
        return result.cost_usd
    if result.evaluator_provider_request is not None:
        return None
    costs = [total_cost(member) for member in result.evaluator_results]
    return None if None in costs else math.fsum(cost for cost in costs if cost is not None)
