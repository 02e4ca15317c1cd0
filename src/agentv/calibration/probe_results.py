"""What probes found: by kind, how many were judged as they must be; which evaluators were fooled, and by what. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agentv.errors import EXIT_ERRORS, EXIT_FINDINGS, EXIT_OK
from agentv.model.result import EvaluatorResult, Result

MOST_SHOWN = 20


class ProbeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The probes of one kind. `misjudged` of `judged`; the others have no verdict."""

    judged: int
    misjudged: int
    errors: int
    unscored: int


class Misjudged(msgspec.Struct, frozen=True, kw_only=True):
    """A probe that passed and must not, or the reference, which must and did not. `by` are the evaluators to blame."""

    kind: str
    eval_id: str
    dataset: str
    score: float
    by: tuple[str, ...]
    reason: str = ""


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `evaluators` counts, for each evaluator and kind, misjudged and judged."""

    kinds: dict[str, ProbeCounts]
    evaluators: dict[str, dict[str, tuple[int, int]]]
    misjudged: tuple[Misjudged, ...]
    first_error: str = ""

    @property
    def judged_in_all(self) -> int:
        return sum(counts.judged for counts in self.kinds.values())

    @property
    def misjudged_in_all(self) -> int:
        return sum(counts.misjudged for counts in self.kinds.values())

    @property
    def errors_in_all(self) -> int:
        return sum(counts.errors for counts in self.kinds.values())

    def exit_code(self, allowed: float) -> int:
        """What the command ends with when up to `allowed` probes may be misjudged."""
        if self.errors_in_all and not self.judged_in_all:
            return EXIT_ERRORS
        return EXIT_FINDINGS if self.misjudged_in_all > allowed else EXIT_OK


def probed(results: Iterable[Result], must_pass: frozenset[str]) -> Probed:
    """Sums up records whose targets are kinds of probes; those in `must_pass` must pass, all others must not."""
    kinds: dict[str, dict[str, int]] = {}
    evaluators: dict[str, dict[str, list[int]]] = {}
    shown: list[Misjudged] = []
    first_error = ""
    for result in results:
        kind = result.target
        counts = kinds.setdefault(kind, {"judged": 0, "misjudged": 0, "errors": 0, "unscored": 0})
        for each in result.evaluator_results:
            if each.verdict is not None:
                pair = evaluators.setdefault(each.name, {}).setdefault(kind, [0, 0])
                pair[0] += _is_wrong(each.verdict, kind in must_pass)
                pair[1] += 1
        if result.status == "error":
            counts["errors"] += 1
            first_error = first_error or (result.error.message if result.error else "")
        elif result.verdict is None:
            counts["unscored"] += 1
        else:
            counts["judged"] += 1
            if _is_wrong(result.verdict, kind in must_pass):
                counts["misjudged"] += 1
                if len(shown) < MOST_SHOWN:
                    shown.append(_misjudged(result, kind in must_pass))
    return Probed(
        kinds={kind: ProbeCounts(**counts) for kind, counts in kinds.items()},
        evaluators={
            name: {kind: (pair[0], pair[1]) for kind, pair in by_kind.items()} for name, by_kind in evaluators.items()
        },
        misjudged=tuple(shown),
        first_error=first_error,
    )


def _is_wrong(verdict: str, must_pass: bool) -> bool:
    return (verdict == "pass") != must_pass


def _misjudged(result: Result, must_pass: bool) -> Misjudged:
    blamed = [each for each in result.evaluator_results if each.verdict is not None and each.weight > 0]
    blamed = [each for each in blamed if each.verdict is not None and _is_wrong(each.verdict, must_pass)]
    assert result.score is not None
    return Misjudged(
        kind=result.target,
        eval_id=result.eval_id,
        dataset=result.dataset,
        score=result.score,
        by=tuple(each.name for each in blamed),
        reason=next(filter(None, map(_said, blamed)), ""),
    )


def _said(result: EvaluatorResult) -> str:
    return result.reasoning or next(iter((*result.hits, *result.misses)), "")
