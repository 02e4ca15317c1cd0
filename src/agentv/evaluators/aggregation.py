"""How a composite makes one score of its members' results: by weights, by a share that must pass, by another judge."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Member(NamedTuple):
    """What a member found, what it weighs here, whether it is required, and whether it misses a gate."""

    result: EvaluatorResult
    weight: float
    required: bool = False
    missed: bool = False

    @property
    def counts(self) -> bool:
        """A required member counts whatever its weight."""
        return self.weight > 0 or self.required


def refuse_failed(results: Results) -> None:
    """Raises EvaluatorFailure when a member that counts has no score: without it nobody knows the composite's."""
    failed = [result for result in results if result.score is None]
    if failed:
        names = ", ".join(result.name for result in failed)
        first = failed[0].error
        raise EvaluatorFailure(f"{names}: {first.message if first else 'no score'}")


def weighted_average(members: Sequence[Member]) -> Score:
    """Σ(weight · score) / Σ weight. A member that counts and misses a gate fails the composite, whatever its score."""
    refuse_failed([member.result for member in members if member.counts])
    scored = [(member.result.score, member.weight) for member in members if member.result.score is not None]
    total = math.fsum(weight for _, weight in scored)
    reached = math.fsum(weight * score for score, weight in scored)
    results = [member.result for member in members]
    return Score(
        min(1.0, reached / total),
        hits=tuple(_named(result, hit) for result in results for hit in result.hits),
        misses=tuple(_named(result, miss) for result in results for miss in result.misses),
        reasoning=" | ".join(_named(result, result.reasoning) for result in results if result.reasoning) or None,
        verdict="fail" if any(member.missed and member.counts for member in members) else None,
    )


def threshold(members: Sequence[Member], least: float) -> Score:
    """The share of members that pass, by weight; the composite passes from `least` on, unless a required one fails."""
    refuse_failed([member.result for member in members if member.counts])
    total = math.fsum(member.weight for member in members)
    passing = [member for member in members if member.result.verdict == "pass"]
    share = min(1.0, math.fsum(member.weight for member in passing) / total)
    met = round(share, 12) >= least and not any(member.missed and member.required for member in members)
    return Score(
        share,
        hits=tuple(f"{member.result.name} passes" for member in passing),
        misses=tuple(f"{member.result.name} does not pass" for member in members if member not in passing),
        reasoning=f"{len(passing)} of {len(members)} members pass; at least {least:.0%} must",
        details={"passed": len(passing), "members": len(members), "threshold": least},
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


def _named(result: EvaluatorResult, text: str) -> str:
    return f"{result.name}: {text}"
