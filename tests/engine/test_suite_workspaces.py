"""Workspaces of a suite: hooks, repositories, and folders that jobs share."""

import json
import subprocess
import sys

import pytest

from platforms import only_on_posix

pytestmark = only_on_posix("the commands are for a POSIX shell")

LOG = """
import json, os, sys
told = json.load(sys.stdin)
with open("log.jsonl", "a") as log:
    log.write(json.dumps({"hook": sys.argv[1], "files": sorted(os.listdir(told["workspace_path"])), **told}) + "\\n")
open(os.path.join(told["workspace_path"], sys.argv[1]), "w").close()
"""


@pytest.fixture
def suite(folder, command, monkeypatch):
    """Return a function that runs a suite with a workspace on a target that lists files and adds one."""
    (folder.path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder.path / "temporary"))
    folder.write("template/given.txt", "given\n")
    folder.write("log.py", LOG)
    cli = {"name": "default", "provider": "cli", "command_template": "echo files:; ls; touch made-by-{EVAL_ID}"}
    folder.write("targets.yaml", {"targets": [cli]})

    def run(workspace, *cases, options=(), code=0, **suite):
        rows = [{"id": f"c{number}", "input": "x", **case} for number, case in enumerate(cases or ({}, {}))]
        document = {**suite, "workspace": workspace, "assertions": [{"type": "contains", "value": "x", "negate": True}]}
        folder.write("suite.yaml", {**document, "tests": rows})
        ended = command("eval", "suite.yaml", "--out", "out", *options)
        assert ended.code == code, ended.stderr
        lines = (folder.path / "out" / "results.jsonl").read_text().splitlines()
        assert list((folder.path / "temporary").iterdir()) == []
        return ended, {record["eval_id"]: record for record in map(json.loads, lines)}

    return run


def hook(name):
    return {"command": [sys.executable, "log.py", name]}


def logged(folder):
    return [json.loads(line) for line in (folder.path / "log.jsonl").read_text().splitlines()]


def files(records, id):
    return records[id]["candidate_answer"].split()[1:]


ALL = {name: hook(name) for name in ("before_all", "before_each", "after_each", "after_all")}


def test_a_suite_has_one_template_for_all_cases(suite):
    _, records = suite({"template": "template"})
    assert files(records, "c0") == files(records, "c1") == ["given.txt"]


def test_a_case_overrides_keys_of_the_suite(suite, folder):
    folder.write("other/own.txt", "")
    _, records = suite({"template": "template"}, {}, {"workspace": {"template": "other"}})
    assert (files(records, "c0"), files(records, "c1")) == (["given.txt"], ["own.txt"])


def test_hooks_run_once_for_the_suite_and_once_for_each_job(suite, folder):
    _, records = suite({"template": "template", "hooks": ALL}, options=("--workers", "1"))
    names = [entry["hook"] for entry in logged(folder)]
    assert names == ["before_all", *["before_each", "after_each"] * 2, "after_all"]
    assert files(records, "c1") == ["before_all", "before_each", "given.txt"]
    assert "before" not in records["c0"].get("file_changes", "").replace("made-by", "")


def test_hooks_of_a_target_run_in_its_workspaces_only(suite, folder):
    own = {name: hook(f"own_{name}") for name in ALL}
    targets = [{"name": "own", "use_target": "default", "hooks": own}, {"name": "default"}]
    suite({"hooks": ALL}, {}, options=("--workers", "1"), execution={"targets": targets})
    entries = logged(folder)
    names = [entry["hook"] for entry in entries]
    assert {names.count(name) for name in ALL} == {2} and {names.count(f"own_{name}") for name in ALL} == {1}
    seen = {name: entry["files"] for name, entry in zip(names, entries, strict=True) if name.startswith("own_")}
    assert "before_all" in seen["own_before_all"] and "before_each" in seen["own_before_each"]
    assert "after_each" not in seen["own_after_each"] and "after_all" not in seen["own_after_all"]
    assert not [name for name in seen["own_before_each"] if name.startswith("made-by")]


def test_hooks_receive_the_job_on_standard_input(suite, folder):
    suite({"hooks": {"before_each": hook("x")}}, {"metadata": {"k": 1}, "input": "Hello"})
    (entry,) = logged(folder)
    assert (entry["test_id"], entry["case_input"], entry["case_metadata"]) == ("c0", "Hello", {"k": 1})
    assert entry["eval_run_id"] and entry["eval_case_id"] == "c0"


def test_a_hook_may_be_text_with_placeholders_and_a_folder_of_its_own(suite, folder):
    (folder.path / "tools").mkdir()
    command = "pwd > {{workspace_path}}/where; echo {{test_id}} > {{workspace_path}}/who"
    _, records = suite({"hooks": {"before_each": {"command": command, "cwd": "tools"}}}, {})
    assert files(records, "c0") == ["where", "who"]


def test_disabled_hooks_do_not_run(suite, folder):
    suite({"hooks": {"enabled": False, **ALL}})
    assert not (folder.path / "log.jsonl").exists()


@pytest.mark.parametrize(
    ("workspace", "seen"),
    [
        ({"isolation": "shared"}, True),
        ({"isolation": "shared", "hooks": {"before_each": {"reset": "fast"}}}, False),
        ({"isolation": "per_test"}, False),
        ({}, False),
    ],
)
def test_jobs_share_a_folder_only_with_shared_isolation(suite, workspace, seen):
    _, records = suite({"template": "template", **workspace}, {}, {}, {}, options=("--workers", "3"))
    later = max(records.values(), key=lambda record: len(record["candidate_answer"]))
    assert ("made-by" in later["candidate_answer"]) is seen
    assert all(record["file_changes"].count("new file mode") == 1 for record in records.values())


@pytest.mark.parametrize("isolation", ["shared", "per_test"])
@pytest.mark.parametrize("name", ["before_all", "before_each"])
def test_a_failed_hook_before_a_job_is_an_error_of_the_job(suite, name, isolation):
    failing = {name: {"command": "echo no luck >&2; exit 3"}}
    _, records = suite({"isolation": isolation, "hooks": failing}, code=3)
    for record in records.values():
        assert (record["status"], record["error"]["stage"]) == ("error", "setup")
        assert f"`{name}` of the workspace: The command ended with exit code 3: no luck" in record["error"]["message"]


def test_failed_hooks_after_a_job_are_warnings(suite, caplog):
    failing = {"command": "exit 3"}
    _, records = suite({"hooks": {"after_each": failing, "after_all": failing}}, {})
    assert records["c0"]["status"] == "ok"
    assert records["c0"]["warnings"] == ["`after_each` of the workspace: The command ended with exit code 3"]
    assert "`after_all` of the workspace: The command ended with exit code 3" in caplog.text


def test_a_hook_that_takes_too_long_is_ended(suite):
    slow = {"command": "sleep 60", "timeout_ms": 100}
    _, records = suite({"hooks": {"before_each": slow}}, {}, code=3)
    assert records["c0"]["error"]["class"] == "timeout"


def test_a_workspace_may_be_in_a_file_of_its_own(suite, folder):
    folder.write("shared/base/inside.txt", "")
    folder.write("shared/workspace.yaml", {"template": "./base", "hooks": {"before_each": {"command": "pwd > here"}}})
    _, records = suite("shared/workspace.yaml")
    assert files(records, "c0") == ["inside.txt"]
    assert (folder.path / "shared" / "here").read_text().strip().endswith("shared")


class TestRepositories:
    @pytest.fixture
    def repository(self, folder):
        """A repository with two commits; return the first."""
        path = folder.path / "repos" / "tool"
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(path)]
        path.mkdir(parents=True)
        subprocess.run([*git, "init", "-q"], check=True)
        for name in ("first.txt", "second.txt"):
            (path / name).write_text(name)
            subprocess.run([*git, "add", "."], check=True)
            subprocess.run([*git, "commit", "-qm", name], check=True)
        log = subprocess.run([*git, "log", "--format=%H", "--reverse"], check=True, capture_output=True, text=True)
        return log.stdout.split()[0]

    @pytest.mark.parametrize("where", ["./repos/tool", "file://{}/repos/tool"])
    def test_a_repository_is_checked_out_at_a_commit(self, suite, folder, repository, where):
        repo = {"repo": where.format(folder.path), "path": "./code", "commit": repository}
        _, records = suite({"repos": [repo], "setup": "cp code/first.txt . ; ls code | wc -l > count"}, {})
        assert files(records, "c0") == ["code", "count", "first.txt"]

    def test_the_default_is_the_newest_commit_in_a_folder_with_the_name(self, suite, repository):
        _, records = suite({"repos": [{"repo": "./repos/tool"}], "setup": "mv tool/* ."}, {})
        assert files(records, "c0") == ["first.txt", "second.txt", "tool"]

    def test_an_ancestor_is_counted_from_the_commit(self, suite, repository):
        _, records = suite({"repos": [{"repo": "./repos/tool", "ancestor": 1}], "setup": "mv tool/* ."}, {})
        assert files(records, "c0") == ["first.txt", "tool"]

    @pytest.mark.parametrize(
        ("repo", "message"),
        [
            ({"repo": "./gone"}, "Cannot clone ./gone"),
            ({"repo": "./repos/tool", "commit": "0" * 40}, "Cannot check out " + "0" * 40),
            ({"repo": "ext::sh -c 'touch pwned'"}, "Cannot clone ext::"),
        ],
    )
    def test_a_repository_that_cannot_be_used_is_an_error(self, suite, folder, repository, repo, message):
        _, records = suite({"repos": [{**repo, "path": "code"}]}, {}, code=3)
        assert message in records["c0"]["error"]["message"]
        assert not list(folder.path.rglob("pwned"))


@pytest.mark.parametrize(
    ("workspace", "detail"),
    [
        ({"docker": {"image": "x"}}, "Field 'workspace.docker' is not supported"),
        ({"static_path": "ws"}, "Field 'workspace.static_path' is not supported"),
        ({"pool": True}, "Field 'workspace.pool' is not supported"),
        ({"mode": "static", "path": "ws"}, "Field 'workspace.path' is not supported"),
        ({"path": "/x"}, "Field 'workspace.path' is not supported"),
        (
            {"repos": [{"repo": "x/y", "path": "../out"}]},
            "Field 'workspace.repos[0].path' must be a folder inside the workspace",
        ),
        ({"repos": [{"repo": "-x"}]}, "Field 'workspace.repos[0].repo' must not begin with '-'"),
        ({"repos": [{"repo": "x/y", "commit": "-x"}]}, "Field 'workspace.repos[0].commit' must not begin with '-'"),
        ({"template": "gone"}, "Folder 'gone' was not found"),
        ("gone.yaml", "File 'gone.yaml' was not found"),
    ],
)
def test_a_workspace_that_cannot_be_used_is_found_before_the_run(folder, workspace, detail):
    error = folder.error(
        folder.write("s.yaml", {"workspace": workspace, "tests": [{"id": "a", "criteria": "x", "input": "y"}]})
    )
    assert error.detail == detail
