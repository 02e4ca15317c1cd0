"""`agentv init`: a working project that keeps existing files."""

import json

from click.testing import CliRunner

from agentv.cli import cli


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
    assert "Wrote 0 files" in run("init", tmp_path).stdout


def test_a_file_instead_of_a_folder_is_an_error_without_a_traceback(folder, command):
    folder.write("mine/evals", "no folder")
    ended = command("init", "mine")
    assert ended.code == 2 and "Error: Cannot write mine/evals/" in ended.stderr
