"""Summarize probes: how many of each kind were misjudged, and by which evaluators."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from agentv.errors import EXIT_ERRORS, EXIT_FINDINGS, EXIT_OK
from agentv.model.result import EvaluatorResult, Result

MOST_SHOWN = 20


class ProbeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of probes of one kind by outcome. `judged` includes `misjudged`; the others have no verdict."""

    judged: int
    misjudged: int
    errors: int
    unscored: int


class MisjudgedProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A probe that passed, or a reference answer that did not. `by` names the evaluators that were wrong."""

    kind: str
    eval_id: str
    dataset: str
    score: float
    by: tuple[str, ...]
    reason: str = ""


class ProbeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of all probes. `evaluators` counts misjudged and judged probes by evaluator and kind."""

    kinds: dict[str, ProbeCounts]
    evaluators: dict[str, dict[str, tuple[int, int]]]
    misjudged: tuple[MisjudgedProbe, ...]
    first_error: str = ""

    @property
    def total(self) -> ProbeCounts:
        """The counts of all kinds together."""
        names = ProbeCounts.__struct_fields__
        return ProbeCounts(**{name: sum(getattr(counts, name) for counts in self.kinds.values()) for name in names})

    def exit_code(self, allowed: float) -> int:
        """Return the exit code of the command when up to `allowed` probes may be misjudged."""
        total = self.total
        if total.errors and not total.judged:
            return EXIT_ERRORS
        return EXIT_FINDINGS if total.misjudged > allowed else EXIT_OK


def summarize_probes(results: Iterable[Result], must_pass: frozenset[str]) -> ProbeSummary:
    """Summarize records whose targets are kinds of probes. Kinds in `must_pass` must pass, all others must not."""
    kinds: dict[str, Counter[str]] = {}
    evaluators: dict[str, dict[str, tuple[int, int]]] = {}
    probes: list[MisjudgedProbe] = []
    first_error = ""
    for result in results:
        kind = result.target
        counts = kinds.setdefault(kind, Counter())
        wrong = [entry for entry in result.evaluator_results if _is_wrong(entry.verdict, kind in must_pass)]
        for entry in result.evaluator_results:
            if entry.verdict is not None:
                misjudged, judged = evaluators.setdefault(entry.name, {}).get(kind, (0, 0))
                evaluators[entry.name][kind] = misjudged + (entry in wrong), judged + 1
        if result.status == "error":
            counts["errors"] += 1
            first_error = first_error or (result.error.message if result.error else "")
        elif result.verdict is None or result.score is None:
            counts["unscored"] += 1
        else:
            counts["judged"] += 1
            if _is_wrong(result.verdict, kind in must_pass):
                counts["misjudged"] += 1
                if len(probes) < MOST_SHOWN:
                    probes.append(_misjudged(result, result.score, [entry for entry in wrong if entry.weight > 0]))
    names = ProbeCounts.__struct_fields__
    return ProbeSummary(
        kinds={kind: ProbeCounts(**{name: counts[name] for name in names}) for kind, counts in kinds.items()},
        evaluators=evaluators,
        misjudged=tuple(probes),
        first_error=first_error,
    )


def _is_wrong(verdict: str | None, must_pass: bool) -> bool:
    return verdict is not None and (verdict == "pass") != must_pass


def _misjudged(result: Result, score: float, blamed: list[EvaluatorResult]) -> MisjudgedProbe:
    reasons = (entry.reasoning or next(iter((*entry.hits, *entry.misses)), "") for entry in blamed)
    return MisjudgedProbe(
        kind=result.target,
        eval_id=result.eval_id,
        dataset=result.dataset,
        score=score,
        by=tuple(entry.name for entry in blamed),
        reason=next(filter(None, reasons), ""),
    )
