"""A run that carries over records of an earlier one: no target is called for these."""

import pytest
from run_project import PASSING

AGENT = """
def answer(prompt, case, trial):
    with open("calls.log", "a") as log:
        log.write(f"{case.id}.{trial}\\n")
    if prompt == "broken":
        raise RuntimeError("does not work")
    return prompt
"""


@pytest.fixture
def earlier(project):
    """A run in which one of four jobs errored."""
    project.write(".git/HEAD", "")
    project.write("agent.py", AGENT)
    project.write("checks.py", "def good(context):\n    return 1.0\n")
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer"})
    begin(project)
    return project


ROWS = {"a": "yes", "b": "no", "c": "yes again", "d": "broken"}


def write(project, rows=ROWS, **document):
    cases = [{"id": id, "input": text} if isinstance(text, str) else {"id": id, **text} for id, text in rows.items()]
    project.dataset(*cases, **document)


def begin(project, *arguments, **document):
    write(project, **document)
    assert project.eval("--out", "first", "--quiet", *arguments).code == 0
    (project.path / "calls.log").unlink()


def again(project, *arguments):
    """Return the calls of a second run, its reasons, and its records."""
    ended = project.eval("--out", "second", "--why", *arguments)
    assert ended.code == 0, ended
    log = project.path / "calls.log"
    called = sorted(log.read_text().split()) if log.exists() else []
    why = dict(line.split(" (default): ", 1) for line in ended.stderr.splitlines() if " (default): " in line)
    return called, why, project.by_id("second")


def test_only_jobs_that_errored_run_again(earlier):
    write(earlier, {**ROWS, "d": "yes now"})
    called, why, records = again(earlier, "--retry-errors", "first")
    assert called == ["d.1"]
    assert why["d"] == "errored (process)"
    first = earlier.manifest("first")["run_id"]
    assert why["a"] == f"carried over from {first}"
    assert {id: record.get("carried_from") for id, record in records.items()} == {
        **dict.fromkeys("abc", first),
        "d": None,
    }
    second = earlier.manifest("second")["run_id"]
    assert {record["run_id"] for record in records.values()} == {second}
    before = earlier.by_id("first")["b"]
    assert {**records["b"], "run_id": first} == {**before, "carried_from": first}
    assert records["d"]["status"] == "ok"
    assert earlier.summary("second")["scored"] == 4 and earlier.summary("second")["errors"] == 0
    assert [case["id"] for case in earlier.lines("cases.jsonl", "second")] == list("abcd")


CHANGES = {
    "nothing": (lambda project: write(project), {"d": "errored (process)"}),
    "a case": (
        lambda project: write(project, {**ROWS, "b": "yes"}),
        {"b": "the case changed", "d": "errored (process)"},
    ),
    "the expected output of a case": (
        lambda project: write(project, {**ROWS, "a": {"input": "yes", "expected_output": "ja"}}),
        {"a": "the case changed", "d": "errored (process)"},
    ),
    "a new case": (
        lambda project: write(project, {**ROWS, "e": "yes"}),
        {"e": "not in the earlier run", "d": "errored (process)"},
    ),
    "a tag": (
        lambda project: write(project, {**ROWS, "a": {"input": "yes", "tags": ["t"]}}),
        {"d": "errored (process)"},
    ),
    "the evaluators of the dataset": (
        lambda project: write(project, evaluators=[{**PASSING, "weight": 2}]),
        {**dict.fromkeys("abc", "its evaluators changed"), "d": "errored (process)"},
    ),
    "the evaluators of a case": (
        lambda project: write(project, {**ROWS, "c": {"input": "yes again", "evaluators": [{"type": "is_json"}]}}),
        {"c": "its evaluators changed", "d": "errored (process)"},
    ),
    "the target": (
        lambda project: project.targets(
            {"name": "default", "provider": "python", "function": "agent.py:answer", "transform": {"strip": ["fences"]}}
        ),
        {**dict.fromkeys("abc", "the target default changed"), "d": "errored (process)"},
    ),
    "its number of workers": (
        lambda project: project.targets(
            {"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 1}
        ),
        {"d": "errored (process)"},
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_only_changed_jobs_run_again_and_the_reason_is_shown(earlier, what):
    change, expected = CHANGES[what]
    change(earlier)
    called, why, records = again(earlier, "--changed-since", "first")
    assert called == sorted(f"{id}.1" for id in expected)
    assert {id: reason for id, reason in why.items() if not reason.startswith("carried over")} == expected
    assert sorted(id for id, record in records.items() if "carried_from" in record) == sorted(
        set("abc") - set(expected)
    )


def test_a_changed_file_of_an_evaluator_changes_its_fingerprint(earlier):
    (earlier.path / "first").rename(earlier.path / "zeroth")
    mine = [{"type": "python", "function": "checks.py:good"}]
    begin(earlier, evaluators=mine)
    called, _, _ = again(earlier, "--changed-since", "first")
    assert called == ["d.1"]
    earlier.write("checks.py", "def good(context):\n    return 0.5\n")
    ended = earlier.eval("--out", "third", "--quiet", "--changed-since", "first")
    assert ended.code == 0
    assert {record["score"] for record in earlier.records("third")} == {0.5, None}


def test_trials_are_carried_over_individually(earlier):
    called, _, _ = again(earlier, "--changed-since", "first", "--trials", "2")
    assert called == ["a.2", "b.2", "c.2", "d.1", "d.2"]
    assert len(earlier.records("second")) == 8


def test_without_datasets_the_options_of_the_earlier_run_are_used(earlier):
    (earlier.path / "first").rename(earlier.path / "zeroth")
    begin(earlier, "--trials", "2", "--case", "a", "--case", "d")
    arguments = ("--retry-errors", "first", "--out", "second", "--workers", "3", "--quiet")
    assert earlier.command("eval", *arguments).code == 0
    assert sorted((earlier.path / "calls.log").read_text().split()) == ["d.1", "d.2"]
    assert earlier.manifest("second")["options"] == {
        "paths": ["d.yaml"],
        "trials": 2,
        "cases": ["a", "d"],
        "workers": 3,
        "retry_errors": "first",
    }


def test_a_record_carried_over_twice_names_its_first_run(earlier):
    again(earlier, "--retry-errors", "first")
    assert earlier.eval("--out", "third", "--quiet", "--changed-since", "second").code == 0
    first = earlier.manifest("first")["run_id"]
    assert {record["carried_from"] for record in earlier.by_id("third").values() if record["status"] == "ok"} == {first}


def test_a_run_is_named_by_its_folder_or_by_its_id(earlier):
    (earlier.path / ".agentv" / "results").mkdir(parents=True)
    run_id = earlier.manifest("first")["run_id"]
    (earlier.path / "first").rename(earlier.path / ".agentv" / "results" / run_id)
    called, _, _ = again(earlier, "--retry-errors", run_id)
    assert called == ["d.1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--retry-errors", "nowhere"), "No such run: nowhere"),
        (("--changed-since", "evals"), "Not a run folder: evals"),
        (("--retry-errors", "first", "--changed-since", "first"), "cannot be combined"),
    ],
)
def test_an_invalid_run_is_refused_before_anything_starts(earlier, arguments, message):
    (earlier.path / "evals").mkdir()
    ended = earlier.eval("--out", "second", *arguments)
    assert ended.code == 2 and message in ended.stderr
    assert not (earlier.path / "second").exists() and not (earlier.path / "calls.log").exists()


def test_an_interrupted_run_still_carries_over_when_resumed(earlier):
    write(earlier, {**ROWS, "d": "yes now"})
    again(earlier, "--retry-errors", "first")
    for name, kept in (("results.jsonl", 1), ("cases.jsonl", 1)):
        path = earlier.path / "second" / name
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:kept]))
    (earlier.path / "calls.log").unlink()
    assert earlier.eval("--resume", "--out", "second", "--quiet").code == 0
    assert (earlier.path / "calls.log").read_text().split() == ["d.1"]
    assert sorted(earlier.by_id("second")) == list("abcd") and len(earlier.records("second")) == 4


def test_carried_over_records_do_not_count_against_the_budget(project):
    answer = '{"text": "yes", "cost_usd": 1.0}'
    project.targets({"name": "default", "provider": "cli", "command_template": f"echo '{answer}'", "workers": 1})
    project.dataset("a", "b", "c")
    assert project.eval("--out", "first", "--quiet", "--limit", "2").code == 0
    ended = project.eval("--out", "second", "--quiet", "--changed-since", "first", "--budget-usd", "1.5")
    assert ended.code == 0
    assert len(project.records("second")) == 3


PYTHON_AGENT = "import sys\nprint(sys.argv[-1].replace('broken', 'yes'))\n"


def command(line, **settings):
    return {"name": "default", "provider": "cli", "command_template": line, **settings}


NAMED_FILES = {
    "a function": ({"name": "default", "provider": "python", "function": "agent.py:answer"}, "agent.py", AGENT),
    "a module": ({"name": "default", "provider": "python", "function": "pack.agent:answer"}, "pack/agent.py", AGENT),
    "a package": (
        {"name": "default", "provider": "python", "function": "package:answer"},
        "package/__init__.py",
        AGENT,
    ),
    "a command": (command("python agent.py {PROMPT}"), "agent.py", PYTHON_AGENT),
    "a command elsewhere": (command("python agent.py {PROMPT}", cwd="src"), "src/agent.py", PYTHON_AGENT),
    "an argument": (command("python -c 'print(1)' --config=conf.yaml"), "conf.yaml", "model: a\n"),
    "a quoted word": (command("python 'the agent.py' {PROMPT}"), "the agent.py", PYTHON_AGENT),
    "a variable": (command("echo {PROMPT}", env={"CONFIG": "conf.yaml"}), "conf.yaml", "model: a\n"),
    "a transform": (
        {"name": "default", "provider": "mock", "transform": {"function": "clean.py:clean"}},
        "clean.py",
        "def clean(text):\n    return text\n",
    ),
}


@pytest.mark.parametrize("what", NAMED_FILES)
def test_a_changed_file_of_a_target_changes_its_fingerprint(project, what):
    settings, name, content = NAMED_FILES[what]
    project.write(".git/HEAD", "")
    project.write(name, content)
    project.targets(settings)
    project.dataset("yes", "no")
    assert project.eval("--out", "first", "--quiet").code == 0
    why = again(project, "--changed-since", "first")[1]
    assert all(reason.startswith("carried over") for reason in why.values()) and len(why) == 2
    assert list(project.manifest("second")["targets"][0]["files"]) == [name]
    project.write(name, content + "\n")
    ended = project.eval("--out", "third", "--why", "--changed-since", "first")
    assert ended.stderr.count(f"the target default changed ({name})") == 2, ended


def test_files_of_a_command_are_found_next_to_the_dataset(project):
    project.write("evals/agent.py", PYTHON_AGENT)
    project.write("agent.py", "a file of the same name that is not used")
    project.targets(command("python agent.py {PROMPT}"))
    project.dataset("yes", name="evals/d.yaml")
    assert project.eval("evals/d.yaml", "--out", "first", "--quiet").code == 0
    assert list(project.manifest("first")["targets"][0]["files"]) == ["evals/agent.py"]


def test_a_changed_recording_changes_the_fingerprint_of_its_target(project):
    project.dataset("yes", "no")
    assert project.eval("--out", "answers", "--quiet").code == 0
    project.targets({"name": "default", "provider": "replay", "from": "answers"})
    assert project.eval("--out", "first", "--quiet").code == 0
    results = project.path / "answers" / "results.jsonl"
    results.write_text(results.read_text().replace('"no"', '"yes"'))
    why = again(project, "--changed-since", "first")[1]
    assert set(why.values()) == {"the target default changed (answers/results.jsonl)"}
