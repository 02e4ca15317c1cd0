"""The figures of one target, added up one result at a time: means, errors, usage, and the cases worth reviewing."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from copy import deepcopy
from heapq import heappop, heappush
from math import inf

import msgspec

from agentv.model.manifest import EarlyStop, Interval, TrialsSummary, VarianceSummary
from agentv.model.result import Result, reason_of, transformed_answer
from agentv.model.values import cluster_of
from agentv.runs.trials import JudgeVotes, Trials
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.power import detectable_difference
from agentv.stats.variance import ScoreSpread
from agentv.support.hash_table import NumberTable

BINS = 10
SHOWN = 5
MOST_SUSPICIOUS = 20
LONGEST_REASON = 300
_SAME = 0.0005
"""Means that differ by less look the same, and are not shown twice."""


class PartSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of one evaluator or one prompt: their number, mean, and its 95 % confidence interval.

    `ci95_with_errors` also covers the jobs that errored: they count as 0 for its lower bound and as 1 for the upper.
    `errors` counts the answers that the evaluator could not score.
    """

    n: int
    mean: float | None = None
    ci95: Interval | None = None
    ci95_with_errors: Interval | None = None
    errors: int = 0


class TargetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one target. Means and the pass rate are over scored jobs.

    The intervals `_with_errors` also cover the jobs that errored: they count as 0 for the lower bound and as 1 for the
    upper.
    """

    cases: int
    """The number of cases."""

    jobs: int
    """The number of jobs: cases times prompts times trials. `scored`, `errors`, `unscored` and `skipped` add up to it.
    """

    scored: int
    """Jobs with a score."""

    errors: int
    """Jobs without a score, because they could not be answered or scored."""

    unscored: int
    """Jobs that were answered and not scored."""

    skipped: int
    """Jobs that never started."""

    truncated: int = 0
    """Jobs whose answer ended at a token or turn limit."""

    fallbacks: int = 0
    """Jobs that a fallback target answered."""

    suspicious: int = 0
    """Errors that the answer may have caused, by making the judge repeat a verdict."""

    suspicious_cases: tuple[str, ...] = ()
    """The first of these cases."""

    mean: float | None = None
    """The mean score."""

    ci95: Interval | None = None
    ci95_with_errors: Interval | None = None
    pass_rate: float | None = None
    """The fraction of scored jobs that passed."""

    pass_rate_ci95: Interval | None = None
    pass_rate_ci95_with_errors: Interval | None = None
    cost_usd: float | None = None
    """The cost of the target's calls."""

    estimated_cost_usd: float | None = None
    """The part of `cost_usd` that is estimated, for replies that were cut off."""

    judge_cost_usd: float | None = None
    """The cost of the judges' calls."""

    duration_ms: float | None = None
    """The time of all jobs, added up."""

    evaluators: dict[str, PartSummary] = {}
    """The scores of each evaluator."""

    prompts: dict[str, PartSummary] = {}
    """The scores of each prompt, if cases run with several."""

    trials: tuple[TrialsSummary, ...] = ()
    """Pass rates over several trials."""

    variance: VarianceSummary | None = None
    """The variance of scores by source."""

    minimum_detectable_difference: float | None = None
    """The smallest difference that a comparison with a second run on the scored cases shows with a probability of 80 %;
    null if there are too few cases to show any.
    """

    early_stop: EarlyStop | None = None
    """The result of `--stop-when` or `--until`."""


class CaseNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A case worth reviewing, and the reason; with the answer, if a transform changed it or failed.

    Texts are cut. `scored_answer` is None if the transform failed, `scored_by` the evaluator with a transform of its
    own.
    """

    eval_id: str
    dataset: str
    prompt: str | None
    trial: int
    score: float | None
    duration_ms: float | None
    reason: str
    raw_answer: str | None = None
    scored_answer: str | None = None
    scored_by: str | None = None


class TargetDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of a target that are not in `summary.json`; the counts are denominators of figures there."""

    passed: int
    case_mean: float | None
    """The mean of the case means, as in comparisons. Set if it differs from the mean of the jobs, because some cases
    have more scored trials than others.
    """

    priced: int
    """Jobs with a known cost."""

    judge_priced: int
    """Jobs with a known cost of judges."""

    timed: int
    """Jobs with a known time."""

    error_classes: dict[str, int]
    bins: tuple[int, ...]
    """The number of scores by tenths."""

    worst: tuple[CaseNote, ...]
    slowest: tuple[CaseNote, ...]
    errors: dict[str, CaseNote]
    """The first error of each class."""

    recurring: int = 0
    """Errors of evaluators that called no judge: they fail in the same way again."""


class TargetFigures:
    """The figures of the results of a target so far. `by_case`, the results of a case form a cluster."""

    def __init__(self, by_case: bool) -> None:
        self.done = self.unscored = self.passed = 0
        self.errors, self.usage = ErrorFigures(), UsageFigures()
        self.scores, self._passes = MeanAccumulator(), MeanAccumulator()
        self._evaluators: dict[str, MeanAccumulator] = defaultdict(MeanAccumulator)
        self._prompts: dict[str, MeanAccumulator] = defaultdict(MeanAccumulator)
        self._bins, self._worst, self._by_case = [0] * BINS, _Ranking(), by_case
        self._cases = NumberTable()
        self._case_scores = MeanAccumulator()
        self._clusters = NumberTable()
        self._trials, self._votes, self._spread = Trials(), JudgeVotes(), ScoreSpread()

    def add(self, result: Result) -> None:
        """Add a result."""
        self.done += 1
        self.usage.add(result)
        key = cluster = None
        weight = 1.0
        # Most results are independent.
        if (
            self._by_case
            or result.conversation_id is not None
            or result.cluster is not None
            or result.probability is not None
        ):
            key, cluster, weight = self._cluster_of(result)
        if result.status == "error":
            self.errors.add(result, cluster, weight)
            return
        if result.score is None:
            self.unscored += 1
        else:
            self._add_score(result, key, cluster, weight)
        has_details = False
        for entry in result.evaluator_results:
            if (score := entry.score) is not None:
                self._evaluators[entry.name].add(score, cluster, weight)
            has_details = has_details or entry.details is not None
        if has_details and result.score is not None:
            self._votes.add(result)

    def _cluster_of(self, result: Result) -> tuple[int | None, int, float]:
        """Return the key of the case if cases form clusters, the number of the cluster, and the weight of a result."""
        key, weight, talk = hash((result.dataset_path, result.dataset, result.eval_id)), 1.0, cluster_of(result)
        if result.probability is not None:
            weight = 1 / result.probability
        if self._by_case:
            case = self._cases.number(key)
            if result.score is not None:
                self._case_scores.add(result.score, case, weight)
        # The same conversation id in another dataset is another conversation.
        cluster = self._clusters.number(key if talk is None else hash((result.dataset_path, talk)))
        return key if self._by_case else None, cluster, weight

    def _add_score(self, result: Result, case: int | None, cluster: int | None, weight: float) -> None:
        """Add the score of a result, given the number of its cluster, and its weight."""
        score, has_passed = result.score, result.verdict == "pass"
        assert score is not None
        self.scores.add(score, cluster, weight)
        if result.prompt is not None:
            self._prompts[result.prompt].add(score, cluster, weight)
        self._bins[int(score * BINS) if score < 1 else -1] += 1
        self._passes.add(1.0 if has_passed else 0.0, cluster, weight)
        if case is not None and cluster is not None:
            self._trials.add(case, result, cluster)
        elif cluster is not None:
            self._spread.add(score, cluster)
        if has_passed:
            self.passed += 1
        elif -score > self._worst.least:
            self._worst.add(-score, _note(result, reason_of(result)))

    def summary(self, planned: int, cases: int | None = None) -> TargetSummary:
        """Return the summary of the target; `planned` jobs without a result count as skipped."""
        skipped, scored = max(0, planned - self.done), self.scores.n
        errors, usage = self.errors, self.usage
        return TargetSummary(
            cases=cases if cases is not None else len(self._cases) if self._by_case else max(planned, self.done),
            jobs=self.done + skipped,
            scored=scored,
            errors=errors.count,
            unscored=self.unscored,
            skipped=skipped,
            truncated=usage.truncated,
            fallbacks=usage.fallbacks,
            suspicious=errors.suspicious,
            suspicious_cases=tuple(errors.suspicious_cases),
            mean=self.scores.mean,
            ci95=self.scores.ci95,
            ci95_with_errors=errors.bounds(self.scores),
            pass_rate=self._passes.mean,
            pass_rate_ci95=self._passes.ci95,
            pass_rate_ci95_with_errors=errors.bounds(self._passes),
            cost_usd=usage.cost if usage.priced else None,
            estimated_cost_usd=usage.estimated_cost or None,
            judge_cost_usd=usage.judge_cost if usage.judge_priced else None,
            duration_ms=usage.duration_ms if usage.timed else None,
            evaluators=_parts(self._evaluators, errors, errors.by_evaluator),
            prompts=_parts(self._prompts, errors, {}),
            trials=self._trials.summary(),
            variance=self._votes.summary(self._trials.scores),
            minimum_detectable_difference=self._detectable(),
        )

    def _detectable(self) -> float | None:
        """Return the smallest difference that a second run on the scored cases would reliably show."""
        if self._by_case:
            noise, cases = self._trials.scores.noise(), len(self._trials.scores.counts)
        else:
            spread = self._spread.joined(*self.scores.independent)
            noise, cases = spread.noise(), spread.n
        return None if noise is None else detectable_difference(noise, cases)

    def details(self) -> TargetDetails:
        """Return further details for reports."""
        mean, of_cases = self.scores.mean, self._case_scores.mean_of_clusters
        errors, usage = self.errors, self.usage
        return TargetDetails(
            passed=self.passed,
            case_mean=None if mean is None or of_cases is None or abs(mean - of_cases) < _SAME else of_cases,
            priced=usage.priced,
            judge_priced=usage.judge_priced,
            timed=usage.timed,
            recurring=errors.recurring,
            error_classes=dict(sorted(errors.classes.items(), key=lambda item: (-item[1], item[0]))),
            bins=tuple(self._bins),
            worst=self._worst.notes(),
            slowest=usage.slowest.notes(),
            errors=dict(errors.first),
        )


class UsageFigures:
    """Cost and time of the results, and the numbers of jobs that report them; answers that were cut off."""

    def __init__(self) -> None:
        self.truncated = self.fallbacks = 0
        self.priced = self.judge_priced = self.timed = 0
        self.cost = self.estimated_cost = self.judge_cost = self.duration_ms = 0.0
        self.slowest = _Ranking()

    @property
    def total_usd(self) -> float | None:
        """The cost of answers and judges, as far as it is known; None if none is."""
        return self.cost + self.judge_cost if self.priced or self.judge_priced else None

    def add(self, result: Result) -> None:
        """Add the usage of a result."""
        if (metrics := result.execution_metrics) is not None:
            if metrics.stop_reason is not None:
                self.truncated += metrics.is_cut_off
            if metrics.answered_by is not None:
                self.fallbacks += 1
            if (cost_usd := metrics.cost_usd) is not None:
                self.priced += 1
                self.cost += cost_usd
                self.estimated_cost += metrics.estimated_cost_usd or 0.0
            if (duration_ms := metrics.duration_ms) is not None:
                self.timed += 1
                self.duration_ms += duration_ms
                if duration_ms > self.slowest.least:
                    self.slowest.add(duration_ms, _note(result, ""))
        if (judged := result.judge_cost_usd) is not None:
            self.judge_priced += 1
            self.judge_cost += judged


class ErrorFigures:
    """The results that are errors: how many, their classes, the first of each class, and what they could hide.

    `by_evaluator` counts the errors of each evaluator; see `TargetDetails` for `recurring`.
    """

    def __init__(self) -> None:
        self.count = self.suspicious = self.recurring = 0
        self.suspicious_cases: list[str] = []
        self.by_evaluator: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.first: dict[str, CaseNote] = {}
        self._by_cluster: Counter[tuple[int | None, float]] = Counter()

    def add(self, result: Result, cluster: int | None, weight: float) -> None:
        """Add a result that is an error."""
        error = result.error
        self.count += 1
        self._by_cluster[cluster, weight] += 1
        if error is not None and error.suspicious:
            self.suspicious += 1
            if len(self.suspicious_cases) < MOST_SUSPICIOUS and result.eval_id not in self.suspicious_cases:
                self.suspicious_cases.append(result.eval_id)
        failed = [entry for entry in result.evaluator_results if entry.score is None]
        self.by_evaluator.update(entry.name for entry in failed)
        name = error.error_class if error else "unknown"
        self.classes[name] += 1
        self.recurring += name == "evaluator" and not any(entry.called_judge for entry in failed)
        if self.classes[name] == 1:
            self.first[name] = _note(result, error.message if error else "")

    def bounds(self, scores: MeanAccumulator) -> Interval | None:
        """Return the interval with errors counted as 0 for the lower bound and as 1 for the upper; None without any."""
        if not self.count:
            return None
        bounds = []
        for value in (0.0, 1.0):
            filled = deepcopy(scores)
            for (cluster, weight), count in self._by_cluster.items():
                for _ in range(count):
                    filled.add(value, cluster, weight)
            bounds.append(filled.ci95)
        lower, upper = bounds
        return None if lower is None or upper is None else (lower[0], upper[1])


def _parts(
    means: Mapping[str, MeanAccumulator], errors: ErrorFigures, own_errors: Mapping[str, int]
) -> dict[str, PartSummary]:
    """Summarize evaluators or prompts, including those that have only errors."""
    parts = {**means, **{name: MeanAccumulator() for name in own_errors if name not in means}}
    return {
        name: PartSummary(
            n=part.n,
            mean=part.mean,
            ci95=part.ci95,
            ci95_with_errors=errors.bounds(part),
            errors=own_errors.get(name, 0),
        )
        for name, part in parts.items()
    }


class _Ranking:
    """The results with the highest measure; the first ones in case of ties. Add those above the `least`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, CaseNote]] = []
        self._order = 0
        self.least = -inf

    def add(self, measure: float, note: CaseNote) -> None:
        self._order -= 1
        heappush(self._heap, (measure, self._order, note))
        if len(self._heap) > SHOWN:
            heappop(self._heap)
        if len(self._heap) == SHOWN:
            self.least = self._heap[0][0]

    def notes(self) -> tuple[CaseNote, ...]:
        return tuple(note for _, _, note in sorted(self._heap, key=lambda entry: entry[:2], reverse=True))


def _note(result: Result, reason: str) -> CaseNote:
    metrics, answer = result.execution_metrics, transformed_answer(result)
    scored = None if answer is None else answer.scored
    return CaseNote(
        eval_id=result.eval_id,
        dataset=result.dataset,
        prompt=result.prompt,
        trial=result.trial,
        score=result.score,
        duration_ms=metrics.duration_ms if metrics else None,
        reason=reason[:LONGEST_REASON],
        raw_answer=None if answer is None else answer.raw[:LONGEST_REASON],
        scored_answer=None if scored is None else scored[:LONGEST_REASON],
        scored_by=None if answer is None else answer.evaluator,
    )
