"""Sample sizes: checked against the formula, and by simulating their power."""

import json
import math

import numpy as np
import pytest
from compared_runs import record, used, write_run

from agentv.comparison.sample_size import PlanOptions, plan
from agentv.comparison.scores import RunScores
from agentv.errors import UsageError
from agentv.stats.power import Noise, cases_for_gate, cases_needed


def scores_of(tmp_path, name, rows, **known):
    """Write a run from the trial scores of each case."""
    records = [
        record(
            f"case-{case}",
            float(score),
            trial=trial,
            verdict="pass" if score >= 0.8 else "fail",
            **{key: value(case) for key, value in known.items()},
        )
        for case, row in enumerate(rows)
        for trial, score in enumerate(row, 1)
    ]
    return RunScores(write_run(tmp_path / f"{name}.jsonl", *records), name)


def test_a_plan_from_one_run_assumes_a_correlation(tmp_path):
    scores = np.random.default_rng(1).random(50)
    found = plan([scores_of(tmp_path, "a", scores[:, None])], PlanOptions(differences=(0.05,), correlation=0.6))
    variance = 2 * scores.var(ddof=1) * 0.4
    assert found.spread.noise(1).variance == pytest.approx(variance)
    noise = Noise(variance, loss=found.spread.loss)
    assert [(need.trials, need.cases) for need in found.needs] == [(1, cases_needed(0.05, noise))]
    assert found.could_show[1] == pytest.approx(2.86 * math.sqrt(variance / 50), rel=0.01)


def test_a_plan_from_one_run_covers_every_correlation(tmp_path, agentv):
    rows = np.random.default_rng(3).random((100, 1)) < 0.7
    run = scores_of(tmp_path, "a", rows)
    ends = [plan([run], PlanOptions(differences=(0.1,), correlation=each)).needs[0].cases for each in (1.0, 0.5, 0.0)]
    need = plan([run], PlanOptions(differences=(0.1,))).needs[0]
    assert (need.cases_range, need.cases) == ((ends[0], ends[2]), ends[1])
    assert ends == sorted(ends) and ends[2] > 4 * ends[0]
    printed = agentv(run.path, "-d", "0.1").stdout
    assert f"needs {ends[0]:,} to {ends[2]:,} paired cases with 1 trial each: {ends[1]:,} if the correlation" in printed
    assert "Ranges cover every correlation" in printed
    assert "Ranges" not in agentv(run.path, "--correlation", "0.3").stdout


def test_a_plan_from_two_runs_measures_the_correlation(tmp_path):
    draw = np.random.default_rng(2)
    before = draw.random(40)
    after = np.clip(before + 0.1 * draw.standard_normal(40), 0, 1)
    runs = [scores_of(tmp_path, name, scores[:, None]) for name, scores in [("a", before), ("b", after)]]
    found = plan(runs, PlanOptions(differences=(0.02,)))
    assert found.spread.is_measured
    assert found.spread.correlation == pytest.approx(np.corrcoef(before, after)[0, 1])
    assert found.needs[0].cases == cases_needed(0.02, Noise((after - before).var(ddof=1), loss=found.spread.loss))


def test_variance_between_trials_is_separated_from_variance_between_cases(tmp_path):
    draw = np.random.default_rng(3)
    easy = draw.random(3_000)
    rows = draw.random((3_000, 4)) < easy[:, None]
    found = plan([scores_of(tmp_path, "a", rows)], PlanOptions(correlation=0.2)).spread
    # Pass rates are uniform: their variance is 1/12 between cases, and E[p(1-p)] = 1/6 between trials.
    assert found.between == pytest.approx(1 / 12, rel=0.1)
    assert found.within == pytest.approx((1 / 6, 1 / 6), rel=0.1)
    # A correlation of 0.2 of single trials is a covariance of 0.2 / 4.
    assert found.noise(4).variance == pytest.approx(2 * (1 / 12 - 0.2 / 4) + 2 / 6 / 4, rel=0.1)


def test_a_gate_and_a_margin_are_planned(tmp_path):
    draw = np.random.default_rng(6)
    run = scores_of(tmp_path, "a", draw.random((400, 1)) < 0.95)
    options = PlanOptions(margin=0.03, min_pass_rate=0.9, threshold=0.95)
    needs = {need.goal: need for need in plan([run], options).needs}
    assert list(needs) == ["margin", "min_pass_rate", "threshold"]
    assert needs["min_pass_rate"].cases == cases_for_gate(needs["min_pass_rate"].observed, 0.9)
    # The interval of the run includes 0.95: the true mean may be on the limit, where no number of cases is enough.
    assert needs["threshold"].cases_ci95[1] is None
    assert needs["margin"].cases_ci95[0] < needs["margin"].cases < needs["margin"].cases_ci95[1]
    with pytest.raises(UsageError, match="A gate is planned from one run"):
        plan([run, run], options)


@pytest.mark.parametrize("pairs", [30, 100])
def test_the_interval_of_a_pilot_contains_the_number_that_is_needed(tmp_path, pairs):
    draw = np.random.default_rng(7)
    truth = cases_needed(0.1, Noise(2 * 0.04, loss=0.55))
    held = 0
    for _ in range(60):
        runs = [scores_of(tmp_path, name, draw.normal(0.5, 0.2, (pairs, 1)).clip(0, 1)) for name in "ab"]
        low, high = plan(runs, PlanOptions(differences=(0.1,))).needs[0].cases_ci95
        held += low <= truth <= high
    assert held >= 54


def test_fewer_than_20_cases_have_no_interval(tmp_path, agentv):
    draw = np.random.default_rng(8)
    runs = [scores_of(tmp_path, name, draw.random((19, 1))) for name in "ab"]
    assert {need.cases_ci95 for need in plan(runs).needs} == {None}
    assert "Too few cases for an interval" in agentv(runs[0].path).stdout


def test_equal_pass_or_fail_scores_still_need_cases_for_a_difference(tmp_path):
    found = plan([scores_of(tmp_path, name, np.ones((30, 1))) for name in "ab"], PlanOptions(differences=(0.05,)))
    assert found.needs[0].cases == cases_needed(0.05, Noise(0.0, step=1))
    low, high = found.needs[0].cases_ci95
    assert low == found.needs[0].cases < high


def test_conversations_need_more_cases(tmp_path):
    rows = np.repeat(np.random.default_rng(5).random(30), 5)[:, None]
    options = PlanOptions(differences=(0.05,))
    alone = plan([scores_of(tmp_path, "a", rows)], options)
    together = plan([scores_of(tmp_path, "b", rows, conversation_id=lambda case: f"c{case // 5}")], options)
    assert together.spread.design_effect == pytest.approx(5, rel=0.05)
    assert together.needs[0].cases == pytest.approx(5 * alone.needs[0].cases, rel=0.05)


def test_a_run_with_several_targets_needs_a_choice(tmp_path):
    path = write_run(tmp_path / "a.jsonl", *(record(n, n / 9, target=name) for n in range(9) for name in ("t", "u")))
    with pytest.raises(UsageError, match=r"a has 2 targets \(t, u\)") as error:
        plan([RunScores(path, "a")])
    assert error.value.hint == "Pick one: a:t"
    assert plan([RunScores(path, "a", "u")]).spread.cases == 9


def test_prompts_of_a_case_are_not_independent_cases(tmp_path):
    once = write_run(tmp_path / "a.jsonl", *(record(n, n / 9) for n in range(9)))
    thrice = write_run(tmp_path / "b.jsonl", *(record(n, n / 9, prompt=name) for n in range(9) for name in "pqr"))
    few, many = (plan([RunScores(path, "a")]).spread for path in (once, thrice))
    assert variance_of_mean(many) == pytest.approx(variance_of_mean(few), rel=1e-9)


def variance_of_mean(spread):
    return spread.design_effect * spread.noise(1).variance / spread.cases


def test_one_case_is_too_few(tmp_path):
    with pytest.raises(UsageError, match="At least 2 scored cases"):
        plan([scores_of(tmp_path, "a", [[1.0]])])


def test_equal_scores_are_an_error(tmp_path):
    alike = [scores_of(tmp_path, name, [[score]] * 4) for name, score in [("a", 0.7), ("b", 0.5)]]
    for runs, why in [
        (alike[:1], "All scores in a are equal"),
        (alike, "b differs from a by the same amount in every case"),
    ]:
        with pytest.raises(UsageError, match="Cannot estimate a sample size: the scores do not vary") as error:
            plan(runs)
        assert why in str(error.value)
    with pytest.raises(UsageError, match="scores do not vary"):
        plan([scores_of(tmp_path, "thrice", [[0.7] * 3] * 4)])
    # Equal cases whose trials vary are enough to plan trials.
    assert plan([scores_of(tmp_path, "c", [[0.2, 0.4], [0.4, 0.2]])]).spread.within is not None


def test_the_run_without_repeated_trials_is_named(tmp_path, agentv):
    once = scores_of(tmp_path, "once", [[0.1], [0.5], [0.9]])
    thrice = scores_of(tmp_path, "thrice", [[0.1, 0.2, 0.3], [0.5, 0.1, 0.2], [0.9, 0.8, 1.0]])
    assert f"because no case in {once.path} has several" in agentv(once.path, thrice.path).stdout.replace("\n", " ")
    assert "because no case has several" in agentv(once.path).stdout


@pytest.fixture
def agentv(command):
    return lambda *arguments: command("plan", *map(str, arguments))


def test_the_command(tmp_path, agentv):
    run = scores_of(tmp_path, "a", [[0, 1], [1, 1], [0, 0], [1, 0]], execution_metrics=lambda case: used(0.01, 10.0))
    found = agentv(run.path, "--difference", "0.1")
    assert (found.code, found.stderr) == (0, "")
    assert found.stdout.startswith("Showing a difference of 0.1 with 80% power needs ")
    assert "10 trials" in found.stdout
    assert "($" in found.stdout
    data = json.loads(agentv(run.path, "--trials", "2", "--json").stdout)
    assert [need["trials"] for need in data["needs"]] == [2, 2, 2, 2]
    assert [need["value"] for need in data["needs"]] == [0.02, 0.05, 0.1, 0.2]
    assert "No --difference given: this is for 0.05" in agentv(run.path).stdout
    assert agentv(run.path, run.path, run.path).code == 2
    assert agentv(tmp_path / "nowhere").code == 2
