"""The trials of each case: pass@k, variance components, and the difference that a second run could show."""

import math
from array import array
from collections.abc import Iterable
from functools import cache

from agentv.model.evaluator import Verdicts
from agentv.model.manifest import TrialsSummary, VarianceSummary
from agentv.model.result import Result
from agentv.stats.distributions import t_quantile
from agentv.stats.intervals import MeanAccumulator, pass_at_k, pass_hat_k
from agentv.stats.variance import GroupedScores
from agentv.support.hash_table import NumberTable

_SHOWN_TRIALS = (1, 2, 3, 5, 10, 20, 50, 100)

BEST = ("pass_at_k", "pass_any")
"""Strategies by which the best trial decides."""


def combined_score(trials: Iterable[tuple[int, float]], strategy: str) -> float:
    """Return the score of a case from those of its trials, with their numbers, by a strategy of AgentV (TypeScript).

    `pass_at_k` stops at the first pass, `pass_any` takes the best trial, `pass_all` the worst, and
    `confidence_interval` the lower bound of a 95 % interval.
    """
    scores = [score for _, score in sorted(trials)]
    if strategy in BEST:
        passes = (score for score in scores if score >= Verdicts().passing and strategy == "pass_at_k")
        return next(passes, max(scores))
    mean, count = sum(scores) / len(scores), len(scores)
    if strategy != "confidence_interval" or count == 1:
        return min(scores) if strategy == "pass_all" else mean
    critical = round(t_quantile(0.975, count - 1), 3) if count <= 30 else 1.96  # the table that AgentV has
    return min(1.0, max(0.0, mean - critical * math.sqrt(_variance(scores) / count)))


class Trials:
    """The scored and passed trials of each case and prompt."""

    def __init__(self) -> None:
        self._numbers = NumberTable()
        self._prompts: dict[str | None, int] = {}
        self._passed, self._weights = array("i"), array("d")
        self.scores = GroupedScores()

    def add(self, case: int, result: Result, cluster: int) -> None:
        """Add a scored trial. `case` is a hash, `cluster` the number of its cluster."""
        assert result.score is not None
        number = self._numbers.number(case if result.prompt is None else hash((case, result.prompt)))
        if number == len(self._passed):
            self._passed.append(0)
            self._weights.append(1 / (result.probability or 1.0))
        prompt = self._prompts.setdefault(result.prompt, len(self._prompts))
        self.scores.add(number, result.score, cluster, prompt)
        self._passed[number] += result.verdict == "pass"

    def summary(self) -> tuple[TrialsSummary, ...]:
        """Return pass rates for several k, up to the number of trials that most cases have; empty if that is 1."""
        most = sorted(self.scores.counts, reverse=True)[len(self.scores.counts) // 2] if self.scores.counts else 0
        return tuple(self._of(k) for k in sorted({*_SHOWN_TRIALS, most}) if k <= most) if most > 1 else ()

    def _of(self, k: int) -> TrialsSummary:
        one, every = MeanAccumulator(), MeanAccumulator()
        at_k, hat_k = cache(pass_at_k), cache(pass_hat_k)
        groups = zip(self.scores.clusters, self.scores.counts, self._passed, self._weights, strict=True)
        for cluster, scored, passed, weight in groups:
            if scored >= k:
                one.add(at_k(scored, passed, k), cluster, weight)
                every.add(hat_k(scored, passed, k), cluster, weight)
        assert one.mean is not None and every.mean is not None
        return TrialsSummary(
            k=k, n=one.n, pass_at_k=one.mean, pass_at_k_ci95=one.ci95, pass_hat_k=every.mean, pass_hat_k_ci95=every.ci95
        )


class JudgeVotes:
    """The variance between judge calls on the same answer, from evaluators with several votes or judges."""

    def __init__(self) -> None:
        self._answers = self._votes = 0
        self._variance = 0.0

    def add(self, result: Result) -> None:
        """Add the votes on an answer, if an evaluator has several."""
        votes = [(entry.weight, _scores_of(entry.details)) for entry in result.evaluator_results if entry.details]
        voted = [(weight, scores) for weight, scores in votes if weight > 0 and len(scores) > 1]
        if not voted:
            return
        total = sum(entry.weight for entry in result.evaluator_results if entry.score is not None)
        self._answers += 1
        self._votes += min(len(scores) for _, scores in voted)
        self._variance += sum((weight / total) ** 2 * _variance(scores) for weight, scores in voted)

    @property
    def variance(self) -> float | None:
        """The variance of the score if each judge was called once; None without repeated calls."""
        return self._variance / self._answers if self._answers else None

    def summary(self, scores: GroupedScores) -> VarianceSummary | None:
        """Return the variance between cases, trials and judge calls; None if none of them can be estimated."""
        components = scores.components()
        if components is None and self.variance is None:
            return None
        return VarianceSummary(
            case=None if components is None else components.case,
            trial=None if components is None else components.trial,
            judge=self.variance,
            cases=0 if components is None else components.cases,
            trials=1.0 if components is None else components.trials,
            answers=self._answers,
            votes=self._votes / self._answers if self._answers else 1.0,
        )


def _scores_of(details: object) -> list[float]:
    """Return the scores of the votes in the details of an evaluator, which may be anything."""
    votes = details.get("votes") if isinstance(details, dict) else None
    scores = [vote.get("score") for vote in votes if isinstance(vote, dict)] if isinstance(votes, list) else []
    return [float(score) for score in scores if isinstance(score, int | float) and 0 <= score <= 1]


def _variance(scores: list[float]) -> float:
    mean = sum(scores) / len(scores)
    return sum((score - mean) ** 2 for score in scores) / (len(scores) - 1)
