"""Workspaces: one folder per job, its setup, the target's changes, and its removal."""

import errno
import json
import os
import stat
import sys
from pathlib import Path

import pytest
import yaml

from platforms import only_on_posix
from virtual_time import skipped_ahead
from waiting import HANGS, whole_lines

SCRIPT = Path(__file__).parent.parent / "targets" / "scripted_agent.py"
SAYS_YES = [{"type": "contains", "value": "yes"}]
JUDGE = """
import json, os, sys
told = json.load(sys.stdin)
files = sorted(os.listdir(told["workspace_path"]))
print(json.dumps({"score": 1, "details": {"files": files, "changes": told["file_changes"]}}))
"""


@pytest.fixture
def place(folder, monkeypatch):
    """A project with a template, a scripted agent, and temporary folders of its own."""
    (folder.path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder.path / "temporary"))
    folder.write("template/given.txt", "given\n")
    folder.write("template/src/code.py", "print(1)\n")
    program = folder.path / "claude"
    program.write_text(f"#!{sys.executable}\n{SCRIPT.read_text()}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    entry = {"name": "agent", "provider": "claude-code", "executable": "./claude", "max_retries": 0}
    cli = {"name": "cli", "provider": "cli", "command_template": "echo more >> given.txt; pwd; echo yes"}
    folder.write("targets.yaml", {"targets": [entry, cli]})
    return folder


def evaluate(place, command, *cases, target="agent", evaluators=SAYS_YES, options=()):
    """The records of cases, by id."""
    rows = [{"id": f"c{number}", "expected_outcome": "x", "input": "edit", **case} for number, case in enumerate(cases)]
    place.write("d.yaml", {"evaluators": evaluators, "evalcases": rows})
    ended = command("eval", "d.yaml", "--out", "out", "--target", target, "--quiet", *options)
    results = place.path / "out" / "results.jsonl"
    records = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    return ended, {record["eval_id"]: record for record in records}


def left(place):
    return os.listdir(place.path / "temporary")


WITH_TEMPLATE = {"workspace": {"template": "template"}}


def test_changes_of_an_agent_are_recorded(place, command):
    _, records = evaluate(place, command, WITH_TEMPLATE)
    assert records["c0"]["candidate_answer"] == "yes, done: given.txt,src"
    assert records["c0"]["file_changes"] == (
        "diff --git a/given.txt b/given.txt\n--- a/given.txt\n+++ b/given.txt\n"
        "@@ -1 +1,2 @@\n given\n+edit\n\\ No newline at end of file\n"
    )
    assert (place.path / "template" / "given.txt").read_text() == "given\n"
    assert left(place) == []


def test_without_a_workspace_an_agent_gets_an_empty_folder(place, command):
    _, records = evaluate(place, command, {"input": "answer"}, {"input": "edit"})
    assert records["c0"]["candidate_answer"] == "yes, done: "
    assert "file_changes" not in records["c0"]
    assert "new file mode 100644" in records["c1"]["file_changes"]
    assert left(place) == []


def test_a_command_runs_in_the_workspace(place, command):
    _, records = evaluate(place, command, WITH_TEMPLATE, target="cli")
    assert "+more" in records["c0"]["file_changes"]
    assert records["c0"]["candidate_answer"].startswith(str(place.path / "temporary"))


def test_concurrent_jobs_never_share_a_workspace(place, command):
    _, records = evaluate(place, command, *[WITH_TEMPLATE] * 12, target="cli", options=("--workers", "6"))
    folders = {record["candidate_answer"].splitlines()[0] for record in records.values()}
    assert len(folders) == 12
    assert {record["file_changes"].count("+more") for record in records.values()} == {1}
    assert left(place) == []


def test_evaluators_get_the_folder_and_the_diff(place, command):
    place.write("judge.py", JUDGE)
    judge = [{"type": "code_judge", "script": [sys.executable, "judge.py"]}]
    _, records = evaluate(place, command, WITH_TEMPLATE, evaluators=judge)
    details = records["c0"]["evaluator_results"][0]["details"]
    assert details["files"] == ["given.txt", "src"]
    assert details["changes"] == records["c0"]["file_changes"]


def test_changes_of_the_setup_are_not_in_the_diff(place, command):
    workspace = {
        "template": "template",
        "setup": ["echo made > made.txt", 'echo "$AGENTV_EVAL_ID" > id.txt; test -e "$AGENTV_DATASET_FOLDER/d.yaml"'],
    }
    _, records = evaluate(place, command, {"workspace": workspace})
    assert records["c0"]["candidate_answer"] == "yes, done: given.txt,id.txt,made.txt,src"
    assert records["c0"]["file_changes"].count("diff --git") == 1
    assert "+edit" in records["c0"]["file_changes"]


def test_a_failed_setup_is_an_error_of_that_case_only(place, command):
    broken = {"workspace": {"template": "template", "setup": "echo no luck >&2; exit 3"}}
    _, records = evaluate(place, command, broken, WITH_TEMPLATE)
    error = records["c0"]["error"]
    assert (error["class"], error["stage"]) == ("process", "setup")
    assert "`setup` of the workspace: The command ended with exit code 3: no luck" in error["message"]
    assert records["c1"]["status"] == "ok"
    assert left(place) == []


def test_a_failed_teardown_does_not_change_the_score(place, command):
    good = {"workspace": {"teardown": f"ls > {place.path}/seen"}}
    bad = {"workspace": {"teardown": "exit 4"}}
    _, records = evaluate(place, command, good, bad)
    assert (place.path / "seen").read_text() == "given.txt\n"
    assert (records["c1"]["status"], records["c1"]["score"]) == ("ok", 1.0)
    assert "error" not in records["c1"]
    assert records["c1"]["warnings"] == ["`teardown` of the workspace: The command ended with exit code 4"]
    assert left(place) == []


def test_a_failed_teardown_is_shown_as_a_warning(place, command):
    case = {"id": "c0", "expected_outcome": "x", "input": "edit", "workspace": {"teardown": "exit 4"}}
    place.write("d.yaml", {"evaluators": SAYS_YES, "evalcases": [case]})
    ended = command("eval", "d.yaml", "--target", "agent", "--out", "out")
    assert "Warning in c0: `teardown` of the workspace: The command ended with exit code 4" in ended.stderr
    assert "1 error" not in ended.stdout + ended.stderr


def test_a_kept_workspace_is_in_the_run_folder(place, command):
    evaluate(place, command, {"workspace": {"template": "template", "keep": True}}, WITH_TEMPLATE)
    [kept] = (place.path / "out" / "workspaces").iterdir()
    assert (kept / "given.txt").read_text() == "given\nedit"
    assert left(place) == []


def test_every_attempt_gets_a_fresh_copy(place, command):
    seen = place.path / "seen"
    flaky = f"cat given.txt >> {seen}; echo x >> given.txt; test $(wc -l < {seen}) -ge 3 || {HANGS}"
    entry = {"name": "flaky", "provider": "cli", "command_template": f"{flaky}; echo yes"}
    settings = {"timeout_seconds": 60, "max_retries": 5, "retry_initial_delay_ms": 0}
    place.write("targets.yaml", {"targets": [{**entry, **settings}]})
    with skipped_ahead(*(lambda runs=runs: whole_lines(seen) == runs for runs in (1, 2))):
        _, records = evaluate(place, command, WITH_TEMPLATE, target="flaky")
    assert records["c0"]["attempts"] == 3
    assert seen.read_text() == "given\n" * 3
    assert records["c0"]["file_changes"].count("\n+x") == 1


def test_changes_of_a_failed_agent_are_recorded(place, command):
    entry = {"name": "bad", "provider": "cli", "command_template": "echo more >> given.txt; exit 1"}
    place.write("targets.yaml", {"targets": [entry]})
    _, records = evaluate(place, command, WITH_TEMPLATE, target="bad")
    assert records["c0"]["status"] == "error"
    assert "+more" in records["c0"]["file_changes"]


def test_sockets_and_pipes_in_a_workspace_are_ignored(place, command):
    made = "mkfifo pipe; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\"; echo x > x.txt"
    _, records = evaluate(place, command, {"workspace": {"template": "template", "setup": made}})
    assert records["c0"]["status"] == "ok", records["c0"].get("error")
    assert records["c0"]["file_changes"].count("diff --git") == 1


def test_a_full_disk_is_an_error_of_the_case(place, command, monkeypatch):
    def no_folder(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", no_folder)
    _, records = evaluate(place, command, WITH_TEMPLATE, {"input": "answer"})
    assert [(record["error"]["class"], record["error"]["stage"]) for record in records.values()] == [
        ("process", "setup")
    ] * 2


def test_a_conversation_stays_in_one_folder(place, command):
    case = {"input": "edit one", "turns": [{"input": "edit two"}], **WITH_TEMPLATE}
    _, records = evaluate(place, command, case)
    assert records["c0"]["status"] == "ok", records["c0"].get("error")
    assert records["c0"]["file_changes"].count("edit one") == 2, "the second turn has the first in its prompt"
    assert left(place) == []


def test_secrets_in_a_diff_are_not_written(place, command, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "a-very-secret-value")
    entry = {"name": "leak", "provider": "cli", "command_template": "echo $SOME_TOKEN > leak; echo yes"}
    place.write("targets.yaml", {"targets": [{**entry, "pass_env": ["SOME_TOKEN"]}]})
    _, records = evaluate(place, command, WITH_TEMPLATE, target="leak")
    assert "+[redacted]" in records["c0"]["file_changes"]


def test_read_only_folders_are_removed(place, command):
    entry = {
        "name": "locks",
        "provider": "cli",
        "command_template": "mkdir -p a/b; touch a/b/c; chmod -R a-w a; echo yes",
    }
    place.write("targets.yaml", {"targets": [entry]})
    evaluate(place, command, WITH_TEMPLATE, target="locks")
    assert left(place) == []


@pytest.mark.parametrize("name", ["template/own.code-workspace", "other.code-workspace"])
def test_a_workspace_of_vs_code_is_the_template_of_its_folder(place, command, name):
    place.write("template/own.code-workspace", {"folders": [{"path": "."}]})
    ended, _ = evaluate(place, command, {"workspace": {"template": name}})
    assert ended.code == (0 if name.startswith("template") else 2)
    assert ("File 'other.code-workspace' was not found" in ended.stderr) == (ended.code == 2)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("nowhere", "Folder 'nowhere' was not found"),
        ("../outside", "is outside the project root"),
        ("template/given.txt", "'template/given.txt' is a file, not a folder"),
        ("", "The folder name is empty"),
    ],
)
def test_an_invalid_template_is_an_error_before_anything_runs(place, command, template, message):
    (place.path.parent / "outside").mkdir(exist_ok=True)
    place.write(".git/HEAD", "")
    ended, records = evaluate(place, command, {"workspace": {"template": template}})
    assert ended.code == 2
    assert message in ended.stderr
    assert records == {}


def test_a_changed_template_changes_the_fingerprint(place):
    place.write(
        "rows.jsonl", [{"id": "a", "expected_outcome": "x", "input": "y", "workspace": {"template": "template"}}]
    )
    [one] = place.load("rows.jsonl")
    place.write("template/.git/index", "noise")
    [two] = place.load("rows.jsonl")
    place.write("template/src/code.py", "print(2)\n")
    [three] = place.load("rows.jsonl")
    assert one == two
    assert one.input_fingerprint == two.input_fingerprint != three.input_fingerprint
    assert one != three


@only_on_posix("the command is for a POSIX shell")
def test_a_command_scores_the_files_that_the_target_left_in_its_workspace(project):
    project.write("template/check.py", "import answer, os, sys\nprint(os.getcwd())\nsys.exit(answer.ANSWER != 42)\n")
    project.targets(
        {"name": "default", "provider": "cli", "command_template": "echo ANSWER = {PROMPT} > answer.py; echo done"}
    )
    entry = {"type": "command", "command": [sys.executable, "check.py"]}
    case = {"expected_outcome": "x", "workspace": {"template": "template"}, "evaluators": [entry]}
    project.write(
        "d.yaml", {"evalcases": [{"id": "right", "input": "42", **case}, {"id": "wrong", "input": "0", **case}]}
    )
    ended = project.eval("--out", "out")
    assert ended.code == 0, ended.stderr
    records = project.by_id()
    assert [records[each]["score"] for each in ("right", "wrong")] == [1.0, 0.0]
    assert records["right"]["evaluator_results"][0]["reasoning"] != str(project.path)


@pytest.mark.parametrize("files", [["template/given.txt", "template/src"], {"x/y.txt": "template/given.txt"}])
@pytest.mark.parametrize("base", [{}, {"template": "template"}])
def test_files_are_added_to_the_workspace(place, command, files, base):
    judge = [{"type": "code_judge", "script": [sys.executable, "-c", JUDGE]}]
    workspace = {"workspace": {**base, "files": files}}
    _, records = evaluate(place, command, {**workspace, "input": "answer"}, evaluators=judge)
    [result] = records["c0"]["evaluator_results"]
    added = ["template"] if isinstance(files, list) else ["x"]
    assert result["details"] == {"files": sorted([*added, *(["given.txt", "src"] if base else [])]), "changes": None}


def test_a_changed_file_of_a_workspace_changes_the_fingerprint(place):
    row = {"id": "a", "expected_outcome": "x", "input": "y", "workspace": {"files": ["template/src"]}}
    place.write("rows.jsonl", [row])
    [one] = place.load("rows.jsonl")
    place.write("template/src/code.py", "print(2)\n")
    [two] = place.load("rows.jsonl")
    assert one.input_fingerprint != two.input_fingerprint


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["nowhere.txt"], "File 'nowhere.txt' was not found"),
        (["../outside/x"], "'../outside/x' is not a path inside the workspace"),
        ({"x": "../outside/x"}, "is outside the project root"),
        ({"/x": "template"}, "'/x' is not a path inside the workspace"),
    ],
)
def test_an_invalid_file_of_a_workspace_is_an_error_before_anything_runs(place, command, files, message):
    (place.path.parent / "outside").mkdir(exist_ok=True)
    (place.path.parent / "outside" / "x").write_text("x")
    place.write(".git/HEAD", "")
    ended, records = evaluate(place, command, {"workspace": {"files": files}})
    assert (ended.code, records) == (2, {})
    assert message in ended.stderr


def test_a_file_is_never_written_through_a_link_out_of_the_workspace(place, command):
    (place.path / "elsewhere").mkdir()
    (place.path / "template" / "out").symlink_to(place.path / "elsewhere")
    workspace = {"workspace": {"template": "template", "files": {"out/x.txt": "template/given.txt"}}}
    _, records = evaluate(place, command, workspace)
    assert "a link leads out of the workspace" in records["c0"]["error"]["message"]
    assert list((place.path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("target", ["agent", "cli"])
def test_a_target_adds_and_removes_files_of_every_workspace(place, command, target):
    settings = yaml.safe_load((place.path / "targets.yaml").read_text())
    for entry in settings["targets"]:
        entry["workspace_files"] = {"AGENTS.md": "template/given.txt", "src": None}
        entry.pop("command_template", None) and entry.update(command_template="echo yes; ls | paste -sd,")
    place.write("targets.yaml", settings)
    _, records = evaluate(place, command, {**WITH_TEMPLATE, "input": "answer"}, {"input": "answer"}, target=target)
    assert [records[id]["candidate_answer"].split()[-1] for id in ("c0", "c1")] == ["AGENTS.md,given.txt", "AGENTS.md"]
    assert "file_changes" not in records["c0"]
