"""A folder or a mark of another user never makes a project: two real users share a machine."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agentv.settings.project import project_root
from agentv.support.private_files import is_shared
from agentv.trust.inventory import Inventory, Use
from agentv.trust.memory import coverage_gap, snapshot
from agentv.trust.roots import in_project, trusting

ME, ATTACKER = 61001, 61002
CASE = {"id": "a", "input": "x", "expected_outcome": "y", "evaluators": [{"type": "contains", "value": "x"}]}
AS_ME = ("--reuid", str(ME), "--regid", str(ME), "--clear-groups")
CAPABILITY = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
"""Python may be installed where only root can read. It gives no right to write."""

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two other users"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux"),
]


class Shared:
    """A folder that everyone can write to, like /tmp, with a folder of mine and one of the attacker's."""

    def __init__(self, base):
        base.chmod(0o755)
        self.home, self.top, self.marker = base / "home", base / "shared", base / "open" / "marker"
        self.own, self.theirs = self.top / "own", self.top / "theirs"
        for folder, owner in ((self.home, ME), (self.top, 0), (self.marker.parent, 0), (self.own, ME)):
            self.folder(folder, owner)
        self.folder(self.theirs, ATTACKER)
        self.top.chmod(0o1777)
        self.marker.parent.chmod(0o777)
        self.write(self.own / "evals.yaml", {"evalcases": [CASE]}, ME)

    def folder(self, path, owner):
        path.mkdir(exist_ok=True)
        os.chown(path, owner, owner)

    def write(self, path, content, owner):
        if not path.parent.exists():
            self.folder(path.parent, owner)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        os.chown(path, owner, owner)
        return path

    def link(self, path, to, owner):
        path.symlink_to(to)
        os.chown(path, owner, owner, follow_symlinks=False)

    def targets(self, folder, owner):
        target = {"name": "default", "provider": "cli", "command_template": f"touch {self.marker}; echo x"}
        return self.write(folder / ".agentv/targets.yaml", {"targets": [target]}, owner)

    def run(self, *arguments, cwd=None, as_root=False):
        command = [sys.executable, "-m", "agentv", *map(str, arguments)]
        if not as_root:
            command = ["setpriv", *AS_ME, *CAPABILITY, *command]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        return subprocess.run(command, cwd=cwd or self.own, env=env, capture_output=True, text=True, timeout=200)

    @property
    def has_run(self):
        return self.marker.exists()


@pytest.fixture
def shared():
    with tempfile.TemporaryDirectory() as folder:
        yield Shared(Path(folder))


def test_my_own_project_in_a_shared_folder_works(shared):
    shared.targets(shared.own, ME)
    ended = shared.run("eval", "evals.yaml")
    assert (ended.returncode, shared.has_run) == (0, True), ended.stderr


@pytest.mark.parametrize("mark", [".git", ".agentv/config.yaml"])
@pytest.mark.parametrize("leads_to", ["/etc", "/dev/null", "/etc/hostname"])
def test_a_linked_mark_of_another_user_above_my_folder_runs_nothing(shared, mark, leads_to):
    shared.targets(shared.top, ATTACKER)
    if mark == ".git" or leads_to != "/etc":
        shared.link(shared.top / mark, leads_to, ATTACKER)
    ended = shared.run("eval", "evals.yaml", "--out", shared.home / "run")
    assert (ended.returncode, shared.has_run) == (2, False), ended.stdout


def test_a_linked_folder_of_settings_is_not_followed_to_my_own(shared):
    shared.write(shared.home / ".agentv/config.yaml", "", ME)
    shared.targets(shared.home, ME)
    shared.link(shared.top / ".agentv", shared.home / ".agentv", ATTACKER)
    assert project_of(shared, shared.own) == shared.own
    assert (shared.run("eval", "evals.yaml").returncode, shared.has_run) == (2, False)


@pytest.mark.parametrize("as_root", [False, True])
def test_a_folder_of_another_user_is_not_my_project(shared, as_root):
    shared.targets(shared.theirs, ATTACKER)
    shared.folder(shared.theirs / ".git", ATTACKER)
    shared.write(shared.theirs / "evals.yaml", {"evalcases": [CASE]}, ATTACKER)
    ended = shared.run("eval", "evals.yaml", cwd=shared.theirs, as_root=as_root)
    assert (ended.returncode, shared.has_run) == (2, False)
    assert f"{shared.theirs} belongs to another user" in ended.stderr
    assert f"--trust {shared.theirs}\n" in ended.stderr
    trusted = shared.run(
        "eval",
        "evals.yaml",
        "--trust",
        shared.theirs,
        "--out",
        shared.home / f"r{as_root}",
        cwd=shared.theirs,
        as_root=as_root,
    )
    assert (trusted.returncode, shared.has_run) == (0, True), trusted.stderr


def test_a_project_that_others_can_write_to_is_refused_until_it_is_trusted(shared):
    shared.targets(shared.own, ME)
    shared.folder(shared.own / ".git", ME)
    shared.folder(shared.own / "evals", ME)
    shared.write(shared.own / "evals/a.yaml", {"evalcases": [CASE]}, ME)
    shared.own.chmod(0o777)
    ended = shared.run("eval", "evals.yaml")
    assert (ended.returncode, shared.has_run) == (2, False)
    assert f"others can write to {shared.own}" in ended.stderr
    below = shared.run("eval", "a.yaml", cwd=shared.own / "evals")
    assert (below.returncode, f"--trust {shared.own}" in below.stderr) == (2, True), below.stderr
    assert shared.run("eval", "a.yaml", "--trust", shared.own, cwd=shared.own / "evals").returncode == 0
    assert shared.has_run


def test_a_targets_file_of_another_user_in_my_project_is_refused(shared):
    shared.folder(shared.own / ".git", ME)
    shared.folder(shared.own / ".agentv", ME)
    shared.targets(shared.own, ATTACKER)
    ended = shared.run("eval", "evals.yaml")
    assert (ended.returncode, shared.has_run) == (2, False)
    assert "belongs to another user" in ended.stderr


def test_defaults_and_variables_of_another_user_are_not_read(shared):
    shared.write(shared.top / ".agentv/config.yaml", "execution: {target: evil}\n", ATTACKER)
    shared.write(shared.top / ".env", "WORD=evil\n", ATTACKER)
    target = {"name": "default", "provider": "mock", "response": "x"}
    own = shared.write(shared.home / "targets.yaml", {"targets": [target]}, ME)
    shared.write(shared.top / "evals.yaml", {"evalcases": [CASE]}, ME)
    ended = shared.run("eval", "evals.yaml", "--targets", own, "--out", shared.home / "run", cwd=shared.top)
    assert (ended.returncode, "evil" in ended.stdout) == (0, False), ended.stderr
    assert ".agentv/config.yaml belongs to another user" in ended.stderr


def test_in_a_shared_folder_only_my_own_files_are_the_project(shared):
    shared.targets(shared.top, ME)
    shared.write(shared.top / "evals.yaml", {"evalcases": [CASE]}, ME)
    assert shared.run("eval", "evals.yaml", "--out", shared.home / "run", cwd=shared.top).returncode == 0
    assert shared.has_run
    assert not trusts(shared.theirs / "x.yaml", shared)


def test_a_private_group_and_root_may_own_a_project(shared, monkeypatch):
    for mode, group, shares in ((0o775, 0, False), (0o770, ATTACKER, True), (0o757, 0, True), (0o755, ATTACKER, False)):
        os.chown(shared.own, 0, group)
        shared.own.chmod(mode)
        assert is_shared(os.stat(shared.own)) == shares


def test_a_link_of_mine_and_a_worktree_are_marks(tmp_path):
    (tmp_path / "real").mkdir()
    for name in ("linked", "worktree"):
        (tmp_path / name / "evals").mkdir(parents=True)
    (tmp_path / "linked/.git").symlink_to(tmp_path / "real")
    (tmp_path / "worktree/.git").write_text("gitdir: ../real\n")
    for name in ("linked", "worktree"):
        assert project_root(str(tmp_path / name / "evals")) == str(tmp_path / name)


def test_a_trusted_folder_of_another_user_is_a_project(shared, monkeypatch):
    shared.folder(shared.theirs / ".git", ATTACKER)
    shared.folder(shared.theirs / "evals", ATTACKER)
    monkeypatch.chdir(shared.theirs / "evals")
    assert not in_project(str(shared.theirs / "evals"))
    with trusting([shared.theirs]):
        assert in_project(str(shared.theirs / "evals"))


def project_of(shared, folder):
    code = f"from agentv.settings.project import project_root; print(project_root({str(folder)!r}))"
    return Path(_evaluated(shared, code).strip())


def trusts(path, shared):
    code = f"from agentv.trust.roots import is_trusted; print(is_trusted({str(path)!r}))"
    return _evaluated(shared, code, shared.top).strip() == "True"


def _evaluated(shared, code, cwd=None):
    command = ["setpriv", *AS_ME, *CAPABILITY, sys.executable, "-c", code]
    return subprocess.run(command, cwd=cwd or shared.own, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("command", ["eval", "validate"])
def test_an_ignored_mark_of_another_user_is_mentioned(shared, command):
    shared.targets(shared.own, ME)
    shared.write(shared.top / ".agentv/config.yaml", "", ATTACKER)
    ended = shared.run(command, "evals.yaml")
    assert f"{shared.top} is not your project: " in ended.stderr
    assert f"pass --trust {shared.top}" in ended.stderr


@pytest.mark.parametrize("name", ["hidden", "hidden/tool"])
def test_trust_in_files_that_cannot_be_read_is_not_remembered(shared, name):
    """A program can run what it may not read, and enter folders that it may not list."""
    dataset = shared.write(shared.theirs / "d.yaml", {"evalcases": [CASE]}, ATTACKER)
    shared.write(shared.theirs / "hidden" / "tool", "#!/bin/sh", ATTACKER)
    (shared.theirs / name).chmod(0o111)
    inventory = Inventory([Use("command", "hidden/tool", str(dataset))], [str(dataset)])
    child = os.fork()
    if child == 0:  # modules are imported; as this user, others could not be
        os.setgroups([])
        os.setuid(ME)
        is_refused = snapshot(str(shared.theirs), inventory) is None
        says_why = f"{name} cannot be read" in coverage_gap(str(shared.theirs), inventory)
        os._exit(0 if is_refused and says_why else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
