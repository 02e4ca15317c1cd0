"""Planted secrets do not appear in any file or output of a run."""

import pytest

from agentv_testing import FaultyServer, RawReply
from platforms import only_on_posix

IN_ENVIRONMENT = "sk-environment-5f2b8c"
IN_DOTENV = "tok/en+with=signs&9d"
IN_FIELD = "plain-name-but-secret-field-77"
WRITTEN = "written-into-the-file-31415"
SECRETS = (IN_ENVIRONMENT, IN_DOTENV, IN_FIELD, WRITTEN)


@pytest.fixture
def planted(project, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", IN_ENVIRONMENT)
    monkeypatch.setenv("HARMLESS", IN_FIELD)
    project.write(".env", f"OTHER_TOKEN={IN_DOTENV}\n")
    project.write(".git/HEAD", "")
    return project


def everything_under(folder):
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def check_hidden(project, ended, out="out"):
    written = everything_under(project.path / out)
    assert written
    for secret in SECRETS:
        assert secret.encode() not in written
        assert secret not in ended.stdout and secret not in ended.stderr
    assert b"[redacted]" in written
    return written


def target(server, **settings):
    return {
        "name": "default",
        "provider": "openai",
        "model": "m",
        "base_url": server.url,
        "api_key": "${{ SERVICE_API_KEY }}",
        "headers": {"X-Token": "${{ OTHER_TOKEN }}", "Authorization-Key": "${{ HARMLESS }}", "X-Secret": WRITTEN},
        "max_retries": 0,
        **settings,
    }


@pytest.mark.parametrize("arguments", [(), ("--verbose",), ("--json",), ("--quiet",), ("--why",)])
def test_secrets_in_answers_headers_and_error_bodies_are_written_nowhere(planted, arguments):
    leaks = " and ".join(SECRETS)

    def answers(request):
        assert request.headers["Authorization"] == f"Bearer {IN_ENVIRONMENT}"
        assert request.headers["X-Token"] == IN_DOTENV
        if "fail" in request.prompt:
            return RawReply(f'{{"error": {{"message": "your key {leaks} is wrong"}}}}'.encode(), 500)
        if "break" in request.prompt:
            return RawReply(leaks.encode(), 502)
        return f"I was asked with {leaks}"

    if "--verbose" in arguments and "--verbose" not in planted.command("eval", "--help").stdout:
        pytest.skip("There is no --verbose")
    with FaultyServer(answers) as server:
        planted.targets(target(server))
        planted.dataset("echo", "fail", "break", {"input": "echo", "metadata": {"note": IN_ENVIRONMENT}})
        ended = planted.eval("--out", "out", *arguments)
    assert ended.code == 0
    check_hidden(planted, ended)
    assert {record["status"] for record in planted.records()} == {"ok", "error"}


def test_the_printed_output_is_redacted_like_the_records(planted):
    """Reasons are cut to a length: half a secret must not remain."""
    evaluator = {"type": "python", "function": "checks.py:check"}
    planted.write(
        "checks.py",
        "from agentv import Score\n"
        "def check(context):\n"
        f"    return Score(0.0, misses=('x' * 280 + ' {IN_ENVIRONMENT}',), reasoning='because of {IN_ENVIRONMENT}')\n",
    )
    planted.dataset("yes", evaluators=[evaluator])
    ended = planted.eval("--out", "out")
    check_hidden(planted, ended)
    assert IN_ENVIRONMENT[:10] not in ended.stdout


@only_on_posix("the commands are for a POSIX shell")
def test_secrets_in_the_output_of_commands_are_written_nowhere(planted):
    planted.targets(
        {
            "name": "default",
            "provider": "cli",
            "command_template": "echo $SERVICE_API_KEY $GIVEN; echo $GIVEN >&2; test {EVAL_ID} = c0",
            "pass_env": ["SERVICE_API_KEY"],
            "env": {"GIVEN": "${{ OTHER_TOKEN }}"},
        }
    )
    planted.dataset("a", "b")
    ended = planted.eval("--out", "out")
    assert ended.code == 0
    check_hidden(planted, ended)
    assert planted.by_id()["c1"]["error"]["class"] == "process"


def test_the_manifest_has_the_variable_instead_of_its_value(planted):
    with FaultyServer("yes") as server:
        planted.targets(target(server))
        planted.dataset("q")
        assert planted.eval("--out", "out", "--quiet").code == 0
    (entry,) = planted.manifest()["targets"]
    assert entry["settings"]["api_key"] == "${{ SERVICE_API_KEY }}"
    assert entry["settings"]["headers"]["X-Token"] == "${{ OTHER_TOKEN }}"
    assert WRITTEN not in str(entry)


def test_carried_over_and_resumed_records_stay_without_secrets(planted):
    planted.targets({"name": "default", "provider": "mock", "response": f"yes {IN_ENVIRONMENT}"})
    planted.dataset("a", "b")
    assert planted.eval("--out", "out", "--quiet").code == 0
    ended = planted.eval("--out", "again", "--changed-since", "out")
    check_hidden(planted, ended, "again")
    assert {record["candidate_answer"] for record in planted.records("again")} == {"yes [redacted]"}


def test_an_export_of_records_has_no_secrets(planted):
    planted.targets({"name": "default", "provider": "mock", "response": f"yes {IN_DOTENV}"})
    planted.dataset("a")
    for name in ("all.jsonl", "all.yaml"):
        assert planted.eval("--out", name, "--quiet").code == 0
        text = (planted.path / name).read_text()
        assert IN_DOTENV not in text and "[redacted]" in text


def test_scores_are_those_of_the_real_answer(planted):
    planted.targets({"name": "default", "provider": "mock", "response": f"yes {IN_ENVIRONMENT}"})
    planted.dataset("a", evaluators=[{"type": "ends_with", "value": "5f2b8c"}])
    assert planted.eval("--out", "out", "--quiet").code == 0
    (record,) = planted.records()
    assert (record["score"], record["candidate_answer"]) == (1.0, "yes [redacted]")


def test_a_run_with_secrets_in_its_ids_can_be_resumed(planted):
    planted.dataset({"id": f"a {IN_ENVIRONMENT}", "input": "yes"}, {"id": "b", "input": "yes"})
    ended = planted.eval("--out", "out", "--dump-traces", "-v")
    assert [record["eval_id"] for record in planted.records()] == ["a [redacted]", "b"]
    check_hidden(planted, ended)
    assert not any(IN_ENVIRONMENT in path.name for path in planted.path.rglob("*"))
    resumed = planted.command("eval", "--out", "out", "--resume")
    assert "All jobs in this run are already complete" in resumed.stderr and len(planted.records()) == 2


ENCODED = {
    "base64": "$(printf %s $SERVICE_API_KEY | base64)",
    "base64 after a name": "$(printf 'me:%s' $SERVICE_API_KEY | base64)",
    "hex": "$(printf %s $SERVICE_API_KEY | od -An -tx1 | tr -d ' \\n')",
    "capitals": "$(printf %s $SERVICE_API_KEY | tr a-z A-Z)",
}


@only_on_posix("the commands are for a POSIX shell")
@pytest.mark.parametrize("name", ENCODED)
def test_encoded_secrets_are_written_nowhere(planted, name):
    command = f"echo {ENCODED[name]}; echo {ENCODED[name]} >&2; test {{EVAL_ID}} = c0"
    target = {"name": "default", "provider": "cli", "command_template": command, "pass_env": ["SERVICE_API_KEY"]}
    planted.targets({**target, "max_retries": 0})
    planted.dataset("a", "b")
    ended = planted.eval("--out", "out", "-v")
    check_hidden(planted, ended)
    answers = [planted.by_id()["c0"]["candidate_answer"], planted.by_id()["c1"]["error"]["message"]]
    assert all("[redacted]" in answer for answer in answers)


def test_half_a_secret_does_not_remain_where_an_output_is_cut(planted):
    filler = "x" * (2000 - len(" " + IN_ENVIRONMENT[4:] + " "))
    command = f'echo "$SERVICE_API_KEY {filler}" >&2; exit 1'
    planted.targets(
        {"name": "default", "provider": "cli", "command_template": command, "pass_env": ["SERVICE_API_KEY"]}
    )
    planted.dataset("a")
    planted.eval("--out", "out", "--max-retries", "0")
    assert IN_ENVIRONMENT[-8:] not in planted.records()[0]["error"]["message"]


def test_a_password_in_the_address_of_a_target_is_written_nowhere(planted, monkeypatch):
    monkeypatch.setenv("PLAIN", "from-a-variable-4242")
    with FaultyServer(lambda request: RawReply(f"{request.path} pa55-in-url".encode(), 500)) as server:
        place = server.url.replace("://", "://me:pa55-in-url@")
        url = f"{place}/x?api_key=key-in-query-99&token=${{{{ PLAIN }}}}"
        planted.targets({"name": "default", "provider": "http", "url": url, "max_retries": 0})
        planted.dataset("a")
        ended = planted.eval("--out", "out", "-v")
    written = everything_under(planted.path / "out").decode() + ended.stdout + ended.stderr
    assert not [each for each in ("pa55-in-url", "key-in-query-99", "from-a-variable-4242") if each in written]
