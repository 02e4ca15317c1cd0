"""Configurations of promptfoo as datasets with targets. `test_promptfoo_peer.py` compares them with promptfoo."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from agentv.errors import LossWarning
from agentv.extensions.promptfoo.promptfoo_cells import assertion_of_cell
from agentv.extensions.promptfoo.providers.provider_entries import UnmappedProvider, target_entry
from agentv.extensions.promptfoo.transform_code import response_code, transforms_of

DATA = Path(__file__).parents[2] / "data" / "promptfoo"
REMOTE = "prompts: [x]\nproviders: [echo]\ntests: 'PLACE'\n"
GROWING = {"a": "{{b}}" * 100, "b": "{{c}}" * 100, "c": "{{b}}" * 100}
LONG = {"a": "{{b}}{{b}}", "b": "x" * 600_000}


@pytest.fixture
def example(folder, monkeypatch):
    """Copy one of the configurations, and return its path."""

    def copied(name):
        shutil.copytree(DATA / name, folder.path / name)
        monkeypatch.chdir(folder.path / name)
        return next((folder.path / name).glob("promptfooconfig.*")).name

    return copied


def results(name="run"):
    return [json.loads(line) for line in Path(name, "results.jsonl").read_text("utf-8").splitlines()]


MEANS = {
    "a mean of numbers inside the range": ({"threshold": 0.5}, ["1", "0"], "pass"),
    "a number below 0": ({"threshold": 0.5}, ["1", "-1"], None),
    "a number above 1": ({"threshold": 0.5}, ["9", "0"], None),
    "a score of an object": ({"threshold": 0.5}, ["({pass: true, score: 9, reason: ''})", "0"], None),
    "a number that does not decide": ({}, ["9", "1"], "pass"),
    "a set with a threshold": ({}, [{"type": "assert-set", "threshold": 0.5, "assert": ["9", "0"]}], None),
    "a set that counts": ({"threshold": 0.5}, [{"type": "assert-set", "assert": ["9"]}, "0"], None),
    "a weight of 0": ({"threshold": 0.5}, [{"type": "javascript", "value": "9", "weight": 0}, "1"], "pass"),
}


def code_check(item):
    members = {"assert": [code_check(member) for member in item["assert"]]} if "assert" in item else {}
    return {**item, **members} if isinstance(item, dict) else {"type": "javascript", "value": item}


@pytest.mark.parametrize(("own", "checks", "verdict"), MEANS.values(), ids=MEANS)
def test_a_number_that_a_mean_counts_is_inside_the_range(command, folder, monkeypatch, own, checks, verdict):
    monkeypatch.chdir(folder.path)
    test = {"vars": {"x": "a"}, "assert": [code_check(check) for check in checks], **own}
    data = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [test]}
    command("eval", folder.write("promptfooconfig.json", json.dumps(data)), "--out", "run", "--no-gate")
    (record,) = results()
    assert record["verdict"] == verdict
    assert verdict or "a mean needs one from 0 to 1" in str(record["error"])


def test_a_configuration_runs_as_it_is(command, example):
    config = example("basic")
    assert command("eval", config, "--out", "run").code == 0
    found = results()
    assert {record["verdict"] for record in found} == {"pass"}
    jobs = [(record["eval_id"].split(" [prompt")[0].split(" [short")[0], record["target"]) for record in found]
    assert jobs.count(("greets Ada [French]", "second")) == 4  # two prompts, two trials
    assert jobs.count(("only short", "echo")) == 2
    assert jobs.count(("one provider", "echo")) == 0
    assert "Greet EVE Thanks." in "".join(record["candidate_answer"] for record in found)


FAILS = {
    "one failed assertion fails the test",
    "a missed threshold fails",
    "a set without a threshold needs all",
    "a number below its threshold fails",
    "an object decides itself",
    "an exception fails the assertion",
    "JSON without a required key",
}


def test_tests_pass_and_fail_by_the_rules_of_promptfoo(command, example):
    config = example("gates")
    command("eval", config, "--out", "run")
    found = {record["eval_id"]: record for record in results()}
    assert {id for id, record in found.items() if record["verdict"] == "fail"} == FAILS
    assert all(record["status"] == "ok" for record in found.values())
    assert found["low scores pass without a threshold"]["score"] == pytest.approx(0.6)
    assert found["one failed assertion fails the test"]["score"] == pytest.approx(0.9)
    assert found["a threshold overrides assertions"]["score"] == 0.5


def test_functions_programs_and_files_of_code_are_called(command, example):
    pytest.importorskip("quickjs")
    config = example("code")
    assert command("eval", config, "--out", "run").code == 0
    found = {(record["eval_id"], record["target"]): record for record in results()}
    assert found["a file in Python", "program"]["candidate_answer"].strip() == "abc from a program with 3 arguments"
    assert found["a file in Python", "python:provider.py"]["candidate_answer"] == "abc abc"
    if shutil.which("node"):
        assert {record["verdict"] for record in found.values()} == {"pass"}


def test_tables_have_assertions_in_their_cells(folder, example):
    loaded = folder.load(example("table"))
    first, second, third, fails = loaded
    assert first.id == "first row" and first.metadata == {"lang": "en", "tags": ["a", "b,c"]}
    assert [spec.type for spec in first.evaluators] == ["contains", "contains_all"]
    assert [(spec.type, spec.gate) for spec in second.evaluators] == [("javascript", False), ("equals", False)]
    assert second.execution.verdicts.passing == 0.5
    assert third.evaluators[0].negate and third.evaluators[1].required == 0.5
    assert third.input[0].content == "Note: Bonjour Eve"
    assert fails.evaluators[1].settings["code"] == "JSON.parse(output).x === 1"


def test_files_of_prompts_and_tests_are_found(folder, example):
    loaded = folder.load(example("files"))
    assert len(loaded) == 5
    first = loaded[0]
    assert [prompt.id for prompt in first.prompts] == ["two.txt:1", "two.txt:2", "plain.md", "build.js", "chat.yaml"]
    assert first.prompts[0].input[0].content == "Summarize: words from a file"
    assert first.prompts[3].input[0].content == "Built: words from a file for echo"
    assert '"content": "You are an editor"' in first.prompts[4].input[0].content
    assert '"content": "You are "' in loaded[1].prompts[4].input[0].content  # a missing variable is empty


@pytest.mark.parametrize(
    "assertions", [[{"type": "is-sql"}], [{"type": "assert-set", "assert": [{"type": "pi"}]}, {"type": "is-json"}]]
)
def test_a_test_with_an_assertion_that_cannot_be_done_is_an_error(folder, command, assertions):
    tests = [
        {"vars": {"x": "a"}, "assert": assertions},
        {"vars": {"x": "b"}, "assert": [{"type": "equals", "value": "b"}]},
    ]
    folder.write("promptfooconfig.yaml", json.dumps({"prompts": ["{{x}}"], "providers": ["echo"], "tests": tests}))
    ended = command("eval", "promptfooconfig.yaml", "--json")
    assert ended.code == 1 and "refused case" in ended.stderr and "The assertion '" in ended.stderr


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("not-contains: bye ", "bye"),
        ("regex: ^Bot", "^Bot"),
        ('contains-any: a, "b, c", "say ""hi""" ,, d', ["a", "b, c", 'say "hi"', "d"]),
        ("levenshtein(3): Oslo", "Oslo"),
    ],
)
def test_the_value_in_a_cell_has_no_space_around_it(cell, value):
    assert assertion_of_cell(f" {cell} ")["value"] == value


def test_a_program_receives_the_variables_in_its_context(folder, command):
    folder.write("bot.py", "import json, sys\nprint(json.loads(sys.argv[3])['vars']['hint'])\n")
    tests = [{"vars": {"x": "Bo", "hint": "it's 5 $"}, "assert": [{"type": "equals", "value": "it's 5 $"}]}]
    providers = [f"exec:{sys.executable} bot.py"]
    folder.write("promptfooconfig.yaml", json.dumps({"prompts": ["{{x}}"], "providers": providers, "tests": tests}))
    assert command("eval", "promptfooconfig.yaml").code == 0


def test_what_a_program_prints_is_trimmed(folder, command):
    folder.write("bot.py", "import sys\nprint('  ' + sys.argv[1] + ' ')\n")
    tests = [{"vars": {"x": "Bo"}, "assert": [{"type": "equals", "value": "Bo"}]}]
    providers = [f"exec:{sys.executable} bot.py"]
    folder.write("promptfooconfig.yaml", json.dumps({"prompts": ["{{x}}"], "providers": providers, "tests": tests}))
    assert command("eval", "promptfooconfig.yaml").code == 0


@pytest.mark.parametrize("names", ["prompt, options, context", "p, options, _"])
def test_a_python_provider_receives_its_config(folder, command, names):
    first = names.partition(",")[0]
    folder.write("bot.py", f"def call_api({names}):\n    return {{'output': options['config']['word'] + {first}}}\n")
    providers = [{"id": "python:bot.py", "config": {"word": "hi "}}]
    test = {"vars": {"x": "Bo"}, "assert": [{"type": "equals", "value": "hi Bo"}]}
    data = {"prompts": ["{{x}}"], "providers": providers, "tests": [test]}
    folder.write("promptfooconfig.yaml", json.dumps(data))
    assert command("eval", "promptfooconfig.yaml").code == 0


def test_graders_become_targets_and_thresholds_become_minimums(folder, example, monkeypatch):
    monkeypatch.setenv("MY_KEY", "a-secret-key")
    (case,) = folder.load(example("chat"))
    found = [(spec.type, spec.target, spec.required) for spec in case.evaluators]
    assert found == [
        ("rubric", "openai:gpt-4o", 1.0),
        ("llm_judge", "openrouter:qwen/qwen3-8b", 0.6),
        ("factuality", "openai:gpt-4o", 1.0),
        ("similarity", "openai:embedding:text-embedding-3-large", 0.75),
        ("answer_relevance", "openai:gpt-4o", 0.8),
        ("context_recall", "openai:gpt-4o", 0.5),
        ("latency", None, 1.0),
        ("cost", None, 1.0),
    ]
    assert case.execution.targets == ("mini", "anthropic:messages:claude-sonnet-4-5")
    assert [message.role for message in case.input] == ["system", "user"]
    assert case.context == ("Paris is the capital of France.",)


def test_a_dry_run_shows_hosts_and_no_secret(command, example, monkeypatch):
    for name in ("MY_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(name, f"value-of-{name}")
    ended = command("eval", example("chat"), "--dry-run")
    assert ended.code == 0 and "value-of" not in ended.stdout + ended.stderr


def test_a_target_of_the_project_replaces_one_of_the_same_name(command, example):
    config = example("gates")
    Path(".agentv").mkdir()
    Path(".agentv/targets.yaml").write_text("targets: [{name: echo, provider: mock, response: abc}]\n")
    command("eval", config, "--out", "run", "--case", "a part of the answer")
    assert results()[0]["candidate_answer"] == "abc"


def test_variables_are_empty_if_missing_and_may_name_others(folder, example):
    first, second = folder.load(example("odd"))
    assert first.input[0].content == 'a=1 b=true nested={"x":[1,2]} missing=[]'
    assert first.metadata == {"team": "red"}
    assert second.input[0].content.startswith("a=inner! b=inner")


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("openai:gpt-4o", {"provider": "openai", "model": "gpt-4o", "temperature": 0, "max_output_tokens": 1024}),
        ("openai:responses:gpt-5", {"provider": "openai", "api": "responses", "model": "gpt-5"}),
        (
            {"id": "anthropic:claude-haiku-4-5", "config": {"temperature": 1, "max_tokens": 9}},
            {"provider": "anthropic", "model": "claude-haiku-4-5", "temperature": 1, "max_output_tokens": 9},
        ),
        (
            "google:gemini-2.5-flash",
            {
                "provider": "gemini",
                "model": "gemini-2.5-flash",
                "base_url": "https://generativelanguage.googleapis.com/v1beta",
                "api_key": "${{ GEMINI_API_KEY }}",
            },
        ),
        ("bedrock:us.amazon.nova-lite-v1:0", {"provider": "bedrock", "model": "us.amazon.nova-lite-v1:0"}),
        ("ollama:chat:llama3.2:1b", {"provider": "ollama", "model": "llama3.2:1b"}),
        ({"id": "groq:llama-3", "config": {"omitDefaults": True}}, {"provider": "groq", "model": "llama-3"}),
        ("echo", {"provider": "mock"}),
        (
            "exec:./run.sh -x",
            {
                "provider": "cli",
                "command_template": """./run.sh -x {PROMPT} "$PROMPTFOO_OPTIONS" '{"vars":'{VARIABLES}'}'""",
                "plain_output": True,
                "env": {"PROMPTFOO_OPTIONS": '{"config":{"basePath":"."},"env":{}}'},
                "transform": {"strip": ["whitespace", "ansi"], "allow_empty": True},
            },
        ),
        (
            {
                "id": "azure:chat:my-gpt",
                "config": {
                    "apiHost": "x.openai.azure.com",
                    "apiVersion": "2024-06-01",
                    "temperature": 0,
                    "max_tokens": 1,
                },
            },
            {
                "provider": "azure",
                "model": "my-gpt",
                "temperature": 0,
                "max_output_tokens": 1,
                "endpoint": "https://x.openai.azure.com",
                "version": "2024-06-01",
            },
        ),
        (
            {"openai:chat:local": {"config": {"apiBaseUrl": "http://localhost:9/v1", "stop": ["x"], "max_tokens": 5}}},
            {
                "provider": "openai",
                "model": "local",
                "base_url": "http://localhost:9/v1",
                "temperature": 0,
                "max_output_tokens": 5,
                "extra_body": {"stop": ["x"]},
            },
        ),
        (
            {
                "id": "https",
                "config": {
                    "url": "https://example.com/chat?u={{user}}",
                    "method": "post",
                    "body": {"q": "{{prompt}}", "lang": "{{ language }}"},
                    "headers": {"Authorization": "Bearer ${{ KEY }}"},
                    "transformResponse": "json.choices[0].message.content",
                },
            },
            {
                "provider": "promptfoo_http",
                "url": "https://example.com/chat?u={{user}}",
                "method": "POST",
                "body": {"q": "{{prompt}}", "lang": "{{ language }}"},
                "headers": {"Authorization": "Bearer ${{ KEY }}"},
                "javascript": response_code("json.choices[0].message.content"),
            },
        ),
    ],
)
def test_providers_become_targets(provider, expected):
    assert target_entry(provider, ".", pytest.fail) == expected


@pytest.mark.parametrize(
    "provider", ["promptfoo:redteam:crescendo", "openai:image:dall-e-3", "file://mine.rb", "webhook:http://x", 3, {}]
)
def test_a_provider_without_a_counterpart_is_refused_by_name(provider):
    with pytest.raises(UnmappedProvider):
        target_entry(provider, ".", pytest.fail)


def test_transforms_are_run_as_javascript():
    steps = [{"javascript": code, "allow_empty": True} for code in ("JSON.parse(output).a", "output.trim()")]
    assert transforms_of(None, "") is None
    assert transforms_of("JSON.parse(output).a", "") == steps[0]
    assert transforms_of("JSON.parse(output).a", "output.trim()") == steps


@pytest.mark.parametrize(
    ("name", "function"),
    [("t.js", "t.js"), ("t.mjs:f", "t.mjs:f"), ("t.py", "t.py:get_transform"), ("t.py:f", "t.py:f")],
)
def test_a_transform_in_a_file_is_a_function(name, function):
    assert transforms_of(f"file://{name}") == {"function": function, "allow_empty": True}


def test_a_transform_in_another_file_is_refused_by_name():
    with pytest.raises(ValueError, match=r"The transform file://transform\.rb is not a file of JavaScript or Python"):
        transforms_of("file://transform.rb")


NESTED = '["{\\"a\\": \\"y\\"}", "refund"]'

# An answer, the transforms of provider, test and assertion, and what a `not-contains: refund` makes of it in promptfoo.
TRANSFORMED = {
    "no JSON": ("I will refund you", [None, "JSON.parse(output).answer", None], "error"),
    "undefined": ('{"x": "refund"}', [None, "JSON.parse(output).answer", None], "error"),
    "null": ('{"answer": null}', [None, "JSON.parse(output).answer", None], "error"),
    "an assertion's": ("I will refund you", [None, None, "JSON.parse(output).answer"], "error"),
    "no match": ("I will refund you", [None, None, "output.match(/a: (.*)/)[1]"], "error"),
    "a group without a match": ("b refund", [None, None, "output.match(/(a)|b/)[1]"], "error"),
    "a provider's": ("I will refund you", ["JSON.parse(output).answer", None, None], "error"),
    "parsed only": ("I will refund you", [None, "JSON.parse(output)", None], "error"),
    "empty text": ('{"answer": ""}', [None, "JSON.parse(output).answer", None], "pass"),
    "one after another": (
        '{"a": "x: ok; refund"}',
        [None, "JSON.parse(output).a", "output.match(/: (.*);/)[1]"],
        "pass",
    ),
    "the second": ('{"a": "refund"}', [None, "JSON.parse(output).a", "JSON.parse(output).b"], "error"),
    "three": (NESTED, ["JSON.parse(output)[0]", "JSON.parse(output).a", "output.trim()"], "pass"),
    "a value": ('{"answer": "a refund"}', [None, "JSON.parse(output).answer", None], "fail"),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_transform_fails_where_it_fails_in_promptfoo(command, folder, name):
    answer, (of_provider, of_test, of_assertion), verdict = TRANSFORMED[name]
    config = {
        "prompts": ["{{text}}"],
        "providers": [{"id": "echo", **({"transform": of_provider} if of_provider else {})}],
        "tests": [
            {
                "vars": {"text": answer},
                "options": {"transform": of_test},
                "assert": [{"type": "not-contains", "value": "refund", "transform": of_assertion}],
            }
        ],
    }
    ended = command("eval", folder.write("promptfooconfig.yaml", config), "--out", "run", "--min-pass-rate", "1")
    (record,) = results()
    assert (record["verdict"] or record["status"]) == verdict
    assert (ended.code == 0) == (verdict == "pass")
    if verdict == "error":
        assert "Cannot transform the answer" in record["error"]["message"]


def test_a_set_transforms_the_answer_once_and_its_members_again(command, folder):
    member = {"type": "equals", "value": "b", "transform": "output.match(/a(.)/)[1]"}
    test = {"vars": {"text": '{"x": "ab"}'}, "options": {"transform": "JSON.parse(output).x"}}
    test["assert"] = [{"type": "assert-set", "assert": [member, {"type": "equals", "value": "ab"}]}]
    config = {"prompts": ["{{text}}"], "providers": ["echo"], "tests": [test]}
    ended = command("eval", folder.write("promptfooconfig.yaml", config), "--out", "run")
    assert ended.code == 0 and [record["verdict"] for record in results()] == ["pass"]


@pytest.mark.parametrize("score", ["'score': 0.2", "'score': 0.2, 'pass_': True", "'pass': True, 'reason': 'r'"])
@pytest.mark.parametrize("type_", ["javascript", "python"])
def test_code_that_returns_an_incomplete_object_does_not_pass(command, folder, type_, score):
    code = f"({{{score.replace('True', 'true' if type_ == 'javascript' else 'True')}}})"
    test = {"assert": [{"type": type_, "value": code}]}
    config = {"prompts": ["x"], "providers": ["echo"], "tests": [test]}
    ended = command("eval", folder.write("promptfooconfig.yaml", config), "--out", "run")
    assert ended.code == 3
    assert "must return an object with 'pass', 'score' and 'reason'" in results()[0]["error"]["message"]


def test_a_python_provider_receives_the_metadata_of_the_test(command, folder):
    code = "def call_api(prompt, options, context):\n    return {'output': [context['test']['metadata'], options]}\n"
    folder.write("provider.py", code)
    check = {"type": "equals", "value": [{"k": "v"}, {"config": {}, "env": {}}]}
    config = {
        "prompts": ["x"],
        "providers": ["python:provider.py"],
        "tests": [{"metadata": {"k": "v"}, "assert": [check]}],
    }
    assert command("eval", folder.write("promptfooconfig.yaml", config)).code == 0


def test_a_rescore_transforms_stored_data_again(command, folder):
    folder.write("provider.py", "def call_api(prompt, options, context):\n    return {'output': [1, {'a': 2.0}]}\n")
    test = {"options": {"transform": "output[1]"}, "assert": [{"type": "javascript", "value": "output.a === 2"}]}
    test["assert"] += [{"type": "python", "value": "output == {'a': 2}"}, {"type": "equals", "value": '{"a":2}'}]
    config = {"prompts": ["x"], "providers": ["python:provider.py"], "tests": [test]}
    assert command("eval", folder.write("promptfooconfig.yaml", config), "--out", "run").code == 0
    assert command("rescore", "run", "--all", "--out", "again").code == 0
    assert [record["score"] for record in results("again")] == [1.0]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("Paris", {"type": "equals", "value": "Paris"}),
        ("note: not a type", {"type": "equals", "value": "note: not a type"}),
        ("is-json", {"type": "is-json", "value": None}),
        ("contains-any: a, b", {"type": "contains-any", "value": ["a", "b"]}),
        ("similar(0.9):x", {"type": "similar", "value": "x", "threshold": 0.9}),
        ("levenshtein(3):x", {"type": "levenshtein", "value": "x", "threshold": 3.0}),
        ("similar(0):x", {"type": "similar", "value": "x", "threshold": 0.0}),
        ("similar:dot:x", {"type": "similar", "value": "dot:x", "threshold": 0.8}),
        ("javascript(0.4): 0.5", {"type": "javascript", "value": "0.5"}),
        ("not-python: len(output)", {"type": "not-python", "value": "len(output)"}),
        ("select-best: is kind", {"type": "equals", "value": "select-best: is kind"}),
        ("grade: is kind", {"type": "llm-rubric", "value": " is kind"}),
        ("eval: output > 1", {"type": "javascript", "value": "output > 1"}),
        ("file://check.py:f", {"type": "python", "value": "check.py:f"}),
    ],
)
def test_cells_are_assertions(cell, expected):
    assert assertion_of_cell(cell) == expected


def test_tests_without_a_configuration_are_read_too(folder):
    path = folder.write("tests.csv", "question,__expected\nWhat is 1 + 1?,contains:2\n")
    (case,) = folder.load(path)
    assert case.input[0].content == "What is 1 + 1?" and case.evaluators[0].settings == {"value": "2", "exact": True}
    path = folder.write("tests.yaml", "- vars: {question: Who?}\n  assert: [{type: equals, value: me}]\n")
    assert folder.load(path)[0].input[0].content == "Who?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("targets: [echo]\nredteam: {plugins: [harmful]}\n", "It is a red-team configuration"),
        ("prompts: [file://make.js]\nproviders: [echo]\n", "'make.js' was not found"),
        (REMOTE.replace("PLACE", "s3://b/tests.csv"), "aws s3 cp 's3://b/tests.csv' tests.csv"),
        (REMOTE.replace("PLACE", "https://docs.google.com/spreadsheets/d/ab/edit?gid=7"), "export?format=csv&gid=7'"),
        (REMOTE.replace("PLACE", "huggingface://datasets/a/b?split=dev&limit=5"), "dataset=a%2Fb&split=dev&config"),
        ("prompts: [x]\nproviders: [echo]\ntests: file://none.yaml\n", "were not found"),
        ("prompts: [x]\nproviders: [echo]\ntests: promptfooconfig.yaml#Second\n", "on the sheet 'Second'"),
        ("prompts: [x]\nproviders: [echo]\ntests: file://../../etc/passwd\n", "were not found"),
        ("prompts: [x]\nproviders: [echo]\ntests: [{vars: {a: file://get.js}}]\n", "'get.js' was not found"),
        ("prompts: [x]\nproviders: [echo]\ntests: [{assert: [{type: contains}]}]\n", "has no value"),
        (f"prompts: [x]\nproviders: [echo]\ntests: [{{vars: {GROWING}}}]\n", "the template is too large"),
        (f"prompts: [x]\nproviders: [echo]\ntests: [{{vars: {LONG}}}]\n", "longer than 1,000,000 characters"),
        ("prompts: [x]\nproviders: [echo]\ntests: [{assert: [{$ref: '#/assertionTemplates/no'}]}]\n", "no assertion"),
        ("prompts: [x]\nproviders: [echo]\ntests: [{options: {transformVars: 'no.x'}}]\n", "'transformVars' failed"),
        ("prompts: [x]\nproviders: [echo]\ntests: [{options: {transformVars: '3'}}]\n", "must return an object, got 3"),
    ],
)
def test_what_cannot_run_is_refused_with_its_name(folder, text, message):
    assert message in str(folder.error(folder.write("promptfooconfig.yaml", text)))


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ("langfuse://p", "The prompt 'langfuse://p' is made by a service"),
        ('[{"role": "user", "content": [{"modality": "text", "value": "x"}]}]', "A prompt with a part of a message"),
    ],
)
def test_a_prompt_that_cannot_be_sent_is_an_error_of_its_jobs(folder, prompt, problem):
    config = {"prompts": ["{{x}}", prompt], "providers": ["openai:gpt-4o"], "tests": [{"vars": {"x": "a"}}]}
    plain, refused = folder.load(folder.write("promptfooconfig.json", json.dumps(config)))
    assert plain.case_error is None and problem in refused.case_error
    config["prompts"] = [prompt]
    assert problem in folder.load(folder.write("promptfooconfig.json", json.dumps(config)))[0].case_error


def test_a_test_selects_prompts_by_their_labels_and_ids(folder):
    folder.write("p.txt", "Four")
    prompts = [{"id": "a", "raw": "One"}, {"id": "b", "label": "second", "raw": "Two"}, "Three"]
    prompts.append({"id": "file://p.txt", "label": "fourth"})
    tests = [{"vars": {"n": n}, "prompts": [n]} for n in ("a", "b", "second", "fou*", "file://p.txt")]
    config = {"prompts": prompts, "providers": ["echo"], "tests": tests}
    cases = folder.load(folder.write("promptfooconfig.json", json.dumps(config)), on_error="skip")
    assert [case.prompts[0].input[0].content for case in cases] == ["One", "Two", "Two", "Four"]  # a file has no id


def test_a_test_with_a_pdf_is_an_error_and_the_others_run(folder):
    folder.write("a.pdf", "%PDF-1.1")
    tests = [{"vars": {"x": "file://a.pdf"}}, {"vars": {"x": "b"}}]
    config = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": tests}
    refused, other = folder.load(folder.write("promptfooconfig.json", json.dumps(config)))
    assert "is a PDF" in refused.case_error and other.case_error is None


def test_a_secret_in_a_prompt_is_refused(folder, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", "very-secret-value")
    text = "prompts: ['Use {{env.SERVICE_API_KEY}}']\nproviders: [echo]\n"
    error = str(folder.error(folder.write("promptfooconfig.yaml", text)))
    assert "which is a secret" in error and "very-secret" not in error
    monkeypatch.setenv("CITY", "Oslo")
    text = "prompts: ['Visit {{ env.CITY }} {{env.HOST}}']\nenv: {HOST: h}\nproviders: [echo]\n"
    assert folder.load(folder.write("other.yaml", text))[0].input[0].content == "Visit Oslo h"


def test_variables_may_be_in_a_file(folder):
    folder.write("vars.yaml", "name: Ada\n")
    text = "prompts: ['Hi {{name}}']\nproviders: [echo]\ntests: [{vars: vars.yaml}]\n"
    assert folder.load(folder.write("promptfooconfig.yaml", text))[0].input[0].content == "Hi Ada"
    error = folder.error(folder.write("other.yaml", text.replace("vars.yaml", "3")))
    assert "'vars' must be an object" in str(error)
    error = folder.error(folder.write("third.yaml", text.replace("vars.yaml", "'file://vars.yaml'")))
    assert "which promptfoo does not read. Name the file without file://" in str(error)


def test_a_date_without_quotes_is_named(folder, command):
    text = "prompts: ['{{d}}']\nproviders: [echo]\ntests: [{vars: {d: DATE}, assert: [{type: contains, value: '2'}]}]\n"
    ended = command("eval", folder.write("promptfooconfig.yaml", text.replace("DATE", "2024-01-02")))
    assert ended.code == 1 and "the date 2024-01-02 in promptfooconfig.yaml: without quotes it is an" in ended.stderr
    folder.write("date.yaml", "on: 2024-01-02\n")
    ended = command("eval", folder.write("promptfooconfig.yaml", text.replace("DATE", "file://date.yaml")))
    assert ended.code == 2 and "date.yaml has the date 2024-01-02, which promptfoo changes" in ended.stderr


def test_losses_are_warnings_and_fail_a_strict_check(command, folder):
    text = "prompts: [x]\nproviders: [echo, 'made-up:1']\ntests: [{assert: [{type: is-json}]}]\nsharing: true\n"
    path = folder.write("promptfooconfig.yaml", text)
    lost = [str(warning) for warning in folder.load(path).warnings if isinstance(warning, LossWarning)]
    assert len(lost) == 2 and "made-up:1" in lost[0] and "sharing" in lost[1]
    assert command("validate", path).code == 0
    assert command("validate", path, "--strict").code == 1


def test_providers_of_a_configuration_outside_the_project_need_trust(command, folder, monkeypatch):
    theirs, mine = folder.path / "theirs", folder.path / "mine"
    (mine / ".agentv").mkdir(parents=True)
    path = folder.write("theirs/promptfooconfig.yaml", "prompts: [x]\nproviders: ['exec:touch owned #']\n")
    monkeypatch.chdir(mine)
    ended = command("eval", str(folder.path / path), "--out", "run")
    assert ended.code == 2 and "is not trusted" in ended.stderr and "touch owned" in ended.stderr
    assert not (theirs / "owned").exists() and not (mine / "owned").exists()
    command("eval", str(folder.path / path), "--out", "run", "--trust", str(theirs))
    assert (theirs / "owned").exists()


FUNCTIONS = """
def mark(context=None):
    with open("owned", "a") as file: file.write("x")
    return "said"
def get_var(*_): return {"output": mark()}
def generate_tests(): return [{"vars": {"a": mark()}}]
def get_transform(output, context): return mark()
"""
# Where a configuration names a function that writes a file.
NAMED = {
    "a prompt": "prompts: [file://f.py:mark]\nproviders: [echo]\n",
    "tests": "prompts: [x]\nproviders: [echo]\ntests: file://f.py\n",
    "a variable": "prompts: ['{{a}}']\nproviders: [echo]\ntests: [{vars: {a: file://f.py}}]\n",
    "variables": "prompts: [x]\nproviders: [echo]\ntests: [{options: {transformVars: file://f.py:get_var}}]\n",
    "a transform": "prompts: [x]\nproviders: [{id: echo, transform: file://f.py}]\n",
}


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED)
def test_a_function_is_called_only_by_a_run_and_only_if_it_is_trusted(command, folder, monkeypatch, text):
    (folder.path / "mine" / ".agentv").mkdir(parents=True)
    folder.write("theirs/f.py", FUNCTIONS.replace('"owned"', repr(str(folder.path / "owned"))))
    path = str(folder.path / folder.write("theirs/promptfooconfig.yaml", text))
    monkeypatch.chdir(folder.path / "mine")
    assert "f.py" in command("validate", path).stderr
    ended = command("eval", path)
    assert ended.code == 2 and "is not trusted" in ended.stderr and "f.py" in ended.stderr
    folder.write("config/agentv/policy.yaml", "programs: deny\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.path / "config"))
    assert command("eval", path, "--trust", str(folder.path / "theirs")).code == 2
    assert not (folder.path / "owned").exists()
    (folder.path / "config" / "agentv" / "policy.yaml").unlink()
    assert command("eval", path, "--trust", str(folder.path / "theirs"), "--no-gate").code == 0
    assert (folder.path / "owned").read_text("utf-8") == "x"  # called once for equal arguments


@pytest.mark.parametrize("name", [name for name in NAMED if name != "a transform"])
def test_what_functions_return_is_not_converted(command, folder, name):
    folder.write("f.py", FUNCTIONS)
    ended = command("convert", folder.write("promptfooconfig.yaml", NAMED[name]), "cases.yaml")
    assert ended.code == 2 and "Functions return its prompts, tests or variables" in ended.stderr


def test_a_chat_with_statements_is_not_converted(command, folder):
    config = {"prompts": ['[{"role": "user", "content": {{x | dump}}}]'], "providers": ["openai:gpt-4o"]}
    ended = command("convert", folder.write("promptfooconfig.json", json.dumps(config)), "cases.yaml")
    assert ended.code == 2 and "chats with statements" in ended.stderr and not (folder.path / "cases.yaml").exists()


def test_a_function_is_not_called_in_a_sandbox(command, folder):
    folder.write("f.py", FUNCTIONS)
    ended = command("eval", folder.write("promptfooconfig.yaml", NAMED["tests"]), "--sandbox", "landlock")
    assert ended.code == 2 and "which cannot be isolated" in ended.stderr and not (folder.path / "owned").exists()


STATEMENTS = """[
  {"role": "system", "content": "Be kind"},
  {% for line in lines %}{"role": "user", "content": {{ line | dump }}}{% if not loop.last %},{% endif %}{% endfor %}
]"""


def test_a_chat_may_be_built_with_statements(folder):
    folder.write("chat.json", STATEMENTS)
    tests = [{"vars": {"lines": [{"a": 1}, 'say "hi"']}}]
    data = {"prompts": ["file://chat.json"], "providers": ["openai:gpt-4o"], "tests": tests}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(data)))
    assert [message.role for message in case.input] == ["system", "user", "user"]
    assert case.input[2].content == 'say "hi"'


LINES = "system: Be terse.\nuser: Say {{x}}\n\n   and more\nassistant: ok\nuser:\nlast {{x}}"


def test_a_text_for_anthropic_is_read_by_lines(folder):
    wrapped = {"vars": {"x": "b\n\n  c"}, "options": {"prefix": "user: first\n"}}
    config = {"prompts": [LINES], "providers": ["anthropic:m"], "tests": [{"vars": {"x": "hi"}}, wrapped]}
    plain, prefixed = folder.load(folder.write("promptfooconfig.json", json.dumps(config)))
    turns = [("user", "Say hi\nand more"), ("assistant", "ok"), ("user", "\nlast hi")]
    assert [(message.role, message.content) for message in plain.input] == [("system", "Be terse."), *turns]
    assert (prefixed.input[1].content, prefixed.input[-1].content) == ("first", "\nlast b\nc")
    config["providers"].append("openai:gpt-4o")
    cases = folder.load(folder.write("promptfooconfig.json", json.dumps(config)))
    assert cases[0].input[0].content.startswith("system: Be terse.")
    assert any("removes blank lines" in str(warning) for warning in cases.warnings)


RUBRIC = {"options": {"factuality": 5, "rubricPrompt": "x"}}
MALFORMED = {
    "a threshold in quotes": ({"type": "contains", "value": "a", "threshold": "0.5"}, {}, "'threshold' of 'contains'"),
    "a weight in quotes": ({"type": "contains", "value": "a", "weight": "2"}, {}, "'weight' of 'contains' must be"),
    "nothing to compare with": ({"type": "similar", "provider": "openai:embedding:m"}, {}, "'similar' has no value"),
    "a list as defaults": ({"type": "contains", "value": "a"}, {"defaultTest": [1]}, "'defaultTest' must be an object"),
    "a list as a scenario": ({"type": "contains", "value": "a"}, {"scenarios": [[1]]}, "A scenario must be an object"),
    "scores of factuality": ({"type": "factuality", "value": "a"}, {"defaultTest": RUBRIC}, ""),
}


@pytest.mark.parametrize(("check", "more", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_value_of_another_type_has_a_message(folder, command, check, more, message):
    config = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [{"vars": {"x": "a"}, "assert": [check]}], **more}
    outcome = command("validate", folder.write("promptfooconfig.json", json.dumps(config)))
    assert (outcome.code == 1) is bool(message)
    assert message in outcome.stdout + outcome.stderr


def test_a_pattern_may_have_options_in_braces(folder, command):
    for name in ("a", "b", "c"):
        folder.write(f"{name}.txt", f"{name} {{{{x}}}}")
        folder.write(f"{name}.yaml", [{"vars": {"x": f"file://{{{name},z}}.md"}}])
        folder.write(f"{name}.md", name)
    config = {"prompts": ["file://{a,b}.txt"], "providers": ["echo"], "tests": "file://{b,c}.yaml"}
    cases = folder.load(folder.write("promptfooconfig.json", json.dumps(config)))
    assert [prompt.input[0].content for case in cases for prompt in case.prompts] == ["a b", "b b", "a c", "b c"]


def test_a_prompt_whose_variables_are_blank_is_valid(folder, command):
    config = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [{"vars": {"x": ""}}]}
    assert command("validate", folder.write("promptfooconfig.json", json.dumps(config))).code == 0


MODEL, CLAUDE = "openai:gpt-4o", "bedrock:us.anthropic.claude-sonnet-4-6"
FORMS = {
    "all models of Anthropic": (["anthropic:m", CLAUDE], {"x": "a\n\n  b"}, {}, []),
    "variables with lines": (["anthropic:m", MODEL], {"x": "a\n\n  b"}, {}, ["anthropic:m"]),
    "one line": (["anthropic:m", MODEL], {"x": "a"}, {}, []),
    "Bedrock next to others": ([CLAUDE, MODEL], {"x": "user: a"}, {}, [CLAUDE]),
    "the Converse API": (["bedrock:converse:amazon.nova-pro-v1:0"], {"x": "User: a"}, {}, ["bedrock:converse"]),
    "the Converse API with lines": (["bedrock:converse:amazon.nova-pro-v1:0"], {"x": "a\n\nb"}, {}, []),
    "a provider of the test": (["anthropic:m"], {"x": "a\n\nb"}, {"provider": MODEL}, [MODEL]),
    "a chat in JSON": (["anthropic:m"], {"x": '[{"role": "user", "content": "a"}]'}, {}, []),
    "a chat in YAML": (["anthropic:m"], {"x": "- role: user\n  content: a"}, {}, ["anthropic:m"]),
    "a chat for a model of OpenAI": ([MODEL], {"x": "- role: user\n  content: a"}, {}, []),
    "an answer of the test": (["anthropic:m", MODEL], {"x": "a\n\nb"}, {"providerOutput": "c"}, []),
}


@pytest.mark.parametrize(("providers", "variables", "more", "names"), FORMS.values(), ids=FORMS)
def test_a_target_that_receives_a_text_in_another_form_is_named(folder, providers, variables, more, names):
    config = {"prompts": ["{{x}}"], "providers": providers, "tests": [{"vars": variables, **more}]}
    cases = folder.load(folder.write("promptfooconfig.json", json.dumps(config)))
    notes = [str(warning) for warning in cases.warnings if "promptfoo" in str(warning) and "not kept" in str(warning)]
    assert len(notes) == len(names)
    assert all(f"for '{name}" in note for name, note in zip(names, notes, strict=True))


GRADERS = {"anthropic:m": "lines", "openai:m": "chat", CLAUDE: "lines", "python:p.py": "text", "exec:true": "text"}


@pytest.mark.parametrize(("grader", "form"), GRADERS.items())
def test_a_grader_receives_a_text_in_the_form_of_its_service(folder, grader, form):
    check = {"type": "llm-rubric", "value": "b", "provider": grader, "rubricPrompt": "user: {{output}}"}
    config = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [{"vars": {"x": "a"}, "assert": [check]}]}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(config)))
    assert case.evaluators[0].evaluator.form == form


def test_the_address_of_an_image_may_be_a_variable(folder):
    (folder.path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n0000")
    parts = [{"type": "text", "text": "{{q}}"}, {"type": "image_url", "image_url": {"url": "{{url}}"}}]
    prompts = [json.dumps([{"role": "user", "content": parts}])]
    tests = [{"vars": {"q": "What?", "url": url}} for url in ("https://example.com/a.jpg", "file://a.png")]
    data = {"prompts": prompts, "providers": ["openai:gpt-4o"], "tests": tests}
    cases = folder.load(folder.write("promptfooconfig.json", json.dumps(data)))
    images = [case.input[0].content[1].value for case in cases]
    assert images == ["https://example.com/a.jpg", "data:image/png;base64,iVBORw0KGgowMDAw"]


def test_inline_code_for_variables_is_named_and_runs_only_in_a_run(command, folder):
    text = "prompts: ['{{x}}']\nproviders: [echo]\ntests: [{vars: {x: a}, options: {transformVars: '({x: 1 + 1})'}}]\n"
    path = folder.write("promptfooconfig.yaml", text)
    assert "script    ({x: 1 + 1})" in command("validate", path).stderr
    assert '"content":"a"' in command("cases", path).stdout
    ended = command("eval", path, "--out", "run")
    assert ended.code == 0 and results()[0]["candidate_answer"] == "2"


def test_a_prompt_that_depends_on_the_provider_is_made_for_each(command, folder):
    folder.write("p.cjs", "module.exports = ({ provider }) => `for ${provider.label ?? provider.id}`;")
    text = "prompts: [p.cjs, plain]\nproviders: [echo, {id: echo, label: second}]\n"
    command("eval", folder.write("promptfooconfig.yaml", text), "--out", "run")
    answers = sorted((record["target"], record["candidate_answer"]) for record in results())
    assert answers == [("echo", "for echo"), ("echo", "plain"), ("second", "for second"), ("second", "plain")]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(context): raise KeyError('no')", "KeyError: 'no'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import os\ndef f(context): os._exit(1)", "Its process ended without a result"),
        ("def f(context): return 3", "must return a text or an object, got 3"),
    ],
)
def test_a_prompt_function_that_fails_is_an_error_of_its_jobs_with_the_reason(folder, code, message):
    folder.write("p.py", code)
    text = "prompts: [file://p.py:f]\nproviders: [echo]\n"
    (case,) = folder.load(folder.write("promptfooconfig.yaml", text))
    assert message in case.case_error


def test_a_prompt_function_fails_for_one_provider_and_one_test_only(command, folder):
    code = "if (provider.label && vars.x === 'a') throw new Error('not for it'); return `${vars.x} for ${provider.id}`;"
    folder.write("p.cjs", f"module.exports = ({{ vars, provider }}) => {{ {code} }};")
    text = "prompts: [p.cjs, plain]\nproviders: [echo, {id: echo, label: second}]\ntests: [{vars: {x: [a, b]}}]\n"
    command("eval", folder.write("promptfooconfig.yaml", text), "--out", "run")
    answers = sorted((record["target"], record.get("candidate_answer", "")) for record in results())
    echo = [("echo", "a for echo"), ("echo", "b for echo"), ("echo", "plain"), ("echo", "plain")]
    assert answers == [*echo, ("second", ""), ("second", "b for echo"), ("second", "plain"), ("second", "plain")]
    assert "not for it" in str([record["error"] for record in results() if record["status"] == "error"])


START = "prompts: ['{{q}}']\nproviders: [echo]\n"
BROKEN = {
    START + "tests:\n  - vars: {q: a}\n    description: one ? 1 : 0\n": "Line 5: Invalid YAML",
    START.replace("'{{q}}'", "file://missing.txt") + "tests: [{vars: {q: a}}]\n": "prompt file 'missing.txt' does not",
    START + "tests: [{vars: {q: a}, assert: [{type: equalz, value: a}]}]\n": "'equalz'. Did you mean 'equals'?",
    START.replace("echo", "{id: 'webhook:x', label: local}"): "the provider 'local = webhook:x'",
    START.replace("echo", "file://p.mjs"): "p.mjs was not found",
}


@pytest.mark.parametrize(("text", "message"), BROKEN.items(), ids=["yaml", "prompt", "assertion", "provider", "file"])
def test_a_run_names_what_is_wrong_with_a_configuration(folder, command, text, message):
    folder.write("promptfooconfig.yaml", text)
    ended = command("eval", "promptfooconfig.yaml")
    assert ended.code == 2 and message in ended.stderr, ended.stderr


@pytest.mark.parametrize(
    ("table", "ids"),
    [
        ('prompt,label\nOne {{x}},first\n"Two, {{x}}" ,\n', {"first": "One a", "prompts.csv:2": "Two, a"}),
        ("label,prompt\nfirst,One {{x}}\n", {"first": "One a"}),
        ("Prompt\nOne {{x}}\nTwo\n", {"prompts.csv:1": "One a", "prompts.csv:2": "Two"}),
        ('One {{x}}\n"Two"\n', {"prompts.csv:1": "One a", "prompts.csv:2": '"Two"'}),
        ("One, {{x}}\nTwo\n", {"prompts.csv:1": "One, a", "prompts.csv:2": "Two"}),
    ],
)
def test_prompts_of_a_table_are_its_column_or_its_lines(folder, command, table, ids):
    folder.write("prompts.csv", table)
    config = {"prompts": ["file://prompts.csv"], "providers": ["echo"], "tests": [{"vars": {"x": "a"}}]}
    command("eval", folder.write("promptfooconfig.yaml", json.dumps(config)), "--out", "run")
    records = results("run")
    prompts = {record.get("prompt", "prompts.csv"): record["candidate_answer"] for record in records}
    assert list(prompts.values()) == list(ids.values()) and (len(ids) == 1 or prompts == ids)


def test_a_table_without_a_column_of_prompts_is_refused(folder, command):
    folder.write("prompts.csv", "text,label\na,b\n")
    folder.write("promptfooconfig.yaml", "prompts: [file://prompts.csv]\nproviders: [echo]\n")
    assert "a column must be called 'prompt'" in command("validate", "promptfooconfig.yaml").stdout


def test_prompts_that_are_programs_run_in_the_folder_of_the_configuration(folder, command):
    script = "import os, sys\nprint(os.path.basename(os.getcwd()), *sys.argv[1:-1])\n"
    folder.write("shop/tools/prompt.py", script)
    folder.write("shop/tools/prompt", f"#!{sys.executable}\n{script}")
    Path("shop/tools/prompt").chmod(0o755)
    python = f"exec:{sys.executable} tools/prompt.py"
    prompts = [python, f"{python} --kind", "file://tools/prompt"]
    config = folder.write("shop/promptfooconfig.yaml", json.dumps({"prompts": prompts, "providers": ["echo"]}))
    command("eval", config, "--out", "run")
    assert [record["candidate_answer"] for record in results("run")] == ["shop", "shop --kind", "shop"]
