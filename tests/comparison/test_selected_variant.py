"""The winner's curse: the best of several variants of a run gets an adjusted verdict and a shrunk difference."""

import json

import numpy as np
import pytest
from compared_runs import record, write_run

from agentv import compare


def write_prompts(path, table, name="prompt"):
    """Write a run in which each column of a table is a prompt, or a target."""
    rows, columns = table.shape
    records = [
        record(f"case-{row}", float(table[row, column]), **{name: f"p{column}"})
        for row in range(rows)
        for column in range(columns)
    ]
    return write_run(path, *records)


def equal_prompts(draw, cases, count, gain=0.0):
    """Draw pass or fail for prompts that are equal, except that the last may be better."""
    chance = np.repeat(draw.beta(1.4, 0.6, cases)[:, None], count, axis=1)
    chance[:, -1] = np.minimum(1, chance[:, -1] + gain)
    return (draw.random((cases, count)) < chance).astype(float)


def test_the_best_of_equal_prompts_is_rarely_called_better(tmp_path):
    draw, claims = np.random.default_rng(3), [0, 0]
    for _ in range(60):
        table = equal_prompts(draw, 60, 12)
        best = 1 + int(table[:, 1:].mean(axis=0).argmax())
        path = write_prompts(tmp_path / "run.jsonl", table)
        found = compare(f"{path}:p0", f"{path}:p{best}")
        claims[0] += found.answer == "better"
        unadjusted = found.selected["p_value"] if found.selected else found.paired.p_value
        claims[1] += found.paired.conclude(unadjusted) == "better"
        if found.selected:
            assert abs(found.selected["mean_delta"]) <= abs(found.paired.mean_delta)
    assert claims[0] <= 5 < claims[1]


@pytest.mark.parametrize("name", ["prompt", "target"])
def test_a_real_lead_remains_and_is_explained(tmp_path, name, command):
    path = write_prompts(tmp_path / "run.jsonl", equal_prompts(np.random.default_rng(1), 300, 6, 0.35), name)
    found = compare(f"{path}:p0", f"{path}:p5")
    assert found.answer == "better"
    assert found.selected["comparisons"] == 5
    assert found.paired.p_value == pytest.approx(min(1, 5 * found.selected["p_value"]))
    assert found.selected["mean_delta"] == pytest.approx(found.paired.mean_delta, rel=0.15)
    text = command("compare", f"{path}:p0", f"{path}:p5").stdout
    assert "is the best of 6 variants of its run" in text
    assert json.loads(command("compare", f"{path}:p0", f"{path}:p5", "--json").stdout)["selected"]["variants"] == 6


def test_a_variant_that_is_not_the_best_is_not_corrected(tmp_path):
    path = write_prompts(tmp_path / "run.jsonl", equal_prompts(np.random.default_rng(1), 100, 4, 0.3))
    assert compare(f"{path}:p0", f"{path}:p1").selected is None


def test_two_variants_are_not_corrected(tmp_path):
    path = write_prompts(tmp_path / "run.jsonl", equal_prompts(np.random.default_rng(1), 100, 2, 0.3))
    assert compare(f"{path}:p0", f"{path}:p1").selected is None


def test_the_best_of_another_run_is_corrected_for_all_its_variants(tmp_path):
    draw = np.random.default_rng(1)
    path = write_prompts(tmp_path / "run.jsonl", equal_prompts(draw, 200, 5, 0.3))
    before = write_prompts(tmp_path / "before.jsonl", equal_prompts(draw, 200, 1))
    found = compare(f"{before}:p0", f"{path}:p4")
    assert (found.selected["variants"], found.selected["comparisons"]) == (5, 5)
    # Against the best variant, the same holds for "worse".
    assert compare(f"{path}:p4", f"{before}:p0").selected["comparisons"] == 5
