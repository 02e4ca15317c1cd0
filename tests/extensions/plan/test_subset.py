"""A subset of cases predicts the mean of a run that it was not chosen from better than a random subset."""

import json

import numpy as np
import pytest
from compared_runs import record, write_run

from agentv.comparison.scores import RunScores
from agentv.errors import UsageError
from agentv.extensions.plan.case_subset import choose_subset, representatives


def item_responses(draw, cases, runs):
    """Pass or fail by item response theory: runs differ in ability, cases in difficulty and in the skills they need."""
    ability, difficulty = draw.normal(0, 1, runs), draw.normal(-0.5, 1.2, cases)
    skills = draw.normal(0, 1, (cases, 3)) @ draw.normal(0, 1, (3, runs))
    logit = draw.lognormal(1.2, 0.4, cases)[:, None] * (ability - difficulty[:, None]) + skills
    return (draw.random((cases, runs)) < 1 / (1 + np.exp(-logit))).astype(float)


def runs_of(tmp_path, table, **known):
    """Write the columns of a table as runs."""
    found = []
    for run, scores in enumerate(table.T.tolist()):
        records = (record(f"c{case}", score, **known) for case, score in enumerate(scores))
        found.append(RunScores(write_run(tmp_path / f"{run}.jsonl", *records), f"r{run}"))
    return found


def test_a_subset_predicts_a_held_out_run_better_than_a_random_subset():
    draw = np.random.default_rng(1)
    chosen, at_random = [], []
    for _ in range(40):
        table = item_responses(draw, 300, 8)
        known, held_out = table[:, :5], table[:, 5:]
        for errors, rows in ((chosen, representatives(known, 40)), (at_random, draw.permutation(300)[:40])):
            errors.append(np.square(held_out[rows].mean(axis=0) - held_out.mean(axis=0)).mean())
    assert np.sqrt(np.mean(chosen)) < 0.85 * np.sqrt(np.mean(at_random))


def test_the_reported_error_is_that_of_runs_that_took_no_part(tmp_path):
    draw = np.random.default_rng(2)
    reported, true, by_chance = [], [], []
    for _ in range(12):
        table = item_responses(draw, 200, 8)
        found = choose_subset(runs_of(tmp_path, table[:, :5]), 30)
        rows = [int(id[1:]) for _, id in found.cases]
        reported.append(found.error**2)
        by_chance.append(found.random_error**2)
        true.append(np.square(table[rows, 5:].mean(axis=0) - table[:, 5:].mean(axis=0)).mean())
    assert np.sqrt(np.mean(reported)) == pytest.approx(np.sqrt(np.mean(true)), rel=0.25)
    assert np.mean(reported) < np.mean(by_chance)


def test_a_subset_keeps_cases_that_tell_runs_apart():
    # Half of the cases always pass; one run passes and one fails the others.
    table = np.r_[np.ones((50, 2)), np.tile([1.0, 0.0], (50, 1))]
    rows = representatives(table, 10)
    assert table[rows].mean(axis=0).tolist() == [1.0, 0.5]


def test_one_run_cannot_measure_the_error(tmp_path):
    found = choose_subset(runs_of(tmp_path, np.r_[np.ones((60, 1)), np.zeros((20, 1))]), 20)
    assert (len(found.cases), found.error, found.checks, found.runs[0].held_out_mean) == (20, None, 0, None)
    assert sum(int(id[1:]) < 60 for _, id in found.cases) == 15
    assert found.random_error == pytest.approx(np.sqrt(0.75 * 0.25 * 80 / 79 / 20 * 60 / 80))


def test_cases_without_a_score_in_every_run_are_left_out_and_counted(tmp_path):
    table = np.random.default_rng(3).random((20, 2))
    runs = runs_of(tmp_path, table)
    records = [record(f"c{n}", None if n < 3 else 0.5) for n in range(30)]
    found = choose_subset([*runs, RunScores(write_run(tmp_path / "x.jsonl", *records), "x")], 5)
    assert (found.total, found.left_out) == (17, 13)
    with pytest.raises(UsageError, match="Cannot choose 20 cases: 20 of 20 cases were scored in every run"):
        choose_subset(runs, 20)


def test_cases_whose_input_changed_are_left_out(tmp_path):
    before = RunScores(write_run(tmp_path / "a.jsonl", *(record(n, 1.0, fingerprint="a") for n in range(9))), "a")
    changed = (record(n, 1.0, fingerprint="a" if n else "b") for n in range(9))
    after = RunScores(write_run(tmp_path / "b.jsonl", *changed), "b")
    found = choose_subset([before, after], 4)
    assert (found.total, found.left_out) == (8, 1)


def test_eval_runs_the_cases_of_a_subset(folder, command):
    folder.write("evals/sums.jsonl", [{"id": f"c{n}", "input": f"{n}", "expected_outcome": "x"} for n in range(12)])
    table = np.random.default_rng(4).random((12, 3)).round(2)
    runs_of(folder.path, table, dataset="sums")
    ended = command("plan", "0.jsonl", "1.jsonl", "2.jsonl", "--subset", "4", "--out", "ci.jsonl")
    assert ended.code == 0
    assert ended.stdout.startswith("Chose 4 of 12 cases from 3 runs\nThe mean of the subset is off by about 0.")
    assert "30 checks on 3 held-out runs" in ended.stdout
    [data] = command("plan", "0.jsonl", "1.jsonl", "2.jsonl", "--subset", "4", "--json").printed
    listed = [json.loads(line) for line in (folder.path / "ci.jsonl").read_text().splitlines()]
    assert [[each["dataset"], each["id"]] for each in listed] == data["cases"]
    selected = command("cases", "evals/sums.jsonl", "--cases-from", "ci.jsonl", "--json").printed
    assert [case["id"] for case in selected] == [id for _, id in data["cases"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The case list list.jsonl is empty"),
        ("s1", "list.jsonl:1 is not an object with `dataset` and `id`"),
        ('{"dataset": "sums", "id": "s99"}', "1 listed case not in the dataset, the first: s99 in sums"),
        ('{"dataset": "other", "id": "s1"}', "None of the listed cases is in the datasets that were read"),
    ],
)
def test_a_case_list_that_does_not_fit_is_an_error(folder, command, text, message):
    folder.write("evals/sums.jsonl", [{"id": "s1", "input": "1", "expected_outcome": "x"}])
    folder.write("list.jsonl", text)
    ended = command("cases", "evals", "--cases-from", "list.jsonl")
    assert ended.code == 2
    assert message in ended.stderr


def test_a_missing_case_list_is_an_error(folder, command):
    folder.write("evals/sums.jsonl", [{"id": "s1", "input": "1", "expected_outcome": "x"}])
    assert (
        "Cannot read the case list nowhere.jsonl" in command("cases", "evals", "--cases-from", "nowhere.jsonl").stderr
    )
    assert "--out needs --subset" in command("plan", "x", "--out", "y").stderr
