"""`agentv compare` and `agentv plan` state the same detectable difference."""

import random

import pytest
from compared_runs import write_scores

from agentv.comparison.run_comparison import compare_runs
from agentv.comparison.sample_size import PlanOptions, plan
from agentv.comparison.scores import RunScores


@pytest.mark.parametrize("levels", [(0.0, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0)], ids=["pass or fail", "five levels"])
@pytest.mark.parametrize("changed", [0.01, 0.3])
def test_compare_and_plan_agree(tmp_path, levels, changed):
    draw = random.Random(4)
    before = [draw.choice(levels) for _ in range(200)]
    after = [draw.choice(levels) if draw.random() < changed else score for score in before]
    runs = [
        RunScores(write_scores(tmp_path / f"{name}.jsonl", scores), name)
        for name, scores in (("a", before), ("b", after))
    ]
    stated = compare_runs(*runs).paired.minimum_detectable_difference
    assert stated == pytest.approx(plan(runs, PlanOptions(trials=(1,))).could_show[1], rel=0.05)
