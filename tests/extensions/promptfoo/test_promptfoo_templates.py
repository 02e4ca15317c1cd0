"""Nunjucks in configurations of promptfoo; the values are compared with promptfoo's in tests/data/peers."""

import json
import sys

import pytest

from agentv.errors import DatasetError


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
    assert ended.code != 0 and "toUpperCase() of a value that is not set" in ended.stderr


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


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("{{items}} {{ thing }} {{ items | dump }}", "1,2 [object Object] [1,2]"),
        ("{{ thing.b }} {{ word.split('') }} {{ items | reverse }}", "x,y o,n,e 2,1"),
        ("{{ 2.5 | round }} {{ 6 / 2 }} {{ half }}", "3 3 0.5"),
        ("{{ unset | dump }}{{ unset | length }}{{ nothing }}", "0"),
        ("{% if nothing is defined and nothing == null %}null{% endif %}", "null"),
        ("{% if empty %}yes{% else %}no{% endif %}", "yes"),
        ("not closed {{ word", "not closed {{ word"),
        ("{{ quoted }}", "Say one"),
    ],
)
def test_values_are_printed_as_in_javascript(folder, command, prompt, text):
    data = {"items": [1, 2], "thing": {"b": ["x", "y"]}, "half": 0.5, "nothing": None, "empty": []}
    evaluate(folder, command, prompt, word="one", quoted="Say {{ word }}", **data)
    assert answer() == f"Say\n{text}"


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("{{ words | random }}", "unknown filter: random"),
        ("{{ words.sort() }}", "The method 'sort' in a template is not supported"),
        ("{% include 'x' %}", "the statement 'include' is not supported"),
        ("{% if env.HOME == 'x' %}a{% endif %}", "'env' can only be inserted as `{{ env.NAME }}`"),
        ("{{ words | replace(r/a/g, 'b') }}", "regular expressions in a template are not supported"),
        ("{% for i in range(2000000) %}{% endfor %}", "range() has more than 1,000,000 numbers"),
        ("{% set s = 'aaaaaaaa' %}" + "{% set s = s ~ s %}" * 30 + "{{ s }}", "longer than 10,000,000 characters"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_refused_by_name(folder, command, prompt, reason):
    ended = evaluate(folder, command, prompt, words=[1, 2])
    assert ended.code != 0 and reason in ended.stderr


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


@pytest.mark.parametrize(
    ("chat", "sent"),
    [
        ({"messages": [{"role": "user", "content": "Hi {{x}}"}]}, {"messages": [{"role": "user", "content": "Hi a"}]}),
        ([{"name": "Bo", "content": "{{x}}", "role": "user"}], [{"name": "Bo", "content": "a", "role": "user"}]),
    ],
)
def test_a_program_receives_the_json_of_a_prompt_with_its_keys_in_order(folder, command, chat, sent):
    folder.write("dump.py", PROGRAM)
    tests = [{"vars": {"x": "a"}, "assert": [{"type": "is-json"}]}]
    data = {"prompts": [json.dumps(chat), "{{x}} as text"], "providers": ["python:dump.py"], "tests": tests}
    folder.write("promptfooconfig.yaml", json.dumps(data))
    command("eval", "promptfooconfig.yaml", "--out", "run")
    with open("run/results.jsonl", encoding="utf-8") as lines:
        answers = {json.loads(line)["candidate_answer"] for line in lines}
    assert answers == {json.dumps(sent, indent=2), "a as text"}


def test_models_receive_messages_and_programs_next_to_them_a_named_loss(folder):
    folder.write("dump.py", PROGRAM)
    providers = ["python:dump.py", "openai:gpt-4o"]
    data = {"prompts": [CHAT, "Say {{x}}"], "providers": providers, "tests": [{"vars": {"x": "a"}}]}
    folder.write("promptfooconfig.yaml", json.dumps(data))
    loaded = folder.load("promptfooconfig.yaml")
    assert [message.role for message in loaded[0].prompts[0].input] == ["system", "user"]
    notes = [str(each) for each in loaded.warnings]
    assert any("the JSON of chat prompts for the provider 'python:dump.py'" in note for note in notes)


YAML_PROMPTS = {
    "- 'One {{x}}'\n- Two\n": '[\n  "One X",\n  "Two"\n]',
    "greeting: Hello {{x}}\nn: 3\n": '{\n  "greeting": "Hello X",\n  "n": 3\n}',
    "Hello {{x}}\n": '"Hello X"',
    "- role: user\n  content: {{x}}\n": "- role: user\n  content: X\n",
    "{% for i in [1, 2] %}\n- role: user\n{% endfor %}\n": "\n- role: user\n\n- role: user\n\n",
}


@pytest.mark.parametrize(("text", "prompt"), YAML_PROMPTS.items(), ids=range(len(YAML_PROMPTS)))
def test_a_prompt_in_yaml_is_the_json_of_its_data_or_its_text(folder, text, prompt):
    folder.write("p.yaml", text)
    config = "prompts: [file://p.yaml]\nproviders: [echo]\ntests: [{vars: {x: X}}]\n"
    (case,) = folder.load(folder.write("promptfooconfig.yaml", config))
    assert case.input[0].content == prompt
