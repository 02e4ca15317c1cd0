"""`--cases-budget` draws cases by their history, and every figure is weighted by the inverse probability."""

import json
import math
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from agentv import compare
from agentv.runs.folder import RunFolder
from agentv.runs.record import encode_record
from made_results import scored

CASES = 120
RUNS = 40
DRAWS = 100
SOLID = 100
"""The first cases, which pass in every run."""


@pytest.fixture
def history(project):
    """A project in which the last cases pass in two of three baseline runs, and half of them in the next run."""
    project.dataset(*("yes" if n < SOLID or n % 2 else "no" for n in range(CASES)))
    for run in range(3):
        assert project.eval("--out", f"base{run}").code == 0
        path = project.path / f"base{run}" / "results.jsonl"
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        for record in lines:
            number = int(record["eval_id"][1:])
            passes = number < SOLID or (number + run) % 3 > 0
            record |= {"score": float(passes), "verdict": "pass" if passes else "fail"}
        path.write_text("".join(json.dumps(record) + "\n" for record in lines))
    return project


def draw(project, *options, out="out", budget="30"):
    baseline = [option for run in range(3) for option in ("--baseline", f"base{run}")]
    return project.eval("--cases-budget", budget, *baseline, *options, "--out", out)


def weights(project, out="out"):
    return {record["eval_id"]: 1 / record["probability"] for record in project.records(out)}


def test_cases_that_vary_are_drawn_more_often_and_weighted_less(history):
    result = draw(history)
    assert result.code == 0
    found = weights(history)
    assert len(found) == 30
    assert sum(int(id[1:]) >= SOLID for id in found) > 5
    assert max(w for id, w in found.items() if int(id[1:]) >= SOLID) < min(
        w for id, w in found.items() if int(id[1:]) < SOLID
    )
    manifest = RunFolder(history.path / "out").read_manifest()
    assert (manifest.draw.cases, manifest.draw.population, manifest.draw.with_history) == (30, CASES, CASES)
    assert "Drew 30 of 120 cases, by the scores in 3 runs (seed 0)" in result.stdout
    assert re.search(r"Passed about [\d.]+ % of all cases, estimated from the 30 cases", result.stdout)


def test_the_mean_of_the_summary_can_be_recomputed_from_the_records(history):
    draw(history)
    records = history.records()
    shares = np.array([1 / record["probability"] for record in records])
    mean = float((shares * [record["score"] for record in records]).sum() / shares.sum())
    summary = RunFolder(history.path / "out").read_summary()
    found = summary.targets["default"]
    assert found.mean == pytest.approx(mean) == found.pass_rate == found.evaluators["says-yes"].mean
    assert found.ci95[0] < mean < found.ci95[1]
    assert summary.draw.population == CASES
    reported = json.loads(history.command("report", "out", "--json").stdout)
    assert reported["summary"]["targets"]["default"]["mean"] == pytest.approx(mean)


def test_a_comparison_weights_the_differences(history):
    draw(history)
    found = compare(str(history.path / "base0"), str(history.path / "out")).paired
    after, before = history.by_id(), history.by_id("base0")
    shares = weights(history)
    delta = sum(w * (after[id]["score"] - before[id]["score"]) for id, w in shares.items()) / sum(shares.values())
    assert (found.test, found.n) == ("weighted t", 30)
    assert found.mean_delta == pytest.approx(delta) == pytest.approx(found.mean_after - found.mean_before)
    text = history.command("compare", "base0", "out").stdout
    assert "weighted by the inverse of each case's probability" in text


def test_gates_use_the_weighted_figures(history):
    draw(history)
    rate = RunFolder(history.path / "out").read_summary().targets["default"].pass_rate
    passed = sum(record["score"] for record in history.records()) / 30
    assert rate > passed
    between = str((rate + passed) / 2)
    assert draw(history, "--min-pass-rate", between, out="gated").code == 0


def test_without_usable_history_it_is_a_simple_random_sample(project):
    project.dataset(*("yes" for _ in range(RUNS)))
    result = project.eval("--cases-budget", "10", "--out", "out")
    assert {record["probability"] for record in project.records()} == {0.25}
    assert "Drew 10 of 40 cases at random, because there is no --baseline" in result.stdout
    project.eval("--out", "whole")
    assert compare(str(project.path / "whole"), str(project.path / "out")).paired.test == "mid-p McNemar"


def test_a_budget_for_all_cases_runs_them_all(history):
    draw(history, budget="500")
    assert {record["probability"] for record in history.records()} == {1.0}
    assert len(history.records()) == CASES


def test_conversations_are_drawn_as_a_whole(project):
    project.dataset(*({"input": "yes", "conversation_id": f"t{n // 4}"} for n in range(RUNS)))
    project.eval("--cases-budget", "12", "--out", "out")
    talks = [record["conversation_id"] for record in project.records()]
    assert sorted(talks.count(talk) for talk in set(talks)) == [4, 4, 4]


def test_a_resumed_run_draws_the_same_cases(history):
    draw(history, out="whole")
    draw(history, "--fail-fast", "--workers", "1")
    left = 30 - len(history.records())
    assert left > 0
    manifest = RunFolder(history.path / "out").read_manifest()
    options = {name: value for name, value in manifest.options.items() if name != "fail_fast"}
    RunFolder(history.path / "out").write_manifest(msgspec.structs.replace(manifest, options=options, exit_code=None))
    assert history.eval("--resume", "--out", "out").code == 0
    assert weights(history) == weights(history, "whole")


def test_a_baseline_that_changed_cannot_be_resumed(history):
    draw(history, "--deadline", "0.001")
    path = history.path / "base1" / "results.jsonl"
    path.write_text(path.read_text().replace('"score": 0.0, "verdict": "fail"', '"score": 1.0, "verdict": "pass"'))
    result = history.eval("--resume", "--out", "out")
    assert result.code == 2
    assert "the runs of --baseline changed" in result.stderr


@pytest.mark.parametrize("option", [["--sample", "5"], ["--shard", "1/2"], ["--limit", "3"], ["--stop-when", "0.5"]])
def test_other_draws_are_refused(history, option):
    result = draw(history, *option)
    assert result.code == 2
    assert f"--cases-budget and {option[0]} cannot be combined" in result.stderr


def test_runs_that_drew_different_cases_are_not_compared(history):
    draw(history)
    draw(history, "--seed", "1", out="other")
    result = history.command("compare", "out", "other")
    assert result.code == 2
    assert "drew different cases" in result.stderr
    draw(history, out="same")
    assert history.command("compare", "out", "same").code == 0


def test_a_rescore_keeps_the_probabilities(history):
    draw(history)
    assert history.command("rescore", "out", "--all", "--out", "again").code == 0
    assert weights(history, "again") == weights(history)
    assert RunFolder(history.path / "again").read_manifest().draw.population == CASES


def test_a_filter_narrows_the_cases_to_draw_from(history):
    draw(history, "--filter", "c1*", budget="10")
    assert RunFolder(history.path / "out").read_manifest().draw.population == 31


def page_rate(claim):
    """Return a rate of docs/draw-claims.md and its number of simulations."""
    page = Path(__file__).parents[2] / "docs" / "draw-claims.md"
    (line,) = (line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {claim} |"))
    *_, rate, simulations = line.strip("| ").split(" | ")
    return float(rate.removesuffix(" %")) / 100, int(simulations.replace(",", ""))


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("gain", "claim"),
    [
        (0.1, "saturated, failing cases are fixed, +0.1 is called better"),
        (0.0, "saturated, nothing changed, false verdict"),
    ],
)
def test_the_rates_of_the_simulations_are_those_of_the_commands(project, gain, claim):
    """100 draws of 50 of 400 saturated cases, against a baseline with ten trials of each case."""
    draw, better = np.random.default_rng(11), 0
    project.write("d.yaml", {"evaluators": [{"type": "contains", "value": "yes"}]})
    for number in range(DRAWS):
        chance = draw.beta(0.2, 0.08, 400)
        after = np.minimum(1, chance + gain * (1 - chance) / (1 - chance).mean())
        trials = (draw.random((400, 10)) < chance[:, None]).astype(float)
        records = [
            scored(score, eval_id=f"c{case}", dataset="d", dataset_path="d.jsonl", trial=trial)
            for case in range(400)
            for trial, score in enumerate(trials[case].tolist(), 1)
        ]
        (project.path / "base.jsonl").write_bytes(b"".join(map(encode_record, records)))
        answers = draw.random(400) < after
        rows = [
            {"id": f"c{case}", "expected_outcome": "x", "input": "yes" if answers[case] else "no"}
            for case in range(400)
        ]
        (project.path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        options = ["--cases-budget", "50", "--baseline", "base.jsonl", "--seed", str(number), "--out", f"out{number}"]
        assert project.eval("d.jsonl", *options, "--quiet").code == 0
        found = json.loads(
            project.command("compare", "base.jsonl", f"out{number}", "--json", "--allow-changed-measure").stdout
        )
        assert found["summary"]["answer"] is not None, found["what_changed"]
        better += found["summary"]["answer"] != "cannot tell"
    expected, simulations = page_rate(claim)
    spread = max(expected * (1 - expected), 0.01)
    assert abs(better / DRAWS - expected) <= 2 * math.sqrt(spread * (1 / DRAWS + 1 / simulations))


def test_an_experiment_counts_with_all_its_runs(history):
    for _ in range(2):
        assert history.eval("--experiment", "base", "--quiet").code == 0
    result = history.eval("--cases-budget", "30", "--baseline", "base", "--out", "drawn")
    assert "Drew 30 of 120 cases, by the scores in 2 runs" in result.stdout
