"""The detectable difference of a run's summary, which is computed without numpy, is that of `agentv plan`."""

import numpy as np
import pytest
from compared_runs import record, write_run

from agentv.comparison.sample_size import PlanOptions, plan
from agentv.comparison.scores import RunScores
from agentv.runs.run_figures import run_figures
from agentv.runs.store import RunStore


@pytest.mark.every(3)
@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("talk", [1, 5])
@pytest.mark.parametrize("binary", [True, False])
def test_a_summary_and_a_plan_have_the_same_detectable_difference(tmp_path, trials, talk, binary):
    draw = np.random.default_rng(5)
    levels = draw.beta(2, 1, 120)
    records = []
    for case in range(120):
        for trial in range(1, trials + 1):
            score = float(draw.random() < levels[case // talk]) if binary else float(draw.beta(4 * levels[case], 2))
            known = {"conversation_id": str(case // talk)} if talk > 1 else {}
            records.append(record(f"case-{case}", score, trial=trial, **known))
    path = write_run(tmp_path / "run.jsonl", *records)
    (target,) = run_figures(RunStore.open(path)).summary.targets.values()
    planned = plan([RunScores(path, "run")], PlanOptions(trials=(trials,))).could_show[trials]
    assert target.minimum_detectable_difference == pytest.approx(planned, rel=1e-6)
