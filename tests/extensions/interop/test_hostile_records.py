"""Records of other tools with values that no tool writes are refused with their line, without a traceback."""

import json

import pytest

from agentv.extensions.interop.datasets.agents.waza import _skill_name

CRITERIA = {
    "a limit of 401 digits": {"type": "score_model", "range": [0, 1], "pass_threshold": 10**400},
    "a scale of 401 digits": {"type": "score_model", "range": [0, 10**400], "pass_threshold": 1},
    "a scale of texts": {"type": "score_model", "range": ["a", 1], "pass_threshold": 1},
    "a place of 5,000 digits": {
        "type": "string_check",
        "operation": "eq",
        "reference": "{{item.l." + "9" * 5000 + "}}",
    },
}


@pytest.mark.parametrize("name", CRITERIA)
def test_a_hostile_criterion_is_no_traceback(folder, command, name):
    criterion = {"input": [{"role": "user", "content": "{{sample.output_text}}"}], **CRITERIA[name]}
    if criterion["type"] == "string_check":
        criterion["input"] = "{{sample.output_text}}"
    question = [{"role": "user", "content": "{{item.q}}"}]
    source = {"type": "file_content", "content": [{"item": {"q": "Hi", "l": [1]}}]}
    data = {
        "data_source": {"type": "completions", "source": source, "input_messages": {"template": question}},
        "testing_criteria": [{"name": "p", **criterion}],
    }
    folder.write("eval.json", json.dumps(data))
    assert command("cases", "-q", "eval.json").code in (0, 2)
    assert command("validate", "eval.json").code in (0, 1)


def test_a_long_name_of_a_field_is_searched_once(folder, command):
    folder.write("rows.json", json.dumps([{"latency"[:-1] * 100_000 + "\n": 1, "question": "Hi", "answer": "Hello"}]))
    assert command("cases", "--guess", "rows.json").code == 0


@pytest.mark.parametrize(("skill", "name"), [("../other", "other"), ("../other/SKILL.md", "other"), ("own", "inside")])
def test_the_name_of_a_skill_is_read_in_the_project_only(folder, skill, name):
    for place, own in (("other", "outside"), ("mine/own", "inside")):
        folder.write(f"{place}/SKILL.md", f"---\nname: {own}\ndescription: x\n---\n")
    folder.write("mine/.git/HEAD", "")
    assert _skill_name(skill, str(folder.path / "mine")) == name
