"""Pull requests from opened to merged, with a real Git repository, the workflows of `init --ci` and a local API."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from github_server import REPOSITORY, TOKEN, GitHubServer

from agentv_testing import FaultyServer
from workflow_runner import Runner

pytestmark = [pytest.mark.ci, pytest.mark.skipif(sys.platform == "win32", reason="the steps use bash")]

CASES = [
    {"id": f"sum-{n}", "input": f"What is {n} + {n}?", "expected_output": str(2 * n), "expected_outcome": "the sum"}
    for n in range(40)
]
AGENT = """\
import os

def answer(prompt):
    n = int(prompt.split()[2])
    with open({spy!r}, "a") as file:
        file.write(f"{{os.getcwd()}} {{os.environ.get('GITHUB_TOKEN')}}\\n")
    return str(2 * n) if n % 4 < {known} else "I do not know, @mona"
"""


class PullRequest:
    """A repository with the workflows, and what GitHub does with it: pushes, pull requests, jobs."""

    def __init__(self, home, server, kind):
        self.home, self.server = home, server
        self.origin = home / "origin"
        self.runner = Runner(home)
        self.jobs = 0
        self.secrets = {"OPENAI_API_KEY": "sk-a-key-of-the-repository"}
        self.agentv(home, "init", "origin", "--for", kind, "--ci")
        self.git("init", "-qb", "main", ".")
        for name in ("greetings.yaml", "arithmetic.jsonl", "arithmetic.yaml"):
            (self.origin / "evals" / name).unlink()
        self.write("evals/sums.jsonl", "".join(json.dumps(case) + "\n" for case in CASES))
        self.write("evals/sums.yaml", "evaluators: [{type: equals}]\n")

    def agentv(self, folder, *words):
        subprocess.run(["agentv", *words], cwd=folder, check=True, capture_output=True)

    def git(self, *words, folder=None):
        names = ("-c", "user.name=mona", "-c", "user.email=mona@github.test")
        ended = subprocess.run(["git", *names, *words], cwd=folder or self.origin, check=True, capture_output=True)
        return ended.stdout.decode().strip()

    def write(self, name, text):
        (self.origin / name).parent.mkdir(parents=True, exist_ok=True)
        (self.origin / name).write_text(text)

    def commit(self, branch, **files):
        """Commit files to a branch, which is created from main."""
        self.git("checkout", "-q", *(("-b",) if branch not in self.git("branch") else ()), branch)
        for name, text in files.items():
            self.write(name.replace("__", "/").replace("_", "."), text)
        self.git("add", "-A")
        self.git("commit", "-qm", "Change", "--allow-empty")
        return self.git("rev-parse", "HEAD")

    def job(self, workflow, name, event_name, event, **options):
        """Run a job in a workspace of its own; return its output. `ref` is checked out."""
        self.jobs += 1
        workspace = self.home / f"workspace-{self.jobs}"
        workspace.mkdir()
        if options.get("ref"):
            self.git("clone", "-q", str(self.origin), str(workspace), "-b", "main", folder=self.home)
            self.git("merge", "-q", "--no-ff", "-m", "Merge", f"origin/{options['ref']}", folder=workspace)
            if event_name != "push":
                self.git("checkout", "-q", "--detach", folder=workspace)
        job = yaml.safe_load((self.origin / ".github/workflows" / workflow).read_text())["jobs"][name]
        event_file = self.home / f"event-{self.jobs}.json"
        event_file.write_text(json.dumps(event))
        variables = {
            "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_EVENT_PATH": str(event_file), "GITHUB_REF_NAME": "merge",
            "GITHUB_API_URL": self.server.address, "GITHUB_HEAD_REF": options.get("head", ""),
        }  # fmt: skip
        github = {
            "event_name": event_name, "event": event, "run_id": 1000 + self.jobs, "run_attempt": 1,
            "repository": REPOSITORY, "token": TOKEN if name == "comment" else "",
        }  # fmt: skip
        os.chdir(workspace)
        context = {"github": github, "secrets": options.get("secrets", {})}
        is_ok, text = self.runner.run(job, context, variables)
        assert is_ok or not options.get("must_pass", True), text
        assert TOKEN not in text and not any(secret in text for secret in self.secrets.values())
        return text

    def push_to_main(self):
        self.job("evals-base.yaml", "baseline", "push", {"ref": "refs/heads/main"}, ref="main", secrets=self.secrets)

    def push_to_pull_request(self, branch, sha, repository=REPOSITORY, must_pass=True):
        """Open the pull request or push to it: evaluate it without rights, then comment without its code."""
        self.server.open_pull(7, sha, branch, repository)
        self.job(
            "evals.yaml", "evals", "pull_request", {"pull_request": self.server.pulls[7]},
            ref=branch, head=branch, secrets=self.secrets if repository == REPOSITORY else {}, must_pass=must_pass,
        )  # fmt: skip
        origin = {
            "id": self.jobs, "event": "pull_request", "head_sha": sha, "head_branch": branch,
            "head_repository": {"full_name": repository}, "html_url": f"https://github.test/runs/{self.jobs}",
        }  # fmt: skip
        return self.job("evals-base.yaml", "comment", "workflow_run", {"workflow_run": origin})


@pytest.fixture
def start(tmp_path, program, monkeypatch):
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    with GitHubServer().serve() as server:
        yield lambda kind: PullRequest(tmp_path, server, kind)


def test_a_pull_request_from_opened_to_merged_has_one_comment(start, tmp_path):
    github = start("function")
    spy = tmp_path / "executions.txt"

    def agent(known):
        return AGENT.format(spy=str(spy), known=known)

    github.commit("main", agent_py=agent(2))
    github.push_to_main()
    github.commit("main", README_md="Another commit, with the same agent")
    github.push_to_main()

    github.push_to_pull_request("improve", github.commit("improve", agent_py=agent(3)), must_pass=False)
    ((number, opened),) = github.server.comments.items()
    assert "### evals: This pull request is better by 0.250 (" in opened["body"]
    assert "Baseline: &#64;\u2060main (2 runs)" in opened["body"]
    assert "**Flipped: 0 cases now failing, 10 now passing.**" in opened["body"]
    assert "- target default&#58; agent.py " in opened["body"]

    github.push_to_pull_request("improve", sha := github.commit("improve", agent_py=agent(4)))
    assert list(github.server.comments) == [number]
    pushed = github.server.comments[number]["body"]
    assert "### evals: This pull request is better by 0.500 (" in pushed and f"`{sha[:7]}`" in pushed

    broken = github.commit("improve", evals__sums_jsonl="{")
    github.push_to_pull_request("improve", broken, must_pass=False)
    assert "### evals: No comparison. The evaluation of this commit ended without results" in github.server.bodies()[0]
    github.git("revert", "--no-edit", broken)

    github.git("checkout", "-q", "main")
    github.git("merge", "-q", "--no-ff", "-m", "Merge improve", "improve")
    github.push_to_main()
    github.server.pulls.clear()
    github.push_to_pull_request("next", github.commit("next", README_md="Nothing but words"))
    merged = github.server.comments[number]["body"]
    assert "Baseline: &#64;\u2060main (1 run)" in merged, "the run of the merged agent, and not those before"
    assert "Not part of the baseline&#58; 1002-1, 1001-1, because its target 'default' has other settings" in merged
    assert "### evals: Can't tell yet. This pull request scored the same on 40 shared cases" in merged
    assert list(github.server.comments) == [number]
    evaluations = {f"{tmp_path}/workspace-{job} None" for job in (1, 2, 3, 5, 9, 10)}
    assert set(spy.read_text().splitlines()) == evaluations, "the code runs without a token, and not in a comment job"


def test_a_fork_gets_a_comment_without_a_key_from_a_replay(start):
    def answers(request):
        n = int(re.search(r"(\d+) \+", request.prompt)[1])
        return str(2 * n) if n % 2 else "I do not know"

    with FaultyServer(answers=answers) as model:
        github = start("model")
        targets = (github.origin / ".agentv/targets.yaml").read_text()
        github.write(".agentv/targets.yaml", f"{targets}    base_url: {model.url}\n")
        github.commit("main")
        github.push_to_main()
        assert model.counts.requests == 40
        changed = {**CASES[-1], "input": "What is 39 + 39? Think."}
        github.commit("fork")
        github.write("evals/sums.jsonl", "".join(f"{line}\n" for line in map(json.dumps, [*CASES[:-1], changed])))
        github.push_to_pull_request("fork", github.commit("fork"), "mona/my-app", must_pass=False)
        assert model.counts.requests == 40, "a fork has no key: the calls of main are replayed"
    (body,) = github.server.bodies()
    assert "### evals: Can't tell yet. This pull request scored the same on 39 shared cases" in body
    assert "- The answers of B come from a recording" in body
    assert "| errors (not scored) | 0 of 40 | 1 of 40 |" in body, "a call that main did not make is an error"


def test_the_job_with_the_token_checks_out_no_code_and_has_no_other_secret(start):
    github = start("model")
    jobs = yaml.safe_load((github.origin / ".github/workflows/evals-base.yaml").read_text())["jobs"]
    comment = json.dumps(jobs["comment"])
    assert "checkout" not in comment and "secrets." not in comment
    assert jobs["comment"]["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert all("run" not in step for step in jobs["comment"]["steps"])
    evaluation = yaml.safe_load((github.origin / ".github/workflows/evals.yaml").read_text())
    assert evaluation["permissions"] == {"contents": "read"} and "pull_request" in evaluation[True]
