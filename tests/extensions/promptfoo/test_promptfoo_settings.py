"""Settings of promptfoo configurations: references, environment, options of a run, and assertions that are refused."""

import json

import pytest

BASE = {"prompts": ["{{x}}"], "providers": ["echo"]}
CHECK = {"type": "equals", "value": "a"}


def warnings(folder, **more):
    loaded = folder.load(folder.write("promptfooconfig.json", json.dumps({**BASE, **more})))
    return " ".join(str(warning) for warning in loaded.warnings)


def test_references_lead_into_the_configuration_and_into_other_files(folder):
    folder.write(
        "tests.json", json.dumps({"first": {"vars": {"x": "a"}, "assert": [{"$ref": "#/check"}]}, "check": CHECK})
    )
    own = {"vars": {"x": "b"}, "assert": [{"$ref": "#/$defs/check", "value": "b"}]}
    data = {**BASE, "$defs": {"check": CHECK}, "tests": [{"$ref": "tests.json#/first"}, own]}
    cases = folder.load(folder.write("promptfooconfig.json", json.dumps(data)))
    assert [case.evaluators[0].settings["value"] for case in cases] == ["a", "b"]


@pytest.mark.parametrize("tests", [5, True, ["file://t.json"], [[1]]])
def test_tests_of_another_type_are_findings(folder, command, tests):
    folder.write("t.json", "[5, null]")
    folder.write("promptfooconfig.json", json.dumps({**BASE, "tests": tests}))
    outcome = command("validate", "promptfooconfig.json")
    assert outcome.code == 1 and "Expected an object" in outcome.stdout


def test_a_variable_of_the_environment_may_have_a_default(folder, monkeypatch):
    text = "prompts: ['{{x}}']\nproviders: [echo]\ntests: [{vars: {x: \"{{ env.MY_CITY | default('Oslo') }}\"}}]\n"
    path = folder.write("promptfooconfig.yaml", text)
    assert folder.load(path)[0].input[0].content == "Oslo"
    monkeypatch.setenv("MY_CITY", "Rome")
    assert folder.load(path)[0].input[0].content == "Rome"


def test_an_unset_variable_of_the_environment_is_empty_and_named(folder):
    tests = [{"vars": {"x": "in {{env.MY_CITY}}."}, "assert": [{"type": "equals", "value": "in {{env.MY_CITY}}."}]}]
    loaded = folder.load(folder.write("promptfooconfig.json", json.dumps({**BASE, "tests": tests})))
    assert (loaded[0].input[0].content, loaded[0].evaluators[0].settings["value"]) == ("in .", "in .")
    assert "MY_CITY }}, which is not set" in " ".join(map(str, loaded.warnings))


CITIES = {
    "{{ env.MY_CITY or 'Oslo' }}": ("Oslo", "Rome"),
    "{{ env.MY_CITY | upper }}": ("", "ROME"),
    "in {{ env.MY_CITY | default('Oslo', true) | lower }}": ("in oslo", "in rome"),
    "{{ 'a' if env.MY_CITY == 'Rome' else 'b' }}": ("b", "a"),
}


@pytest.mark.parametrize(("template", "cities"), CITIES.items())
def test_a_variable_that_is_not_secret_may_be_in_an_expression(folder, monkeypatch, template, cities):
    test = {"vars": {"x": template}}
    data = {"prompts": ["-{{x}}"], "providers": ["echo"], "tests": [test]}
    path = folder.write("promptfooconfig.json", json.dumps(data))
    assert folder.load(path)[0].input[0].content == f"-{cities[0]}"
    monkeypatch.setenv("MY_CITY", "Rome")
    assert folder.load(path)[0].input[0].content == f"-{cities[1]}"


def test_a_secret_variable_is_not_in_expressions(folder, monkeypatch):
    text = "prompts: ['{{x}}']\nproviders: [echo]\ntests: [{vars: {x: '{{ env.MY_KEY | upper }}'}}]\n"
    monkeypatch.setenv("MY_KEY", "very-secret-value")
    error = str(folder.error(folder.write("promptfooconfig.yaml", text)))
    assert "'env' can only be inserted as" in error and "VERY" not in error


@pytest.mark.parametrize("key", ["filterRange", "filterSample", "vars", "envPath", "delay", "maxEvalTimeMs"])
@pytest.mark.parametrize("section", ["evaluateOptions", "commandLineOptions"])
def test_an_option_that_changes_the_results_of_a_run_is_named(folder, section, key):
    assert f"{key}: " in warnings(folder, **{section: {key: "1"}})
    assert "not kept" not in warnings(folder, **{section: {"showProgressBar": False, "cache": False, "delay": 0}})


def test_the_grader_of_the_command_line_options_is_the_judge(folder):
    tests = [{"vars": {"x": "a"}, "assert": [{"type": "llm-rubric", "value": "kind"}]}]
    data = {**BASE, "tests": tests, "commandLineOptions": {"grader": "openai:gpt-4o"}}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(data)))
    assert case.evaluators[0].target == "openai:gpt-4o"


def test_equal_prompts_are_one(folder):
    data = {**BASE, "prompts": ["{{x}}", "{{x}}", "other"]}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(data)))
    assert [prompt.id for prompt in case.prompts] == ["prompt-1", "prompt-2"]


@pytest.mark.parametrize(
    ("assertion", "message"),
    [
        ({"type": "select-best", "value": "best"}, "'select-best' compares the answers of all providers and prompts"),
        ({"type": "max-score"}, "use `agentv select`, or `agentv compare`"),
        ({"type": "is-sql"}, "The assertion 'is-sql': call node-sql-parser"),
        ({"type": "human"}, "agentv view --label"),
        (
            {"type": "contains", "value": "file://word.py:get"},
            "'contains' is the function file://word.py:get",
        ),
        ({"type": "skill-used", "value": ["a", "b"]}, "'skill-used' is supported for one skill"),
        ({"type": "skill-used", "value": {"pattern": "a*"}}, "'skill-used' is supported for one skill"),
        ({"type": "trajectory:step-count", "value": {"max": 3}}, "'trajectory:step-count' has settings without"),
        ({"type": "similar", "value": "a", "provider": "vertex:embedding:m"}, "'vertex:embedding:m' has no"),
        ({"type": "similar", "value": "a", "provider": "bedrock:embeddings:m"}, "'bedrock:embeddings:m' has no"),
    ],
)
def test_an_assertion_that_cannot_be_done_refuses_its_test_and_not_the_file(folder, command, assertion, message):
    tests = [{"vars": {"x": "a"}, "assert": [CHECK, assertion]}]
    path = folder.write("promptfooconfig.json", json.dumps({**BASE, "tests": tests}))
    assert message in folder.load(path)[0].case_error
    assert [command(*words, path).code for words in (["validate"], ["validate", "--strict"], ["eval"])] == [0, 1, 3]


@pytest.mark.parametrize("code", ["{ ...vars, y: context.uuid }", "file://own.js"])
def test_a_test_whose_variables_have_a_new_id_for_each_run_is_refused(folder, code):
    folder.write("own.js", "module.exports = (vars, context) => ({ ...vars, y: context.uuid });\n")
    tests = [{"vars": {"x": "a"}, "options": {"transformVars": code}, "assert": [CHECK]}]
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps({**BASE, "tests": tests})))
    assert "'transformVars' reads `context.uuid`" in case.case_error


def test_a_grader_may_have_secret_and_unset_variables(folder, monkeypatch):
    monkeypatch.setenv("MY_KEY", "a-secret-key")
    grader = {"id": "openai:gpt-4o", "config": {"apiKey": "{{env.MY_KEY}}", "apiBaseUrl": "{{env.MY_ADDRESS}}"}}
    tests = [{"vars": {"x": "a"}, "assert": [{"type": "llm-rubric", "value": "kind"}]}]
    data = {**BASE, "defaultTest": {"options": {"provider": grader}}, "tests": tests}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(data)))
    assert case.evaluators[0].target == "openai:gpt-4o"


@pytest.mark.parametrize("type_", ["select-best", "max-score"])
def test_a_comparison_refuses_its_test_although_other_assertions_could_be_kept(folder, command, type_):
    tests = [
        {"vars": {"x": "a"}, "assert": [CHECK, {"type": type_, "value": "x"}]},
        {"vars": {"x": "a"}, "assert": [CHECK]},
    ]
    path = folder.write("promptfooconfig.json", json.dumps({**BASE, "tests": tests}))
    ended = command("eval", path, "--json")
    assert ended.code == 1 and "refused case" in ended.stderr and type_ in ended.stderr


def test_items_of_a_value_may_be_files_and_objects_are_not_templates(folder):
    folder.write("word.txt", "hello\n")
    checks = [
        {"type": "contains-any", "value": ["file://word.txt", "{{x}}"]},
        {"type": "is-json", "value": {"required": ["{{x}}"]}},
    ]
    data = {**BASE, "tests": [{"vars": {"x": "a"}, "assert": checks}]}
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps(data)))
    words, schema = (spec.settings for spec in case.evaluators)
    assert words["value"] == ["hello", "a"] and schema["schema"]["required"] == ["{{x}}"]


def test_a_test_that_needs_the_output_of_another_is_refused(folder, command):
    tests = [{"vars": {"x": "a"}, "options": {"storeOutputAs": "first"}}, {"vars": {"x": "again {{first}}"}}]
    path = folder.write("promptfooconfig.json", json.dumps({**BASE, "tests": tests}))
    assert "'{{first}}' is the output of another test" in command("eval", path).stderr


def test_the_answer_of_a_test_replaces_those_of_the_providers(folder, command):
    given = {"vars": {"x": "a"}, "providerOutput": "b", "assert": [{"type": "equals", "value": "b"}]}
    data = {**BASE, "tests": [given, {"vars": {"x": "a"}, "assert": [CHECK]}]}
    assert command("eval", folder.write("promptfooconfig.json", json.dumps(data)), "--out", "run").code == 0
    records = [json.loads(line) for line in (folder.path / "run" / "results.jsonl").read_text("utf-8").splitlines()]
    assert sorted((record["target"], record["candidate_answer"]) for record in records) == [
        ("echo", "a"),
        ("echo answer 1", "b"),
    ]
    data["tests"] = [{**given, "providerOutput": {"a": 1}}]
    (case,) = folder.load(folder.write("other.json", json.dumps(data)))
    assert "'providerOutput' must be text" in case.case_error


def test_a_test_whose_own_provider_has_no_counterpart_is_refused(folder):
    tests = [{"vars": {"x": "a"}, "provider": {"id": "promptfoo:simulated-user"}, "assert": [CHECK]}]
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps({**BASE, "tests": tests})))
    assert "The provider of the test has no counterpart here: promptfoo:simulated-user" in case.case_error


def test_a_test_with_its_own_provider_runs_once_and_this_is_named(folder, command):
    data = {**BASE, "providers": ["echo", {"id": "echo", "label": "again"}]}
    data["tests"] = [{"vars": {"x": "a"}, "provider": {"id": "echo", "label": "own"}, "assert": [CHECK]}]
    ended = command("eval", folder.write("promptfooconfig.json", json.dumps(data)))
    assert "1/1" in ended.stderr and "promptfoo runs once for each of 2 providers" in ended.stderr


def test_tests_that_a_function_returns_are_valid_before_it_is_called(folder, command):
    folder.write("tests.py", "def generate_tests():\n    return [{'vars': {'x': 'a'}}, {'vars': {'x': 'b'}}]\n")
    path = folder.write("promptfooconfig.json", json.dumps({**BASE, "tests": "file://tests.py"}))
    assert command("validate", path).code == 0
    assert "2/2" in command("eval", path).stderr


def row(test, text):
    """Return a result of promptfoo for a test whose answer is a text."""
    grade = {"pass": text == "a", "score": float(text == "a")}
    return {
        "success": grade["pass"],
        "score": grade["score"],
        "vars": {"x": text},
        "prompt": {"raw": text, "label": "{{x}}"},
        "provider": {"id": "echo"},
        "response": {"output": text},
        "gradingResult": {**grade, "componentResults": [{**grade, "assertion": CHECK}]},
        "testCase": {**test, "vars": {"x": text}},
    }


def test_results_of_promptfoo_have_the_ids_of_our_cases(folder, command):
    tests = [{"vars": {"x": ["a", "b"]}}, {"description": "named", "vars": {"x": "a"}}]
    tests = [{**test, "assert": [CHECK]} for test in tests]
    command("eval", folder.write("promptfooconfig.json", json.dumps({**BASE, "tests": tests})), "--out", "run")
    rows = [row(tests[0], "a"), row(tests[0], "b"), row(tests[1], "a")]
    results = {"evalId": "e", "results": {"results": rows, "prompts": [{"raw": "{{x}}", "label": "{{x}}"}]}}
    path = folder.write("theirs.json", json.dumps(results))
    assert "on 3 shared cases" in command("compare", "run", path, "--allow-changed-measure").stdout


@pytest.mark.parametrize("prompt", ["prompts/missing.txt", "missing.md", "prompts/greeting"])
def test_a_prompt_that_names_no_file_of_prompts_is_not_sent_as_text(folder, prompt):
    path = folder.write("promptfooconfig.json", json.dumps({**BASE, "prompts": [prompt]}))
    assert prompt in str(folder.error(path))


def test_a_pattern_without_files_and_a_text_with_a_slash_are_prompts(folder):
    prompts = ["missing*.txt", "Is it a/b?"]
    (case,) = folder.load(folder.write("promptfooconfig.json", json.dumps({**BASE, "prompts": prompts})))
    assert len(case.prompts) == 2


def test_a_scenario_with_an_empty_list_has_no_tests(folder):
    scenarios = [{"config": [], "tests": [{"vars": {"x": "no"}}]}, {"config": [{"vars": {"x": "no"}}], "tests": []}]
    config = {**BASE, "scenarios": [*scenarios, {"config": [{"vars": {"x": "yes"}}]}], "tests": []}
    cases = folder.load(folder.write("promptfooconfig.json", json.dumps(config)))
    assert [case.details.variables["x"] for case in cases] == ["yes"]


def test_the_targets_of_a_red_team_are_not_a_targets_file(folder, command):
    targets = [{"id": "http", "label": "bot", "config": {"url": "http://localhost:1/"}}]
    path = folder.write("redteam.yaml", json.dumps({"targets": targets, "redteam": {"plugins": ["mcp"]}}))
    ended = command("validate", path)
    assert ended.code == 1 and "promptfoo generates its tests with a model" in ended.stdout


def test_a_prompt_in_a_table_may_be_long(folder):
    folder.write("prompts.csv", f'prompt,label\n"{"long " * 40_000}",long\nshort,short\n')
    path = folder.write("promptfooconfig.json", json.dumps({**BASE, "prompts": ["file://prompts.csv"]}))
    assert [prompt.id for prompt in folder.load(path)[0].prompts] == ["long", "short"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("p.csv", "prompt,label\na\u2028b,c\n"), ("p.csv", "prompt\na\u2028b"), ("p.jsonl", '"a\u2028b"\n')],
)
def test_a_line_separator_of_unicode_does_not_end_a_prompt(folder, name, content):
    folder.write(name, content)
    path = folder.write("promptfooconfig.json", json.dumps({**BASE, "prompts": [f"file://{name}"]}))
    assert "a\u2028b" in folder.load(path)[0].input[0].content


def test_a_byte_order_mark_is_not_a_part_of_a_column(folder):
    folder.write("p.csv", "\ufeffprompt,label\na,c\n")
    path = folder.write("promptfooconfig.json", json.dumps({**BASE, "prompts": ["file://p.csv"]}))
    assert folder.load(path)[0].input[0].content == "a"
