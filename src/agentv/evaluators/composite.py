"""The composite: several evaluators whose scores an aggregator makes into one."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from agentv.evaluators.base import (
    Evaluator,
    Judge,
    Prompt,
    Seconds,
    Share,
    Weight,
    program_complaints,
    prompt_complaints,
)
from agentv.evaluators.code.judge_io import program_input, read_score
from agentv.evaluators.code.program import Program
from agentv.evaluators.judges.judge_prompt import (
    VARIABLES,
    Material,
    builtin_prompts,
    judge_prompt,
    material_of,
    prompt_references,
)
from agentv.evaluators.judges.llm_judge import verdict
from agentv.model.evaluator import EvaluatorFailure, EvaluatorSpec, FileReference, Needs, Score
from agentv.model.job import Judgement
from agentv.model.result import EvaluatorResult
from agentv.settings.diagnostics import did_you_mean

_Mean = Literal["weighted_average", "weighted-average"]
_Program = Literal["code_judge", "code-judge", "code_grader", "code-grader"]
_Model = Literal["llm_judge", "llm-judge", "llm_grader", "llm-grader"]
AggregatorType = Literal[_Mean, "threshold", _Program, _Model]
RESULTS_NAMES = ("evaluator_results", "EVALUATOR_RESULTS_JSON")
"""What the members found, by the names that an aggregator's prompt has for it; the second is AgentV's."""


class Aggregator(msgspec.Struct, frozen=True, kw_only=True):
    """How the members' scores become one. A member without an entry in `weights` keeps its own weight.

    `threshold` is the share of members that must pass.
    """

    aliases: ClassVar[dict[str, str]] = {"path": "script", "command": "script"}

    type: AggregatorType
    weights: dict[str, Weight] = {}
    threshold: Share | None = None
    script: str | list[str] | None = None
    cwd: str | None = None
    timeout_seconds: Seconds = 60.0
    prompt: Prompt | None = None
    target: str | None = None

    @property
    def kind(self) -> str:
        """The type in the one spelling that our own documents use."""
        return self.type.replace("-", "_").replace("grader", "judge")

    def complaints(self) -> list[str]:
        """A setting that the type needs and lacks, or that is wrong in itself."""
        complaints = prompt_complaints(self.prompt)
        if self.script is not None:
            complaints += program_complaints("script", self.script)
        if self.kind == "threshold" and self.threshold is None:
            complaints.append("needs 'threshold', the share of members that must pass")
        if self.kind == "code_judge" and self.script is None:
            complaints.append("needs 'script', the program that makes one score of the members' scores")
        if not all(math.isfinite(weight) for weight in self.weights.values()):
            complaints.append("has a weight that is not finite")
        return complaints


class Composite(Evaluator, frozen=True, kw_only=True):
    """Members are entries like those of a case, composites among them."""

    aliases: ClassVar[dict[str, str]] = {"assertions": "evaluators", "assert": "evaluators"}
    members_field: ClassVar[str | None] = "evaluators"

    evaluators: tuple[Any, ...]  # specs, once read; the JSON Schema describes entries
    aggregator: AggregatorType | Aggregator

    @property
    def aggregation(self) -> Aggregator:
        """The aggregator, also when only its type was written."""
        return Aggregator(type=self.aggregator) if isinstance(self.aggregator, str) else self.aggregator

    def complaints(self) -> list[str]:
        """No members, or none that counts; an aggregator that lacks what it needs, or has weights for others."""
        complaints = [f"'aggregator': {complaint}" for complaint in self.aggregation.complaints()]
        if not self.evaluators:
            complaints.append("A composite needs at least one member in 'evaluators'")
        names = [member.name for member in self.members]
        for name in self.aggregation.weights:
            if name not in names:
                hint = did_you_mean(name, names) or f"Members: {', '.join(names)}"
                complaints.append(f"'aggregator.weights' names '{name}', which is no member. {hint}")
        if self.evaluators and self.aggregation.kind in ("weighted_average", "threshold") and not any(self._weights):
            complaints.append("Every member of the composite has weight 0, so there is nothing to score")
        return complaints

    @property
    def members(self) -> tuple[EvaluatorSpec, ...]:
        """The entries inside, under the names that they have in results."""
        return self.evaluators

    @property
    def needs(self) -> Needs:
        """What any member needs of the case, and one call where a judge aggregates; members' calls are their own."""
        of_members = [member.evaluator.needs for member in self.members if member.evaluator is not None]
        return Needs(
            reference=any(needs.reference for needs in of_members),
            context=any(needs.context for needs in of_members),
            judge_calls=1 if self.aggregation.kind == "llm_judge" else 0,
            judge=self.aggregation.target,
        )

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """Those of an aggregator that is a judge; the members' are their own."""
        if self.aggregation.kind != "llm_judge":
            return ()
        return builtin_prompts("aggregate" if self.aggregation.prompt is None else None, "verdict", include_trace=False)

    def references(self) -> Iterator[FileReference]:
        """The aggregator's program or prompt."""
        yield FileReference(("aggregator",), self.aggregator)
        yield from prompt_references(self.aggregation.prompt, ("aggregator", "prompt"), (*VARIABLES, *RESULTS_NAMES))

    async def evaluate(self, judgement: Judgement) -> Score:
        """Scores every member at the same time and makes one score of theirs. A member's failure is the composite's."""
        score_member = judgement.score_member
        if score_member is None:
            raise EvaluatorFailure("A composite is scored within a run only")
        found = await asyncio.gather(*(score_member(member) for member in self.members))
        results = tuple(result for result, _ in found)
        try:
            score = await self._aggregated(results, [missed for _, missed in found], judgement)
        except EvaluatorFailure as failure:
            raise EvaluatorFailure(str(failure), results) from None
        return msgspec.structs.replace(score, members=results)

    async def _aggregated(
        self, results: tuple[EvaluatorResult, ...], missed: list[bool], judgement: Judgement
    ) -> Score:
        aggregator = self.aggregation
        required = [member.required is not False for member in self.members]
        members = list(map(MemberScore, results, self._weights, required, missed))
        if aggregator.kind == "weighted_average":
            return weighted_average(members)
        if aggregator.kind == "threshold":
            return threshold(members, aggregator.threshold or 0.0)
        refuse_failed(results)
        if aggregator.kind == "code_judge":
            return await judged_by_program(aggregator, results, judgement)
        return await judged_by_model(aggregator, results, judgement)

    @property
    def _weights(self) -> list[float]:
        return [self.aggregation.weights.get(member.name, member.weight) for member in self.members]


Results = Sequence[EvaluatorResult]


class MemberScore(NamedTuple):
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


def weighted_average(members: Sequence[MemberScore]) -> Score:
    """Σ(weight · score) / Σ weight. A member that counts and misses a gate fails the composite, whatever its score."""
    refuse_failed([member.result for member in members if member.counts])
    scored = [(member.result.score, member.weight) for member in members if member.result.score is not None]
    total = math.fsum(weight for _, weight in scored)
    reached = math.fsum(weight * score for score, weight in scored)
    results = [member.result for member in members]
    return Score(
        min(1.0, reached / total),
        hits=tuple(f"{result.name}: {hit}" for result in results for hit in result.hits),
        misses=tuple(f"{result.name}: {miss}" for result in results for miss in result.misses),
        reasoning=" | ".join(f"{result.name}: {result.reasoning}" for result in results if result.reasoning) or None,
        verdict="fail" if any(member.missed and member.counts for member in members) else None,
    )


def threshold(members: Sequence[MemberScore], least: float) -> Score:
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
    assert aggregator.script is not None
    program = Program(
        script=aggregator.script,
        cwd=os.path.join(judgement.workdir, aggregator.cwd or ""),
        timeout_s=aggregator.timeout_seconds,
        environment=judgement.environment,
    )
    return read_score(await program.run(program_input(judgement, {}, results=results_data(results))))


async def judged_by_model(aggregator: Aggregator, results: Results, judgement: Judgement) -> Score:
    """What a judge makes of them."""
    values = material_of(judgement).values | dict.fromkeys(RESULTS_NAMES, results_data(results))
    asked = await judge_prompt(aggregator.prompt, "aggregate", "verdict", Material(values), judgement)
    return await verdict(Judge(), judgement, asked)


def results_data(results: Results) -> dict[str, Any]:
    """What members found, by their names, as programs and judges see it."""
    keys = ("type", "score", "verdict", "weight", "hits", "misses", "reasoning", "details")
    return {
        result.name: {key: value for key in keys if (value := getattr(result, key)) not in (None, ())}
        for result in results
    }
