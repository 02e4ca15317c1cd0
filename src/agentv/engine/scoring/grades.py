"""Turn scores into a verdict. Pure. A failed evaluator leaves the job without a score, never with a zero."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from agentv.evaluators.base import checked_score, checked_sentences
from agentv.model.case import Aggregation
from agentv.model.evaluator import EvaluatorFailure, EvaluatorSpec, Score, Verdicts
from agentv.model.result import ErrorClass, ErrorInfo, EvaluatorResult, Status, Verdict

_DEFAULT = Verdicts()
_ROUNDING_ERROR = 5e-13
"""Scores this much below a limit reach it, so that errors of floating-point sums do not change verdicts."""

Checks = list[tuple[EvaluatorSpec, EvaluatorResult]]
"""Evaluators with their results."""


class Grade(msgspec.Struct, frozen=True, gc=False):
    """The combined result of a job's evaluators."""

    status: Status
    score: float | None = None
    verdict: Verdict | None = None
    partial_score: float | None = None
    error: ErrorInfo | None = None


def evaluator_result(spec: EvaluatorSpec, score: Score, verdicts: Verdicts | None) -> EvaluatorResult:
    """Return the result of one evaluator: its score, negated if configured, and its verdict.

    If negated, an evaluator's own pass is a failure, and otherwise only the score decides: a failed gate has no
    meaningful opposite. Raises EvaluatorFailure for a score outside 0 to 1, which a custom evaluator may return, and
    for the opposite of a result that is not complete.
    """
    value = score.score
    if spec.evaluator is None or type(value) is not float or not 0.0 <= value <= 1.0:
        score = _checked(score, f"Evaluator '{spec.name}'")
        value = score.score
    hits, misses = score.hits, score.misses
    if spec.negate:
        if score.is_partial:
            raise EvaluatorFailure("A part of the answer was not checked, so that the opposite is unknown")
        value, hits, misses = 1.0 - value, misses, hits
    verdict = verdict_of(value, verdicts) if spec.gate else _verdict(spec, value, verdicts)
    if score.verdict is not None and (not spec.negate or score.verdict == "pass"):
        verdict = "fail" if spec.negate else score.verdict
    if spec.required is not False and _misses_required(spec, value, verdict):
        verdict = "fail"
    return EvaluatorResult(
        name=spec.name,
        type=spec.type,
        score=value,
        weight=spec.weight,
        verdict=verdict,
        hits=hits,
        misses=misses,
        reasoning=score.reasoning,
        details=score.details,
        token_usage=score.token_usage,
        cost_usd=score.cost_usd,
        evaluator_provider_request=score.request,
        evaluator_results=score.members,
    )


def _checked(score: Score, source: str) -> Score:
    """Return the score of a user's class with valid fields. Raises EvaluatorFailure if that is not possible."""
    return msgspec.structs.replace(
        score,
        score=checked_score(score.score, source),
        hits=checked_sentences(score.hits, f"'hits' of {source}"),
        misses=checked_sentences(score.misses, f"'misses' of {source}"),
    )


def regraded(
    result: EvaluatorResult, spec: EvaluatorSpec, verdicts: Verdicts | None, before: Verdicts | None
) -> EvaluatorResult:
    """Apply the current weight and limits to an earlier score; keep a verdict that the limits did not decide."""
    assert result.score is not None and result.verdict is not None
    verdict = result.verdict
    if verdict == _verdict(spec, result.score, before):
        verdict = _verdict(spec, result.score, verdicts)
    if _misses_required(spec, result.score, verdict):
        verdict = "fail"
    return msgspec.structs.replace(result, weight=spec.weight, verdict=verdict)


def failed_result(
    spec: EvaluatorSpec,
    message: str,
    members: tuple[EvaluatorResult, ...] = (),
    *,
    error_class: ErrorClass = "evaluator",
    suspicious: bool = False,
) -> EvaluatorResult:
    """Return the result of an evaluator that could not score: an error, regardless of `negate`."""
    return EvaluatorResult(
        name=spec.name,
        type=spec.type,
        score=None,
        weight=spec.weight,
        verdict=None,
        error=ErrorInfo(error_class, message, "evaluator", suspicious),
        evaluator_results=members,
    )


def grade(results: Sequence[EvaluatorResult], specs: Sequence[EvaluatorSpec], verdicts: Verdicts | None) -> Grade:
    """Return the weighted mean of the scores; an error if a needed score is missing; unscored if all weights are 0.

    The score of a required evaluator is needed whatever its weight: without it, the verdict is unknown. An answer that
    cannot be transformed is an error whatever the weight.
    """
    if len(results) == 1:
        only = results[0]
        if (score := only.score) is not None and only.weight > 0 and specs[0].gate:
            # The common case: the score and verdict of the only evaluator are those of the job.
            return Grade("ok", score, only.verdict)
    weights, weighted, failed = [], [], []
    counts = False
    for spec, result in zip(specs, results, strict=True):
        counts = counts or result.weight > 0
        if result.score is not None:
            weights.append(result.weight)
            weighted.append(result.weight * result.score)
        elif result.weight > 0 or spec.is_gate or result.is_untransformed:
            failed.append(result)
    if not counts and not failed:
        return Grade("unscored")
    weight = math.fsum(weights)
    mean = math.fsum(weighted) / weight if weight else None
    if failed or mean is None:
        first = failed[0].error
        others = f". Also not scored: {', '.join(result.name for result in failed[1:])}" if failed[1:] else ""
        message = f"{failed[0].name}: {first.message if first else ''}{others}"
        suspicious = any(result.error is not None and result.error.suspicious for result in failed)
        return Grade("error", partial_score=mean, error=ErrorInfo("evaluator", message, "evaluator", suspicious))
    gated = any(misses_gate(spec, result, verdicts) for spec, result in zip(specs, results, strict=True))
    return Grade("ok", mean, "fail" if gated else verdict_of(mean, verdicts))


def grade_groups(groups: Sequence[Checks], how: Aggregation, verdicts: Verdicts | None) -> Grade:
    """Return the mean, minimum or maximum of the groups' scores; an error if one group has one.

    Groups are the turns of a conversation and its case. Groups that are not scored do not count.
    """
    grades = [grade([result for _, result in group], [spec for spec, _ in group], verdicts) for group in groups]
    wrong = next((item for item in grades if item.status == "error"), None)
    scores = [item.score for item in grades if item.score is not None]
    if not scores or wrong is not None:
        return wrong or Grade("unscored")
    score = min(scores) if how == "min" else max(scores) if how == "max" else math.fsum(scores) / len(scores)
    gated = any(misses_gate(spec, result, verdicts) for group in groups for spec, result in group)
    return Grade("ok", score, "fail" if gated else verdict_of(score, verdicts))


def verdict_of(score: float, verdicts: Verdicts | None) -> Verdict:
    """Return the verdict for a score under the limits of the case."""
    limits = verdicts or _DEFAULT
    score += _ROUNDING_ERROR
    return "pass" if score >= limits.passing else "borderline" if score >= limits.borderline else "fail"


def _verdict(spec: EvaluatorSpec, score: float, verdicts: Verdicts | None) -> Verdict:
    """Return the verdict for a score: under the limits of the case, or above the minimum of an entry without a gate."""
    if not spec.gate and not isinstance(spec.required, bool) and score + _ROUNDING_ERROR >= spec.required:
        return "pass"
    return verdict_of(score, verdicts)


def misses_gate(spec: EvaluatorSpec, result: EvaluatorResult, verdicts: Verdicts | None) -> bool:
    """Whether a required evaluator is below its minimum, or a weighted one failed its own gate despite its score."""
    if result.score is None or result.verdict is None or not spec.gate:
        return False
    own_gate = result.verdict == "fail" and result.weight > 0 and verdict_of(result.score, verdicts) != "fail"
    return own_gate or _misses_required(spec, result.score, result.verdict)


def _misses_required(spec: EvaluatorSpec, score: float, verdict: Verdict) -> bool:
    """Whether a score is below `required`: a pass if true, or a minimum score."""
    if isinstance(spec.required, bool):
        return spec.required and verdict != "pass"
    return score + _ROUNDING_ERROR < spec.required
