"""Nunjucks in configurations of promptfoo; the values are compared with promptfoo's in tests/data/peers."""

import json
import sys

import pytest

from agentv.errors import DatasetError, LossWarning


def config(prompt, tests):
    return json.dumps({"prompts": [prompt], "providers": ["echo"], "tests": tests})


def evaluate(folder, command, prompt, **variables):
    test = {"vars": variables, "assert": [{"type": "contains", "value": "Say"}]}
    folder.write("promptfooconfig.yaml", config(f"Say\n{prompt}", [test]))
    return command("eval", "promptfooconfig.yaml", "--out", "run")


def answer():
    with open("run/results.jsonl", encoding="utf-8") as lines:
        (record,) = map(json.loads, lines)
    return record["candidate_answer"]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("{{ x | default('ACME') }}", "ACME"),
        ("{{ x }}{{ x | upper }}.", "."),
        ("{% if x is defined %}yes{% else %}no{% endif %}", "no"),
        ("{{ (word + '!').toUpperCase() }}", "ONE!"),
        ("{{ word.replace('o', 'O').split('n')[0].length }}", "1"),
    ],
)
def test_a_prompt_has_the_text_of_promptfoo(folder, command, prompt, text):
    evaluate(folder, command, prompt, word="one")
    assert answer() == f"Say\n{text}"


def test_a_method_of_an_unset_variable_is_an_error(folder, command):
    ended = evaluate(folder, command, "{{ x.toUpperCase() }}")
    assert ended.code != 0 and "toUpperCase() needs text" in ended.stderr


def test_a_method_without_a_counterpart_is_refused_by_name(folder):
    folder.write("promptfooconfig.yaml", config("Say\n{{ words.reverse() }}", [{"vars": {"words": "a"}}]))
    with pytest.raises(DatasetError, match="The method 'reverse' in a template is not supported"):
        folder.load("promptfooconfig.yaml")


def test_an_assertion_with_a_method_without_a_counterpart_refuses_its_case(folder):
    tests = [
        {"vars": {"x": "a"}, "assert": [{"type": "not-contains", "value": value}]} for value in ("{{x.at(0)}}", "b")
    ]
    folder.write("promptfooconfig.yaml", config("{{x}}", tests))
    first, second = folder.load("promptfooconfig.yaml")
    assert "The method 'at'" in first.case_error and second.case_error is None


@pytest.mark.parametrize(
    "value",
    ["one{{ o.q }}", "one{{ o.q.r }}{{ x.y }}", "{% if o.q %}two{% else %}one{% endif %}", "{{o.q|default('one')}}"],
)
def test_a_missing_part_of_a_variable_is_empty_in_an_assertion(folder, value):
    tests = [{"vars": {"o": {"a": 1}}, "assert": [{"type": "equals", "value": value}]}]
    folder.write("promptfooconfig.yaml", config("one", tests))
    (case,) = folder.load("promptfooconfig.yaml")
    assert case.evaluators[0].settings["value"] == "one"


@pytest.mark.parametrize("value", ["a{{", "{% if", ["{{", "hello"], "{% nope %}hello"])
def test_an_assertion_with_an_invalid_template_refuses_its_case(folder, value):
    kind = "not-contains-any" if isinstance(value, list) else "not-contains"
    tests = [{"assert": [{"type": kind, "value": value}]}, {"assert": [{"type": "contains", "value": "one"}]}]
    folder.write("promptfooconfig.yaml", config("one", tests))
    assert "is not a valid template" in folder.load("promptfooconfig.yaml")[0].case_error


def test_a_list_or_an_object_in_a_prompt_is_a_difference(folder):
    test = {"vars": {"items": [1, 2], "thing": {"a": 1}}}
    folder.write("promptfooconfig.yaml", config("{{items}} {{ thing }} {{ items | dump }}", [test]))
    notes = [str(each) for each in folder.load("promptfooconfig.yaml").warnings if isinstance(each, LossWarning)]
    assert any("'{{items}}' inserts JSON; promptfoo inserts 1,2" in note for note in notes)
    assert any("'{{thing}}' inserts JSON; promptfoo inserts [object Object]" in note for note in notes)


CHAT = '[{"role": "system", "content": "Be {{who}}"}, {"role": "user", "content": "Say\\n\\"{{x}}\\" ü"}]'
SENT = [{"role": "system", "content": "Be kind"}, {"role": "user", "content": 'Say\n"hello" ü'}]
PROGRAM = """\
import sys

def call_api(prompt, options, context):
    return {"output": prompt}

if __name__ == "__main__":
    print(sys.argv[1], end="")
"""


@pytest.mark.parametrize("provider", ["python:dump.py", f"exec:{sys.executable} dump.py"])
def test_a_program_receives_a_chat_as_the_json_of_its_messages(folder, command, provider):
    folder.write("dump.py", PROGRAM)
    tests = [{"vars": {"who": "kind", "x": "hello"}, "assert": [{"type": "is-json"}]}]
    folder.write("promptfooconfig.yaml", json.dumps({"prompts": [CHAT], "providers": [provider], "tests": tests}))
    command("eval", "promptfooconfig.yaml", "--out", "run")
    assert answer() == json.dumps(SENT, ensure_ascii=False, indent=2)


def test_chats_next_to_texts_are_a_loss_for_programs(folder):
    folder.write("dump.py", PROGRAM)
    data = {"prompts": [CHAT, "Say {{x}}"], "providers": ["python:dump.py"], "tests": [{"vars": {"x": "a"}}]}
    folder.write("promptfooconfig.yaml", json.dumps(data))
    notes = [str(each) for each in folder.load("promptfooconfig.yaml").warnings]
    assert any("the JSON of chat prompts for the provider 'python:dump.py'" in note for note in notes)
