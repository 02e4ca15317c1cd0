"""Cost and quality of three or more runs: cost per passed case, the frontier, and the picture."""

import json

import numpy as np
import pytest
from compared_runs import record, used, write_run

from agentv.stats.means import ratio_of_means

SCORES = {"cheap": 0.6, "dear": 0.9, "waste": 0.6}
COSTS = {"cheap": 0.01, "dear": 0.03, "waste": 0.05}


def records(target, n=200):
    random = np.random.default_rng(len(target))
    for number, passed in enumerate((random.random(n) < SCORES[target]).tolist()):
        known = {"verdict": "pass" if passed else "fail", "execution_metrics": used(COSTS[target], 10)}
        yield record(number, float(passed), target=target, **known)


@pytest.fixture
def runs(folder):
    for target in SCORES:
        write_run(folder.path / f"{target}.jsonl", *records(target))
    return [f"{target}.jsonl" for target in SCORES]


def test_compare_prints_cost_per_passed_case_and_the_frontier(runs, command):
    printed = command("compare", *runs).stdout
    assert "A, B are on the frontier of cost and quality; 1 is dominated." in printed
    table = printed[printed.index("Cost and quality") :].splitlines()
    assert table[4].startswith("C") and "dominated by B" in table[4]
    points = json.loads(command("compare", *runs, "--json").stdout)["cost_and_quality"]
    assert [point["dominated_by"] for point in points] == [None, None, 1]
    low, high = points[1]["cost_per_pass_ci95"]
    assert low < 0.03 / 0.9 < high and points[1]["cost_per_pass"] == pytest.approx(0.0333, abs=0.003)


def test_an_error_costs_money_and_does_not_pass(folder, command):
    for target in SCORES:
        own = list(records(target, 100))
        own += [record(f"{target} extra", 1.0, target=target, execution_metrics=used(1.0, 10))]  # not shared
        own += [record(0, None, target=target, trial=2, execution_metrics=used(COSTS[target], 10))]
        write_run(folder.path / f"{target}.jsonl", *own)
    data = json.loads(command("compare", *(f"{target}.jsonl" for target in SCORES), "--json").stdout)
    passed = sum(each.score for each in records("dear", 100)) - 0.5 * next(records("dear")).score
    assert data["cost_and_quality"][1]["cost_per_pass"] == pytest.approx(3.0 / passed)


def test_drawn_cases_have_the_same_mean_in_both_tables_and_a_weighted_cost(folder, command):
    for target in SCORES:
        drawn = [
            record(n, float(n % k > 0), target=target, probability=probability, execution_metrics=used(n / 40, 1))
            for n, k, probability in [*((n, 4, 0.8) for n in range(20)), *((n, 2, 0.2) for n in range(20, 40))]
        ]
        write_run(folder.path / f"{target}.jsonl", *drawn)
    data = json.loads(command("compare", *(f"{target}.jsonl" for target in SCORES), "--json").stdout)
    weights = np.array([1.25] * 20 + [5.0] * 20)
    for run, point in zip(data["runs"], data["cost_and_quality"], strict=True):
        assert point["mean"] == pytest.approx(run["mean"]["value"]) != 0.625
        assert point["mean_ci95"] == pytest.approx(run["mean"]["ci95"])
        assert point["cost"] == pytest.approx(np.average(np.arange(40) / 40, weights=weights))
    data = json.loads(command("compare", "cheap.jsonl", "dear.jsonl", "--json").stdout)
    assert data["cost_usd"]["after"] == pytest.approx(point["cost"])


def test_two_runs_or_runs_without_costs_have_no_frontier(folder, runs, command):
    assert "frontier" not in command("compare", *runs[:2]).stdout
    write_run(folder.path / "free.jsonl", *(record(number, 1.0) for number in range(200)))
    assert "frontier" not in command("compare", *runs, "free.jsonl").stdout


def test_the_interval_of_a_ratio_covers_the_true_ratio():
    random, held = np.random.default_rng(3), 0
    for _ in range(400):
        passes = (random.random(80) < 0.4).astype(float)
        costs = random.gamma(2.0, 0.01, 80) * (1 + passes)
        _, (low, high) = ratio_of_means(costs, passes)
        held += low <= 0.02 * 1.4 / 0.4 <= high
    assert held / 400 >= 0.93
    assert ratio_of_means([1.0, 2.0], [0.0, 0.0]) is None
