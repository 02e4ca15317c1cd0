"""Projects of AgentV (TypeScript) 5: provider files, lifecycle extensions, scenarios, repeats and lists of cases."""

import json
import shutil
import sys

import pytest

SUITE = {"providers": ["default"], "prompts": ["{{ input }}"]}
TEST = {"id": "one", "vars": {"input": "hello"}, "assert": [{"type": "contains", "value": "hello"}]}
ECHO = "echo hello > {OUTPUT_FILE}"


def cases(folder, command, **suite):
    folder.write("suite.eval.yaml", {**SUITE, **suite})
    outcome = command("cases", "suite.eval.yaml")
    assert outcome.code == 0, outcome.stderr
    return outcome.printed


@pytest.mark.parametrize("is_list", [True, False])
def test_providers_are_targets(folder, command, is_list):
    providers = [
        {"id": "azure", "label": "judge", "api_key": "{{ env.MY_KEY }}", "model": "m", "endpoint": "https://x.test"},
        {"id": "agentv:codex-cli", "label": "codex", "command": ["my-codex", "-v"], "reasoning_effort": "low"},
        {"id": "openai:gpt-5-mini", "label": "mini", "runtime": "host", "config": {"temperature": 0}},
        {"id": "cli", "label": "default", "command": ECHO, "batch_requests": True},
    ]
    folder.write(".agentv/providers.yaml", json.dumps(providers if is_list else {"providers": providers}))
    outcome = command("targets", "--json")
    rows = {row["name"]: row for row in outcome.printed}
    assert {name: row["provider"] for name, row in rows.items()} == {
        "judge": "azure",
        "codex": "codex-cli",
        "mini": "openai",
        "default": "cli",
    }
    assert rows["mini"]["model"] == "gpt-5-mini" and "${{ MY_KEY }}" in rows["judge"]["problem"]


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("openai:gpt-5", ("openai", "gpt-5")),
        ("openai:chat:gpt-5", ("openai", "gpt-5")),
        ("openai:responses:gpt-5", ("openai", "gpt-5")),
        ("anthropic:messages:opus", ("anthropic", "opus")),
        ("openai:codex:gpt-5", ("codex", "gpt-5")),
        ("openai:codex-sdk", ("codex-sdk", None)),
        ("openai:codex-app-server:gpt-5", ("codex-app-server", "gpt-5")),
        ("pi-rpc", ("pi-rpc", None)),
        ("agentv:codex-cli:gpt-5", ("codex-cli", "gpt-5")),
        ("claude-cli:opus", ("claude-cli", "opus")),
        ("file://own.ts", ("file://own.ts", None)),
    ],
)
def test_an_id_names_the_provider_and_the_model(folder, command, id, expected):
    folder.write(".agentv/providers.yaml", {"providers": [id, {"id": "mock", "label": "default"}]})
    row = command("targets", "--json").stdout.splitlines()[0]
    assert (json.loads(row)["name"], json.loads(row)["provider"], json.loads(row).get("model")) == (id, *expected)


@pytest.mark.parametrize("place", ["list", "reference", "file"])
def test_a_configuration_has_providers_defaults_and_an_overlay(folder, command, place):
    providers = [{"id": "mock", "label": name, "config": {"response": "hello"}} for name in ("one", "two", "judge-5")]
    folder.write(".agentv/providers.yaml" if place == "file" else ".agentv/list.yaml", json.dumps(providers))
    base = {"defaults": {"provider": "one", "grader": "judge-5"}, "execution": {"max_concurrency": 3}}
    own = {"list": {"providers": providers}, "reference": {"providers": "file://list.yaml"}, "file": {}}
    folder.write(".agentv/config.yaml", {**own[place], **base})
    folder.write(".agentv/config.local.yaml", {"defaults": {"provider": "two"}})
    folder.write("s.yaml", {"prompts": ["{{ input }}"], "tests": [{**TEST, "assert": [*TEST["assert"], "Is kind"]}]})
    assert command("validate", ".").code == 0
    outcome = command("eval", "s.yaml", "--out", "out")
    assert outcome.code == 3, outcome.stderr
    (line,) = (folder.path / "out/results.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["target"] == "two" and "The judge 'judge-5' gave no usable verdict" in outcome.stderr
    assert json.loads((folder.path / "out/run.json").read_text("utf-8"))["defaults"]["workers"] == 3


def test_the_fields_of_a_configuration_may_be_in_files(folder, command):
    parts = {
        "providers": [{"id": "mock", "label": name, "runtime": {"mode": "host"}} for name in ("one", "judge-5")],
        "defaults": {"provider": "one", "grader": "judge-5"},
        "execution": {"max_concurrency": 3},
    }
    for name, part in parts.items():
        folder.write(f".agentv/{name}.yaml", json.dumps(part))
    folder.write(".agentv/config.yaml", {name: f"file://{name}.yaml" for name in parts})
    folder.write("s.yaml", {"prompts": ["{{ input }}"], "tests": [{**TEST, "assert": ["Is kind"]}]})
    outcome = command("eval", "s.yaml", "--out", "out")
    assert "The judge 'judge-5' gave no usable verdict" in outcome.stderr
    plan = json.loads((folder.path / "out/run.json").read_text("utf-8"))
    assert (plan["defaults"]["workers"], plan["defaults"]["target"]) == (3, "one")


@pytest.mark.parametrize("place", ["config", "file", "targets"])
def test_targets_and_graders_of_earlier_versions_have_an_id_and_a_provider(folder, command, place):
    targets = [{"id": "one", "provider": "mock", "runtime": "host", "config": {"response": "hello"}}]
    graders = [{"id": "judge-5", "provider": "mock", "config": {"response": "hello"}}]
    lists = {"targets": targets if place == "config" else "file://targets.yaml", "graders": graders}
    if place == "targets":
        folder.write(".agentv/targets.yaml", {"targets": targets})
        lists = {"graders": graders}
    elif place == "file":
        folder.write(".agentv/targets.yaml", json.dumps(targets))
    folder.write(".agentv/config.yaml", {**lists, "defaults": {"target": "one", "grader": "judge-5"}})
    folder.write("s.yaml", {"prompts": ["{{ input }}"], "tests": [{**TEST, "assert": ["Is kind"]}]})
    assert command("validate", ".").code == 0
    outcome = command("eval", "s.yaml", "--out", "out")
    assert "The judge 'judge-5' gave no usable verdict" in outcome.stderr
    assert json.loads((folder.path / "out/run.json").read_text("utf-8"))["defaults"]["target"] == "one"


def test_a_suite_may_have_targets_with_an_id_and_a_provider(folder, command):
    target = {"id": "one", "provider": "mock", "config": {"response": "hello"}}
    folder.write("s.yaml", {"targets": [target], "prompts": ["{{ input }}"], "threshold": 1, "tests": [TEST]})
    assert command("eval", "s.yaml").code == 0


@pytest.mark.parametrize("runtime", ["sandbox", {"mode": "sandbox", "engine": "docker"}])
def test_a_runtime_that_is_not_the_host_is_refused_by_name(folder, command, runtime):
    provider = {"id": "mock", "label": "boxed", "runtime": runtime}
    folder.write("s.yaml", {**SUITE, "providers": [provider], "tests": [TEST]})
    outcome = command("validate", "s.yaml")
    assert outcome.code == 1 and "The runtime 'sandbox' of 'boxed' is not supported" in outcome.stdout


def test_a_test_with_a_description_only_is_refused(folder, command):
    folder.write("s.yaml", {**SUITE, "tests": [{"id": "a", "description": "Says hello", "vars": {"input": "hi"}}]})
    outcome = command("validate", "s.yaml")
    assert outcome.code == 1 and "Missing required field: 'expected_outcome'" in outcome.stdout


@pytest.mark.parametrize(
    "reference", ["ref://all", "file://{{ env.AGENTV_REPO_ROOT }}/.agentv/default-test.yaml", "file://own.yaml"]
)
def test_the_default_test_may_be_in_a_file_of_the_repository(folder, command, reference):
    for name in (".agentv/default-test.yaml", "suites/own.yaml"):
        folder.write(name, {"threshold": 0.6, "assert": [{"type": "contains", "value": "all"}]})
    named = "file://{{ env.AGENTV_REPO_ROOT }}/.agentv/default-test.yaml"
    folder.write(".agentv/config.yaml", {"refs": {"all": named}})
    folder.write("suites/s.yaml", {**SUITE, "default_test": reference, "tests": [TEST]})
    outcome = command("cases", "suites/s.yaml")
    assert outcome.code == 0, outcome.stderr
    (case,) = outcome.printed
    assert [check["value"] for check in case["evaluators"]] == ["hello", "all"]
    folder.write("suites/s.yaml", {**SUITE, "default_test": "ref://nosuch", "tests": [TEST]})
    assert "'ref://nosuch' is not defined. Add `refs.nosuch` to" in command("cases", "suites/s.yaml").stderr


def test_a_folder_of_tests_has_a_folder_for_each(folder, command):
    folder.write("cases/one/workspace/note.txt", "kept")
    folder.write("cases/one/case.yaml", {"vars": {"input": "x"}, "assert": ["Is kind"]})
    folder.write("cases/two/case.yml", {"id": "second", "vars": {"input": "y"}, "assert": ["Is kind"]})
    folder.write("cases/note.md", "not a test")
    one, two = cases(folder, command, tests="./cases")
    assert (one["id"], one["workspace"], two["id"]) == ("one", {"template": "cases/one/workspace"}, "second")


TABLE = """id,vars.input,vars.who.name,__expected,__expected2,__metric,__threshold,__description
greet,Hello {{ who.name }},Ada,not-contains-any:x;y,python: check.py,kind,0.8,Greets
"""


def test_a_table_has_the_columns_of_agentv(folder, command):
    folder.write("t.csv", TABLE)
    (case,) = cases(folder, command, tests="file://t.csv")
    assert (case["id"], case["input"][0]["content"], case["expected_outcome"]) == ("greet", "Hello Ada", "Greets")
    text, script = case["evaluators"]
    assert (text["name"], text["negate"], text["value"]) == ("kind-1", True, ["x;y"])
    assert (script["name"], script["script"]) == ("kind-2", ["uv", "run", "python", "check.py"])
    assert case["execution"]["verdicts"]["pass"] == 0.8


def test_a_variable_of_a_table_has_either_a_text_or_parts(folder, command):
    folder.write("t.csv", "id,vars.who,vars.who.name\na,Ada,Ada\n")
    folder.write("s.yaml", {"prompts": ["{{ who }}"], "providers": ["default"], "tests": "file://t.csv"})
    outcome = command("cases", "s.yaml")
    assert outcome.code == 2 and "vars.who.name" in outcome.stderr


def test_a_table_may_have_inputs_and_reference_answers(folder, command):
    folder.write("t.csv", "input,__prefix,__suffix,__provider_output,__expected\nhi,Say ,!,Hi!,grade: Is kind\n")
    (case,) = cases(folder, command, tests="file://t.csv")
    assert case["input"][0]["content"] == "Say hi!" and case["expected_output"][0]["content"] == "Hi!"
    assert case["evaluators"][0]["rubrics"] == "Is kind"


def test_a_file_may_have_scenarios(folder, command):
    scenario = {"config": [{"vars": {"input": "x"}}], "tests": [{"id": "a", "assert": ["Is kind"]}]}
    folder.write("s.json", json.dumps({"scenarios": [scenario]}))
    assert [row["id"] for row in cases(folder, command, scenarios=["file://s.json"])] == ["a"]


def test_a_problem_of_a_test_is_in_the_file_of_its_test(folder, command):
    bad = "\n  vars: {input: x}\n  assert:\n    - {type: nothing}\n"
    folder.write("two.yaml", f"# two\n- id: b{bad}- id: c\n  vars: {{}}\n  assert: [x]\n")
    folder.write("t.csv", "id,__expected\nd,x\n")
    entries = ("- file://two.yaml", "- id: a" + bad.rstrip().replace("\n", "\n  "), "- t.csv")
    suite = "\n".join(("providers: [default]", "prompts: ['{{ input }}']", "tests:", *(f"  {row}" for row in entries)))
    folder.write("s.yaml", suite)
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    outcome = command("validate", "s.yaml", "--format", "json")
    problems = [(each["path"], each["line"]) for each in json.loads(outcome.stdout)["findings"]]
    assert sorted(problems) == [("s.yaml", 8), ("t.csv", 2), ("two.yaml", 5), ("two.yaml", 6)]


@pytest.mark.parametrize("words", [["codex"], ["codex", "app-server"], ["codex", "exec", "--json", "--oss"]])
def test_the_command_of_codex_is_its_program(folder, command, words):
    provider = {"id": "codex-app-server", "label": "default", "runtime": "host", "config": {"command": words}}
    folder.write(".agentv/providers.yaml", {"providers": [provider]})
    (row,) = command("targets", "--json").printed
    assert row["where"] == "codex" and "problem" not in row
    folder.write("s.yaml", {**SUITE, "tests": [TEST]})
    assert f"codex {' '.join(words[3:])}".strip() + "  (target 'default'" in command("validate", "s.yaml").stderr


def test_a_problem_of_a_provider_has_its_line(folder, command):
    folder.write(".agentv/providers.yaml", "- id: cli\n  label: a\n  command: x\n  comand: y\n")
    outcome = command("validate", ".agentv/providers.yaml")
    assert outcome.code == 1 and "4:3  error  Unknown field 'targets[0].comand'" in outcome.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_extensions_run_around_jobs_and_stage_rules(folder, command):
    command_line = "cat *.txt .agentv/agent-rules/*/* > {OUTPUT_FILE}"
    folder.write(".agentv/providers.yaml", {"providers": [{"id": "cli", "label": "default", "command": command_line}]})
    hook = "writeFileSync(`${context.workspace_path}/${hookName}.txt`, `${context.test_id} `);"
    functions = (
        f"export function {name}(context, {{ hookName }}) {{ {hook} }}" for name in ("beforeAll", "beforeEach")
    )
    folder.write("hooks.mjs", "\n".join(('import { writeFileSync } from "node:fs";', *functions)))
    folder.write("AGENTS.md", "Be kind\n")
    extensions = [
        "file://hooks.mjs:beforeAll",
        "file://hooks.mjs:beforeEach",
        {"id": "agentv:agent-rules", "rules": "AGENTS.md"},
    ]
    check = {"type": "equals", "value": "__before_all__ one Be kind"}
    folder.write("s.yaml", {**SUITE, "extensions": extensions, "tests": [{**TEST, "assert": [check]}]})
    outcome = command("eval", "s.yaml", "--out", "out")
    assert "Passed 100 %" in outcome.stdout, (folder.path / "out/results.jsonl").read_text()


def test_a_setup_command_creates_the_folder_of_an_environment(folder, command):
    folder.write(".agentv/providers.yaml", '- {id: cli, label: default, command: "cat * > {OUTPUT_FILE}"}\n')
    folder.write("there/note.txt", "kept\n")
    setup = 'echo "$1 $(basename "$AGENTV_ENVIRONMENT_WORKDIR")" > "$AGENTV_ENVIRONMENT_WORKDIR/made.txt"'
    folder.write("recipes/setup.sh", setup)
    folder.write("recipes/host.yaml", {"workdir": "./checkout", "setup": {"command": ["sh", "setup.sh", "made in"]}})
    tests = [
        {**TEST, "id": "made", "assert": [{"type": "equals", "value": "made in checkout"}]},
        {**TEST, "id": "there", "environment": {"workdir": "there"}, "assert": [{"type": "equals", "value": "kept"}]},
    ]
    folder.write("s.yaml", {**SUITE, "environment": "file://recipes/host.yaml", "tests": tests})
    outcome = command("eval", "s.yaml", "--min-score", "1")
    assert outcome.code == 0, outcome.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_extensions_run_after_the_setup_of_an_environment(folder, command):
    folder.write(".agentv/providers.yaml", '- {id: cli, label: default, command: "cat *.txt > {OUTPUT_FILE}"}\n')
    append = "appendFileSync(`${context.workspace_path}/log.txt`, `${hookName} ${context.test_id}`);"
    function = f"export const beforeAll = (context, {{ hookName }}) => {{ {append} }};"
    folder.write("h.mjs", f'import {{ appendFileSync }} from "node:fs";\n{function}')
    program = ["sh", "-c", "cat > /dev/null; echo it\\'s > log.txt"]
    setup = {"command": program, "cwd": "../../wd", "timeout_ms": 9000}
    folder.write("wd/kept.txt", "kept\n")
    folder.write(".agentv/environments/host.yaml", {"type": "host", "workdir": "../../wd", "setup": setup})
    check = {"type": "regex", "value": "kept\\nit's\\nbeforeAll "}
    suite = {**SUITE, "environment": "file://.agentv/environments/host.yaml", "extensions": ["file://h.mjs:beforeAll"]}
    folder.write("s.yaml", {**suite, "tests": [{**TEST, "assert": [check]}]})
    outcome = command("eval", "s.yaml", "--out", "out")
    assert "Passed 100 %" in outcome.stdout, (folder.path / "out/results.jsonl").read_text()


@pytest.mark.parametrize("extension", ["file://hooks.py:beforeAll", "file://hooks.mjs:sometime", "other:thing", 3])
def test_other_extensions_are_refused_by_name(folder, command, extension):
    folder.write("s.yaml", {**SUITE, "extensions": [extension], "tests": [TEST]})
    outcome = command("cases", "s.yaml")
    assert outcome.code == 2 and str(extension) in outcome.stderr


REPEAT = {"count": 2, "strategy": "pass_any"}


@pytest.mark.parametrize(
    ("policy", "note"),
    [
        (REPEAT, None),
        ({**REPEAT, "early_exit": True}, "repeat.early_exit 'true': every trial runs"),
        ({**REPEAT, "cost_limit_usd": 0.5}, "repeat.cost_limit_usd '0.5': every trial runs. Limit the cost"),
        ({**REPEAT, "strategy": "most"}, "'repeat.strategy' must be one of pass_any, pass_at_k"),
        ({**REPEAT, "until": 1}, "'repeat.until' is not supported"),
    ],
)
def test_a_repeat_policy_is_the_number_of_trials(folder, command, policy, note):
    folder.write("suite.eval.yaml", {**SUITE, "evaluate_options": {"repeat": policy}, "tests": [TEST]})
    outcome = command("cases", "suite.eval.yaml", "--strict")
    assert outcome.code == (2 if note else 0) and (note or "") in outcome.stderr
    assert note or outcome.printed[0]["execution"]["trials"] == 2


def answers(folder, *passing):
    """Write a target that passes the trials with these numbers."""
    folder.write("count.py", f"def answer(trial):\n    return 'hello you' if trial in {passing} else 'hello'\n")
    target = {"name": "default", "provider": "python", "function": "count.py:answer"}
    folder.write(".agentv/targets.yaml", {"targets": [target]})


BOTH = [{"type": "contains", "value": "hello"}, {"type": "contains", "value": "you"}]


@pytest.mark.parametrize(
    ("repeat", "passing", "code"),
    [
        (3, (3,), 0),
        (3, (), 1),
        (1, (2,), 1),
        (REPEAT, (2,), 0),
        ({"count": 2, "strategy": "pass_all"}, (2,), 1),
        ({"count": 2, "strategy": "pass_all"}, (1, 2), 0),
        ({"count": 2, "strategy": "mean"}, (2,), 0),
        ({"count": 3, "strategy": "mean"}, (2,), 1),
        ({"count": 3, "strategy": "confidence_interval"}, (1, 2), 1),
    ],
)
@pytest.mark.parametrize("is_own", [True, False])
def test_the_repeat_policy_decides_whether_a_suite_passes(folder, command, repeat, passing, code, is_own):
    answers(folder, *passing)
    options = {"options": {"repeat": repeat}} if is_own else {}
    shared = {} if is_own else {"evaluate_options": {"repeat": repeat}}
    test = {**TEST, "assert": BOTH, **options}
    folder.write("suite.eval.yaml", {**SUITE, **shared, "threshold": 0.75, "tests": [test]})
    assert command("eval", "suite.eval.yaml", "--workers", "1").code == code


@pytest.mark.parametrize("prompts", [{"prompts": ["{{ input }}"]}, {}])
@pytest.mark.parametrize(
    ("suite", "passing", "code"),
    [
        ({"repeat": {"count": 2, "strategy": "pass_all"}}, (2,), 1),
        ({"repeat": {"count": 2, "strategy": "pass_all"}, "budget_usd": 1}, (1, 2), 0),
        ({"runs": 2}, (2,), 0),
        ({"runs": 2, "early_exit": True}, (), 1),
        ({"experiment": {"runs": 2, "early_exit": True}}, (2,), 0),
        ({}, (), 1),
    ],
)
def test_earlier_versions_have_the_repeat_policy_in_the_suite(folder, command, suite, passing, code, prompts):
    answers(folder, *passing)
    own = {"vars": TEST["vars"]} if prompts else {"input": "hello"}
    test = {"id": "one", "criteria": "Says you", "assert": BOTH, **own}
    folder.write("suite.eval.yaml", {"target": "default", **prompts, **suite, "threshold": 0.75, "tests": [test]})
    assert command("eval", "suite.eval.yaml", "--workers", "1").code == code


def test_the_strictest_of_several_strategies_decides_and_is_named(folder, command):
    answers(folder, 2)
    test = {**TEST, "assert": BOTH, "options": {"repeat": {"count": 3, "strategy": "mean"}}}
    shared = {"evaluate_options": {"repeat": 2}, "threshold": 0.75}
    folder.write("suite.eval.yaml", {**SUITE, **shared, "tests": [{**TEST, "id": "two", "assert": BOTH}, test]})
    outcome = command("eval", "suite.eval.yaml", "--workers", "1")
    assert outcome.code == 1 and "several strategies of 'repeat': 'mean', the strictest" in outcome.stderr
    test["options"]["repeat"]["strategy"] = "confidence_interval"
    folder.write("suite.eval.yaml", {**SUITE, **shared, "tests": [test]})
    outcome = command("validate", "suite.eval.yaml")
    assert outcome.code == 1 and "'repeat' has several strategies: pass_any, confidence_interval" in outcome.stdout


@pytest.mark.parametrize(
    ("suite", "test", "code"),
    [
        ({"threshold": 0.4}, {}, 0),
        ({"threshold": 0.6}, {}, 1),
        ({"threshold": 0.4}, {"threshold": 0.6}, 1),
        ({"threshold": 0.6}, {"threshold": 0.5}, 0),
        ({"threshold": 0.4}, {"assert": [BOTH[0], {**BOTH[1], "required": True}]}, 1),
        ({}, {}, 0),
        ({}, {"threshold": 0.9}, 0),
        ({}, {"run": {"threshold": 0.9}}, 1),
        ({}, {"run": {"timeout_seconds": 60}}, 1),
        ({"default_test": {"threshold": 0.9}}, {}, 0),
    ],
)
def test_every_test_reaches_its_limit_if_the_suite_has_a_threshold(folder, command, suite, test, code):
    answers(folder)
    folder.write("suite.eval.yaml", {**SUITE, **suite, "tests": [{**TEST, "assert": BOTH, **test}]})
    assert command("eval", "suite.eval.yaml").code == code
    assert command("eval", "suite.eval.yaml", "--no-gate").code == 0


def test_the_configurations_of_a_scenario_tell_its_cases_apart(folder, command):
    configs = [{"id": name, "vars": {"input": name}} for name in ("es", "fr")]
    check = {"assert": TEST["assert"]}
    tests = [{"id": "a", **check}, {"description": "greets", **check}]
    rows = cases(folder, command, scenarios=[{"config": configs, "tests": tests}])
    assert [row["id"] for row in rows] == ["a [es]", "greets [es]", "a [fr]", "greets [fr]"]


def test_variables_have_a_namespace_and_a_suite_names_the_dataset(folder, command):
    (case,) = cases(
        folder,
        command,
        suite="refunds",
        prompts=["Say {{ vars.input }} to {{ name }}"],
        tests=[{**TEST, "vars": {"input": "hi", "name": "Bo"}}],
    )
    assert case["dataset"] == "refunds" and case["input"][0]["content"] == "Say hi to Bo"


def test_a_list_of_cases_without_a_key_is_a_dataset(folder, command):
    rows = [{"id": "a", "input": "x", "criteria": "y"}, {"id": "b", "input": "x", "assert": ["Says hi"]}]
    folder.write("cases.yaml", json.dumps(rows))
    assert [json.loads(line)["id"] for line in command("cases", "cases.yaml").stdout.splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    "suite",
    [
        {"evalcases": [{"id": "a", "expected_outcome": "x", "evaluators": [], "turns": "TURNS"}]},
        {**SUITE, "tests": [{"id": "a", "mode": "conversation", "turns": "TURNS"}]},
    ],
)
def test_a_conversation_may_begin_with_its_first_turn(folder, command, suite):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": ["1", "2"]}]})
    key = "evaluators" if "evalcases" in suite else "assert"
    turns = [{"input": text, key: [{"type": "equals", "value": reply}]} for text, reply in (("one", "1"), ("two", "2"))]
    folder.write("s.yaml", json.dumps(suite).replace('"TURNS"', json.dumps(turns)))
    outcome = command("eval", "s.yaml", "--out", "out")
    assert "Passed 100 % of the 1 case" in outcome.stdout, outcome.stderr
    (record,) = [json.loads(line) for line in (folder.path / "out/results.jsonl").read_text().splitlines()]
    assert [message["content"] for message in record["output_messages"]] == ["one", "1", "two", "2"]
    assert [result["name"] for result in record["evaluator_results"]] == ["turn-1.equals", "turn-2.equals"]


LINES = """
name: x
providers: [default]
prompts: ["{{ input }}"]
tests:
  - id: a
    vars: {input: hi}
    assert: [{type: contains, value: x}]
"""


@pytest.mark.parametrize(
    ("line", "lines", "message"),
    [
        (10, ["    assert:", "      - type: contains", "        value: x", "      - type: contians"], "contians"),
        (10, ["    assert:", "      - {type: is-json}", "      - type: llm-rubric", "        valeu: x"], "valeu"),
        (9, ["    assert:", "      - type: assert-set", "        assert: [{type: contians}]"], "contians"),
        (8, ["    turns: [{input: x}]", "    on_turn_failure: explode"], "explode"),
        (9, ["environment:", "  type: docker"], "docker"),
        (10, ["extensions:", "  - agentv:agent-rules", "  - other:thing"], "other:thing"),
        (8, ["workers: 3"], "workers"),
        (9, ["evaluate_options:", "  timeout_ms: [1]"], "timeout_ms"),
        (9, ["environment:", "  workdri: x"], "workdri"),
    ],
)
def test_problems_have_their_line(folder, command, line, lines, message):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    folder.write("s.yaml", "\n".join((*LINES.strip().splitlines()[: 6 if lines[0][0] == " " else 7], *lines)))
    outcome = command("validate", "s.yaml")
    places = [text.split()[0].partition(":")[0] for text in outcome.stdout.splitlines() if message in text]
    assert str(line) in places, outcome.stdout


def test_an_unknown_provider_has_its_line(folder, command):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    folder.write("s.yaml", LINES.strip().replace("[default]", "[default, nosuch]"))
    outcome = command("validate", "s.yaml")
    assert "2:" in next(text for text in outcome.stdout.splitlines() if "nosuch" in text).split()[0]


def test_assertions_of_templates_are_those_of_the_test(folder, command):
    folder.write(".agentv/templates/kind.yaml", {"assert": ["Is kind", {"include": "cheap"}]})
    folder.write(".agentv/templates/cheap.yml", {"assert": [{"type": "cost", "threshold": 1}]})
    folder.write(".agentv/templates/loop.yaml", {"assert": [{"include": "loop"}]})
    (case,) = cases(folder, command, tests=[{**TEST, "assert": [{"include": "kind"}, "Is short"]}])
    rubric, cost = case["evaluators"]
    assert (rubric["rubrics"], cost["type"], cost["budget"]) == (["Is kind", "Is short"], "cost", 1)
    folder.write("s.yaml", {**SUITE, "tests": [{**TEST, "assert": [{"include": "loop"}]}]})
    assert "'loop' is included by more than 3 templates" in command("cases", "s.yaml").stderr


@pytest.mark.parametrize("is_flag", [True, False])
def test_an_assertion_of_tools_may_be_negated_by_a_flag(folder, command, is_flag):
    used = {"type": "trajectory:tool-used", "value": ["read", "write"]}
    negated = {**used, "negate": True} if is_flag else {**used, "type": "not-trajectory:tool-used"}
    (case,) = cases(folder, command, tests=[{**TEST, "assert": [used, negated]}])
    steps = {"type": "tool_steps", "check": "tool-used", "value": ["read", "write"], "commands": True}
    first, second = ({key: entry.get(key) for key in (*steps, "inverse")} for entry in case["evaluators"])
    assert (first, second) == ({**steps, "inverse": None}, {**steps, "inverse": True})


def test_a_list_whose_first_item_is_a_text_multiplies_a_test(folder, command):
    rows = cases(folder, command, prompts=["{{ n }} {{ m }}"], tests=[{**TEST, "vars": {"n": ["a", 1], "m": [1, "a"]}}])
    assert [row["input"][0]["content"] for row in rows] == ["a 1,a", "1 1,a"]


def test_a_variable_that_is_not_set_is_empty_and_named(folder, command, monkeypatch):
    monkeypatch.setenv("CITY_OF_TEST", "Oslo")
    text = "{{ env.CITY_OF_TEST }}, {{ env.NO_SUCH_NAME }}!"
    folder.write("t.yaml", json.dumps([{"id": "b", "vars": {"input": text}, "assert": ["x"]}]))
    tests = ["file://t.yaml", {**TEST, "vars": {"input": text}}]
    rows = cases(folder, command, tests=tests)
    assert [row["input"][0]["content"] for row in rows] == ["Oslo, !", "Oslo, !"]
    for test in tests:
        cases(folder, command, tests=[test])
        outcome = command("cases", "suite.eval.yaml", "--strict")
        assert outcome.code == 2 and "uses ${{ NO_SUCH_NAME }}, which is not set" in outcome.stderr


def test_an_input_is_a_variable_of_the_prompts_or_in_a_file(folder, command):
    folder.write("rows.jsonl", json.dumps({"id": "a", "input": "hi", "assert": ["x"]}) + "\n")
    (case,) = cases(folder, command, prompts=["Politely: {{ input }}"], tests="rows.jsonl")
    assert case["input"][0]["content"] == "Politely: hi"
    folder.write("task/PROMPT.md", "Fix it\n")
    folder.write("log.txt", "broken\n")
    test = {"id": "b", "criteria": "fixed", "input_files": ["./log.txt", "./task/PROMPT.md"]}
    folder.write("s.yaml", {"providers": ["default"], "tests": [test]})
    (case,) = command("cases", "s.yaml").printed
    parts = [(part["type"], part["value"].strip()) for part in case["input"][0]["content"]]
    assert parts == [("file", "./log.txt"), ("text", "Fix it")]


def test_a_chat_may_have_files_of_variables(folder, command):
    folder.write("facts.md", "facts")
    content = [{"type": "file", "value": "{{ place }}"}, {"type": "text", "value": "Sum up {{ input }}"}]
    test = {**TEST, "vars": {"input": "it", "place": "./facts.md"}}
    (case,) = cases(folder, command, prompts=[[{"role": "user", "content": content}]], tests=[test])
    assert [part["value"] for part in case["input"][0]["content"]] == ["./facts.md", "Sum up it"]


def test_a_grader_may_name_its_provider(folder, command):
    rubric = {"type": "llm-rubric", "value": "Is kind", "provider": "judge"}
    agent = {"type": "agent-rubric", "metric": "quality", "value": ["Is kind"], "max_steps": 5, "provider": "judge"}
    (case,) = cases(folder, command, tests=[{**TEST, "assert": [rubric, agent]}])
    first, second = case["evaluators"]
    assert first["target"] == second["target"] == "judge"
    assert (second["type"], second["name"], second["rubrics"]) == ("rubric", "quality", ["Is kind"])
    outcome = command("cases", "suite.eval.yaml", "--strict")
    assert outcome.code == 2 and "agent-rubric" in outcome.stderr


@pytest.mark.parametrize("suite", [{**SUITE}, {}], ids=["prompts", "inputs"])
def test_a_rubric_that_only_has_a_prompt_is_a_judge(folder, command, suite):
    folder.write("judge.md", "Grade {{ output }}")
    check = {"metric": "safe", "type": "llm-rubric", "prompt": "file://judge.md"}
    group = {"metric": "all", "type": "composite", "aggregator": {"type": "weighted_average"}, "assert": [check]}
    test = {"id": "a", "vars": {"input": "x"}} if suite else {"id": "a", "input": "x"}
    folder.write("suite.eval.yaml", {**suite, "tests": [{**test, "assert": [check, group]}]})
    outcome = command("cases", "suite.eval.yaml")
    judge, composite = outcome.printed[0]["evaluators"]
    assert [judge["type"], composite["evaluators"][0]["type"]] == ["llm_judge", "llm_judge"], outcome.stderr


def test_the_prompt_of_all_rubrics_may_be_an_option(folder, command):
    own = {"type": "llm-rubric", "value": "Is short", "prompt": "Own {{ output }}"}
    tests = [{**TEST, "assert": ["Is kind", own, {"type": "llm-rubric", "value": "Is calm"}]}]
    (case,) = cases(folder, command, default_test={"options": {"rubric_prompt": "All {{ output }}"}}, tests=tests)
    assert [check["prompt"].split()[0] for check in case["evaluators"]] == ["All", "Own", "All"]
    assert command("cases", "suite.eval.yaml", "--strict").code == 0


def test_a_test_whose_assertions_have_no_counterpart_is_refused(folder, command):
    folder.write("s.yaml", {**SUITE, "tests": [{**TEST, "assert": [{"type": "webhook", "value": "http://x.test"}]}]})
    outcome = command("cases", "s.yaml")
    assert outcome.code == 0 and "The assertion 'webhook': agentv does not send answers" in outcome.stderr


def test_tests_of_a_python_file_are_those_of_create_tests(folder, command):
    folder.write("t.py", f"def create_tests():\n    return [{TEST!r}]\n")
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "hello"}]})
    folder.write("s.yaml", {**SUITE, "tests": "file://t.py"})
    outcome = command("eval", "s.yaml", "--out", "out")
    assert "Passed 100 % of the 1 case" in outcome.stdout, outcome.stderr


def test_the_prompt_next_to_a_suite_is_used_without_prompts(folder, command):
    folder.write("PROMPT.md", "Say {{ input }}\n")
    folder.write("s.yaml", {"providers": ["default"], "tests": [TEST]})
    outcome = command("cases", "s.yaml")
    assert outcome.code == 0 and outcome.printed[0]["input"][0]["content"].strip() == "Say hello", outcome.stderr


def test_a_provider_that_is_a_program_is_a_command(folder, command):
    folder.write(".agentv/providers.yaml", {"providers": [{"id": "exec:cat {PROMPT_FILE}", "label": "default"}]})
    folder.write("s.yaml", {**SUITE, "tests": [TEST]})
    outcome = command("eval", "s.yaml", "--out", "out")
    assert "Passed 100 %" in outcome.stdout, outcome.stderr


def test_providers_of_agentv_that_are_written_out_are_targets(folder, command):
    provider = {"id": "mock", "label": "fixed", "config": {"response": "hello there"}}
    folder.write("s.yaml", {**SUITE, "providers": [provider], "tests": [TEST]})
    outcome = command("eval", "s.yaml", "--out", "out")
    assert "Passed 100 %" in outcome.stdout and "fixed" in outcome.stdout, outcome.stderr
    assert json.loads((folder.path / "out/results.jsonl").read_text())["eval_id"] == "one"


def test_variables_are_inserted_wherever_a_test_names_them(folder, command):
    test = {
        "id": "greet-{{ name }}",
        "vars": {
            "name": "Bo",
            "input": [{"role": "user", "content": "Greet {{ vars.name }}, {{ nosuch }}"}],
            "expected": {"answer": "Hi {{ name }}", "fields": {"to": "Bo"}},
        },
        "expected_output": "{{ vars.expected.fields }}",
        "assert": [{"type": "contains", "value": "{{ vars.expected.answer }}"}, "Greets {{ vars.name }}"],
    }
    (case,) = cases(folder, command, prompts=["{{ vars.input }}"], tests=[test])
    assert (case["id"], case["input"][0]["content"]) == ("greet-Bo", "Greet Bo, ")
    assert case["expected_output"][0]["content"] == {"to": "Bo"}
    assert [check.get("value") or check["rubrics"] for check in case["evaluators"]] == ["Hi Bo", ["Greets Bo"]]
    outcome = command("cases", "suite.eval.yaml", "--strict")
    assert outcome.code == 2 and "'{{ nosuch }}' in a variable" in outcome.stderr


@pytest.mark.parametrize("value", ["{{ name.first.second }}", "{{ name | shout }}"])
def test_a_template_of_an_assertion_that_cannot_be_rendered_is_named(folder, command, value):
    cases(
        folder,
        command,
        tests=[{**TEST, "vars": {"input": "x", "name": "Bo"}, "assert": [{"type": "contains", "value": value}]}],
    )
    outcome = command("cases", "suite.eval.yaml", "--strict")
    assert outcome.code == 2 and f"'{value}' in an assertion cannot be rendered" in outcome.stderr


def test_a_case_without_a_prompt_has_its_input_in_its_variables(folder, command):
    row = {"id": "a", "vars": {"input": "Hi {{ name }}", "name": "Bo", "expected_output": "Yes"}, "assert": ["Greets"]}
    folder.write("rows.jsonl", json.dumps(row) + "\n")
    folder.write("s.yaml", {"target": "default", "tests": "./rows.jsonl"})
    outcome = command("cases", "s.yaml")
    assert outcome.code == 0, outcome.stderr
    (case,) = outcome.printed
    assert (case["input"][0]["content"], case["expected_output"][0]["content"]) == ("Hi Bo", "Yes")


BLOCK = {"targets": ["one"], "workers": 2, "threshold": 0.7, "repeat": {"count": 2, "strategy": "mean"}}
DIRECT = {"id": "a", "input": "hi", "criteria": "greets"}
REFERENCE = {"name": "one", "extends": "two", "hooks": {"before_each": {"command": ["true"]}}}


@pytest.mark.parametrize(
    ("suite", "key", "expected"),
    [
        (
            {"experiment": BLOCK},
            "execution",
            {"targets": ["one"], "trials": 2, "workers": 2, "verdicts": {"pass": 0.7}},
        ),
        ({"experiment": "label", "tags": {"team": "x"}}, "metadata", {"experiment": "label", "tags": {"team": "x"}}),
        ({"target": REFERENCE, "workspace": {"mode": "temp"}}, "execution", {"targets": ["one"]}),
        ({"target": {"extends": "two"}}, "execution", {"targets": ["two"]}),
        (
            {"target": REFERENCE, "workspace": {"mode": "temp"}},
            "workspace",
            {"target_hooks": {"one": REFERENCE["hooks"]}},
        ),
    ],
)
def test_forms_of_earlier_versions_are_read(folder, command, suite, key, expected):
    folder.write(
        "s.yaml", "\n".join(f"{name}: {json.dumps(value)}" for name, value in {**suite, "tests": [DIRECT]}.items())
    )
    outcome = command("cases", "s.yaml", "--strict")
    assert outcome.code == 0, outcome.stderr
    found = outcome.printed[0][key]
    found = {**found, **({"verdicts": {"pass": found["verdicts"]["pass"]}} if "verdicts" in found else {})}
    assert found == expected


@pytest.mark.parametrize("is_import", [True, False])
def test_imported_tests_are_those_of_the_file(folder, command, is_import):
    folder.write("cases.yaml", json.dumps([DIRECT]))
    imports = (
        "imports:\n  tests: [{path: cases.yaml}]" if is_import else "tests:\n  - include: cases.yaml\n    type: tests"
    )
    folder.write("s.yaml", imports)
    assert [row["id"] for row in command("cases", "s.yaml").printed] == ["a"]
    for text, message in (("select: a*", "'select' of imported tests"), ("type: suite", "'include' of another suite")):
        folder.write("s.yaml", f"tests:\n  - include: cases.yaml\n    {text}")
        outcome = command("cases", "s.yaml")
        assert outcome.code == 2 and message in outcome.stderr
    folder.write("s.yaml", "imports: {suites: [other.yaml]}")
    assert "'imports' of suites is not supported" in command("cases", "s.yaml").stderr


CHAT = [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hi {{ input }}"}]


@pytest.mark.parametrize(
    "prompts",
    [
        CHAT,
        [CHAT],
        [{"id": "m", "messages": CHAT}],
        [{"id": "p", "prompt": CHAT}],
        [{"id": "r", "raw": json.dumps(CHAT)}],
    ],
)
def test_a_chat_is_one_prompt_however_it_is_written(folder, command, prompts):
    (case,) = cases(folder, command, prompts=prompts, tests=[TEST])
    assert [message["content"] for message in case["input"]] == ["Be kind", "Hi hello"]


@pytest.mark.parametrize("prompt", [{"id": "f", "function_file": "p.mjs"}, {"command": ["node", "p.mjs"]}, {"id": "x"}])
def test_prompts_without_a_text_are_refused(folder, command, prompt):
    folder.write("s.yaml", {**SUITE, "prompts": [prompt], "tests": [TEST]})
    outcome = command("cases", "s.yaml")
    assert outcome.code == 2 and "'prompts[0]" in outcome.stderr


LOOP = "{% for item in items %}{{ item.n }} {% endfor %}"
PROMPT = LOOP + "{{ name | upper }} {{ nosuch | default('d') }}{{ other }} {{ items.length }}"


def test_prompts_are_templates_of_nunjucks(folder, command):
    test = {**TEST, "vars": {"items": [{"n": 1}, {"n": 2}], "name": "{{ first | lower }}", "first": "BO"}}
    (case,) = cases(folder, command, prompts=[PROMPT], tests=[test])
    assert case["input"][0]["content"] == "1 2 BO d 2"


@pytest.mark.parametrize(
    "member", [{"type": "javascript", "value": "context.config.city === 'Oslo'"}, {"type": "script"}]
)
def test_the_programs_of_a_set_have_its_configuration(folder, command, member):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock", "response": "x"}]})
    folder.write(
        "g.py", "import json, sys\nprint(json.dumps({'score': len(json.load(sys.stdin)['config']['city']) / 4}))"
    )
    member = member if "value" in member else {**member, "command": [sys.executable, "g.py"]}
    group = {"type": "assert-set", "config": {"city": "Oslo"}, "assert": [member]}
    folder.write("s.yaml", {**SUITE, "tests": [{**TEST, "assert": [group]}]})
    outcome = command("eval", "s.yaml", "--min-score", "1")
    assert outcome.code == 0, outcome.stdout


@pytest.mark.parametrize(
    ("providers", "names"),
    [
        ("file://list.yaml", ["one", "two"]),
        (["openai:gpt-5-mini", "default"], ["openai:gpt-5-mini", "default"]),
        (["agentv:codex-cli:gpt-5", "claude-cli:opus"], ["agentv:codex-cli:gpt-5", "claude-cli:opus"]),
    ],
)
def test_providers_of_a_suite_may_be_files_ids_and_names(folder, command, providers, names):
    listed = [{"id": "mock", "label": name, "config": {"response": "hello"}} for name in ("one", "two")]
    folder.write("list.yaml", json.dumps(listed))
    (case,) = cases(folder, command, providers=providers, tests=[TEST])
    assert case["execution"]["targets"] == names
    assert command("cases", "suite.eval.yaml", "--strict").code == 0


@pytest.mark.parametrize(("test", "kind"), [(5, "integer"), (None, "null"), (["a"], "array")])
def test_a_test_that_is_not_an_object_is_an_error(folder, command, test, kind):
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    folder.write("suite.eval.yaml", {**SUITE, "evaluate_options": {"repeat": 2}, "tests": [test]})
    for ended in (command("validate", "suite.eval.yaml"), command("eval", "suite.eval.yaml")):
        assert ended.code and f"Expected an object, got {kind}" in ended.stdout + ended.stderr
