"""A stranger's repository evaluated from my project: nothing of it runs and no variable is read before trust."""

import importlib.util
import json
import os
import py_compile

import pytest
from stranger import PROGRAMS, PYTHON, Stranger, case_of

from agentv.evaluators.base import Judge
from agentv.model.evaluator import Evaluator
from agentv.registry import EVALUATORS
from agentv.trust.consent import UntrustedError, require_trust
from agentv.trust.inventory import Inventory, Use
from agentv.trust.roots import trusting
from agentv_testing import FaultyServer


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    made = Stranger(tmp_path)
    monkeypatch.chdir(made.mine)
    monkeypatch.setenv("CANARY", "planted-in-my-environment")
    return made


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_a_dataset_runs_only_after_trust(stranger, command, name):
    evaluators, fields = case_of(PROGRAMS[name])
    path = stranger.dataset(*evaluators, **fields)
    refused = command("eval", path)
    assert (refused.code, stranger.has_run) == (2, False)
    assert "is outside your project" in refused.stderr
    assert f"agentv eval {path} --trust {stranger.theirs}" in refused.stderr
    trusted = command("eval", path, "--trust", str(stranger.theirs), "--out", "run")
    assert (trusted.code, stranger.has_run) == (0, True), trusted.stderr
    records = [json.loads(line) for line in (stranger.mine / "run/results.jsonl").read_text().splitlines()]
    assert [record["status"] for record in records] == ["ok"]


def test_repositories_and_settings_of_tools_need_trust(stranger, command):
    for workspace in ({"repos": [{"repo": "../theirs"}]}, {"template": "template"}):
        ended = command("eval", stranger.dataset(workspace=workspace))
        assert ended.code == 2
        assert "is not trusted" in ended.stderr


def test_a_converter_of_files_needs_trust(stranger, command):
    converter = {"type": "application/pdf", "command": [PYTHON, "judge.py"]}
    for kind in ({"type": "llm_judge"}, {"type": "rubric", "rubrics": ["x"]}):
        ended = command("eval", stranger.dataset({**kind, "preprocessors": [converter]}))
        assert (ended.code, "judge.py" in ended.stderr, stranger.has_run) == (2, True, False)


def test_every_type_that_can_run_a_program_says_so():
    """A new type with an `evaluate` of its own must tell what it executes, or be known to execute nothing."""
    kinds = {EVALUATORS.find(name) for name in EVALUATORS.names()}
    own = {kind for kind in kinds if kind.evaluate is not Evaluator.evaluate}
    silent = {kind.__name__ for kind in own if kind.references is Evaluator.references and not issubclass(kind, Judge)}
    assert silent == {"Similarity", "EmbeddingSimilarity"}


def test_a_dry_run_of_their_dataset_asks_nothing_and_names_what_it_would_use(stranger, command):
    path = stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.py"]})
    for check in (("eval", path, "--dry-run"), ("validate", path)):
        ended = command(*check)
        assert (ended.code, stranger.has_run) == (0, False), ended.stderr
        assert f"{PYTHON} judge.py" in ended.stdout + ended.stderr
        assert f"a run needs --trust {stranger.theirs}" in ended.stderr


def test_plain_data_needs_no_trust_and_gets_my_target(stranger, command):
    target = {"name": "default", "provider": "cli", "command_template": f"{PYTHON} agent.py"}
    stranger.write(stranger.theirs, ".agentv/targets.yaml", {"targets": [target]})
    stranger.write(stranger.theirs, "schema.json", {"type": "string"})
    path = stranger.dataset({"type": "contains", "value": "hello"}, {"type": "llm_judge", "prompt": "judge.md"})
    stranger.write(stranger.theirs, "judge.md", "Is {{ candidate_answer }} a greeting?")
    ended = command("eval", path, "--out", "run")
    assert (ended.code, stranger.has_run) == (0, False), ended.stderr
    record = json.loads((stranger.mine / "run/results.jsonl").read_text())
    assert (record["candidate_answer"], record["score"]) == ("hello", 1.0)


def test_results_of_their_dataset_are_stored_in_my_project(stranger, command):
    assert command("eval", stranger.dataset()).code == 0
    assert len(list((stranger.mine / ".agentv/results").iterdir())) == 1
    assert not (stranger.theirs / ".agentv").exists()


TARGETS = {
    "cli": {"command_template": f"{PYTHON} agent.py"},
    "python": {"function": "custom.py:agent"},
    "custom.py:Provider": {},
}


@pytest.mark.parametrize("provider", [*TARGETS, "http"])
def test_their_targets_need_trust_and_never_replace_mine(stranger, command, provider):
    with FaultyServer() as server:
        settings = TARGETS.get(provider, {"url": server.url, "headers": {"X-Key": "${{ CANARY }}"}})
        entry = {"name": "default", "provider": provider, **settings}
        stranger.write(stranger.theirs, ".agentv/targets.yaml", {"targets": [entry]})
        path, theirs = stranger.dataset(), "../theirs/.agentv/targets.yaml"
        assert command("eval", path).code == 0  # mine answered
        assert command("eval", path, "--trust", str(stranger.theirs)).code == 0  # mine still takes precedence
        (stranger.mine / ".agentv/targets.yaml").unlink()
        for arguments in ((path,), (path, "--targets", theirs)):
            assert command("eval", *arguments).code == 2
        assert "is not trusted" in command("targets", "check", "--targets", theirs).stderr
        assert not stranger.has_run
        assert server.counts.requests == 0


def test_their_targets_work_with_trust_if_i_have_none(stranger, command):
    entry = {"name": "default", "provider": "cli", "command_template": f"{PYTHON} agent.py"}
    stranger.write(stranger.theirs, ".agentv/targets.yaml", {"targets": [entry]})
    (stranger.mine / ".agentv/targets.yaml").unlink()
    ended = command("eval", stranger.dataset(), "--trust", "../theirs")
    assert (ended.code, stranger.has_run) == (0, True), ended.stderr


def test_my_programs_run_in_my_project_and_not_in_theirs(stranger, command):
    stranger.write(stranger.mine, "agent.py", "print('hello')")
    stranger.write(stranger.mine, "custom.py", "def clean(text):\n    return text\n")
    stranger.write(stranger.mine, "judge.py", "print('{\"score\": 1}')")
    entry = {"name": "default", "provider": "cli", "command_template": f"{PYTHON} agent.py"}
    entry["transform"] = {"function": "custom.py:clean"}
    stranger.write(stranger.mine, ".agentv/targets.yaml", {"targets": [entry]})
    assert command("eval", stranger.dataset(), "--out", "run").code == 0
    mine = json.dumps({"type": "code_judge", "script": [PYTHON, "judge.py"]})
    ended = command("rescore", "run", stranger.dataset(), "--evaluator", mine)
    assert (ended.code, stranger.has_run) == (0, False), ended.stderr


def test_their_dataset_gets_no_variable_before_trust(stranger, command):
    case = {"id": "one", "input": "Say ${{ CANARY }}", "criteria": "x"}
    stranger.write(stranger.theirs, "evals.yaml", {"tests": [case], "assertions": [{"type": "contains", "value": "h"}]})
    path = "../theirs/evals.yaml"
    refused = command("eval", path)
    assert refused.code == 2
    assert "variable  CANARY" in refused.stderr
    shown = command("cases", path)
    assert shown.printed[0]["input"][0]["content"] == "Say ${{ CANARY }}"
    assert "not trusted" in shown.stderr
    assert "planted" not in refused.stderr + shown.stdout + shown.stderr
    assert command("eval", path, "--trust", "../theirs", "--out", "run").code == 0
    assert "planted-in-my-environment" in (stranger.mine / "run/cases.jsonl").read_text()


def test_a_link_in_my_project_to_their_files_is_theirs(stranger, command):
    (stranger.mine / ".agentv/targets.yaml").unlink()
    entry = {"name": "default", "provider": "cli", "command_template": f"{PYTHON} agent.py"}
    stranger.write(stranger.theirs, "targets.yaml", {"targets": [entry]})
    (stranger.mine / ".agentv/targets.yaml").symlink_to(stranger.theirs / "targets.yaml")
    case = {"id": "a", "input": "x", "expected_outcome": "y", "evaluators": [{"type": "contains", "value": "h"}]}
    stranger.write(stranger.mine, "evals.yaml", {"evalcases": [case]})
    assert "is not trusted" in command("eval", "evals.yaml").stderr
    (stranger.mine / ".env").symlink_to(stranger.theirs / ".env")
    (stranger.mine / ".agentv/targets.yaml").unlink()
    stranger.write(stranger.mine, ".agentv/targets.yaml", {"targets": [{"name": "default", "provider": "mock"}]})
    ended = command("eval", "evals.yaml")
    assert ended.code == 2
    assert ".env is a link out of your project" in ended.stderr


def test_trust_is_remembered_until_a_script_changes(stranger, command):
    path = stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.txt"]})
    stranger.write(stranger.theirs, "judge.txt", "import helper; print('{\"score\": 1}')")
    stranger.write(stranger.theirs, "helper.py", "")
    assert command("eval", path, "--trust", "../theirs").code == 0
    assert command("eval", path).code == 0
    stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.txt"]}, input="Another question")
    assert command("eval", path).code == 0
    for name in ("judge.txt", "helper.py", "sitecustomize.py"):
        stranger.write(stranger.theirs, name, "import sys; print('{\"score\": 0}')")
        ended = command("eval", path)
        assert (ended.code, "has changed since" in ended.stderr) == (2, True)
        assert command("eval", path, "--trust", "../theirs").code == 0
    stranger.dataset({"type": "code_judge", "script": [PYTHON, "other.txt"]})
    assert command("eval", path).code == 2


@pytest.mark.parametrize(
    ("script", "cwd", "changed"),
    [
        (["bash", "run.txt"], "sub", "theirs/sub/run.txt"),
        (["bash", "-c", "cd sub; . ./run.txt"], None, "theirs/sub/run.txt"),
        (["bash", "run.txt"], "../other", "other/run.txt"),
        (["bash", "../other/run.txt"], None, "other/run.txt"),
        (["bash", "lib/main.sh"], None, "other/main.sh"),
        (["bash", "sub/main.sh"], None, "other/helper.sh"),
    ],
)
def test_trust_ends_when_a_file_changes_that_a_command_reaches(stranger, command, script, cwd, changed):
    for folder in (stranger.theirs / "sub", stranger.theirs.parent / "other"):
        for name in ("run.txt", "main.sh", "helper.sh"):
            stranger.write(folder, name, "echo '{\"score\": 1}'\n")
    (stranger.theirs / "lib").symlink_to("../other")
    path = stranger.dataset({"type": "code_judge", "script": script, **({"cwd": cwd} if cwd else {})})
    assert command("eval", path, "--trust", "../theirs").code == 0
    assert command("eval", path).code == 0
    with open(stranger.theirs.parent / changed, "a") as file:
        file.write(f"touch {stranger.marker}\n")
    ended = command("eval", path)
    assert (ended.code, stranger.has_run) == (2, False)


def test_trust_ends_when_a_compiled_module_runs_instead_of_its_source(stranger, command):
    path = stranger.dataset({"type": "code_judge", "script": [PYTHON, "main.py"]})
    stranger.write(stranger.theirs, "main.py", "import helper; print('{\"score\": 1}')")
    helper = stranger.write(stranger.theirs, "helper.py", "")
    assert command("eval", path, "--trust", "../theirs").code == 0
    assert command("eval", path).code == 0
    other = stranger.write(stranger.mine, "other.py", f"open({str(stranger.marker)!r}, 'w')")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), importlib.util.cache_from_source(str(helper)), invalidation_mode=mode)
    ended = command("eval", path)
    assert (ended.code, stranger.has_run) == (2, False)


DATA = (
    ".agentv/cache/answer.json", "lib.zip", "package.whl", "app.pyz", "lib.tar.gz", "model.pkl", "model.joblib",
    "model.pt", "weights.npz", "rules.txt", "data/prompt.md", "settings.json", "plain",
)  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_trust_ends_when_a_file_changes_that_code_may_read(stranger, command, name):
    path = stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.py"]})
    stranger.write(stranger.theirs, name, "before")
    stranger.write(stranger.theirs, ".agentv/results/run/results.jsonl", "before")
    assert command("eval", path, "--trust", "../theirs").code == 0
    stranger.write(stranger.theirs, ".agentv/results/run/results.jsonl", "after")
    assert command("eval", path).code == 0
    stranger.write(stranger.theirs, name, "after")
    ended = command("eval", path)
    assert (ended.code, "has changed since" in ended.stderr) == (2, True)


@pytest.mark.parametrize("name", ["json.py", "lib/helper.py", "rules.txt", "link"])
def test_trust_ends_when_a_file_is_removed(stranger, command, name):
    path = stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.txt"]})
    stranger.write(stranger.theirs, "judge.txt", "print('{\"score\": 1}')")
    for each in ("json.py", "lib/helper.py", "rules.txt"):
        stranger.write(stranger.theirs, each, "x = 1")
    (stranger.theirs / "link").symlink_to("rules.txt")
    assert command("eval", path, "--trust", "../theirs").code == 0
    assert command("eval", path).code == 0
    (stranger.theirs / name).unlink()
    ended = command("eval", path)
    assert (ended.code, "has changed since" in ended.stderr) == (2, True)
    assert command("eval", path, "--trust", "../theirs").code == 0
    assert command("eval", path).code == 0
    stranger.write(stranger.theirs, name, "x = 1")
    assert command("eval", path).code == 2


def test_two_datasets_of_one_folder_stay_trusted(stranger, command):
    paths = [stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.py"]}, name=f"{n}.yaml") for n in "ab"]
    for path in paths:
        assert command("eval", path, "--trust", "../theirs").code == 0
    for path in paths:
        assert command("eval", path).code == 0


def test_trust_ends_when_a_large_archive_changes_and_keeps_its_size_and_time(stranger, command, monkeypatch):
    monkeypatch.setattr("agentv.support.hashes._READ_WHOLE_BYTES", 4)
    path = stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.py"]})
    for limit in (10**9, 3000):
        monkeypatch.setattr("agentv.trust.memory.MOST_BYTES", limit)
        archive = stranger.write(stranger.theirs, "lib.zip", "before" * 1000)
        times = (archive.stat().st_atime_ns, archive.stat().st_mtime_ns)
        assert command("eval", path, "--trust", "../theirs").code == 0
        assert command("eval", path).code == 0
        stranger.write(stranger.theirs, "lib.zip", "behind" * 1000)
        os.utime(archive, ns=times)
        assert command("eval", path).code == 2


GIT = {
    ".git/config": 2, ".git/hooks/post-checkout": 2, ".git/info/attributes": 2, ".git/lib.py": 2,
    ".git/modules/sub/config": 2, ".git/modules/sub/hooks/pre-commit": 2, ".git/worktrees/w/config.worktree": 2,
    ".git/HEAD": 0, ".git/index": 0, ".git/FETCH_HEAD": 0, ".git/objects/ab/cd": 0, ".git/modules/sub/index": 0,
    ".git/refs/heads/main": 0, ".git/logs/HEAD": 0, ".git/modules/sub/objects/ab/cd": 0, ".git/worktrees/w/HEAD": 0,
}  # fmt: skip


@pytest.mark.parametrize("name", GIT)
def test_trust_covers_what_git_executes_and_not_what_it_writes(stranger, command, name):
    for each in (*GIT, ".git/modules/sub/HEAD", ".git/modules/sub/refs/main", ".git/worktrees/w/commondir"):
        stranger.write(stranger.theirs, each, "before")
    path = stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.py"]})
    assert command("eval", path, "--trust", "../theirs").code == 0
    stranger.write(stranger.theirs, name, "after")
    assert command("eval", path).code == GIT[name]


def test_a_file_that_changes_during_the_question_is_not_trusted(stranger):
    dataset = stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.py"]})
    inventory = Inventory([Use("command", "python judge.py", dataset)], [dataset])

    def ask(question):
        stranger.write(stranger.theirs, "judge.py", "print('other')")
        return True

    with trusting((), ask), pytest.raises(UntrustedError, match="changed while you were asked"):
        require_trust(dataset, inventory)
    with trusting((), lambda _: True):
        require_trust(dataset, inventory)


@pytest.mark.parametrize(("limit", "value"), [("MOST_FILES", 15), ("MOST_BYTES", 3000)])
def test_files_that_are_not_covered_are_announced(stranger, command, monkeypatch, limit, value):
    monkeypatch.setattr(f"agentv.trust.memory.{limit}", value)
    path = stranger.dataset({"type": "code_judge", "script": [PYTHON, "judge.py"]})
    for number in range(20):
        stranger.write(stranger.theirs, f"data/{number}.txt", "x" * 200)
    stranger.write(stranger.theirs, "lib.zip", "before")
    ended = command("eval", path)
    assert "changes of other files are not noticed" in ended.stderr
    assert command("eval", path, "--trust", "../theirs").code == 0
    stranger.write(stranger.theirs, "data/1.txt", "after")
    assert command("eval", path).code == 0
    stranger.write(stranger.theirs, "lib.zip", "after")
    assert command("eval", path).code == 2


@pytest.mark.parametrize("path", ["/", "~", "no-such-folder"])
def test_trust_in_everything_or_nothing_is_refused(stranger, command, path):
    ended = command("eval", stranger.dataset(), "--trust", os.path.expanduser(path))
    assert (ended.code, "Cannot trust" in ended.stderr) == (2, True)
