"""`agentv validate`: all findings in one pass, as text, JSON or GitHub annotations."""

import json

import pytest
from click.testing import CliRunner

from agentv.cli import cli

CASE = {"id": "a", "expected_outcome": "x", "input": "q"}
GOOD = '{"id": "a", "expected_outcome": "x", "input": "q"}\n'


def validate(*arguments):
    return CliRunner().invoke(cli, ["validate", *map(str, arguments)])


def findings(*arguments):
    report = json.loads(validate(*arguments, "--json").stdout)
    return [(each["severity"], each.get("line"), each["message"]) for each in report["findings"]]


@pytest.fixture
def write(tmp_path):
    (tmp_path / ".git").mkdir()

    def write_file(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def test_valid_files_exit_with_0(write):
    result = validate(write("a.jsonl", GOOD))
    assert result.exit_code == 0
    assert "Checked 1 file with 1 readable case: 0 errors, 0 warnings" in result.stderr


def test_all_findings_of_all_files_are_reported_together(write, tmp_path):
    write("one.jsonl", GOOD + '\n{"id": "b"}\nnot json\n{"id": "a", "expected_outcome": "x", "input": "q"}\n')
    write("two.yaml", "evalcases:\n  - id: x\n    expected_outcome: y\n    input: 5\n  - nothing\n")
    assert validate(tmp_path).exit_code == 1
    assert findings(tmp_path) == [
        ("error", 3, "Missing required field: 'expected_outcome'"),
        ("error", 3, "Missing required field: 'input'"),
        ("error", 4, "Invalid JSON - expected a value, found 'n', at column 1"),
        ("error", 5, "Duplicate id 'a': first used at line 1"),
        ("error", 4, "Field 'input' must be a string, an array of messages or an object, got integer"),
        ("error", 5, "Expected an object, got string"),
    ]


def test_a_file_that_does_not_exist_is_an_error(tmp_path):
    assert CliRunner().invoke(cli, ["validate", str(tmp_path / "no.yaml")]).exit_code != 0


def test_warnings_fail_only_with_strict(write):
    path = write("a.jsonl", '{"id": "a", "expected_outcome": "x", "input": "q", "tgas": ["t"]}\n')
    assert validate(path).exit_code == 0
    assert validate(path, "--strict").exit_code == 1
    assert "Did you mean 'tags'?" in validate(path).stdout


def test_a_missing_sidecar_is_not_a_finding(write):
    assert validate(write("a.jsonl", GOOD), "--strict").exit_code == 0


def test_the_same_mistake_is_reported_at_every_line(write):
    row = '{"id": "%s", "expected_outcome": "x", "input": "q", "tgas": []}\n'
    assert [line for _, line, _ in findings(write("a.jsonl", row % 1 + row % 2 + row % 3))] == [1, 2, 3]


def test_repeated_json_keys_are_errors_at_any_depth(write):
    path = write("a.jsonl", GOOD + '{"id": "b", "expected_outcome": "x", "input": "q", "metadata": {"k": 1, "k": 2}}\n')
    assert findings(path) == [("error", 2, "The key 'k' occurs twice in one object; the last value is used")]


def test_github_annotations_have_file_line_and_column_and_are_escaped(write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write(
        "a.yaml",
        "evalcases:\n  - id: x\n    expected_outcome: y\n    input:\n      - role: usr\n        content: 100%\n",
    )
    line = validate("a.yaml", "--format", "github").stdout.strip()
    assert line == (
        "::error file=a.yaml,line=5,col=9,title=agentv::The role of a message must be one of system, user, assistant, "
        "tool, got 'usr' — Did you mean 'user'?"
    )


def test_settings_files_of_a_project_are_checked(write, tmp_path):
    write(".agentv/config.yaml", "guideline_pattern: ['*.md']\n")
    write(".agentv/targets.yaml", "targets:\n  - name: default\n    provider: moc\n")
    write("evals/a.yaml", "evaluators: [{type: is_json}]\nevalcases: [{id: a, expected_outcome: x, input: q}]\n")
    assert [(severity, line) for severity, line, _ in findings(tmp_path)] == [("warning", 1), ("error", 3)]


AGENTV_TARGETS = """\
$schema: agentv-targets-v2.2
targets:
  - name: default
    provider: azure
    endpoint: ${{ ENDPOINT }}
    api_key: ${{ KEY }}
    model: ${{ MODEL }}
  - name: editor
    provider: vscode
    workspace_template: ${{ WORKSPACE }}
    judge_target: default
  - name: agent
    provider: codex
    stream_log: raw
    judge_target: default
"""


@pytest.mark.parametrize("target", ["default", "editor"])
def test_only_the_targets_that_a_dataset_uses_must_be_valid(write, tmp_path, target):
    targets = write(".agentv/targets.yaml", AGENTV_TARGETS)
    cases = "evaluators: [{type: is_json}]\nevalcases: [{id: a, expected_outcome: x, input: q}]\n"
    dataset = write("a.yaml", f"execution: {{target: {target}}}\n{cases}")
    problem = ("error", 9, "Unknown provider 'vscode'")
    for path in (dataset, str(tmp_path)):
        ended = validate(path, "--strict")
        assert findings(path) == ([problem] if target == "editor" else [])
        assert ended.exit_code == (target == "editor")
        note = "target 'editor' is not used here, and cannot be: Unknown provider 'vscode'"
        assert (note in ended.stderr) is (target == "default")
    assert findings(targets) == [problem]


def test_a_targets_file_with_another_name_is_recognized_by_its_content(write):
    path = write("my-targets.yaml", "targets:\n  - name: a\n    provider: mock\n    respons: x\n")
    assert findings(path) == [("error", 4, "Unknown field 'targets[0].respons'")]


def test_a_sidecar_is_checked_with_its_data(write):
    write("a.jsonl", GOOD)
    path = write("a.yaml", "executon: {}\nevaluator: llm_judge\n")
    assert findings(path) == [("warning", 1, "Unknown field 'executon'")]


def test_an_unknown_target_is_an_error_with_a_suggestion(write):
    write(".agentv/targets.yaml", "targets:\n  - name: default\n    provider: mock\n")
    path = write("a.yaml", "execution: {target: defualt}\nevalcases: [{id: a, expected_outcome: x, input: q}]\n")
    result = validate(path)
    assert result.exit_code == 1
    assert "Unknown target 'defualt'" in result.stdout
    assert "Did you mean 'default'?" in result.stdout


@pytest.mark.parametrize(
    "evaluator",
    [
        "{type: llm_judge, target: jugde}",
        "{type: rubric, target: [judge, jugde]}",
        "{type: composite, evaluators: [{type: llm_judge, target: jugde}], aggregator: weighted_average}",
    ],
)
def test_an_unknown_judge_is_an_error(write, evaluator):
    write(".agentv/targets.yaml", "targets:\n  - {name: judge, provider: mock}\n")
    path = write("a.yaml", f"evalcases:\n  - {{id: a, expected_outcome: x, input: q, evaluators: [{evaluator}]}}\n")
    said = validate(path).stdout
    assert "Unknown judge 'jugde'" in said and "Did you mean 'judge'?" in said


@pytest.mark.parametrize(
    ("evaluator", "expected"),
    [
        ("{type: llm_judge, prompt: missing.md}", "File 'missing.md' was not found"),
        (
            "{type: llm_judge, prompt: 'Grade {{ candidate_anser }}'}",
            "The prompt uses an unknown variable 'candidate_anser'",
        ),
        ("{type: llm_judge, prompt: 'Grade {{ candidate_answer }'}", "The prompt is not a valid template"),
        ("{type: rubric, prompt: 'Grade {{ anser }}'}", "The prompt uses an unknown variable 'anser'"),
        (
            "{type: composite, evaluators: [x], aggregator: {type: llm_judge, prompt: '{{ evaluator_result }}'}}",
            "Did you mean 'evaluator_results'?",
        ),
        ("{type: python, function: 'missing.py:score'}", "File 'missing.py' was not found"),
        ("{type: 'mine.py:Check'}", "File 'mine.py' was not found"),
        ("{type: code_judge, script: [python, gone.py]}", "The script 'gone.py' was not found"),
        ("{type: llm_jugde}", "Unknown evaluator type 'llm_jugde'"),
        ("{type: contains, valu: x}", "Unknown field 'evaluators[0].valu'"),
        ("{type: contains, value: x, wieght: 2}", "Did you mean 'weight'?"),
        ("{type: contains, value: x, transform: {regexp: x}}", "Did you mean 'regex'?"),
        ("{type: contains, value: x, transform: {regex: '('}}", "'transform.regex' is not a valid regular expression"),
        ("{type: contains, value: x, transform: {function: 'gone.py:clean'}}", "File 'gone.py' was not found"),
        (
            "{type: composite, aggregator: threshold, evaluators: [{type: contains, transform: {strip: all}}]}",
            "Field 'transform.strip' must be an array",
        ),
        ("{type: faithfulness}", "Evaluator 'faithfulness' needs the case's 'context', which is empty"),
        (
            "{type: composite, aggregator: weighted_average, evaluators: [{type: context_recall, value: x}]}",
            "needs the case's 'context', which is empty",
        ),
    ],
)
def test_references_of_evaluators_are_checked(write, evaluator, expected):
    path = write(
        "a.yaml", f"evalcases:\n  - id: a\n    expected_outcome: x\n    input: q\n    evaluators: [{evaluator}]\n"
    )
    assert expected in validate(path).stdout


def test_agentmark_files_are_checked_against_the_documented_rules(write):
    path = write(
        "a.jsonl",
        '{"input": {"userMessage": "x"}}\n'
        "\n"
        '{"input": {"userMessage": "y"}, "expected_output": {"a": 1}}\n'
        "// a comment\n"
        '{"input": {"text": "y"}}\n',
    )
    assert [(line, message) for _, line, message in findings(path)] == [
        (2, "AgentMark datasets must not contain blank lines"),
        (3, "AgentMark's 'expected_output' must be a string, got object"),
        (4, "Invalid JSON - a comment is not JSON, at column 1"),
        (5, "Field 'input' contains variables, but there is no prompt to render them"),
    ]


def test_at_most_a_thousand_findings_are_listed_and_all_are_counted(write):
    path = write("a.jsonl", GOOD + "x\n" * 1500)
    report = json.loads(validate(path, "--json").stdout)
    assert (report["errors"], len(report["findings"])) == (1500, 1000)
    assert "1,500 errors" in validate(path).stderr


def test_all_problems_of_an_invalid_case_are_reported(write):
    write(".agentv/targets.yaml", "targets:\n  - {name: default, provider: mock}\n  - {name: judge, provider: mock}\n")
    bad = '{"id": "a", "input": "q", "execution": {"target": "gone"}}\n'
    messages = [message for _, _, message in findings(write("d.jsonl", GOOD + bad))]
    assert messages[0] == "Missing required field: 'expected_outcome'"
    assert messages[1] == "Unknown target 'gone'"
    assert messages[2] == "Duplicate id 'a': first used at line 1"


def test_missing_references_are_reported_at_their_line(write):
    write(".agentv/targets.yaml", "targets:\n  - name: default\n    provider: mock\n")
    text = (
        "execution:\n  target: gone\nevalcases:\n  - id: a\n    expected_outcome: x\n    input: q\n"
        "  - id: b\n    expected_outcome: x\n    input: q\n    execution:\n      target: lost\n"
    )
    assert [line for _, line, _ in findings(write("d.yaml", text))] == [2, 11]


def test_yaml_of_other_tools_in_a_folder_is_skipped(write, tmp_path):
    write("cloud.yaml", "Resources:\n  Queue: !Ref Name\n")
    write("many.yaml", "a: 1\n---\nb: 2\n")
    write("d.jsonl", GOOD)
    result = validate(tmp_path)
    assert result.exit_code == 0
    assert "cloud.yaml: passed over, no list of cases" in result.stderr


def test_unreadable_yaml_that_looks_like_a_dataset_is_an_error(write, tmp_path):
    write("d.yaml", "evalcases:\n  - id: a\n\tinput: q\n")
    assert validate(tmp_path).exit_code == 1


def test_the_settings_folder_can_be_validated(write, tmp_path):
    write(".agentv/config.yaml", "guideline_patterns: 5\n")
    assert [line for _, line, _ in findings(tmp_path / ".agentv")] == [1]


def test_a_sidecar_of_several_data_files_checks_all_of_them(write):
    for index in range(2):
        write(f"d-0000{index}-of-00002.jsonl", GOOD.replace('"a"', f'"{index}"'))
    report = json.loads(validate(write("d.yaml", "evaluator: is-json\n"), "--json").stdout)
    assert (report["files"], report["cases"], report["findings"]) == (3, 2, [])


def test_duplicate_data_in_a_folder_is_an_error(write, tmp_path):
    write("d.jsonl", GOOD)
    write("d.ndjson", GOOD)
    result = validate(tmp_path, "--json")
    assert result.exit_code == 1
    assert "Two datasets of one name" in result.stdout or "Both contain cases" in result.stdout


def test_a_prompt_with_an_endless_loop_is_an_error(write):
    loops = "{% for a in range(90000) %}{% for b in range(90000) %}x{% endfor %}{% endfor %}"
    write("d.yaml", f'prompt: "{loops}"\n')
    path = write("d.jsonl", '{"input": {"a": 1}}\n')
    assert "Cannot render the prompt" in findings(path)[0][2]


def test_an_empty_folder_is_a_usage_error(tmp_path):
    result = validate(tmp_path)
    assert result.exit_code != 0
    assert "No dataset found" in str(result.exception)


@pytest.mark.parametrize(
    ("keys", "expected", "line"),
    [
        ("user:\n      goal: Buy a cup\n", "No target is configured for the simulated user", 5),
        ("user:\n      goal: Buy a cup\n      target: defalt\n", "Unknown target 'defalt'", 7),
        (
            "turns:\n      - input: x\n        evaluators: [{type: llm_judge, target: defalt}]\n",
            "Unknown judge 'defalt'",
            7,
        ),
    ],
)
def test_targets_of_simulated_users_and_judges_are_checked(write, keys, expected, line):
    write(".agentv/targets.yaml", "targets:\n  - {name: default, provider: mock}\n  - {name: judge, provider: mock}\n")
    text = f"evalcases:\n  - id: a\n    expected_outcome: x\n    input: q\n    {keys}"
    [(_, where, message)] = findings(write("d.yaml", text))
    assert (expected in message, where) == (True, line)


def test_errors_of_a_run_are_reported_at_the_line_of_the_case(write):
    write("w.py", "def score(answer):\n    return 1.0\n")
    write("broken.py", "def score(:\n")
    entries = ['{"type": "python", "function": "w.py:scor"}', '{"type": "python", "function": "broken.py:score"}']
    entries += ['{"type": "contains"}', '{"type": "code_judge", "script": ["python3", "gone.py"]}']
    rows = [
        f'{{"id": "{number}", "expected_outcome": "x", "input": "q", "evaluators": [{entry}]}}\n'
        for number, entry in enumerate(entries)
    ]
    found = findings(write("d.jsonl", "".join(rows)))
    assert [(severity, line) for severity, line, _ in found] == [
        ("error", 1),
        ("error", 2),
        ("error", 3),
        ("warning", 4),
    ]
    messages = ["There is no 'scor'", "is not valid Python", "needs a reference answer", "The script 'gone.py'"]
    assert all(part in message for part, (_, _, message) in zip(messages, found, strict=True))


def test_a_finding_is_at_the_line_of_its_evaluator(write):
    write("w.py", "def score(answer):\n    return 1.0\n")
    text = """evalcases:
  - id: a
    expected_outcome: x
    input: q
    evaluators:
      - {type: code_judge, script: [python3, w.py]}
      - {type: nonsense}
      - {type: code_judge, script: [python3, w.py], cwd: nowhere}
      - {type: code_judge, script: [python3, w.py], weight: 2}
      - type: equals
"""
    assert findings(write("d.yaml", text)) == [
        ("error", 7, "Unknown evaluator type 'nonsense'"),
        (
            "warning",
            8,
            f"Evaluator 'code_judge-2': The script 'w.py' was not found in {write('x', '').parent / 'nowhere'}",
        ),
        ("error", 10, "Evaluator 'equals' needs a reference answer, but the case has no 'expected_output'"),
    ]


def test_a_threshold_without_its_evaluator_is_an_error_at_its_line(write):
    text = "evaluators: [{type: equals, value: x}]\nexecution: {thresholds: {eqals: 0.9}}\n"
    path = write("d.yaml", text + "evalcases: [{id: a, expected_outcome: x, input: q}]\n")
    ((severity, line, message),) = findings(path)
    assert (severity, line) == ("error", 2) and "'eqals'" in message


def test_a_threshold_in_a_sidecar_is_reported_in_the_sidecar(write):
    write("d.yaml", "evaluators: [{type: equals, value: x}]\nexecution:\n  thresholds:\n    eqals: 0.9\n")
    path = write("d.jsonl", '{"id": "a", "expected_outcome": "x", "input": "q"}\n')
    ((severity, line, _),) = findings(path)
    assert (severity, line) == ("error", 4)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**CASE, "input": " "}, "Field 'input' is blank"),
        ({**CASE, "input": [{"role": "user", "content": ""}]}, "Field 'input' is blank"),
        (
            {"id": "a", "expected_outcome": "x", "input": "q", "turns": [{"input": ""}]},
            "Field 'turns[0].input' is blank",
        ),
        ({"input": {"userMessage": "\n"}, "expected_output": "x"}, "Field 'input.userMessage' is blank"),
        ({"input": {"userMessage": "q"}, "expected_output": ""}, "Field 'expected_output' is empty"),
        ({**CASE, "expected_output": ""}, "Field 'expected_output' is empty"),
    ],
)
def test_blank_texts_are_errors(write, row, message):
    assert ("error", 1, message) in findings(write("rows.jsonl", json.dumps(row) + "\n"))


def test_an_agentmark_file_whose_first_line_is_broken_stays_agentmark(write):
    good = '{"input": {"userMessage": "q"}, "expected_output": "x"}\n'
    found = findings(write("rows.jsonl", '{"input": {"userMessage": "q"\n' + good + good))
    assert [line for _, line, _ in found] == [1]


def test_a_misspelled_field_is_named_for_the_missing_one(folder, command):
    case = {"id": "a", "expected_outcom": "x", "inptu": "y", "expected_output": "z"}
    folder.write("a.yaml", {"evalcases": [case]})
    printed = command("validate", "a.yaml").stdout
    assert "Did you mean 'expected_outcome' instead of 'expected_outcom'?" in printed
    assert "Did you mean 'input' instead of 'inptu'?" in printed and "may omit it" not in printed


def test_only_the_outcome_may_be_omitted(folder, command):
    folder.write("a.yaml", {"evalcases": [{"id": "a", "expected_outcome": "x", "expected_output": "z"}]})
    assert "may omit it" not in command("validate", "a.yaml").stdout


def test_missing_expected_outcomes_are_reported_once_per_file(folder, command):
    rows = [{"id": f"c{number}", "input": "x", "expected_output": "y"} for number in range(20)]
    folder.write("a.yaml", {"evalcases": rows})
    folder.write("b.yaml", {"evalcases": rows[:1]})
    ended = command("validate", "a.yaml", "b.yaml")
    assert ended.code == 1
    assert ended.stdout.count("Missing required field: 'expected_outcome'") == 2
    assert "Missing required field: 'expected_outcome' (in 20 cases)" in ended.stdout
    assert "may omit it if the cases are under 'tests'" in ended.stdout
    assert "2 errors" in ended.stderr


@pytest.mark.parametrize("name", ["validate", "cases", "eval"])
def test_the_folder_evals_is_read_without_a_path(folder, command, name):
    ended = command(name)
    assert ended.code == 2 and f"Pass a file or folder: agentv {name} FILE" in ended.stderr
    folder.write("evals/d.yaml", {"evalcases": [{"id": "a", "input": "hi", "expected_outcome": "x", "evaluators": []}]})
    folder.write(".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    assert command(name).code == 0
