"""With several agents, `skill` and `ablate` adjust their p-values for the number of agents."""

import pytest

from agentv.extensions.skill.ablation_text import ablation_lines
from agentv.extensions.skill.arms import WITH, WITHOUT, Arm
from agentv.extensions.skill.findings import Findings, find
from agentv.model.result import EvaluatorResult
from agentv.runs.record import encode_record
from made_results import scored


def score(arm, case):
    """The first agent wins seven cases and loses one; the others are the same in both arms."""
    if arm.base != "a0":
        return float(case % 2)
    return float(case < 7 if arm.label == WITH else case == 19)


@pytest.fixture
def measured(tmp_path):
    def findings(agents, **fields):
        """Return the findings for agents whose results have these fields."""
        arms = [Arm(base=f"a{agent}", label=label, settings={}) for agent in range(agents) for label in (WITHOUT, WITH)]
        results = [
            scored(score(arm, case), eval_id=str(case), target=arm.name, **fields) for arm in arms for case in range(20)
        ]
        path = tmp_path / "run.jsonl"
        path.write_bytes(b"".join(map(encode_record, results)))
        return Findings(subject="the skill", folders={}, targets=find(arms, {"evals": path}, None, 0))

    return findings


@pytest.mark.parametrize(("agents", "start"), [(1, "Helps: a0 with the skill is better by 0.300"),
    (2, "Can't tell yet. a0 with the skill scored 0.300 higher")])  # fmt: skip
def test_the_sentence_follows_the_adjusted_p_value(measured, agents, start):
    lines = [text for text, _ in ablation_lines(measured(agents))]
    assert lines[0].startswith(start) and f"p = 0.0{39 * agents}" in lines[0]
    assert ("Note: p is adjusted for 2 targets (Holm)" in lines) is (agents == 2)


def test_a_judge_without_labels_does_not_say_that_a_skill_helps(measured):
    judged = EvaluatorResult(
        name="quality", weight=1.0, type="llm_judge", score=1.0, verdict="pass",
        evaluator_provider_request={"calls": [{"target": "judge", "model": "m"}]},
    )  # fmt: skip
    findings = measured(1, evaluator_results=(judged,))
    assert ablation_lines(findings)[0][0].startswith("The judge scores a0 with the skill higher by 0.300")


@pytest.mark.parametrize(("agents", "answer"), [(1, "better"), (2, "cannot tell")])
def test_p_values_are_adjusted_for_the_number_of_agents(measured, agents, answer):
    baseline = measured(agents).targets[0].baselines[WITHOUT]
    assert baseline.paired.p_value == pytest.approx(0.0390625 * agents)
    assert baseline.paired.answer == answer
    assert ("p is adjusted for 2 targets (Holm)" in baseline.notes) is (agents == 2)
