"""Prompts of judges, scoring functions and filters in promptfoo configurations. The peer records have their scores."""

import json
import shutil
from pathlib import Path

import pytest

from agentv.datasets.formats.dataset_format import Source
from agentv.extensions.promptfoo.promptfoo_config import PROMPTFOO_CONFIG

JUDGE = """
def ask(messages):
    roles = [message["role"] for message in messages]
    return '{"pass": true, "score": %s}' % (len(roles) / 10)
"""
TARGETS = [
    {"name": "default", "provider": "mock", "response": "hello"},
    {"name": "judge", "provider": "python", "function": "judge.py:ask"},
]
CHAT = json.dumps([{"role": "system", "content": "Grade {{rubric}}"}, {"role": "user", "content": "{{output}}"}])
GRADED = {
    "chat": ({}, 0.2),
    "text": ({"form": "text"}, 0.1),
    "lines": ({"form": "lines", "prompt": "system: Grade {{rubric}}\nuser: {{output}}\nassistant: I"}, 0.3),
    "YAML for a model of lines": ({"form": "lines", "prompt": "- role: user\n  content: user: a"}, 0.1),
    "a chat for a model of lines": ({"form": "lines"}, 0.2),
    "votes": ({"votes": 3}, 0.2),
    "inverse": ({"inverse": True}, 0.8),
}


@pytest.mark.parametrize(("settings", "score"), GRADED.values(), ids=GRADED)
def test_a_judge_gets_the_messages_of_its_prompt(command, folder, monkeypatch, settings, score):
    monkeypatch.chdir(folder.path)
    folder.write("judge.py", JUDGE)
    folder.write(".agentv/targets.yaml", {"targets": TARGETS})
    evaluator = {"type": "model_graded", "prompt": CHAT, "value": "kind", **settings}
    case = {"id": "a", "input": "hi", "expected_outcome": "x", "evaluators": [evaluator]}
    command("eval", folder.write("cases.yaml", {"evalcases": [case]}), "--out", "run", "--no-gate")
    (record,) = map(json.loads, Path("run/results.jsonl").read_text("utf-8").splitlines())
    assert record["score"] == pytest.approx(score)
    assert record["verdict"] == ("fail" if "inverse" in settings else "pass")


def warnings(folder, assertion, **options):
    test = {"vars": {"x": "a"}, "assert": [assertion, {"type": "contains", "value": "a"}], "options": options}
    data = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [test]}
    return " ".join(map(str, folder.load(folder.write("promptfooconfig.json", json.dumps(data))).warnings))


LOSSES = {
    "not negated": ({"type": "not-factuality", "value": "b"}, {}, "'not-' of 'not-factuality'"),
    "not negated with a context": ({"type": "not-context-recall", "value": "b"}, {}, "'not-' of 'not-context-recall'"),
    "a prompt that is not used": (
        {"type": "answer-relevance", "rubricPrompt": "p"},
        {},
        "'rubricPrompt' of 'answer-rel",
    ),
    "scores without a prompt": (
        {"type": "factuality", "value": "b"},
        {"factuality": {"agree": 0}},
        "'factuality' in the",
    ),
    "the provider in code": (
        {"type": "javascript", "value": "!context.provider.label"},
        {},
        "'context.provider', which",
    ),
    "the test's options in code": (
        {"type": "python", "value": "not context.get('test', {}).get('options')"},
        {},
        "'context.test.options', which code reads",
    ),
    "a response with a transform": (
        {"type": "javascript", "value": "output === context.providerResponse.output"},
        {"transform": "output + '!'"},
        "'output' of a response, which code reads",
    ),
    "an agent": ({"type": "agent-rubric", "value": "b"}, {}, "'agent-rubric': the judge reads files only if"),
}


@pytest.mark.parametrize(
    "code", ["context.test.vars.x", "context.get('test').get('vars')", "context.providerResponse.output"]
)
def test_what_code_can_read_is_not_a_loss(folder, code):
    assert "which code reads" not in warnings(folder, {"type": "javascript", "value": code})


def test_variables_of_a_test_with_templates_are_not_those_that_code_reads(folder):
    check = {"type": "javascript", "value": "context.test.vars.x === output"}
    data = {
        "prompts": ["{{x}}"],
        "providers": ["echo"],
        "tests": [{"vars": {"x": "{{y}}", "y": "b"}, "assert": [check]}],
    }
    losses = folder.load(folder.write("promptfooconfig.json", json.dumps(data))).warnings
    assert "'context.test.vars', which code reads" in " ".join(map(str, losses))


@pytest.mark.parametrize(("assertion", "options", "warning"), LOSSES.values(), ids=LOSSES)
def test_what_a_judge_does_not_have_is_named(folder, assertion, options, warning):
    assert warning in warnings(folder, assertion, **options)


SHOP = """
def call_api(prompt, options, context):
    return {"output": {"text": "hi", "passages": ["one", "two"]}}
"""
GRADER = """
import json

def call_api(prompt, options, context):
    with open("prompt.txt", "a") as stream:
        stream.write(json.dumps(prompt) + "\\n")
    return {"output": '{"score": 1}'}
"""
PARTS = {
    "a list": ("output.passages", "one two"),
    "a text": ("output.passages[0]", "one"),
    "nothing": ("output.nothing", None),
    "data": ("output.passages.length", None),
}


@pytest.mark.parametrize(("code", "context"), PARTS.values(), ids=PARTS)
def test_the_context_is_read_from_the_answer_before_its_transform(command, folder, monkeypatch, code, context):
    monkeypatch.chdir(folder.path)
    folder.write("shop.py", SHOP)
    folder.write("grader.py", GRADER)
    assertion = {"type": "context-faithfulness", "contextTransform": code, "provider": "python:grader.py"}
    test = {"vars": {"x": "a"}, "assert": [assertion], "options": {"transform": "output.text"}}
    data = {"prompts": ["{{x}}"], "providers": ["python:shop.py"], "tests": [test]}
    path = folder.write("promptfooconfig.json", json.dumps(data))
    command("eval", path, "--out", "run", "--no-gate")
    (record,) = map(json.loads, Path("run/results.jsonl").read_text("utf-8").splitlines())
    if context is None:
        assert "'passages' must return" in str(record["error"]) or "Cannot read the context" in str(record["error"])
    else:
        (request,) = Path("prompt.txt").read_text("utf-8").splitlines()
        prompt = json.loads(request)
        assert all(f"\n{text}\n" in prompt for text in (*context.split(), "hi"))


@pytest.mark.parametrize("key", ["description", "id", "anything"])
def test_a_key_that_promptfoo_ignores_is_not_a_loss(folder, key):
    assert "not kept" not in warnings(folder, {"type": "contains", "value": "a", key: "x"})


@pytest.mark.parametrize("function", ["score.js", "file://score.rb", 5])
def test_a_scoring_function_is_a_file_of_javascript_or_python(folder, function):
    check = {"type": "contains", "value": "a"}
    test = {"vars": {"x": "a"}, "assert": [check], "assertScoringFunction": function}
    data = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [test]}
    error = str(folder.error(folder.write("promptfooconfig.json", json.dumps(data))))
    assert "'assertScoringFunction' must name a file" in error


COMPONENTS = """
const described = ({reason, assertion, componentResults: inner}) => [reason, assertion?.metric, inner?.length];
const text = (item) => described(item).map(String).join(':');
module.exports = (_, {componentResults}) => ({pass: true, score: 0.5, reason: componentResults.map(text).join()});
"""
OWN_RESULT = {"pass": True, "score": 2, "reason": "own", "namedScores": {"n": 2}}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_a_scoring_function_gets_the_results_inside_of_results(command, folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    folder.write("score.cjs", COMPONENTS)
    nested = {**OWN_RESULT, "componentResults": [{"pass": True, "score": 1, "reason": "part"}, 5]}
    own = {"type": "javascript", "value": f"({json.dumps(nested)})", "metric": "m"}
    inside = {"type": "javascript", "value": f"({json.dumps({**OWN_RESULT, 'score': 1})})", "metric": "s"}
    checks = [own, {"type": "assert-set", "assert": [inside]}]
    test = {"vars": {"x": "a"}, "assert": checks, "assertScoringFunction": "file://score.cjs"}
    data = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [test]}
    command("eval", folder.write("promptfooconfig.json", json.dumps(data)), "--out", "run", "--no-gate")
    (record,) = map(json.loads, Path("run/results.jsonl").read_text("utf-8").splitlines())
    reasons = record["evaluator_results"][0]["reasoning"].split(",")
    own_part, set_part = ["own:m:1", "part:m:undefined"], ["own:s:undefined"]
    assert reasons[:2] == own_part
    assert reasons[2].endswith(":undefined:1")
    assert reasons[3:] == set_part


FILTERS = {"caps": "module.exports = (text, mark) => text.toUpperCase() + (mark ?? '');"}
PROMPTS = {
    "a filter": ("Say {{ q | caps }}", "Say HI"),
    "arguments and others": ("{{ q | caps('!') | lower }}", "hi!"),
    "inside of JSON": ('["{{ q | caps }}"]', '[\n  "HI"\n]'),
    "none": ("Say {{ q }}", "Say hi"),
}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
@pytest.mark.parametrize(("prompt", "text"), PROMPTS.values(), ids=PROMPTS)
def test_filters_of_a_configuration_are_javascript(command, folder, monkeypatch, prompt, text):
    monkeypatch.chdir(folder.path)
    folder.write("caps.js", FILTERS["caps"])
    data = {"prompts": [prompt], "providers": ["echo"], "nunjucksFilters": {"caps": "./caps.js"}}
    path = folder.write("promptfooconfig.json", json.dumps({**data, "tests": [{"vars": {"q": "hi"}}]}))
    command("eval", path, "--out", "run", "--no-gate")
    (record,) = map(json.loads, Path("run/results.jsonl").read_text("utf-8").splitlines())
    assert record["candidate_answer"] == text


CODE = "require('fs').writeFileSync('marker', ''); module.exports = () => 'good';"
CHECKED = {
    "a filter": {"nunjucksFilters": {"mark": "mark.cjs"}, "prompts": ["{{ x | mark }}"]},
    "a prompt of a judge": {"defaultTest": {"options": {"rubricPrompt": "file://mark.cjs"}}},
    "a scoring function": {"defaultTest": {"assertScoringFunction": "file://mark.cjs"}},
}


@pytest.mark.parametrize(
    ("arguments", "judge"),
    [(("validate",), ()), (("cases",), ()), (("eval", "--dry-run"), ("--judge", "openai:m"))],
    ids=str,
)
@pytest.mark.parametrize("more", CHECKED.values(), ids=CHECKED)
def test_commands_that_only_check_run_no_javascript(command, folder, monkeypatch, more, arguments, judge):
    monkeypatch.chdir(folder.path)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    folder.write("mark.cjs", CODE)
    test = {"vars": {"x": "a"}, "assert": [{"type": "llm-rubric", "value": "b"}]}
    data = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [test], **more}
    ended = command(*arguments, folder.write("promptfooconfig.json", json.dumps(data)), *judge)
    assert (ended.code, Path("marker").exists()) == (0, False), ended.stderr


def test_a_prompt_that_begins_with_a_role_is_a_chat_in_yaml(folder):
    prompt = "- role: system\n  content: Be {{tone}}\n- role: user\n  content: Hi"
    data = {"prompts": [prompt], "providers": ["openai:m"], "tests": [{"vars": {"tone": "kind"}}]}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(data)))
    assert [(message.role, message.content) for message in case.input] == [("system", "Be kind"), ("user", "Hi")]


def test_a_program_may_read_variables_instead_of_a_prompt(command, folder):
    data = {
        "providers": ["file://shop.py"],
        "tests": [{"vars": {"mode": "a"}, "assert": [{"type": "contains", "value": "a"}]}],
    }
    folder.write("shop.py", "def call_api(prompt, options, context):\n    return {'output': context['vars']['mode']}\n")
    assert command("validate", folder.write("promptfooconfig.json", json.dumps(data))).code == 0


@pytest.mark.parametrize("provider", ["openai:gpt-4.1", "python:embed.py"])
def test_texts_are_not_compared_by_another_model_than_the_named_one(folder, command, provider):
    assertion = {"type": "similar", "value": "x", "provider": provider}
    config = {"prompts": ["x"], "providers": ["echo"], "tests": [{"vars": {}, "assert": [assertion]}]}
    ended = command("validate", folder.write("promptfooconfig.json", json.dumps(config)))
    assert ended.code == 0 and "refused case" in ended.stdout
    assert f"needs a model for embeddings, and its provider is {provider}" in ended.stdout


@pytest.mark.parametrize("grader", ["openai:gpt-4.1", "echo", {"text": "openai:gpt-4.1"}])
def test_texts_are_not_compared_by_default_if_the_grader_of_the_test_is_another_model(folder, command, grader):
    test = {"vars": {}, "options": {"provider": grader}, "assert": [{"type": "similar", "value": "x"}]}
    config = {"prompts": ["x"], "providers": ["echo"], "tests": [test]}
    ended = command("validate", folder.write("promptfooconfig.json", json.dumps(config)))
    assert ended.code == 0 and "refused case" in ended.stdout
    assert "needs a model for embeddings, and the grader of the test is" in ended.stdout


GRADERS = {
    "a label": ({"options": {"provider": "big"}}, {}, "big"),
    "an id": ({}, {"provider": "openai:gpt-4o"}, "small"),
    "a label for texts": ({"options": {"provider": {"text": "big"}}}, {}, "big"),
    "an object for texts": ({"options": {"provider": {"text": {"id": "big"}}}}, {}, "big"),
    "another provider": ({}, {"provider": "openai:gpt-5"}, "openai:gpt-5"),
}


@pytest.mark.parametrize(("test", "own", "target"), GRADERS.values(), ids=GRADERS)
def test_a_grader_may_be_a_provider_that_is_evaluated(folder, monkeypatch, test, own, target):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    providers = [{"id": "openai:gpt-4o", "label": label, "config": {"seed": 1}} for label in ("big", "small")]
    tests = [{**test, "assert": [{"type": "llm-rubric", "value": "x", **own}]}]
    data = {"prompts": ["x"], "providers": providers, "tests": tests}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(data)))
    assert case.evaluators[0].target == target


DEFAULT_GRADERS = {
    "OpenAI": (["XAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"], {}, "openai gpt-5.5-2026-04-23"),
    "Anthropic": (["GOOGLE_API_KEY", "ANTHROPIC_API_KEY"], {}, "anthropic claude-sonnet-4-6"),
    "Gemini": (["GOOGLE_API_KEY"], {}, "gemini gemini-2.5-pro"),
    "a key in the configuration": (
        [],
        {"env": {"MISTRAL_API_KEY": "a-key-of-mistral"}},
        "mistral mistral-large-latest",
    ),
    "a grader of the tests": (["OPENAI_API_KEY"], {"defaultTest": {"options": {"provider": "echo"}}}, ""),
    "a model of Azure": (["AZURE_OPENAI_DEPLOYMENT_NAME", "ANTHROPIC_API_KEY"], {}, ""),
    "no key": ([], {}, ""),
}


@pytest.mark.parametrize(("variables", "settings", "model"), DEFAULT_GRADERS.values(), ids=DEFAULT_GRADERS)
def test_the_default_grader_is_that_of_promptfoo(folder, monkeypatch, variables, settings, model):
    for name in variables:
        monkeypatch.setenv(name, "a-value-of-a-test")
    test = {"vars": {"x": "a"}, "assert": [{"type": "llm-rubric", "value": "kind"}]}
    data = {"prompts": ["{{x}}"], "providers": ["openai:o3"], "tests": [test], **settings}
    path = str(folder.write("promptfooconfig.json", json.dumps(data)))
    entries = PROMPTFOO_CONFIG.targets(Source((path,), path, "promptfoo", path))
    judges = [entry for entry in entries if entry["name"] == "judge"]
    assert [f"{entry['provider']} {entry['model']}" for entry in judges] == [model] * bool(model)


def test_a_judge_of_the_project_replaces_the_default_grader(command, folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a-value-of-a-test")
    folder.write("judge.py", JUDGE)
    folder.write(".agentv/targets.yaml", {"targets": TARGETS[1:]})
    test = {"vars": {"x": "a"}, "assert": [{"type": "llm-rubric", "value": "kind"}]}
    data = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [test]}
    command("eval", folder.write("promptfooconfig.json", json.dumps(data)), "--out", "run", "--no-gate")
    (record,) = map(json.loads, Path("run/results.jsonl").read_text("utf-8").splitlines())
    calls = record["evaluator_results"][0]["evaluator_provider_request"]["calls"]
    assert {(call["target"], call["provider"]) for call in calls} == {("judge", "python")}
