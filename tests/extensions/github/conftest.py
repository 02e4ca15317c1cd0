"""A project with runs of main and of a pull request, and a local server for GitHub's API."""

import pytest
from github_server import REPOSITORY, SHA, TOKEN, GitHubServer

from kept_runs import keep


@pytest.fixture
def server(monkeypatch):
    github = GitHubServer()
    github.open_pull(7, SHA)
    with github.serve():
        monkeypatch.setenv("GITHUB_API_URL", github.address)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
        yield github


@pytest.fixture
def runs(folder):
    """Two equal runs of main in which half of 40 cases pass; in the new one, all do."""
    for day in (2, 3):
        keep(day, passed=[n % 2 for n in range(40)], git_branch="main")
    return keep(9, passed=[1] * 40)


@pytest.fixture
def comment(command, runs, server):
    """`agentv comment` for the pull request, which succeeds."""

    def run(*options, code=0):
        ended = command("comment", runs, "--pr", "7", *options)
        assert ended.code == code, ended
        assert TOKEN not in ended.stdout + ended.stderr
        return ended

    return run
