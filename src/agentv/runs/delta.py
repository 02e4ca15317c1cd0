"""What a second scoring changed: means before and after over the same jobs, verdicts that flipped, errors. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import msgspec

from agentv.model.result import Result, Verdict

MOST_FLIPS = 20
_FOLDED = 4096


class MeanChange(msgspec.Struct, frozen=True, kw_only=True):
    """A mean before and after, over the `n` jobs that were scored both times."""

    n: int
    before: float | None = None
    after: float | None = None


class Flip(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job whose verdict is another one now."""

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
    """The difference for one target. `mended` and `broken` are errors that are none any more, and new ones."""

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
    found: dict[str, _Counting] = {}
    for before, after in pairs:
        if after.target not in found:
            found[after.target] = _Counting()
        found[after.target].add(before, after)
    return {target: counting.delta() for target, counting in found.items()}


class _Counting:
    def __init__(self) -> None:
        self._jobs = 0
        self._carried = 0
        self._scores = _Sums()
        self._evaluators: dict[str, _Sums] = {}
        self._passed = [0, 0]
        self._errors = [0, 0]
        self._mended = 0
        self._broken = 0
        self._flips: Counter[str] = Counter()
        self._flipped: list[Flip] = []

    def add(self, before: Result, after: Result) -> None:
        self._jobs += 1
        self._carried += after.carried_from is not None
        for index, record in enumerate((before, after)):
            self._errors[index] += record.status == "error"
        self._mended += before.status == "error" and after.status != "error"
        self._broken += before.status != "error" and after.status == "error"
        if before.score is not None and after.score is not None:
            self._scores.add(before.score, after.score)
            self._passed[0] += before.verdict == "pass"
            self._passed[1] += after.verdict == "pass"
            if before.verdict != after.verdict and before.verdict is not None and after.verdict is not None:
                self._flip(before, after)
        scores = {result.name: result.score for result in before.evaluator_results}
        for result in after.evaluator_results:
            earlier = scores.get(result.name)
            if earlier is not None and result.score is not None:
                self._evaluators.setdefault(result.name, _Sums()).add(earlier, result.score)

    def _flip(self, before: Result, after: Result) -> None:
        self._flips[f"{before.verdict} → {after.verdict}"] += 1
        if len(self._flipped) < MOST_FLIPS:
            assert before.verdict and after.verdict and before.score is not None and after.score is not None
            self._flipped.append(
                Flip(
                    eval_id=after.eval_id,
                    dataset=after.dataset,
                    target=after.target,
                    trial=after.trial,
                    prompt=after.prompt,
                    before=before.verdict,
                    after=after.verdict,
                    score_before=before.score,
                    score_after=after.score,
                )
            )

    def delta(self) -> Delta:
        return Delta(
            jobs=self._jobs,
            scores=self._scores.change(),
            passed=(self._passed[0], self._passed[1]),
            evaluators={name: sums.change() for name, sums in self._evaluators.items()},
            errors=(self._errors[0], self._errors[1]),
            mended=self._mended,
            broken=self._broken,
            carried=self._carried,
            flips=dict(self._flips.most_common()),
            flipped=tuple(self._flipped),
        )


class _Sums:
    def __init__(self) -> None:
        self._before: list[float] = []
        self._after: list[float] = []
        self._n = 0

    def add(self, before: float, after: float) -> None:
        self._n += 1
        self._before.append(before)
        self._after.append(after)
        if len(self._before) >= _FOLDED:  # folded now and then, so that memory does not grow with the run
            self._before, self._after = [math.fsum(self._before)], [math.fsum(self._after)]

    def change(self) -> MeanChange:
        if not self._n:
            return MeanChange(n=0)
        return MeanChange(n=self._n, before=math.fsum(self._before) / self._n, after=math.fsum(self._after) / self._n)
