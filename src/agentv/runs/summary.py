"""Summarise a run one result at a time, in memory that does not grow with the number of results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from heapq import heappop, heappush

import msgspec

from agentv.model.manifest import Interval, PartSummary, RunSummary, TargetSummary
from agentv.model.result import EvaluatorResult, Result
from agentv.runs.trials import JudgeVotes, Trials
from agentv.stats.intervals import MeanAccumulator
from agentv.stats.power import detectable_difference
from agentv.stats.variance import ScoreSpread
from agentv.support.hash_table import NumberTable

BINS = 10
SHOWN = 5
MOST_SUSPICIOUS = 20
LONGEST_REASON = 300
AT_A_LIMIT = frozenset({"length", "max_tokens", "max_turns"})
"""Stop reasons of answers that a limit of tokens or turns cut off."""
_SAME = 0.0005
"""Means that differ by less look the same, and are not shown twice."""


class CaseNote(msgspec.Struct, frozen=True, kw_only=True):
    """A case worth reviewing, and the reason."""

    eval_id: str
    dataset: str
    prompt: str | None
    trial: int
    score: float | None
    duration_ms: float | None
    reason: str


class TargetDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of a target that are not in `summary.json`; the counts are denominators of figures there.

    `case_mean` is the mean of the case means, as in comparisons. It is set if it differs from the mean of the jobs,
    because some cases have more scored trials than others. `priced`, `judge_priced` and `timed` are the numbers of jobs
    with known cost, judge cost and time. `bins` counts scores by tenths. `errors` has the first error of each class.
    `recurring` counts the errors of evaluators that called no judge: they fail in the same way again.
    """

    passed: int
    case_mean: float | None
    priced: int
    judge_priced: int
    timed: int
    error_classes: dict[str, int]
    bins: tuple[int, ...]
    worst: tuple[CaseNote, ...]
    slowest: tuple[CaseNote, ...]
    errors: dict[str, CaseNote]
    recurring: int = 0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a run. `waits_s` is how long an endpoint's rate limit requires calls to wait.

    `down` is an endpoint that has not answered for `down_s`, never if `unreached`. `text` is what else the run awaits.
    """

    done: int
    total: int | None = None
    scored: int = 0
    passed: int = 0
    errors: dict[str, int] = {}
    cost_usd: float | None = None
    concurrency: int | None = None
    waits_s: float = 0.0
    down: str | None = None
    down_s: float = 0.0
    unreached: bool = False
    text: str | None = None


class SummaryBuilder:
    """Builds the summary of a run from results in any order.

    Above 1 of `jobs_per_case`, trials times prompts, the results of a case form a cluster, which takes memory for each
    case. Those of a conversation always do.
    """

    def __init__(self, run_id: str, jobs_per_case: int = 1) -> None:
        self._run_id = run_id
        self._targets: dict[str, _Target] = defaultdict(lambda: _Target(jobs_per_case > 1))

    def add(self, result: Result) -> None:
        self._targets[result.target].add(result)

    def add_all(self, results: Iterable[Result]) -> SummaryBuilder:
        for result in results:
            self.add(result)
        return self

    def build(self, planned: Mapping[str, int] | None = None, cases: Mapping[str, int] | None = None) -> RunSummary:
        """Return the content of `summary.json`, from the planned jobs and the number of cases of each target.

        Planned jobs without a result count as skipped. Without `cases`, those with results are counted.
        """
        planned, cases = planned or {}, cases or {}
        names = [*planned, *(name for name in self._targets if name not in planned)]
        found = {name: self._targets.get(name) or _Target(False) for name in names}
        return RunSummary(
            run_id=self._run_id,
            targets={
                name: target.summary(planned.get(name, target.done), cases.get(name)) for name, target in found.items()
            },
        )

    def details(self) -> dict[str, TargetDetails]:
        """Return further details for reports, by target."""
        return {name: target.details() for name, target in self._targets.items()}

    def snapshot(self) -> Snapshot:
        """Return the progress so far. Fast, and safe to call from another thread."""
        targets = list(self._targets.values())
        errors: Counter[str] = Counter()
        for target in targets:
            errors.update(dict(target.error_classes))
        costs = [target.cost + target.judge_cost for target in targets if target.priced or target.judge_priced]
        return Snapshot(
            done=sum(target.done for target in targets),
            scored=sum(target.scores.n for target in targets),
            passed=sum(target.passed for target in targets),
            errors=dict(errors),
            cost_usd=sum(costs) if costs else None,
        )


class _Target:
    """The running figures of one target."""

    def __init__(self, by_case: bool) -> None:
        self.done = self.errors = self.unscored = self.passed = self.truncated = self.fallbacks = 0
        self.suspicious = self._recurring = 0
        self._suspicious_cases: list[str] = []
        self.priced = self.judge_priced = self.timed = 0
        self.cost = self.estimated_cost = self.judge_cost = self.duration_ms = 0.0
        self.scores, self._passes = MeanAccumulator(), MeanAccumulator()
        self._evaluators: dict[str, MeanAccumulator] = defaultdict(MeanAccumulator)
        self._evaluator_errors: Counter[str] = Counter()
        self._prompts: dict[str, MeanAccumulator] = defaultdict(MeanAccumulator)
        self.error_classes: Counter[str] = Counter()
        self._first_errors: dict[str, CaseNote] = {}
        self._errors: Counter[int | None] = Counter()
        self._bins, self._worst, self._slowest, self._by_case = [0] * BINS, _Ranking(), _Ranking(), by_case
        self._cases = NumberTable()
        self._case_scores = MeanAccumulator()
        self._clusters = NumberTable()
        self._trials, self._votes, self._spread = Trials(), JudgeVotes(), ScoreSpread()

    def add(self, result: Result) -> None:
        self.done += 1
        key = hash((result.dataset_path, result.dataset, result.eval_id)) if self._by_case else None
        if key is not None:
            case = self._cases.number(key)
            if result.score is not None:
                self._case_scores.add(result.score, case)
        self._add_usage(result)
        # The same conversation id in another dataset is another conversation.
        group = key if (talk := result.conversation_id) is None else hash((result.dataset_path, talk))
        cluster = None if group is None else self._clusters.number(group)
        if result.status == "error":
            self._errors[cluster] += 1
            self._add_error(result)
            return
        if result.score is None:
            self.unscored += 1
        else:
            self._add_score(result, result.score, key, cluster)
        has_details = False
        for found in result.evaluator_results:
            if found.score is not None:
                self._evaluators[found.name].add(found.score, cluster)
            has_details = has_details or found.details is not None
        if has_details and result.score is not None:
            self._votes.add(result)

    def _add_score(self, result: Result, score: float, case: int | None, cluster: int | None) -> None:
        self.scores.add(score, cluster)
        if result.prompt is not None:
            self._prompts[result.prompt].add(score, cluster)
        self._bins[min(int(score * BINS), BINS - 1)] += 1
        self._passes.add(float(result.verdict == "pass"), cluster)
        if case is not None and cluster is not None:
            self._trials.add(case, result, cluster)
        elif cluster is not None:
            self._spread.add(score, cluster)
        if result.verdict == "pass":
            self.passed += 1
        elif self._worst.wants(-score):
            self._worst.add(-score, _note(result, reason_of(result)))

    def _add_usage(self, result: Result) -> None:
        metrics = result.execution_metrics
        if metrics is not None:
            self.truncated += metrics.stop_reason in AT_A_LIMIT
            self.fallbacks += metrics.answered_by is not None
            if metrics.cost_usd is not None:
                self.priced += 1
                self.cost += metrics.cost_usd
                self.estimated_cost += metrics.estimated_cost_usd or 0.0
            if metrics.duration_ms is not None:
                self.timed += 1
                self.duration_ms += metrics.duration_ms
                if self._slowest.wants(metrics.duration_ms):
                    self._slowest.add(metrics.duration_ms, _note(result, ""))
        judged = judge_cost(result)
        if judged is not None:
            self.judge_priced += 1
            self.judge_cost += judged

    def _add_error(self, result: Result) -> None:
        error = result.error
        self.errors += 1
        if error is not None and error.suspicious:
            self.suspicious += 1
            if len(self._suspicious_cases) < MOST_SUSPICIOUS and result.eval_id not in self._suspicious_cases:
                self._suspicious_cases.append(result.eval_id)
        self._evaluator_errors.update(found.name for found in result.evaluator_results if found.score is None)
        name = error.error_class if error else "unknown"
        self.error_classes[name] += 1
        judged = any(found.called_judge for found in result.evaluator_results if found.score is None)
        self._recurring += name == "evaluator" and not judged
        if self.error_classes[name] == 1:
            self._first_errors[name] = _note(result, error.message if error else "")

    def summary(self, planned: int, cases: int | None = None) -> TargetSummary:
        skipped, scored = max(0, planned - self.done), self.scores.n
        return TargetSummary(
            cases=cases if cases is not None else len(self._cases) if self._by_case else max(planned, self.done),
            jobs=self.done + skipped,
            scored=scored,
            errors=self.errors,
            unscored=self.unscored,
            skipped=skipped,
            truncated=self.truncated,
            fallbacks=self.fallbacks,
            suspicious=self.suspicious,
            suspicious_cases=tuple(self._suspicious_cases),
            mean=self.scores.mean,
            ci95=self.scores.ci95,
            ci95_with_errors=_with_errors(self.scores, self._errors),
            pass_rate=self.passed / scored if scored else None,
            pass_rate_ci95=self._passes.ci95,
            pass_rate_ci95_with_errors=_with_errors(self._passes, self._errors),
            cost_usd=self.cost if self.priced else None,
            estimated_cost_usd=self.estimated_cost or None,
            judge_cost_usd=self.judge_cost if self.judge_priced else None,
            duration_ms=self.duration_ms if self.timed else None,
            evaluators=_parts(self._evaluators, self._errors, self._evaluator_errors),
            prompts=_parts(self._prompts, self._errors, {}),
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
        mean, of_cases = self.scores.mean, self._case_scores.mean_of_clusters
        return TargetDetails(
            passed=self.passed,
            case_mean=None if mean is None or of_cases is None or abs(mean - of_cases) < _SAME else of_cases,
            priced=self.priced,
            judge_priced=self.judge_priced,
            timed=self.timed,
            recurring=self._recurring,
            error_classes=dict(sorted(self.error_classes.items(), key=lambda item: (-item[1], item[0]))),
            bins=tuple(self._bins),
            worst=self._worst.notes(),
            slowest=self._slowest.notes(),
            errors=dict(self._first_errors),
        )


def _parts(
    found: Mapping[str, MeanAccumulator], errors: Mapping[int | None, int], own_errors: Mapping[str, int]
) -> dict[str, PartSummary]:
    """Summarize evaluators or prompts, including those that have only errors."""
    parts = {**found, **{name: MeanAccumulator() for name in own_errors if name not in found}}
    return {
        name: PartSummary(
            n=each.n,
            mean=each.mean,
            ci95=each.ci95,
            ci95_with_errors=_with_errors(each, errors),
            errors=own_errors.get(name, 0),
        )
        for name, each in parts.items()
    }


def _with_errors(scores: MeanAccumulator, errors: Mapping[int | None, int]) -> Interval | None:
    """Return the interval with errors counted as 0 for the lower bound and as 1 for the upper.

    `errors` are numbers of errors by cluster. None if there are none.
    """
    if not errors:
        return None
    bounds = []
    for value in (0.0, 1.0):
        filled = deepcopy(scores)
        for cluster, count in errors.items():
            for _ in range(count):
                filled.add(value, cluster)
        bounds.append(filled.ci95)
    lower, upper = bounds
    return None if lower is None or upper is None else (lower[0], upper[1])


class _Ranking:
    """The results with the highest measure; the first ones in case of ties."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, CaseNote]] = []
        self._order = 0

    def wants(self, measure: float) -> bool:
        return len(self._heap) < SHOWN or measure > self._heap[0][0]

    def add(self, measure: float, note: CaseNote) -> None:
        self._order -= 1
        heappush(self._heap, (measure, self._order, note))
        if len(self._heap) > SHOWN:
            heappop(self._heap)

    def notes(self) -> tuple[CaseNote, ...]:
        return tuple(note for _, _, note in sorted(self._heap, key=lambda entry: entry[:2], reverse=True))


def _note(result: Result, reason: str) -> CaseNote:
    metrics = result.execution_metrics
    return CaseNote(
        eval_id=result.eval_id,
        dataset=result.dataset,
        prompt=result.prompt,
        trial=result.trial,
        score=result.score,
        duration_ms=metrics.duration_ms if metrics else None,
        reason=reason[:LONGEST_REASON],
    )


def reason_of(result: Result, before: Result | None = None) -> str:
    """Return why a result did not pass: its error, its misses, or the evaluators' reasoning; empty if unknown.

    With `before`, the reason comes from the evaluators whose scores changed in the same direction as the result's.
    """
    if result.error is not None:
        return result.error.message
    change = 0.0 if before is None else (result.score or 0.0) - (before.score or 0.0)
    earlier = {found.name: found.score for found in before.evaluator_results} if before else {}
    scores = [(found, earlier.get(found.name), found.score) for found in result.evaluator_results]
    moved = [found for found, a, b in scores if a is not None and b is not None and (b - a) * change > 0]
    if result.misses and not moved:
        return result.misses[0]
    sources = moved or [found for found in result.evaluator_results if found.verdict not in (None, "pass")]
    points = (point for found in sources for point in (found.hits if change > 0 and moved else found.misses))
    own = None if moved else result.reasoning
    reasoning = own or next((found.reasoning for found in sources if found.reasoning), None)
    return next(points, None) or reasoning or ", ".join(found.name for found in sources)


def judge_cost(result: Result) -> float | None:
    """Return the cost of evaluators and of a simulated user; None if unknown."""
    judged = _evaluators_cost(result.evaluator_results)
    user = None if result.conversation is None else result.conversation.user_metrics
    if user is None or user.cost_usd is None:
        return judged
    return user.cost_usd + (judged or 0.0)


def _evaluators_cost(results: tuple[EvaluatorResult, ...]) -> float | None:
    """Return the cost of evaluators. A composite without a cost of its own costs as much as its members."""
    total = None
    for found in results:
        nested = found.evaluator_results
        cost = _evaluators_cost(nested) if nested and found.cost_usd is None else found.cost_usd
        if cost is not None:
            total = cost + (total or 0.0)
    return total
