"""Cases that depend on others: the order in which they run, and what a failed dependency means."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platforms import only_on_posix

# Logs when it begins and ends. A prompt with "broken" in it fails; a line of `broken.txt` makes a prompt fail, too.
AGENT = """
import asyncio
from pathlib import Path

async def answer(messages):
    text = messages[-1]["content"]
    log(f"begin {text}")
    await asyncio.sleep(0.001)
    log(f"end {text}")
    broken = Path("broken.txt").read_text().split() if Path("broken.txt").exists() else []
    if "broken" in text or text in broken:
        raise ValueError("no answer")
    return "yes"

def log(line):
    with open("log.txt", "a") as file:
        file.write(line + "\\n")
"""


def case(id, *depends_on, **more):
    return {"id": id, "input": id, **({"depends_on": list(depends_on)} if depends_on else {}), **more}


@pytest.fixture
def suite(project):
    project.write("agent.py", AGENT)
    target = {"provider": "python", "function": "agent.py:answer", "max_retries": 0}
    project.targets({"name": "default", **target}, {"name": "other", **target})
    return project


def run(suite, *cases, code=0, options=(), **document):
    suite.dataset(*cases, **document)
    ended = suite.eval("--out", "out", "--quiet", *options)
    assert ended.code == code, ended.stderr
    return {record["eval_id"]: record for record in suite.records()}


def log_of(suite):
    path = suite.path / "log.txt"
    return path.read_text().splitlines() if path.exists() else []


@st.composite
def graphs(draw):
    """Cases in any order in the file, each of which depends on some that are before it in another order."""
    ids = [f"c{number}" for number in range(draw(st.integers(2, 9)))]
    before = {id: draw(st.lists(st.sampled_from(ids[:at]), unique=True)) if at else [] for at, id in enumerate(ids)}
    return [(id, before[id]) for id in draw(st.permutations(ids))]


@settings(max_examples=5)
@given(graph=graphs(), executor=st.sampled_from(["--workers=1", "--workers=5"]))
def test_a_case_begins_after_all_it_depends_on_have_ended(tmp_path_factory, graph, executor):
    from agentv import evaluate

    folder = tmp_path_factory.mktemp("graph")
    log: list[str] = []

    async def answer(messages):
        log.append(f"begin {messages[-1]['content']}")
        log.append(f"end {messages[-1]['content']}")
        return "yes"

    rows = [case(id, *others, expected_outcome="x") for id, others in graph]
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = evaluate(str(folder / "d.jsonl"), answer, [], workers=int(executor[-1]))
    assert len(found.results) == len(graph)
    for id, others in graph:
        assert all(log.index(f"end {other}") < log.index(f"begin {id}") for other in others)


@pytest.mark.parametrize("options", [(), ("--workers", "1"), ("--executor", "process", "--processes", "2")])
def test_jobs_wait_for_those_they_depend_on_with_any_executor(suite, options):
    records = run(suite, case("c", "b"), case("b", "a"), case("a"), options=options)
    assert log_of(suite) == ["begin a", "end a", "begin b", "end b", "begin c", "end c"]
    assert {record["status"] for record in records.values()} == {"ok"}


def test_a_low_score_is_not_a_failure(suite):
    fails = {"evaluators": [{"type": "contains", "value": "never"}]}
    assert run(suite, case("a", **fails), case("b", "a"))["b"]["status"] == "ok"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({}, "Skipped: it depends on 'broken', which has no answer"),
        ({"on_dependency_failure": "skip"}, "Skipped: it depends on 'broken', which has no answer"),
        ({"on_dependency_failure": "fail"}, "Failed: it depends on 'broken', which has no answer"),
        ({"on_dependency_failure": "run"}, None),
    ],
)
def test_a_failed_dependency_decides_by_the_policy_of_the_case(suite, policy, message):
    records = run(suite, case("broken"), case("b", "broken", **policy), case("c", "b"), case("d"))
    assert records["d"]["status"] == "ok"
    if message is None:
        assert records["c"]["status"] == records["b"]["status"] == "ok"
        return
    assert records["b"]["error"] == {"class": "process", "message": message, "stage": "setup"}
    assert (records["b"].get("score"), records["b"]["attempts"]) == (None, 0)
    assert records["c"]["error"]["message"] == "Skipped: it depends on 'b', which has no answer"
    assert "begin b" not in log_of(suite)


def test_with_trials_a_dependency_fails_only_if_all_trials_fail(suite):
    suite.write("agent.py", AGENT.replace('"broken" in text', "is_first(text)") + IS_FIRST)
    records = run(suite, case("broken"), case("b", "broken"), options=("--trials", "2", "--workers", "1"))
    assert records["b"]["status"] == "ok"
    assert len(suite.records()) == 4


IS_FIRST = """
def is_first(text):
    return text == "broken" and Path("log.txt").read_text().count("end broken") == 1
"""


def test_a_dependency_counts_for_its_own_target_only(suite):
    cases = (case("a", execution={"targets": ["default"]}), case("b", "a", execution={"targets": ["default", "other"]}))
    run(suite, *cases)
    found = {(record["eval_id"], record["target"]): record["status"] for record in suite.records()}
    assert found == {("a", "default"): "ok", ("b", "default"): "ok", ("b", "other"): "error"}


def test_resume_and_retry_run_what_the_failed_dependency_held_back(suite):
    suite.write("broken.txt", "a")
    assert run(suite, case("a"), case("b", "a"), case("c"), code=0)["b"]["status"] == "error"
    suite.write("broken.txt", "")
    assert suite.command("eval", "--retry-errors", "out", "--out", "again", "--quiet").code == 0
    assert {record["eval_id"]: record["status"] for record in suite.records("again")} == dict.fromkeys("abc", "ok")
    assert log_of(suite).count("begin c") == 1


def test_a_resumed_run_uses_the_records_of_its_first_part(suite):
    run(suite, case("a"), case("b", "a"))
    results = suite.path / "out" / "results.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    results.write_text("".join(line for line in lines if '"eval_id":"a"' in line))
    assert suite.eval("--resume", "--out", "out", "--quiet").code == 0
    assert log_of(suite).count("begin a") == 1
    assert log_of(suite)[-2:] == ["begin b", "end b"]


def test_cases_that_depend_on_each_other_are_in_one_shard(folder):
    rows = [case("a"), case("b", "a"), case("c", "b"), *(case(f"x{number}") for number in range(20))]
    folder.write("d.jsonl", [{"expected_outcome": "x", **row} for row in rows])
    shards = [set(folder.load("d.jsonl", shard=(index, 4)).ids) for index in range(1, 5)]
    assert sum({"a", "b", "c"} <= shard for shard in shards) == 1
    assert sum(map(len, shards)) == len(rows)


@pytest.mark.parametrize(
    ("cases", "detail", "hint"),
    [
        ([case("a", "frist"), case("first")], "Case 'a' depends on 'frist', but no case of this dataset", "'first'?"),
        ([case("a", "a")], "Case 'a' depends on itself", ""),
        ([case("a", "b"), case("b", "a"), case("c", "a")], "Case 'a' is in a cycle: a → b → a", ""),
    ],
)
def test_unknown_ids_and_cycles_are_errors_of_eval_and_validate(suite, cases, detail, hint):
    suite.dataset(*cases)
    for command, code in (("eval", 2), ("validate", 1)):
        ended = suite.command(command, "d.yaml")
        assert ended.code == code
        assert detail in ended.stderr + ended.stdout
        assert hint in ended.stderr + ended.stdout
    assert log_of(suite) == []


def test_a_selection_without_the_dependency_is_refused(suite):
    suite.dataset(case("a"), case("b", "a"))
    ended = suite.eval("--filter", "b")
    assert ended.code == 2
    assert "Case 'b' in d.yaml depends on 'a', which is not selected" in ended.stderr


def test_early_stopping_is_refused(suite):
    suite.dataset(case("a"), case("b", "a"))
    ended = suite.eval("--stop-when", "0.5")
    assert ended.code == 2
    assert "--stop-when cannot be used with cases that depend on others" in ended.stderr


@only_on_posix("commands are for cmd.exe, not for a POSIX shell")
def test_the_steps_of_a_shared_workspace_see_the_files_before_them(suite):
    suite.targets({"name": "default", "provider": "cli", "command": "echo {PROMPT} >> steps.txt; cat steps.txt"})
    suite.write("template/start.txt", "")
    workspace = {"template": "template", "isolation": "shared"}
    records = run(suite, case("two", "one"), case("one"), workspace=workspace, evaluators=[])
    assert records["two"]["candidate_answer"].split() == ["one", "two"]
    assert not Path("steps.txt").exists()
