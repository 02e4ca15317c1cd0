"""Files of a run are private, and links, pipes and devices in their place are refused."""

import os
import stat

import pytest
from run_project import Project

from platforms import only_on_posix

CLI = {"name": "cli", "provider": "cli", "max_retries": 0}
TRIES = {
    "fifo": ("mkfifo {OUTPUT_FILE}", "{OUTPUT_FILE} was not read: It is not a regular file. Remove it"),
    "device": ("ln -s /dev/zero {OUTPUT_FILE}", "{OUTPUT_FILE} was not read: It is a link"),
    "link": ("ln -s /etc/passwd {OUTPUT_FILE}", "{OUTPUT_FILE} was not read: It is a link"),
    "folder": ("mkdir {OUTPUT_FILE}", "{OUTPUT_FILE} was not read: It is not a regular file"),
    "huge": ("truncate -s 1G {OUTPUT_FILE}", "The command wrote more than"),
    "nothing": (": {OUTPUT_FILE}; echo said", "The command succeeded but did not write {OUTPUT_FILE}: said"),
}


@pytest.fixture
def project(folder, command):
    return Project(folder, command)


FIFO = pytest.param("fifo", marks=only_on_posix("pipes have no names"))


@pytest.mark.parametrize("name", [FIFO if name == "fifo" else name for name in TRIES])
def test_an_output_file_must_be_a_regular_file(project, name):
    template, message = TRIES[name]
    project.targets({**CLI, "command_template": template})
    project.dataset("yes")
    project.eval("--out", "out", "--timeout", "20")
    error = project.records()[0]["error"]
    assert error["message"].startswith(message)
    assert "root:" not in str(project.records())


@pytest.mark.parametrize("replace", ["rm -r $PWD; ln -s ELSEWHERE $PWD", "rm -r $PWD; mkfifo $PWD"])
def test_a_workspace_replaced_by_a_link_is_not_read(project, replace):
    project.write("elsewhere/secret.txt", "s3cret")
    template = f"{replace.replace('ELSEWHERE', str(project.path / 'elsewhere'))}; echo yes"
    project.targets({**CLI, "command_template": template})
    project.write("template/a.txt", "a")
    workspace = {"template": "template", "teardown": "touch torn-down", "keep": True}
    project.dataset({"input": "x", "workspace": workspace})
    project.eval("--out", "out")
    assert project.records()[0]["error"]["message"] == "The workspace is no longer a folder, so it was not read"
    assert "s3cret" not in "".join(path.read_text() for path in project.path.glob("out/**/*") if path.is_file())
    assert os.listdir(project.path / "elsewhere") == ["secret.txt"]


def test_links_inside_a_workspace_are_shown_as_links(project):
    project.write("elsewhere/secret.txt", "s3cret")
    here = project.path / "elsewhere"
    project.targets({**CLI, "command_template": f"rm -r sub; ln -s {here} sub; mkfifo pipe; echo yes"})
    project.write("template/sub/secret.txt", "old")
    project.dataset({"input": "x", "workspace": {"template": "template"}})
    project.eval("--out", "out")
    changes = project.records()[0]["file_changes"]
    assert f"+{here}" in changes and "-old" in changes and "s3cret" not in changes and "pipe" not in changes


@pytest.mark.parametrize("name", [".lock", "results.jsonl", "cases.jsonl", "run.json", "summary.json"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_pipe_in_a_run_folder_changes_no_other_file(project, name, kind):
    project.dataset("yes", "yes too")
    project.eval("--out", "out", "--limit", "1")
    precious = project.path / "precious"
    precious.write_text("keep me")
    place = project.path / "out" / name
    place.unlink(missing_ok=True)
    place.symlink_to(precious) if kind == "link" else os.mkfifo(place)
    ended = project.command("eval", "d.yaml", "--out", "out", "--resume")
    assert precious.read_text() == "keep me"
    assert "Traceback" not in ended.stderr
    if name in (".lock", "results.jsonl", "cases.jsonl") and kind == "link":
        assert ended.code == 2 and "It is a link, which is not followed" in ended.stderr


def test_everything_a_run_writes_is_private_even_with_a_lax_umask(project):
    command = "echo yes > {OUTPUT_FILE}; echo more > new.txt"
    project.targets({**CLI, "command_template": command}, {"name": "mock", "provider": "mock", "response": "yes"})
    project.dataset({"input": "x", "workspace": {"keep": True}}, "yes")
    options = ("--target", "cli", "--target", "mock", "--record", "calls.jsonl", "--cache")
    folders = ("--dump-prompts", "prompts", "--dump-traces", "traces")
    before = os.umask(0)
    try:
        ended = project.eval("--out", "out", *options, *folders)
        exported = project.eval("--out", "exported.jsonl", "--target", "mock")
    finally:
        os.umask(before)
    assert (ended.code, exported.code) == (0, 0)
    roots = [project.path / name for name in ("out", "prompts", "traces", "calls.jsonl", ".agentv/cache")]
    own = [path for root in roots for path in (root, *root.rglob("*")) if "workspaces/" not in str(path)]
    assert len(own) > 12
    open_to_others = {str(path) for path in own if stat.S_IMODE(path.stat().st_mode) & 0o077}
    assert open_to_others == set()
    assert stat.S_IMODE((project.path / "exported.jsonl").stat().st_mode) == 0o666
