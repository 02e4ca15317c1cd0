"""`agentv comment` and GitHub's API: one comment per suite, whatever else happens there."""

import json
import subprocess
import threading
import time

import msgspec
import pytest
from github_server import BOT, REPOSITORY, SHA, TOKEN, USER

from agentv.runs.record import encode_record
from kept_runs import KEPT
from made_results import scored

MARK = "<!-- agentv comment: evals -->"
DENIED = (403, {}, "Resource not accessible by integration")


def test_the_comment_is_created_then_updated_and_stays_one(comment, server):
    comment()
    ((number, first),) = server.comments.items()
    assert first["body"].startswith(f"{MARK}\n### evals: This pull request is better by 0.500 (")
    comment("--baseline", "20261102-120000-0002")
    assert list(server.comments) == [number] and "20261102-120000-0002" in server.bodies()[0]
    before = len(server.requests)
    comment("--baseline", "20261102-120000-0002")
    assert "PATCH" not in {method for method, _ in server.requests[before:]}, "an equal comment is left alone"
    assert server.tokens == {f"Bearer {TOKEN}"}


def test_a_token_in_an_answer_is_not_published(comment, server, runs):
    results = [scored(1.0, eval_id=f"case-{n}", dataset="support", target="gpt") for n in range(40)]
    results = [msgspec.structs.replace(result, candidate_answer=f"The token is {TOKEN}") for result in results]
    (KEPT / runs / "results.jsonl").write_bytes(b"".join(map(encode_record, results)))
    for base in ("20261102-120000-0002", "20261103-120000-0003"):
        file = KEPT / base / "results.jsonl"
        file.write_bytes(file.read_bytes().replace(b'"verdict":"pass"', b'"verdict":"fail"'))
    comment()
    assert "The token is [redacted]" in server.bodies()[0] and TOKEN not in server.bodies()[0]


def test_the_comment_is_found_among_many_pages_of_comments(comment, server):
    for n in range(5):
        server.add_comment(7, f"Comment {n}", USER)
    own = server.add_comment(7, f"{MARK}\nold", BOT)
    server.add_comment(7, "The last one", USER)
    comment()
    assert len(server.comments) == 7 and "better" in server.comments[own]["body"]


def test_each_suite_has_a_comment(comment, server):
    comment("--suite", "support")
    comment("--suite", "a--> <b>")
    comment("--suite", "support")
    assert [body.split("\n")[0] for body in server.bodies()] == [
        "<!-- agentv comment: support -->",
        "<!-- agentv comment: a%2D%2D%3E%20%3Cb%3E -->",
    ]


@pytest.mark.parametrize(
    ("body", "user", "count"),
    [
        (f"{MARK}\nedited by a maintainer", BOT, 1),
        ("The first line was removed", BOT, 2),
        (f"{MARK}\ncopied by someone else", USER, 2),
    ],
    ids=["edited", "without its mark", "another author"],
)
def test_only_a_comment_with_the_mark_and_of_the_same_author_is_replaced(comment, server, body, user, count):
    server.add_comment(7, body, user)
    comment()
    assert len(server.comments) == count
    assert ("better" in server.bodies()[0]) == (count == 1)


def test_a_user_with_a_token_updates_his_own_comment(comment, server):
    server.user = USER
    comment()
    comment("--baseline", "20261102-120000-0002")
    assert len(server.comments) == 1


def test_a_comment_deleted_during_the_update_is_created_again(comment, server):
    server.add_comment(7, f"{MARK}\nold", BOT)

    def delete(method, path):
        if method == "PATCH":
            server.comments.clear()

    server.before = delete
    comment()
    assert len(server.comments) == 1 and "better" in server.bodies()[0]


def test_two_jobs_at_once_end_with_one_comment(runs, server, program):
    together = threading.Barrier(2)

    def wait(method, path):
        if method == "POST":
            together.wait(200)

    server.before = wait
    commands = [[program, "comment", runs, "--pr", "7", "--report-url", f"https://x.test/{n}"] for n in (1, 2)]
    jobs = [subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for words in commands]
    errors = [job.communicate(timeout=200)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], errors
    assert sum(method == "POST" for method, _ in server.requests) == 2, "both saw no comment, and created one"
    assert len(server.comments) == 1


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (429, lambda: {"Retry-After": "1"}),
        (403, lambda: {"Retry-After": "1"}),
        (403, lambda: {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 2)}),
    ],
    ids=["429", "secondary limit", "primary limit"],
)
def test_a_rate_limit_is_waited_for(comment, server, status, headers):
    server.faults = [(status, headers(), "You have exceeded a rate limit")]
    start = time.monotonic()
    comment()
    assert time.monotonic() - start >= 0.9 and len(server.comments) == 1


def test_a_failing_server_is_asked_again(comment, server):
    server.faults = [(502, {}, "Bad gateway")]
    comment()
    assert len(server.comments) == 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (DENIED, "permissions: pull-requests: write"),
        ((401, {}, f"Bad credentials {TOKEN}"), "Check GITHUB_TOKEN"),
        ((404, {}, "Not Found"), "Check --repo and --pr"),
        ((403, {"Retry-After": "3000"}, "Slow down"), "The rate limit is reset in 50m 00s"),
        ((301, {"Location": "https://127.0.0.2/moved"}, ""), "redirects are not followed"),
    ],
    ids=["403", "401", "404", "a long limit", "a redirect"],
)
def test_a_refusal_is_an_error_with_advice(comment, server, fault, message):
    server.faults = [fault]
    ended = comment(code=2)
    assert "GitHub's API refused pulls/7" in ended.stderr and message in ended.stderr
    assert server.comments == {}


def test_a_denied_comment_is_an_error(comment, server):
    server.before = lambda method, path: method == "POST" and server.faults.append(DENIED)
    assert "workflow_run" in comment(code=2).stderr


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("GITHUB_API_URL", "http://api.github.com", "must start with https://"),
        ("GITHUB_API_URL", "http://localhost.evil.test", "must start with https://"),
        ("GITHUB_API_URL", "http://localhost\\@evil.test", "without blanks, backslashes"),
        ("GITHUB_API_URL", "ftp://localhost", "starts with http:// or https://"),
        ("GITHUB_TOKEN", "", "GITHUB_TOKEN is not set"),
        ("GITHUB_REPOSITORY", "", "Pass --repo OWNER/NAME"),
        ("GITHUB_REPOSITORY", "../../user", "Invalid repository"),
    ],
)
def test_a_token_is_not_sent_to_a_wrong_address(comment, server, monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    assert message in comment(code=2).stderr
    assert server.requests == []


def test_a_file_of_the_project_does_not_redirect_the_token(folder, comment, server):
    folder.write(".env", "GITHUB_API_URL=https://127.0.0.2\n")
    comment()
    assert len(server.comments) == 1


def event(folder, monkeypatch, **content):
    folder.write("event.json", json.dumps(content))
    monkeypatch.setenv("GITHUB_EVENT_PATH", "event.json")


def workflow_run(sha=SHA, repository=REPOSITORY, branch="improve"):
    return {
        "head_sha": sha, "head_branch": branch, "head_repository": {"full_name": repository},
        "html_url": f"https://github.test/{REPOSITORY}/actions/runs/1",
    }  # fmt: skip


def test_the_event_of_a_pull_request_names_it(folder, command, runs, server, monkeypatch):
    event(folder, monkeypatch, pull_request=server.pulls[7])
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.test")
    monkeypatch.setenv("GITHUB_RUN_ID", "12")
    assert command("comment", runs).code == 0
    assert f"[Report](<https://github.test/{REPOSITORY}/actions/runs/12#artifacts>)" in server.bodies()[0]
    assert f"`{SHA[:7]}`" in server.bodies()[0]


def test_a_pull_request_of_a_fork_is_found_by_its_branch(folder, command, runs, server, monkeypatch):
    server.open_pull(8, SHA, "a/b c&d", repository="mona/my-app")
    server.open_pull(9, SHA, "a/b c&d", repository="mallory/my-app")
    event(folder, monkeypatch, workflow_run=workflow_run(repository="mona/my-app", branch="a/b c&d"))
    assert command("comment", runs).code == 0
    assert [comment["pull"] for comment in server.comments.values()] == [8]
    assert f"[Report](<https://github.test/{REPOSITORY}/actions/runs/1#artifacts>)" in server.bodies(8)[0]


@pytest.mark.parametrize(
    "origin",
    [
        workflow_run(sha="2" * 40),
        workflow_run(repository="mallory/my-app"),
        workflow_run(branch="another"),
        workflow_run(repository="my-org/another-app"),
    ],
    ids=["newer commits", "another fork", "another branch", "another repository"],
)
def test_the_result_of_another_commit_changes_no_comment(folder, command, runs, server, monkeypatch, origin):
    event(folder, monkeypatch, workflow_run=origin)
    ended = command("comment", runs)
    assert ended.code == 0 and "no comment was changed" in ended.stderr
    assert server.comments == {}
    ended = command("comment", runs, "--pr", "7", "--sha", "2" * 40)
    assert ended.code == 0 and server.comments == {}


def test_an_event_that_is_not_json_is_an_error(folder, command, runs, server, monkeypatch):
    folder.write("event.json", "{")
    monkeypatch.setenv("GITHUB_EVENT_PATH", "event.json")
    assert "event.json is not the event of a workflow" in command("comment", runs).stderr


def test_a_run_that_does_not_exist_is_an_error_outside_of_a_workflow(folder, command, server):
    ended = command("comment", "nothing", "--pr", "7")
    assert ended.code == 2 and "No such run: nothing" in ended.stderr and server.comments == {}
