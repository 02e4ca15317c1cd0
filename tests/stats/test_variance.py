"""Variance components: against statsmodels, and without bias in simulated runs with unequal trials."""

import random
import statistics

import pytest

from agentv.stats.variance import GroupedScores, ScoreSpread
from late import Late

np, sm = Late("numpy"), Late("statsmodels.api")


def grouped(rows):
    """Scores from rows of (case, score), or (case, score, cluster, prompt)."""
    found, numbers = GroupedScores(), {}
    for case, score, *further in rows:
        cluster, prompt = further or (case, 0)
        found.add(numbers.setdefault((case, prompt), len(numbers)), score, cluster, prompt)
    return found


def drawn(draw, cases=30, between=0.1, within=0.2, trials=lambda draw: 3):
    for case in range(cases):
        level = draw.gauss(0.5, between)
        for _ in range(trials(draw)):
            yield case, draw.gauss(level, within)


def test_balanced_components_are_those_of_statsmodels():
    rows = list(drawn(random.Random(1)))
    found = grouped(rows).components()
    cases, scores = (np.array(column) for column in zip(*rows, strict=True))
    fitted = sm.MixedLM(scores, np.ones(len(scores)), groups=cases).fit()
    assert found.trial == pytest.approx(fitted.scale, rel=1e-4)
    assert found.case == pytest.approx(float(fitted.cov_re[0, 0]), rel=1e-3)
    assert (found.cases, found.trials) == (30, 3)


def test_components_have_no_bias_with_unequal_trials():
    draw = random.Random(2)
    runs = [grouped(drawn(draw, trials=lambda draw: draw.choice((1, 1, 2, 3, 7)))).components() for _ in range(800)]
    assert statistics.mean(found.case for found in runs) == pytest.approx(0.01, rel=0.05)
    assert statistics.mean(found.trial for found in runs) == pytest.approx(0.04, rel=0.03)


def test_the_effect_of_a_prompt_is_not_variance_between_cases():
    rows = [(case, score, case, 0) for case, score in drawn(random.Random(3))]
    both = rows + [(case, score + 5, case, 1) for case, score, *_ in rows]
    one, two = grouped(rows).components(), grouped(both).components()
    assert (two.case, two.trial) == pytest.approx((one.case, one.trial))


@pytest.mark.parametrize("rows", [[], [(0, 1.0)], [(0, 1.0), (1, 0.0)], [(0, 1.0), (0, 0.0)]])
def test_components_need_two_cases_and_repeated_trials(rows):
    assert grouped(rows).components() is None


def test_equal_scores_have_no_variance():
    components = grouped([(case, 1.0) for case in range(5) for _ in range(3)]).components()
    assert (components.case, components.trial) == (0.0, 0.0)


def test_clusters_increase_the_variance_of_the_mean():
    draw = random.Random(4)
    scores = [(float(draw.random() < 0.6), cluster) for cluster in range(40) for _ in range(4)]
    same = [(float(draw.random() < 0.6), cluster) for cluster in range(40)]
    apart, together = ScoreSpread(), ScoreSpread()
    for score, _ in scores:
        apart.add(score)
    for score, cluster in same:
        for _ in range(4):
            together.add(score, cluster)
    values = [score for score, _ in scores]
    assert apart.variance == pytest.approx(statistics.variance(values))
    assert (apart.design_effect, apart.clusters, apart.mean) == (1.0, 160, pytest.approx(statistics.mean(values)))
    assert together.design_effect == pytest.approx(4, rel=0.05)
    assert (together.noise().cluster_size, together.noise().step) == (4.0, 1.0)
