"""`agentv init`: a working project that keeps existing files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from agentv.cli import cli

PAGES = Path(__file__).resolve().parents[3] / "docs" / "how-to"


def run(*arguments, **options):
    return CliRunner().invoke(cli, list(map(str, arguments)), **options)


def test_the_starter_project_is_valid(tmp_path):
    assert run("init", tmp_path).exit_code == 0
    report = json.loads(run("validate", tmp_path, "--json", "--strict").stdout)
    assert report == {"files": 5, "cases": 6, "errors": 0, "warnings": 0, "findings": [], "notes": []}


def test_the_cases_of_the_starter_project_load(tmp_path):
    run("init", tmp_path)
    result = run("cases", tmp_path / "evals", "--count")
    assert result.stdout == "6\n"
    assert result.stderr == ""


def test_the_starter_project_runs_without_a_key(tmp_path, monkeypatch):
    run("init", tmp_path)
    monkeypatch.chdir(tmp_path)
    result = run("eval", "evals", "--json")
    assert result.exit_code == 0
    target = json.loads(result.stdout)["summary"]["targets"]["default"]
    assert (target["cases"], target["scored"], target["errors"], target["pass_rate"]) == (6, 6, 0, 5 / 6)


def test_editors_find_the_schemas_of_the_files(tmp_path):
    run("init", tmp_path)
    for path in [*tmp_path.rglob("*.yaml")]:
        first = path.read_text(encoding="utf-8").split("\n", 1)[0]
        assert first.startswith("# yaml-language-server: $schema=")
        assert (path.parent / first.partition("$schema=")[2]).is_file()


def test_existing_files_are_kept_without_a_terminal(tmp_path):
    (tmp_path / "evals").mkdir()
    mine = tmp_path / "evals" / "greetings.yaml"
    mine.write_text("mine", encoding="utf-8")
    result = run("init", tmp_path)
    assert mine.read_text(encoding="utf-8") == "mine"
    assert "Kept existing" in result.stderr and "greetings.yaml" in result.stderr


def test_force_replaces_existing_files(tmp_path):
    (tmp_path / ".gitignore").write_text("mine", encoding="utf-8")
    run("init", tmp_path, "--force")
    assert ".env" in (tmp_path / ".gitignore").read_text(encoding="utf-8")


def test_a_second_init_changes_nothing(tmp_path):
    run("init", tmp_path)
    assert "Nothing to do: all files of the project are in" in run("init", tmp_path).stdout


def test_a_file_instead_of_a_folder_is_an_error_without_a_traceback(folder, command):
    folder.write("mine/evals", "no folder")
    ended = command("init", "mine")
    assert ended.code == 2 and "Error: Cannot write mine/evals/" in ended.stderr


KINDS = ("demo", "function", "command", "http", "model", "local", "agent")


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_for_each_kind_is_valid_and_runs(folder, command, kind):
    created = command("init", ".", "--for", kind, "--ci")
    assert created.code == 0 and "Next:" in created.stdout and "replace OWNER/agentv@" in created.stdout
    assert command("validate", ".", "--strict").code == 0
    ran = command("eval", "evals", "--json")
    assert ran.code == 0, ran.stderr
    target = ran.printed[0]["summary"]["targets"]["default"]
    assert (target["scored"], target["errors"], target["pass_rate"]) == (6, 0, 5 / 6)
    readme = Path("evals/README.md").read_text(encoding="utf-8")
    assert "NEXT" not in readme and ("service.py" in readme) == (kind == "http")


@pytest.mark.parametrize(("page", "file"), [("github-actions", "evals"), ("pull-request-comments", "evals-base")])
def test_the_how_to_shows_the_workflow_that_is_written(folder, command, page, file):
    command("init", "--for", "model", "--ci")
    path = f".github/workflows/{file}.yaml"
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    assert f"```yaml {path}\n{Path(path).read_text()}```" in text


@pytest.mark.parametrize("kind", KINDS)
def test_the_workflow_never_gates_fixed_answers(folder, command, kind):
    command("init", ".", "--for", kind, "--ci")
    steps = yaml.safe_load(Path(".github/workflows/evals.yaml").read_text())["jobs"]["evals"]["steps"]
    action, upload = steps[-2], steps[-1]
    targets = {each["name"]: each for each in yaml.safe_load(Path(".agentv/targets.yaml").read_text())["targets"]}
    if kind == "demo":
        assert action["with"] == {"paths": "evals"}
    else:
        assert targets[action["with"]["target"]]["provider"] != "mock"
        assert (action["with"]["threshold"], action["with"]["max-errors"]) == ("0.8", "1%")
    keys = {"model": "OPENAI_API_KEY", "agent": "ANTHROPIC_API_KEY"}
    expected = {keys[kind]: f"${{{{ secrets.{keys[kind]} }}}}"} if kind in keys else None
    assert action.get("env") == expected
    assert (upload["if"], upload["with"]["path"]) == ("always()", "agentv-run")
    steps = yaml.safe_load(Path(".github/workflows/evals-base.yaml").read_text())["jobs"]["baseline"]["steps"]
    (base,) = (step for step in steps if step.get("uses", "").startswith("OWNER/agentv@"))
    assert (base["with"].get("target"), base.get("env")) == (action["with"].get("target"), expected)
    # Forks have no key: their calls are answered from the recording of the base branch.
    assert ("replay" in action["with"]) == ("--record" in base["with"].get("args", "")) == (kind in keys)


def test_the_http_service_of_the_starter_project_answers(folder, command):
    command("init", ".", "--for", "http")
    with subprocess.Popen([sys.executable, "service.py", "0"], stdout=subprocess.PIPE, text=True) as service:
        try:
            port = service.stdout.readline().rpartition(":")[2].strip()
            targets = Path(".agentv/targets.yaml")
            targets.write_text(targets.read_text(encoding="utf-8").replace(":8000/", f":{port}/"), encoding="utf-8")
            ran = command("eval", "evals", "--target", "service", "--json")
        finally:
            service.terminate()
    assert ran.printed[0]["summary"]["targets"]["service"]["pass_rate"] == 5 / 6


def test_a_terminal_asks_what_is_evaluated(folder):
    import pty

    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "agentv", "init"]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower) as process:
        os.write(leader, b"function\n")
        assert process.wait(200) == 0
    os.close(follower)
    shown = os.read(leader, 65536).decode()
    os.close(leader)
    assert "What do you evaluate?" in shown and "a Python function" in shown and Path("agent.py").is_file()


def test_an_unknown_kind_is_refused(folder, command):
    assert command("init", "--for", "spaceship").code == 2


def test_files_with_another_encoding_are_kept(tmp_path, command):
    (tmp_path / ".gitignore").write_bytes("é\n".encode("utf-16"))
    outcome = command("init", str(tmp_path))
    assert outcome.code == 0 and "Kept existing" in outcome.stderr
    assert (tmp_path / ".gitignore").read_bytes() == "é\n".encode("utf-16")


def test_a_folder_with_the_name_of_a_file_is_an_error(tmp_path, command):
    (tmp_path / ".gitignore").mkdir()
    outcome = command("init", str(tmp_path))
    assert outcome.code == 2 and f"Cannot read {tmp_path / '.gitignore'}" in outcome.stderr
