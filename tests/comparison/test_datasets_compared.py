"""Results per dataset: weights, pooled differences, and datasets that move against the claim."""

import json

import pytest
from compared_runs import record, write_run

from agentv.comparison.part_comparison import partial_pooling
from agentv.comparison.run_comparison import compare_runs
from agentv.comparison.scores import RunScores
from agentv.report.comparisons.verdict_text import notes
from agentv.stats.paired_comparison import compare_paired

SCORED = {"expected_outcome": "x", "expected_output": "yes", "evaluators": [{"type": "equals"}]}


def run(path, **datasets):
    cases = [(dataset, n, score) for dataset, scores in datasets.items() for n, score in enumerate(scores)]
    records = [record(f"{dataset}-{n}", score, dataset=dataset) for dataset, n, score in cases]
    return RunScores(write_run(path, *records), path.stem)


def test_a_dataset_that_moves_against_the_claim_is_named(tmp_path):
    before = run(tmp_path / "a.jsonl", large=[0.0] * 90, small=[1.0] * 10)
    after = run(tmp_path / "b.jsonl", large=[1.0] * 90, small=[0.0] * 10)
    found = compare_runs(before, after)
    assert found.answer == "better"
    assert "Dataset small moved the other way: 1.000 → 0.000 on 10 cases" in list(notes(found))
    assert [(part.name, part.paired.mean_delta) for part in found.datasets] == [("large", 1.0), ("small", -1.0)]


def test_one_dataset_has_no_table(tmp_path):
    sides = [run(tmp_path / f"{name}.jsonl", only=[0.0, 1.0] * 10) for name in "ab"]
    assert compare_runs(*sides).datasets == ()


def test_pooling_shrinks_small_datasets_towards_the_others():
    large = compare_paired([0.5] * 100, [0.5 + 0.1 * (n % 3) for n in range(100)])
    small = compare_paired([0.5] * 3, [0.9, 0.8, 1.0])
    pooled = partial_pooling([large, large, small])
    assert pooled[0] == pytest.approx(large.mean_delta, abs=0.02)
    assert large.mean_delta < pooled[2] < small.mean_delta


def test_datasets_with_a_weight_have_a_weighted_difference(project):
    for name, weight in (("easy", 1), ("hard", 3)):
        rows = [{"id": f"{name}{n}", "input": name, **SCORED} for n in range(10)]
        project.write(f"{name}.yaml", json.dumps({"weight": weight, "evalcases": rows}))
    project.write("agent.py", "def old(text): return 'no'\ndef new(text): return 'yes' if text == 'easy' else 'no'\n")
    project.targets(*({"name": name, "provider": "python", "function": f"agent.py:{name}"} for name in ("old", "new")))
    for target in ("old", "new"):
        options = ("--target", target, "--out", target, "--quiet")
        assert project.command("eval", "easy.yaml", "hard.yaml", *options).code == 0
    data = json.loads(project.command("compare", "old", "new", "--json").stdout)
    assert data["weighted"]["weights"] == {"easy": 1.0, "hard": 3.0}
    assert (data["summary"]["mean_delta"], data["weighted"]["mean_delta"]) == (0.5, 0.25)
    text = project.command("compare", "old", "new").stdout
    assert "Datasets weighted (easy 1, hard 3): difference +0.250" in text
