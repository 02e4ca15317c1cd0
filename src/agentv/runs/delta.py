"""What a rescoring changed: means before and after over the same jobs, flipped verdicts, errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from agentv.model.result import Result, Verdict
from agentv.stats.intervals import MeanAccumulator

MOST_FLIPS = 20


class MeanChange(msgspec.Struct, frozen=True, kw_only=True):
    """A mean before and after, over the `n` jobs that were scored both times."""

    n: int
    before: float | None = None
    after: float | None = None


class Flip(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job whose verdict changed."""

    eval_id: str
    dataset: str
    target: str
    trial: int
    prompt: str | None = None
    before: Verdict
    after: Verdict
    score_before: float
    score_after: float


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """The difference for one target. `mended` counts errors that are gone, `broken` new ones."""

    jobs: int
    scores: MeanChange
    passed: tuple[int, int]
    evaluators: dict[str, MeanChange]
    errors: tuple[int, int]
    mended: int
    broken: int
    carried: int
    flips: dict[str, int]
    flipped: tuple[Flip, ...]


def deltas(pairs: Iterable[tuple[Result, Result]]) -> dict[str, Delta]:
    """The differences by target, of records before and after."""
    found: dict[str, _TargetDelta] = {}
    for before, after in pairs:
        found.setdefault(after.target, _TargetDelta()).add(before, after)
    return {target: each.delta() for target, each in found.items()}


class _TargetDelta:
    """The running figures of one target."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._scores = _Means()
        self._evaluators: dict[str, _Means] = {}
        self._flips: Counter[str] = Counter()
        self._flipped: list[Flip] = []

    def add(self, before: Result, after: Result) -> None:
        failed, fails = before.status == "error", after.status == "error"
        self._counts.update(
            jobs=1,
            carried=after.carried_from is not None,
            errors_before=failed,
            errors_after=fails,
            mended=failed and not fails,
            broken=fails and not failed,
        )
        if before.score is not None and after.score is not None:
            self._scores.add(before.score, after.score)
            self._counts.update(passed_before=before.verdict == "pass", passed_after=after.verdict == "pass")
            if before.verdict != after.verdict and before.verdict is not None and after.verdict is not None:
                self._flips[f"{before.verdict} → {after.verdict}"] += 1
                if len(self._flipped) < MOST_FLIPS:
                    self._flipped.append(_flip(before, after))
        scores = {result.name: result.score for result in before.evaluator_results}
        for result in after.evaluator_results:
            earlier = scores.get(result.name)
            if earlier is not None and result.score is not None:
                self._evaluators.setdefault(result.name, _Means()).add(earlier, result.score)

    def delta(self) -> Delta:
        counts = self._counts
        return Delta(
            jobs=counts["jobs"],
            scores=self._scores.change(),
            passed=(counts["passed_before"], counts["passed_after"]),
            evaluators={name: means.change() for name, means in self._evaluators.items()},
            errors=(counts["errors_before"], counts["errors_after"]),
            mended=counts["mended"],
            broken=counts["broken"],
            carried=counts["carried"],
            flips=dict(self._flips.most_common()),
            flipped=tuple(self._flipped),
        )


def _flip(before: Result, after: Result) -> Flip:
    assert before.verdict and after.verdict and before.score is not None and after.score is not None
    return Flip(
        eval_id=after.eval_id, dataset=after.dataset, target=after.target, trial=after.trial, prompt=after.prompt,
        before=before.verdict, after=after.verdict, score_before=before.score, score_after=after.score,
    )  # fmt: skip


class _Means:
    """Two means over the same jobs, in memory that does not grow."""

    def __init__(self) -> None:
        self._before, self._after = MeanAccumulator(), MeanAccumulator()

    def add(self, before: float, after: float) -> None:
        self._before.add(before)
        self._after.add(after)

    def change(self) -> MeanChange:
        return MeanChange(n=self._before.n, before=self._before.mean, after=self._after.mean)
