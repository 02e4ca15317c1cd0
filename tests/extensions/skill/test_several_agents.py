"""With several agents, `skill` and `ablate` adjust their p-values for the number of agents."""

import pytest

from agentv.extensions.skill.arms import WITH, WITHOUT, Arm
from agentv.extensions.skill.findings import find
from agentv.runs.record import encode_record
from made_results import scored


def score(arm, case):
    """The first agent wins seven cases and loses one; the others are the same in both arms."""
    if arm.base != "a0":
        return float(case % 2)
    return float(case < 7 if arm.label == WITH else case == 19)


@pytest.mark.parametrize(("agents", "answer"), [(1, "better"), (2, "cannot tell")])
def test_p_values_are_adjusted_for_the_number_of_agents(tmp_path, agents, answer):
    arms = [Arm(base=f"a{agent}", label=label, settings={}) for agent in range(agents) for label in (WITHOUT, WITH)]
    results = [scored(score(arm, case), eval_id=str(case), target=arm.name) for arm in arms for case in range(20)]
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(encode_record, results)))
    found = find(arms, {"evals": path}, None, 0)[0].baselines[WITHOUT]
    assert found.paired.p_value == pytest.approx(0.0390625 * agents)
    assert found.paired.answer == answer
    assert ("p is adjusted for 2 targets (Holm)" in found.notes) is (agents == 2)
