"""`agentv eval`: its alias, the plan of a dry run, and verbose output."""

import pytest
from click.testing import CliRunner

from agentv.cli import cli

CASES = [{"id": "one", "expected_outcome": "Answers", "input": "Hello there"}]


@pytest.fixture
def project(folder):
    folder.write("cases.jsonl", CASES)
    folder.write("cases.yaml", {"evaluators": [{"type": "contains", "value": "Hello"}]})
    targets = [
        {"name": "echo", "provider": "mock"},
        {"name": "gpt", "provider": "openai", "model": "m", "api_key": "k"},
    ]
    folder.write("targets.yaml", {"targets": targets})
    return folder


def test_run_is_a_hidden_alias_of_eval(project, command):
    assert command("run", "cases.jsonl", "-t", "echo", "-q").code == 0
    assert command("run", "--help").stdout.startswith("Usage: agentv run ")
    assert "\n  run " not in CliRunner().invoke(cli, ["--help"]).output


def test_a_dry_run_prints_the_plan_and_the_estimated_cost(project, command):
    done = command("eval", "cases.jsonl", "-t", "echo", "-t", "gpt", "--trials", "4", "--dry-run")
    assert done.stdout.splitlines() == [
        "1 case, 8 jobs, about 22 prompt tokens",
        "  echo: 4 jobs (mock), about 11 tokens, cost $0.00",
        "  gpt: 4 jobs (openai), about 11 tokens, cost unknown: no price for gpt",
        "  cases.jsonl: 1 case",
        "A run would use 1 host:",
        "  host      api.openai.com  (target 'gpt' in targets.yaml)",
        "Nothing was called.",
    ]
    assert not (project.path / ".agentv").exists()


def test_verbose_shows_every_job(project, command):
    done = command("eval", "cases.jsonl", "-t", "echo", "--verbose")
    assert "pass        one (echo) 1.000" in done.stderr


def test_verbose_shows_errors_and_target_logs_without_secrets(project, command, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "hush-hush-hush")
    failing = {"name": "t", "provider": "cli", "command_template": "echo hush-hush-hush >&2; exit 3", "verbose": True}
    project.write("targets.yaml", {"targets": [failing]})
    done = command("eval", "cases.jsonl", "-v")
    assert done.code == 3
    assert "error       one (t): process:" in done.stderr
    assert "agentv.targets.command_call: one, in " in done.stderr
    assert "hush-hush-hush" not in done.stderr + done.stdout


def test_quiet_and_verbose_cannot_be_combined(project, command):
    done = command("eval", "cases.jsonl", "-q", "-v")
    assert done.code == 2
    assert "--quiet and --verbose cannot be combined" in done.stderr


def test_an_unusable_provider_is_an_error_before_the_run(project, command):
    project.write("own.py", "from agentv.targets.target import Target\nclass Silent(Target, frozen=True): pass\n")
    project.write("targets.yaml", {"targets": [{"name": "t", "provider": "own.py:Silent"}]})
    done = command("eval", "cases.jsonl", "-q")
    assert done.code == 2
    assert "Target 't': provider 'own.py:Silent' cannot be called" in done.stderr
    assert not list(project.path.glob(".agentv/results/*"))
