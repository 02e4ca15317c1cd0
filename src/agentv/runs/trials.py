"""Cases that are tried several times: how many of their trials passed, and the chances that this makes."""

from __future__ import annotations

import hashlib
from array import array
from functools import cache

from agentv.model.manifest import TrialsSummary
from agentv.stats.intervals import MeanAccumulator, pass_at_k, pass_hat_k

_SHOWN = (1, 2, 3, 5, 10, 20, 50, 100)


class Trials:
    """Scored trials of each case and prompt, counted. Takes memory for each of them."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._clusters = array("q")
        self._scored = array("l")
        self._passed = array("l")

    def add(self, case: int, prompt: str | None, cluster: int, passed: bool) -> None:
        """One more trial. `case` is a hash, `cluster` the number of what the case belongs to."""
        number = self._numbers.setdefault(hash((case, prompt)), len(self._numbers))
        if number == len(self._scored):
            self._clusters.append(cluster)
            self._scored.append(0)
            self._passed.append(0)
        self._scored[number] += 1
        self._passed[number] += passed

    def summary(self) -> tuple[TrialsSummary, ...]:
        """For some numbers of trials, up to the most that a case has; nothing where none was tried twice."""
        most = max(self._scored, default=0)
        return tuple(self._of(k) for k in sorted({*_SHOWN, most}) if k <= most) if most > 1 else ()

    def _of(self, k: int) -> TrialsSummary:
        one, every = MeanAccumulator(), MeanAccumulator()
        at_k, hat_k = cache(pass_at_k), cache(pass_hat_k)
        for cluster, scored, passed in zip(self._clusters, self._scored, self._passed, strict=True):
            if scored >= k:
                one.add(at_k(scored, passed, k), cluster)
                every.add(hat_k(scored, passed, k), cluster)
        assert one.mean is not None and every.mean is not None
        return TrialsSummary(
            k=k,
            n=one.n,
            pass_at_k=one.mean,
            pass_at_k_ci95=one.ci95,
            pass_hat_k=every.mean,
            pass_hat_k_ci95=every.ci95,
        )


def unit_of(conversation_id: str | None, path: str, id: str) -> str:
    """What a result is drawn and bet on together with: its conversation, else the trials of its case."""
    return f"conversation\0{conversation_id}" if conversation_id is not None else f"{path}\0{id}"


def rank(seed: int, unit: str) -> int:
    """A unit's place in the shuffle of a seed."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{unit}".encode(), digest_size=8).digest())
