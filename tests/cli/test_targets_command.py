"""`agentv targets`: the list, and small calls to each target."""

import json

import pytest
from click.testing import CliRunner

from agentv.cli import cli
from agentv_testing import FaultyServer
from agentv_testing.openai_chat import ChatCompletions

TARGETS = """\
targets:
  - name: echo
    provider: mock
  - name: gpt
    provider: openai
    model: gpt-5
    base_url: ${{ GPT_URL }}
    api_key: ${{ GPT_KEY }}
  - name: tool
    provider: cli
    command_template: cat {PROMPT_FILE}
  - name: mine
    provider: python
    function: agent.py:answer
  - name: again
    provider: replay
    from: results.jsonl
"""
AGENT = """
def answer(prompt):
    return {"text": "ok", "token_usage": {"input": 3, "output": 1}}

def leaky(prompt):
    raise ValueError("refused the key sk-0123456789")
"""
SECRET = "sk-0123456789"


@pytest.fixture
def project(folder, monkeypatch):
    for name in ("GPT_URL", "GPT_KEY"):
        monkeypatch.delenv(name, raising=False)
    folder.write(".git/HEAD", "")
    folder.write(".agentv/targets.yaml", TARGETS)
    folder.write("agent.py", AGENT)
    folder.write("results.jsonl", [{"eval_id": "one", "target": "x", "candidate_answer": "hi"}])
    return folder


def check(*arguments):
    return CliRunner().invoke(cli, ["targets", "check", *arguments])


def test_targets_are_listed(project, command, monkeypatch):
    project.write(".env", f"GPT_URL=http://127.0.0.1:9/v1\nGPT_KEY={SECRET}\n")
    ended = command("targets")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.split("\n") == [
        "name   provider  model  where",
        "echo   mock      -      -",
        "gpt    openai    gpt-5  http://127.0.0.1:9/v1",
        "tool   cli       -      cat {PROMPT_FILE}",
        "mine   python    -      agent.py:answer",
        "again  replay    -      results.jsonl",
        "",
    ]


def test_targets_are_listed_as_json(project, command):
    rows = {row["name"]: row for row in command("targets", "--json").printed}
    assert list(rows) == ["echo", "gpt", "tool", "mine", "again"]
    assert rows["mine"] == {"name": "mine", "provider": "python", "where": "agent.py:answer"}
    assert (rows["gpt"]["model"], rows["gpt"]["where"]) == ("gpt-5", "${{ GPT_URL }}")
    assert "'api_key' uses ${{ GPT_KEY }}, which is not set" in rows["gpt"]["problem"]


def test_the_problem_of_a_target_names_file_and_line(project, command):
    text = "targets:\n  - name: a\n    provider: mock\n    modle: x\n"
    project.write(".agentv/targets.yaml", text)
    assert "Note: .agentv/targets.yaml, line 4: Unknown field 'targets[0].modle'" in command("targets").stderr
    project.write(".agentv/targets.yaml", f"{text}    other: y\n")
    assert "Note: .agentv/targets.yaml: Line 4: Unknown field 'targets[0].modle'" in command("targets").stderr


def test_targets_that_are_not_a_list_get_a_hint(project, command):
    project.write(".agentv/targets.yaml", "targets:\n  default:\n    provider: mock\n")
    assert "Write a list: '- name: NAME' for each target" in command("targets").stderr


def test_an_unset_variable_is_a_note_not_an_error(project, command):
    ended = command("targets")
    assert ended.code == 0
    assert "'base_url' uses ${{ GPT_URL }}, which is not set" in ended.stderr


def test_targets_are_checked_by_name(project, command):
    ended = command("targets", "check", "echo", "mine", "tool", "again")
    assert ended.code == 0
    lines = ended.stdout.split("\n")
    assert [line.split()[:2] for line in lines[:4]] == [["ok", "echo"], ["ok", "mine"], ["ok", "tool"], ["ok", "again"]]
    assert " ms  3 + 1 tokens  ok" in lines[1]
    assert lines[2].endswith("Answer with the single word: ok  (ran in .; runs use the folder of each dataset)")


def test_a_failed_check_exits_with_1(project):
    ended = check("--json")
    assert ended.exit_code == 1
    checks = {row["name"]: row for row in map(json.loads, ended.stdout.splitlines())}
    assert [name for name, row in checks.items() if row["ok"]] == ["echo", "tool", "mine", "again"]
    assert checks["gpt"]["error"] == "settings"
    assert checks["mine"]["token_usage"] == {"input": 3, "output": 1}
    assert checks["mine"]["answer"] == "ok"
    assert checks["mine"]["duration_ms"] >= 0


def test_a_missing_key_is_reported_with_its_variable(project, monkeypatch):
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    project.write("own.yaml", "targets:\n  - {name: fast, provider: groq, model: m}\n")
    ended = check("--targets", "own.yaml")
    assert ended.exit_code == 1
    assert "settings:  Target 'fast' has no 'api_key'. Set GROQ_API_KEY in the environment" in ended.stdout


def test_a_function_with_unknown_parameters_is_reported_with_the_allowed_ones(project):
    project.write("agent.py", "def wrong(a, b):\n    return a\n")
    project.write("own.yaml", "targets:\n  - {name: mine, provider: python, function: 'agent.py:wrong'}\n")
    said = check("--targets", "own.yaml").stdout
    assert "settings:  Cannot call 'agent.py:wrong'. It has unknown parameters: a, b. A function may have" in said


def test_an_empty_response_is_reported(project):
    project.write("agent.py", "def silent(prompt):\n    return ''\n")
    project.write("own.yaml", "targets:\n  - {name: mine, provider: python, function: 'agent.py:silent'}\n")
    assert check("--targets", "own.yaml").stdout.endswith(" ms  empty response\n")


def test_a_failure_is_reported_with_its_class_and_without_secrets(project, monkeypatch):
    monkeypatch.setenv("MY_KEY", SECRET)
    project.write("own.yaml", "targets:\n  - {name: leaky, provider: python, function: 'agent.py:leaky'}\n")
    for options in ([], ["--json"]):
        ended = check("--targets", "own.yaml", *options)
        assert ended.exit_code == 1
        assert "process" in ended.stdout
        assert "refused the key [redacted]" in ended.stdout
        assert SECRET not in ended.stdout + ended.stderr


FORMATS = {
    "a schema": (ChatCompletions(), "json_schema", ""),
    "llama.cpp": (ChatCompletions(["json_object"], rejects_with=500), "json_object", "it is called with json_object)"),
    "no explanation": (ChatCompletions([], rejects_with=500, names_format=False), "text", "without a response format)"),
}


@pytest.mark.parametrize(("wire", "accepted", "note"), FORMATS.values(), ids=FORMATS)
def test_the_response_format_that_judges_will_use_is_reported(project, wire, accepted, note):
    with FaultyServer("ok", formats=[wire]) as server:
        target = {"name": "local", "provider": "openai", "model": "m", "base_url": server.url}
        project.write("own.yaml", json.dumps({"targets": [target]}))
        [row] = map(json.loads, check("--targets", "own.yaml", "--json").stdout.splitlines())
        line = check("--targets", "own.yaml").stdout
    assert (row["ok"], row["response_format"]) == (True, accepted)
    assert line.rstrip().endswith(note or "ok")


def test_an_unusable_provider_is_reported(project):
    project.write("own.py", "from agentv.targets.target import Target\nclass Silent(Target, frozen=True): pass\n")
    project.write("own.yaml", "targets:\n  - {name: far, provider: 'own.py:Silent'}\n")
    ended = check("--targets", "own.yaml")
    assert ended.exit_code == 1
    assert "cannot be called" in ended.stdout


USAGE = {
    "an unknown name": (["check", "ecko"], "Unknown target 'ecko'", "Did you mean 'echo'?"),
    "an unknown option": (["--jsn"], "No such option", "--json"),
    "no such file": (["--targets", "nowhere.yaml"], "No targets file at nowhere.yaml", "The file does not exist"),
    "a file that is wrong": (
        ["--targets", "wrong.yaml"],
        "Invalid target at line 2 in wrong.yaml",
        "Missing required field: 'targets[0].name'",
    ),
    "a file that is no YAML": (["--targets", "broken.yaml"], "Failed to parse YAML file: broken.yaml", "Line"),
}


@pytest.mark.parametrize(("arguments", "message", "more"), USAGE.values(), ids=USAGE)
def test_usage_errors_exit_with_2(project, command, arguments, message, more):
    project.write("wrong.yaml", "targets:\n  - {provider: mock}\n")
    project.write("broken.yaml", "targets: [")
    ended = command("targets", *arguments)
    assert ended.code == 2
    assert message in ended.stderr
    assert more in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("arguments", [[], ["check"], ["check", "gpt"]])
def test_a_missing_targets_file_is_an_error_with_an_example(folder, command, arguments):
    folder.write(".git/HEAD", "")
    ended = command("targets", *arguments)
    assert ended.code == 2
    assert "There is no targets file" in ended.stderr
    assert "create .agentv/targets.yaml" in ended.stderr
    assert "provider: openai" in ended.stderr


def test_listing_calls_nothing(project, command):
    project.write("targets-that-run.yaml", "targets:\n  - {name: a, provider: cli, command_template: touch called}\n")
    command("targets", "--targets", "targets-that-run.yaml")
    assert not (project.path / "called").exists()


def test_the_starter_project_has_a_target_that_answers(folder, command):
    command("init", ".")
    ended = command("targets", "check", "--json")
    assert json.loads(ended.stdout)["answer"] == "The answer is 4."
