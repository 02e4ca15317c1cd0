"""The same mean has the same interval in the summary, in reports, and on each side of a comparison."""

import json
import random

import pytest
from compared_runs import judged, record, write_run

SHAPES = {
    "pass or fail": lambda draw: float(draw.random() < 0.8),
    "any score": lambda draw: draw.choice((0.0, 0.25, 0.9, 1.0)),
    "all the same": lambda draw: 1.0,
}


def printed(command, *arguments):
    result = command(*map(str, arguments), "--json")
    assert result.code in (0, 5), result
    return json.loads(result.stdout)


def written(path, shape, trials, talk):
    draw = random.Random(4)
    records = []
    for case in range(30):
        known = {"conversation_id": str(case // talk)} if talk > 1 else {}
        for trial in range(1, trials + 1):
            score = SHAPES[shape](draw)
            verdict = "pass" if score >= 0.8 else "fail"
            results = judged(tone=score)
            records.append(
                record(f"case-{case}", score, verdict=verdict, trial=trial, evaluator_results=results, **known)
            )
    return write_run(path, *records)


@pytest.mark.every(5)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("talk", [1, 5])
def test_the_same_mean_has_the_same_interval_everywhere(command, tmp_path, shape, trials, talk):
    run, other = (written(tmp_path / name, shape, trials, talk) for name in ("a.jsonl", "b.jsonl"))
    target = printed(command, "report", run)["summary"]["targets"]["t"]
    expected = pytest.approx((target["mean"], *target["ci95"]))
    assert (target["evaluators"]["tone"]["mean"], *target["evaluators"]["tone"]["ci95"]) == expected
    if shape == "pass or fail":
        assert (target["pass_rate"], *target["pass_rate_ci95"]) == expected
    two, three = printed(command, "compare", run, other), printed(command, "compare", run, other, run)
    for mean in (*(side["mean"] for side in (*two["runs"], *three["runs"])), *three["means"]):
        assert (mean["value"], *mean["ci95"]) == expected
