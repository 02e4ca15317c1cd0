"""Measure the noise of a suite: two runs of the same setup, and a second scoring of the answers of the first."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean
from typing import Any

import msgspec

from agentv.comparison.comparison import Comparison
from agentv.comparison.comparison_json import paired_data
from agentv.comparison.run_comparison import compare_runs
from agentv.comparison.sample_size import FEWEST_CASES, PlanOptions, plan
from agentv.comparison.scores import RunScores
from agentv.errors import UsageError
from agentv.model.result import JobKey, Result, Verdict
from agentv.model.values import cluster_of
from agentv.stats.distributions import Z95, Interval
from agentv.stats.intervals import ROUNDING_ERROR, MeanAccumulator
from agentv.stats.power import POWER

CaseKey = tuple[str, str, str, str | None]
"""Dataset, id, target and prompt of a case."""


class ScoreNoise(msgspec.Struct, frozen=True, kw_only=True):
    """How much the score of one job varies if nothing changes: standard deviations, by source.

    `name` is the evaluator; None for the score of the case. `flipped` of `cases` cases got another verdict. `total` is
    between runs, over cases with two or more scores. `judge` is between two scorings of the same `judged` answers, None
    if no judge was called twice; `target` is what remains of the total. Sources add up as squares.
    """

    name: str | None
    cases: int
    flipped: int
    total: float | None
    judge: float | None = None
    judged: int = 0

    @property
    def target(self) -> float | None:
        """The part that comes from the target; None if the judge's part is unknown."""
        if self.total is None or self.judge is None:
            return None
        return math.sqrt(max(0.0, self.total**2 - self.judge**2))

    @property
    def judge_share(self) -> float | None:
        """The fraction of the variance that comes from the judge; None if it is unknown or nothing varies."""
        if self.judge is None or not self.total:
            return None
        return min(1.0, (self.judge / self.total) ** 2)


class FlakyCase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A case that got different verdicts, with its scores in each run in the order of its trials."""

    eval_id: str
    dataset: str
    target: str
    prompt: str | None = None
    verdicts: dict[str, int]
    scores: tuple[tuple[float, ...], tuple[float, ...]]


class NoiseFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The noise of a suite: what differs between two runs although nothing changed.

    `flip_rate` is the probability that a case gets another verdict when it runs again, over the `cases` that have two
    or more verdicts. `noise_floor` is the standard deviation of the difference between the means of two runs over the
    `shared_cases`, None with fewer than 20; 95 % of pairs of runs differ by less than `noise_bound`.
    `smallest_detectable_difference` is that which a comparison on these cases shows with a probability of `power`, as
    `agentv plan` computes it. `comparison` compares the second run with the first. `identical_answers` of `answers` are
    equal in both runs; `has_varied` is whether a case got two different answers, in any runs or trials.
    """

    trials: int
    cases: int
    flip_rate: float | None
    flip_rate_ci95: Interval | None
    flaky: tuple[FlakyCase, ...]
    shared_cases: int
    noise_floor: float | None
    noise_bound: float | None
    smallest_detectable_difference: float | None
    power: float
    score: ScoreNoise
    evaluators: tuple[ScoreNoise, ...]
    comparison: Comparison
    answers: int
    identical_answers: int
    has_varied: bool
    cached_answers: int
    cost_usd: float | None
    judge_cost_usd: float | None


def measure_noise(first: RunScores, second: RunScores, rescored: RunScores | None = None) -> NoiseFigures:
    """Measure the noise between two runs. `rescored` has the answers of the first run, scored a second time."""
    comparison = compare_runs(first, second)
    tally = NoiseTally()
    for number, run in enumerate((first, second)):
        for result in run.run.records():
            tally.add(number, result)
    if rescored is not None:
        for result in rescored.run.records():
            tally.add_second_scoring(result)
    flips, effect = tally.flip_rate(), _design_effect(comparison)
    # Fewer cases are too few to estimate how far the mean moves.
    is_known = comparison.paired is not None and comparison.paired.clusters >= FEWEST_CASES
    floor = tally.floor(effect) if is_known else None
    shared = [case.scores for case in tally.cases.values() if all(case.scores)]
    largest = max((abs(fmean(before) - fmean(after)) for before, after in shared), default=0.0)
    trials = max((len(scores) for case in tally.cases.values() for scores in case.scores), default=1)
    return NoiseFigures(
        trials=trials,
        cases=flips.n,
        flip_rate=flips.mean,
        flip_rate_ci95=flips.ci95,
        flaky=tuple(tally.flaky()),
        shared_cases=len(shared),
        noise_floor=floor,
        noise_bound=None if floor is None else noise_bound(floor, largest * math.sqrt(effect), len(shared)),
        smallest_detectable_difference=_detectable(first, second, trials, comparison),
        power=POWER,
        score=tally.noise(None),
        evaluators=tuple(sorted(map(tally.noise, tally.names), key=lambda each: -(each.total or 0.0))),
        comparison=comparison,
        answers=tally.compared_answers,
        identical_answers=tally.identical_answers,
        has_varied=tally.has_varied,
        cached_answers=tally.cached,
        cost_usd=tally.cost_usd,
        judge_cost_usd=tally.judge_cost_usd,
    )


def noise_bound(floor: float, largest: float, cases: int) -> float:
    """Return what 95 % of the differences between two runs are below, with one more change as large as the largest.

    A few changes estimate the floor only roughly: without the further one, it is 88 to 94 % for 20 cases.
    """
    return Z95 * math.hypot(floor, largest / cases)


def _detectable(first: RunScores, second: RunScores, trials: int, comparison: Comparison) -> float | None:
    """Return the smallest difference that these cases show, as `agentv plan` computes it from both runs."""
    try:
        return next(iter(plan((first, second), PlanOptions(trials=(trials,))).could_show.values()))
    except UsageError:  # the scores do not vary, or there are too few cases
        return None if comparison.paired is None else comparison.paired.minimum_detectable_difference


def _design_effect(comparison: Comparison) -> float:
    """Return the factor by which conversations increase the variance of the difference."""
    paired = comparison.paired
    if paired is None or paired.clusters == paired.n or not paired.standard_error:
        return 1.0
    deltas = [pair.delta for pair in comparison.pairs]
    mean = math.fsum(deltas) / len(deltas)
    plain = math.fsum((delta - mean) ** 2 for delta in deltas) / (len(deltas) - 1) / len(deltas)
    return max(1.0, paired.standard_error**2 / plain) if plain > ROUNDING_ERROR**2 else 1.0


class _Scores:
    """The scores of one evaluator, or of the cases, in both runs and in the second scoring."""

    def __init__(self) -> None:
        self.by_case: dict[CaseKey, list[float]] = {}
        self.verdicts: dict[CaseKey, set[Verdict]] = {}
        self.first: dict[JobKey, float] = {}
        self.squares = 0.0
        self.judged = 0

    def add(self, case: CaseKey, score: float, verdict: Verdict | None) -> None:
        self.by_case.setdefault(case, []).append(score)
        if verdict is not None:
            self.verdicts.setdefault(case, set()).add(verdict)

    def add_second(self, key: JobKey, score: float) -> None:
        if (before := self.first.get(key)) is not None:
            self.squares += (score - before) ** 2
            self.judged += 1

    @property
    def variance(self) -> float | None:
        """The variance between scores of the same case, pooled; None if no case has two scores."""
        if not (further := sum(len(scores) - 1 for scores in self.by_case.values())):
            return None
        squares = (
            (score - math.fsum(scores) / len(scores)) ** 2 for scores in self.by_case.values() for score in scores
        )
        variance = math.fsum(squares) / further
        return variance if variance > ROUNDING_ERROR**2 else 0.0


class _Case:
    """The verdicts and scores of a case in both runs."""

    def __init__(self, conversation: tuple[str, str] | None) -> None:
        self.conversation = conversation
        self.verdicts: list[Verdict] = []
        self.scores: tuple[list[float], list[float]] = ([], [])


class NoiseTally:
    """Collects the results of both runs by case."""

    def __init__(self) -> None:
        self.cases: dict[CaseKey, _Case] = {}
        self.names: dict[str, _Scores] = {}
        self._whole = _Scores()
        self._answers: dict[JobKey, int] = {}
        self._first_answers: dict[CaseKey, int] = {}
        self.has_varied = False
        self.compared_answers = self.identical_answers = self.cached = 0
        self.cost_usd: float | None = None
        self.judge_cost_usd: float | None = None
        self._judges: set[str] = set()

    def add(self, run: int, result: Result) -> None:
        """Add a record of the first run (0) or the second (1)."""
        self._add_cost(result)
        self._add_answer(run, result)
        if result.score is None:
            return
        key = (result.dataset, result.eval_id, result.target, result.prompt)
        talk = cluster_of(result)
        if (case := self.cases.get(key)) is None:
            case = self.cases[key] = _Case(None if talk is None else (result.dataset, talk))
        case.scores[run].append(result.score)
        if result.verdict is not None:
            case.verdicts.append(result.verdict)
        self._whole.add(key, result.score, result.verdict)
        if run == 0:
            self._whole.first[result.key] = result.score
        for evaluation in result.evaluator_results:
            if evaluation.score is not None:
                scores = self.names.setdefault(evaluation.name, _Scores())
                scores.add(key, evaluation.score, evaluation.verdict)
                if run == 0:
                    scores.first[result.key] = evaluation.score
                if evaluation.called_judge:
                    self._judges.add(evaluation.name)

    def add_second_scoring(self, result: Result) -> None:
        """Add a record of the first run that was scored again."""
        if result.carried_from is not None:
            return  # it was not scored again
        self._add_judge_cost(result)
        if result.score is not None:
            self._whole.add_second(result.key, result.score)
        for evaluation in result.evaluator_results:
            if evaluation.score is not None and evaluation.name in self.names:
                self.names[evaluation.name].add_second(result.key, evaluation.score)

    def _add_answer(self, run: int, result: Result) -> None:
        if result.candidate_answer is None:
            return
        self.cached += result.cached
        answer = hash((result.candidate_answer, msgspec.json.encode(result.output_messages)))
        case = (result.dataset, result.eval_id, result.target, result.prompt)
        self.has_varied |= self._first_answers.setdefault(case, answer) != answer
        if run == 0:
            self._answers[result.key] = answer
        elif result.key in self._answers:
            self.compared_answers += 1
            self.identical_answers += self._answers[result.key] == answer

    def _add_cost(self, result: Result) -> None:
        metrics = result.execution_metrics
        if metrics is not None and metrics.cost_usd is not None and not result.cached:
            self.cost_usd = (self.cost_usd or 0.0) + metrics.cost_usd
        self._add_judge_cost(result)

    def _add_judge_cost(self, result: Result) -> None:
        if (cost := result.judge_cost_usd) is not None:
            self.judge_cost_usd = (self.judge_cost_usd or 0.0) + cost

    def flip_rate(self) -> MeanAccumulator:
        """Return the mean over cases of the fraction of pairs of verdicts that differ."""
        flips = MeanAccumulator()
        clusters: dict[Any, int] = {}
        for case in self.cases.values():
            if len(case.verdicts) > 1:
                total, talk = len(case.verdicts), case.conversation
                same = sum(count * (count - 1) for count in Counter(case.verdicts).values())
                share = 1 - same / (total * (total - 1))
                flips.add(share, None if talk is None else clusters.setdefault(talk, len(clusters)))
        return flips

    def flaky(self) -> Iterator[FlakyCase]:
        """Yield the cases with different verdicts, those with the most different ones first."""
        flaky_cases = [(key, case) for key, case in self.cases.items() if len(set(case.verdicts)) > 1]
        flaky_cases.sort(key=lambda each: (-_spread_of(each[1]), each[0][0], each[0][1]))
        for (dataset, id, target, prompt), case in flaky_cases:
            first, second = case.scores
            yield FlakyCase(
                eval_id=id,
                dataset=dataset,
                target=target,
                prompt=prompt,
                verdicts=dict(Counter(case.verdicts).most_common()),
                scores=(tuple(first), tuple(second)),
            )

    def floor(self, design_effect: float = 1.0) -> float | None:
        """Return the standard deviation of the difference between the means of two runs.

        SD² = D σ² Σ (1/k₁ + 1/k₂) / n², where σ² is the variance between trials of a case, k₁ and k₂ are the numbers of
        trials of a case in both runs, n is the number of cases, and D the design effect of conversations.
        """
        variance = self._whole.variance
        shared = [case.scores for case in self.cases.values() if all(case.scores)]
        if variance is None or not shared:
            return None
        weights = math.fsum(1 / len(first) + 1 / len(second) for first, second in shared)
        return math.sqrt(variance * weights * design_effect) / len(shared)

    def noise(self, name: str | None) -> ScoreNoise:
        """Return the noise of an evaluator; with None, that of the scores of the cases."""
        scores = self._whole if name is None else self.names[name]
        variance = scores.variance
        calls_judge = bool(self._judges) if name is None else name in self._judges
        return ScoreNoise(
            name=name,
            cases=sum(1 for values in scores.by_case.values() if len(values) > 1),
            flipped=sum(1 for values in scores.verdicts.values() if len(values) > 1),
            total=None if variance is None else math.sqrt(variance),
            judge=math.sqrt(scores.squares / 2 / scores.judged) if scores.judged and calls_judge else None,
            judged=scores.judged if calls_judge else 0,
        )


def _spread_of(case: _Case) -> float:
    scores = [*case.scores[0], *case.scores[1]]
    return max(scores) - min(scores)


_NOT_DATA = ("comparison", "has_varied")


def noise_data(figures: NoiseFigures, exit_code: int, runs: Mapping[str, str], notes: Iterable[str]) -> dict[str, Any]:
    """Return the noise as JSON."""

    def source(noise: ScoreNoise) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(noise)
        return {**data, "target": noise.target, "judge_share": noise.judge_share}

    return {
        **{name: getattr(figures, name) for name in figures.__struct_fields__ if name not in _NOT_DATA},
        "flipped": len(figures.flaky),
        "difference": paired_data(figures.comparison.paired),
        "score": source(figures.score),
        "evaluators": [source(noise) for noise in figures.evaluators],
        "flaky": msgspec.to_builtins(figures.flaky),
        "errors": [side.errors for side in figures.comparison.sides],
        "runs": dict(runs),
        "notes": list(notes),
        "exit_code": exit_code,
    }
