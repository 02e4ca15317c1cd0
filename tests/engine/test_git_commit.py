"""The commit stored in the manifest is the one git reports, however the repository stores it."""

import shutil
import subprocess

import pytest

from agentv.engine.run_manifest import git_commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "first")
    return tmp_path


@pytest.mark.parametrize("state", ["a branch", "a detached head", "packed branches", "a folder below", "a worktree"])
def test_the_commit_is_the_one_git_reports(repository, state):
    folder = repository
    if state == "a detached head":
        git(repository, "checkout", "--detach")
    elif state == "packed branches":
        git(repository, "pack-refs", "--all")
    elif state == "a folder below":
        (folder := repository / "below").mkdir()
    elif state == "a worktree":
        git(repository, "worktree", "add", "-b", "other", str(folder := repository / "tree"))
    assert git_commit(str(folder)) == git(folder, "rev-parse", "HEAD")


def test_a_repository_without_commits_has_none(tmp_path):
    assert git_commit(str(tmp_path)) is None
    git(tmp_path, "init")
    assert git_commit(str(tmp_path)) is None
