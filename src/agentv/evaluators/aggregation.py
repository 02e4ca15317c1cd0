"""How a composite makes one score of its members' results: by weights, by a share that must pass, by another judge."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from agentv.evaluators.base import Judge
from agentv.evaluators.code_judge import read_score
from agentv.evaluators.composite import RESULTS_NAMES, Aggregator
from agentv.evaluators.judge_prompt import Material, asked_by_user, built_in, material_of
from agentv.evaluators.llm_judge import verdict
from agentv.evaluators.payload import payload, with_names_of_4x
from agentv.evaluators.program import Program
from agentv.model.judgement import Judgement
from agentv.model.result import EvaluatorResult
from agentv.model.score import EvaluatorFailure, Score

Results = Sequence[EvaluatorResult]


def refuse_failed(results: Results, counts: Sequence[bool] | None = None) -> None:
    """Raises EvaluatorFailure when a member that counts has no score: without it nobody knows the composite's."""
    counting = [True] * len(results) if counts is None else counts
    failed = [result for result, counted in zip(results, counting, strict=True) if counted and result.score is None]
    if failed:
        names = ", ".join(result.name for result in failed)
        first = failed[0].error
        raise EvaluatorFailure(f"{names}: {first.message if first else 'no score'}")


def weighted_average(results: Results, weights: Sequence[float], required: Sequence[bool]) -> Score:
    """Σ(weight · score) / Σ weight. A required member that does not pass fails the composite, whatever its score."""
    refuse_failed(results, _counting(weights, required))
    scored = [(result, weight) for result, weight in zip(results, weights, strict=True) if result.score is not None]
    total = math.fsum(weight for _, weight in scored)
    reached = math.fsum(weight * (result.score or 0.0) for result, weight in scored)
    return Score(
        min(1.0, reached / total),
        hits=tuple(_named(result, hit) for result in results for hit in result.hits),
        misses=tuple(_named(result, miss) for result in results for miss in result.misses),
        reasoning=" | ".join(_named(result, result.reasoning) for result in results if result.reasoning) or None,
        verdict="fail" if _gate_missed(results, required) else None,
    )


def threshold(results: Results, weights: Sequence[float], required: Sequence[bool], least: float) -> Score:
    """The share of members that pass, by weight; the composite passes from `least` on."""
    refuse_failed(results, _counting(weights, required))
    total = math.fsum(weights)
    passed = [result.verdict == "pass" for result in results]
    share = min(1.0, math.fsum(weight for weight, good in zip(weights, passed, strict=True) if good) / total)
    met = round(share, 12) >= least and not _gate_missed(results, required)
    return Score(
        share,
        hits=tuple(f"{result.name} passes" for result, good in zip(results, passed, strict=True) if good),
        misses=tuple(f"{result.name} does not pass" for result, good in zip(results, passed, strict=True) if not good),
        reasoning=f"{sum(passed)} of {len(results)} members pass; at least {least:.0%} must",
        details={"passed": sum(passed), "members": len(results), "threshold": least},
        verdict="pass" if met else "fail",
    )


async def judged_by_program(aggregator: Aggregator, results: Results, judgement: Judgement) -> Score:
    """What a program makes of them: it reads what a code judge reads, and `results` by the members' names."""
    refuse_failed(results)
    assert aggregator.script is not None
    program = Program(
        script=aggregator.script,
        cwd=os.path.join(judgement.workdir, aggregator.cwd or ""),
        timeout_s=aggregator.timeout_seconds,
        environment=judgement.environment,
    )
    told = {**with_names_of_4x(payload(judgement, {})), "results": results_data(results)}
    return read_score(await program.run(msgspec.json.encode(told)))


async def judged_by_model(aggregator: Aggregator, results: Results, judgement: Judgement) -> Score:
    """What a judge makes of them."""
    refuse_failed(results)
    material = material_of(judgement)
    found = results_data(results)
    material = Material({**material.values, **dict.fromkeys(RESULTS_NAMES, found)})
    if aggregator.prompt is None:
        asked = built_in("aggregate", "verdict", material)
    else:
        asked = await asked_by_user(aggregator.prompt, "verdict", material, judgement)
    return await verdict(Judge(), judgement, asked)


def results_data(results: Results) -> dict[str, Any]:
    """What members found, by their names, as programs and judges see it."""
    keys = ("type", "score", "verdict", "weight", "hits", "misses", "reasoning", "details")
    return {
        result.name: {key: value for key in keys if (value := getattr(result, key)) not in (None, ())}
        for result in results
    }


def _counting(weights: Sequence[float], required: Sequence[bool]) -> list[bool]:
    return [weight > 0 or gate for weight, gate in zip(weights, required, strict=True)]


def _gate_missed(results: Results, required: Sequence[bool]) -> bool:
    """A member has the verdict `fail` when it is required and misses its minimum."""
    return any(gate and result.verdict == "fail" for result, gate in zip(results, required, strict=True))


def _named(result: EvaluatorResult, text: str) -> str:
    return f"{result.name}: {text}"
