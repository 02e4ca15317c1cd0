"""`--dry-run` and `validate` list the commands, code, hosts and variables that a run would use."""

import json
import sys

import pytest

from agentv_testing import FaultyServer

TARGETS = [
    {"name": "default", "provider": "cli", "command_template": "python agent.py {PROMPT}", "pass_env": ["DEPLOY_ENV"]},
    {"name": "judge", "provider": "openai", "model": "m", "judge_target": "judge"},
    {"name": "gateway", "provider": "http", "url": "https://user:pw@gateway.example:8443/v1?key=${{ GATEWAY_KEY }}"},
    {
        "name": "tools",
        "provider": "groq",
        "model": "m",
        "tools": [
            "tools.py:lookup",
            {"command": ["ls", "-l"], "name": "list"},
            {"mcp": ["npx", "server"]},
            {"mcp": "https://mcp.example/x"},
        ],
    },
    {"name": "agent", "provider": "claude-code", "args": ["--fast"]},
    {"name": "unused", "provider": "cli", "command_template": "never listed"},
]
EVALUATORS = [{"type": "code_judge", "script": ["python", "judge.py"]}, {"type": "llm_judge"}]
EXPECTED = {
    ("command", "python agent.py {PROMPT}"),
    ("command", "python judge.py"),
    ("command", "make ready"),
    ("command", "git clone https://git.example/x.git"),
    ("command", "ls -l"),
    ("command", "npx server"),
    ("command", "claude --fast"),
    ("code", "tools.py:lookup"),
    ("host", "api.openai.com"),
    ("host", "gateway.example:8443"),
    ("host", "api.groq.com"),
    ("host", "mcp.example"),
    ("variable", "DEPLOY_ENV"),
    ("variable", "OPENAI_API_KEY"),
    ("variable", "GATEWAY_KEY"),
    ("variable", "GROQ_API_KEY"),
    ("variable", "CITY"),
}


@pytest.fixture
def project(folder, monkeypatch):
    for name in ("OPENAI_API_KEY", "GATEWAY_KEY", "GROQ_API_KEY", "CITY"):
        monkeypatch.setenv(name, f"value-of-{name}")
    folder.write("targets.yaml", {"targets": TARGETS})
    for name in ("judge.py", "agent.py"):
        folder.write(name, "")
    folder.write("tools.py", "def lookup(word): ...")
    workspace = {"setup": "make ready", "repos": [{"repo": "https://git.example/x.git"}]}
    names = [target["name"] for target in TARGETS if target["name"] not in ("unused", "judge")]
    case = {"id": "a", "criteria": "x", "input": "From ${{ CITY }}", "workspace": workspace}
    document = {"execution": {"targets": names}, "assertions": EVALUATORS, "tests": [case]}
    folder.write("evals.yaml", document)
    return folder


COMMANDS = {"dry run": ("eval", "evals.yaml", "--dry-run"), "validate": ("validate", "evals.yaml")}


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_that_a_run_would_use_is_listed(project, command, name):
    ended = command(*COMMANDS[name], "--json")
    uses = json.loads(ended.stdout)["uses"]
    found = {(use["kind"], use["value"]) for use in uses}
    assert found >= EXPECTED
    assert "never listed" not in ended.stdout
    assert "value-of" not in ended.stdout.replace("value-of-CITY", "")
    shown = command(*COMMANDS[name])
    for kind, value in EXPECTED:
        assert f"{kind:<8}  {value}  (" in shown.stdout + shown.stderr


def test_a_dry_run_as_json_has_the_plan(project, command):
    plan = json.loads(command("eval", "evals.yaml", "--dry-run", "--json", "--target", "default").stdout)
    assert (plan["cases"], plan["jobs"], plan["targets"]["default"]["provider"]) == (1, 1, "cli")
    assert plan["judges"]["judge"]["calls"] == 1


def test_programs_are_denied_by_policy_even_in_my_project(folder, command, policy):
    policy("programs: deny")
    folder.write("judge.py", "")
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    case = {"id": "a", "input": "x", "expected_outcome": "y"}
    folder.write("d.yaml", {"evaluators": [EVALUATORS[0]], "evalcases": [case]})
    ended = command("eval", "d.yaml")
    assert (ended.code, "Programs are not allowed" in ended.stderr, "python judge.py" in ended.stderr) == (
        2,
        True,
        True,
    )
    folder.write("d.yaml", {"evaluators": [{"type": "contains", "value": "x"}], "evalcases": [case]})
    assert command("eval", "d.yaml").code == 0
    entry = {"name": "default", "provider": "cli", "command_template": f"{sys.executable} -c 1"}
    folder.write("targets.yaml", {"targets": [entry]})
    for arguments in (("eval", "d.yaml"), ("targets", "check")):
        ended = command(*arguments)
        assert ended.code != 0
        assert "not allowed" in ended.stdout + ended.stderr


def test_policy_that_allows_programs_asks_nothing(tmp_path, folder, command, policy, monkeypatch):
    policy("programs: allow")
    (tmp_path / "mine").mkdir()
    judge = {"type": "code_judge", "script": [sys.executable, "-c", "print('{\"score\": 1}')"]}
    folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    folder.write(
        "theirs/d.yaml", {"evalcases": [{"id": "a", "input": "x", "expected_outcome": "y", "evaluators": [judge]}]}
    )
    folder.write("mine/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    monkeypatch.chdir(tmp_path / "mine")
    assert command("eval", "../theirs/d.yaml").code == 0


def test_hosts_outside_the_policy_are_not_called_in_a_run(folder, command, policy):
    policy("hosts: [api.openai.com]")
    with FaultyServer() as server:
        folder.write("targets.yaml", {"targets": [{"name": "default", "provider": "http", "url": server.url}]})
        folder.write("d.yaml", {"evaluators": [], "evalcases": [{"id": "a", "input": "x", "expected_outcome": "y"}]})
        ended = command("eval", "d.yaml")
        assert (ended.code, server.counts.requests) == (2, 0)
        assert "Calls to '127.0.0.1' are not allowed" in ended.stderr


READ_BY_CODE = {
    "a prompt": {"prompts": ["file://code.py:prompt"]},
    "a variable": {"tests": [{"vars": {"x": "file://code.py"}}]},
}


@pytest.mark.parametrize("name", READ_BY_CODE)
def test_code_of_prompts_and_variables_is_listed_and_obeys_the_policy(folder, command, policy, name):
    code = "open('marker', 'w')\ndef prompt(context): return 'Hi'\ndef get_var(*_): return {'output': 1}\n"
    folder.write("code.py", code)
    data = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [{"vars": {"x": "a"}}], **READ_BY_CODE[name]}
    folder.write("promptfooconfig.json", json.dumps(data))
    assert "code.py:" in command("eval", "promptfooconfig.json", "--dry-run").stdout
    policy("programs: deny")
    ended = command("eval", "promptfooconfig.json")
    assert ended.code == 2 and "allows no programs" in ended.stderr
    assert not (folder.path / "marker").exists()
