"""Figures of a run in memory that does not grow with its cases, unless a case has several results."""

import tracemalloc

import pytest

from agentv.runs.record import encode_record
from agentv.runs.store import RunStore
from made_results import scored


def opened(path, cases, trials=1):
    jobs = [(number, trial) for number in range(cases) for trial in range(trials)]
    results = (scored(number % 4 / 3, eval_id=f"case-{number}", trial=trial + 1) for number, trial in jobs)
    path.write_bytes(b"".join(map(encode_record, results)))
    return RunStore.open(path)


def peak(run):
    run.figures()
    tracemalloc.start()
    try:
        run.figures()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("trials", "most"), [(1, 30), (2, 400)])
def test_the_figures_of_a_run_take_few_bytes_a_case(tmp_path, trials, most):
    small, large = (peak(opened(tmp_path / f"{cases}.jsonl", cases, trials)) for cases in (300, 1_300))
    assert large - small < 1_000 * most


def test_trials_of_a_case_are_a_cluster_without_a_manifest(tmp_path):
    once, twice = (opened(tmp_path / f"{trials}.jsonl", 200, trials).figures().summary for trials in (1, 2))
    assert twice.targets["t"].ci95 == pytest.approx(once.targets["t"].ci95, abs=1e-3)
    assert (twice.targets["t"].cases, twice.targets["t"].scored) == (200, 400)
