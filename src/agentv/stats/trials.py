"""What repeated trials of a case say of its chances: pass@k (one of k passes) and pass^k (all of k pass)."""

from __future__ import annotations

from math import comb


def pass_at_k(trials: int, passed: int, k: int) -> float:
    """The chance that at least one of k trials passes: 1 - C(n-c, k) / C(n, k), without bias for n ≥ k trials.

    Chen et al. (2021), Evaluating Large Language Models Trained on Code, arXiv:2107.03374.
    """
    _check(trials, passed, k)
    return 1 - comb(trials - passed, k) / comb(trials, k)


def pass_hat_k(trials: int, passed: int, k: int) -> float:
    """The chance that all of k trials pass: C(c, k) / C(n, k), without bias for n ≥ k trials.

    Yao et al. (2024), τ-bench, arXiv:2406.12045.
    """
    _check(trials, passed, k)
    return comb(passed, k) / comb(trials, k)


def _check(trials: int, passed: int, k: int) -> None:
    if not 0 <= passed <= trials:
        raise ValueError(f"0 to {trials} of {trials} trials can pass, got {passed}")
    if not 1 <= k <= trials:
        raise ValueError(f"k is from 1 to the number of trials, which is {trials}; got {k}")
