"""The composite: several evaluators whose scores an aggregator combines into one."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from functools import partial
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
from agentv.evaluators.code.judge_io import read_score
from agentv.evaluators.code.payload import program_input
from agentv.evaluators.code.program import Program
from agentv.evaluators.judges.judge_prompt import (
    PROMPT_VARIABLES,
    Material,
    builtin_prompts,
    judge_prompt,
    material_of,
    prompt_references,
)
from agentv.evaluators.judges.llm_judge import verdict
from agentv.model.diagnostics import did_you_mean
from agentv.model.evaluator import EvaluatorFailure, EvaluatorSpec, FileReference, Needs, Score
from agentv.model.job import Judgement
from agentv.model.result import EvaluatorResult

_Mean = Literal["weighted_average", "weighted-average"]
_Program = Literal["code_judge", "code-judge", "code_grader", "code-grader", "script"]
_Model = Literal["llm_judge", "llm-judge", "llm_grader", "llm-grader", "llm-rubric"]
AggregatorType = Literal[_Mean, "threshold", _Program, _Model]
RESULTS_NAMES = ("evaluator_results", "EVALUATOR_RESULTS_JSON")
"""Names of the members' results in an aggregator's prompt; the second is that of AgentV (TypeScript)."""


class Aggregator(msgspec.Struct, frozen=True, kw_only=True):
    """How to combine the members' scores. A member without an entry in `weights` keeps its own weight.

    `threshold` is the fraction of members that must pass. `pass_score` is the score at which a member passes, instead
    of the limit of the case; 0.8 in files of AgentV (TypeScript) 4.x.
    """

    aliases: ClassVar[dict[str, str]] = {"path": "script", "command": "script"}

    type: AggregatorType
    weights: dict[str, Weight] = {}
    threshold: Share | None = None
    pass_score: Share | None = None
    script: str | list[str] | None = None
    cwd: str | None = None
    timeout_seconds: Seconds = 60.0
    prompt: Prompt | None = None
    target: str | None = None

    @property
    def kind(self) -> str:
        """The type in its canonical spelling."""
        name = self.type.replace("-", "_").replace("grader", "judge")
        return {"script": "code_judge", "llm_rubric": "llm_judge"}.get(name, name)

    def complaints(self) -> list[str]:
        """Settings that are missing for the type, or invalid."""
        complaints = prompt_complaints(self.prompt)
        if self.script is not None:
            complaints += program_complaints("script", self.script)
        if self.kind == "threshold" and self.threshold is None:
            complaints.append("needs 'threshold', the fraction of members that must pass")
        if self.kind == "code_judge" and self.script is None:
            complaints.append("needs 'script', the program that combines the members' scores")
        if not all(math.isfinite(weight) for weight in self.weights.values()):
            complaints.append("has a weight that is not finite")
        return complaints


class Composite(Evaluator, frozen=True, kw_only=True):
    """Several evaluators, combined by an aggregator. Members are entries like those of a case, including composites."""

    aliases: ClassVar[dict[str, str]] = {"assertions": "evaluators", "assert": "evaluators"}
    members_field: ClassVar[str | None] = "evaluators"

    evaluators: tuple[Any, ...]  # EvaluatorSpec objects, once read; the JSON Schema describes entries
    aggregator: AggregatorType | Aggregator

    @property
    def aggregation(self) -> Aggregator:
        """The aggregator, also if only its type is given."""
        return Aggregator(type=self.aggregator) if isinstance(self.aggregator, str) else self.aggregator

    def complaints(self) -> list[str]:
        """No members, only zero weights, an invalid aggregator, or weights for unknown members."""
        complaints = [f"'aggregator': {complaint}" for complaint in self.aggregation.complaints()]
        if not self.evaluators:
            complaints.append("A composite needs at least one member in 'evaluators'")
        names = [member.name for member in self.members]
        for name in self.aggregation.weights:
            if name not in names:
                hint = did_you_mean(name, names) or f"Members: {', '.join(names)}"
                complaints.append(f"'aggregator.weights' has the unknown member '{name}'. {hint}")
        if self.evaluators and self.aggregation.kind in ("weighted_average", "threshold") and not any(self._weights):
            complaints.append("Every member of the composite has weight 0, so there is nothing to score")
        return complaints

    @property
    def members(self) -> tuple[EvaluatorSpec, ...]:
        """The member entries, under the names they have in results."""
        return self.evaluators

    @property
    def needs(self) -> Needs:
        """The reference or context if any member needs it, and one call if a judge aggregates."""
        needs = [member.evaluator.needs for member in self.members if member.evaluator is not None]
        return Needs(
            reference=any(need.reference for need in needs),
            context=any(need.context for need in needs),
            judge_calls=1 if self.aggregation.kind == "llm_judge" else 0,
            judge=self.aggregation.target,
        )

    @property
    def builtin_prompts(self) -> tuple[str, ...]:
        """The texts of an aggregator that is a judge. Members have their own."""
        if self.aggregation.kind != "llm_judge":
            return ()
        return builtin_prompts("aggregate", "verdict", include_trace=False)

    def references(self) -> Iterator[FileReference]:
        """The aggregator's program or prompt."""
        runs: Literal["", "command"] = "" if self.aggregation.script is None else "command"
        yield FileReference(("aggregator",), self.aggregator, executes=runs)
        yield from prompt_references(
            self.aggregation.prompt, ("aggregator", "prompt"), (*PROMPT_VARIABLES, *RESULTS_NAMES)
        )

    async def evaluate(self, judgement: Judgement) -> Score:
        """Score all members concurrently and combine their scores. If a member that counts fails, so does this."""
        if (score_member := judgement.score_member) is None:
            raise EvaluatorFailure("A composite can only be scored within a run")
        outcomes = await asyncio.gather(*(score_member(member) for member in self.members))
        results = tuple(result for result, _ in outcomes)
        try:
            score = await self._aggregated(results, [missed for _, missed in outcomes], judgement)
        except EvaluatorFailure as failure:
            raise EvaluatorFailure(str(failure), results, suspicious=failure.suspicious) from None
        return msgspec.structs.replace(score, members=results)

    async def _aggregated(
        self, results: tuple[EvaluatorResult, ...], missed: list[bool], judgement: Judgement
    ) -> Score:
        aggregator = self.aggregation
        required = [member.is_gate for member in self.members]
        if aggregator.kind == "threshold" and aggregator.pass_score is not None:
            results = tuple(map(partial(_with_limit, aggregator.pass_score), self.members, results))
        members = list(map(MemberScore, results, self._weights, required, missed))
        if aggregator.kind == "weighted_average":
            return weighted_average(members)
        if aggregator.kind == "threshold":
            return threshold(members, aggregator.threshold or 0.0)
        refuse_failed(results)
        data = results_data(results)
        if aggregator.kind == "code_judge":
            # It reads the input of a code judge, and the members' results in `results`.
            return read_score(await Program.of(aggregator, judgement).run(program_input(judgement, {}, results=data)))
        values = material_of(judgement).values | dict.fromkeys(RESULTS_NAMES, data)
        prompt = await judge_prompt(aggregator.prompt, "aggregate", "verdict", Material(values), judgement)
        return await verdict(Judge(), judgement, prompt)

    @property
    def _weights(self) -> list[float]:
        return [self.aggregation.weights.get(member.name, member.weight) for member in self.members]


class MemberScore(NamedTuple):
    """A member's result, its weight in the composite, whether it is required, and whether it misses a gate."""

    result: EvaluatorResult
    weight: float
    required: bool = False
    missed: bool = False

    @property
    def counts(self) -> bool:
        """Whether it affects the composite; a required or untransformed member does at any weight."""
        return self.weight > 0 or self.required or self.result.is_untransformed


def refuse_failed(results: Sequence[EvaluatorResult]) -> None:
    """Raise EvaluatorFailure if a result has no score, since the composite's score would be unknown."""
    if failed := [result for result in results if result.score is None]:
        names = ", ".join(result.name for result in failed)
        first = failed[0].error
        suspicious = any(result.error is not None and result.error.suspicious for result in failed)
        raise EvaluatorFailure(f"{names}: {first.message if first else 'no score'}", suspicious=suspicious)


def weighted_average(members: Sequence[MemberScore]) -> Score:
    """Score Σ(weight · score) / Σ weight. If a member that counts misses a gate, the composite fails."""
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
    """Score the weighted fraction of passing members. It must reach `least`, and every required member must pass."""
    refuse_failed([member.result for member in members if member.counts])
    total = math.fsum(member.weight for member in members)
    passing = [member for member in members if member.result.verdict == "pass"]
    fraction = min(1.0, math.fsum(member.weight for member in passing) / total)
    is_met = round(fraction, 12) >= least and not any(member.missed and member.required for member in members)
    return Score(
        fraction,
        hits=tuple(f"{member.result.name} passes" for member in passing),
        misses=tuple(f"{member.result.name} does not pass" for member in members if member not in passing),
        reasoning=f"{len(passing)} of {len(members)} members pass; required: at least {least:.0%}",
        details={"passed": len(passing), "members": len(members), "threshold": least},
        verdict="pass" if is_met else "fail",
    )


def results_data(results: Sequence[EvaluatorResult]) -> dict[str, Any]:
    """Return the members' results by name, as programs and judges receive them."""
    keys = ("type", "score", "verdict", "weight", "hits", "misses", "reasoning", "details")
    return {
        result.name: {key: value for key in keys if (value := getattr(result, key)) not in (None, ())}
        for result in results
    }


def _with_limit(least: float, member: EvaluatorSpec, result: EvaluatorResult) -> EvaluatorResult:
    """Apply `pass_score` to a member, except one that counts its own members: its score does not decide."""
    own = member.evaluator
    if result.score is None or (isinstance(own, Composite) and own.aggregation.kind == "threshold"):
        return result
    return msgspec.structs.replace(result, verdict="pass" if round(result.score, 12) >= least else "fail")
