"""A dataset that changes during a run stops it: every record comes from the text that was checked."""

import gzip
import json

import pytest

from platforms import only_on_posix

CASES = 1_500
AGENT = """
import pathlib
calls = 0

def answer(prompt):
    global calls
    calls += 1
    if calls == 10:
        {change}
    return prompt
"""
CHANGES = {
    "rewritten": "pathlib.Path('d.jsonl').write_bytes(pathlib.Path('other.jsonl').read_bytes())",
    "replaced": "pathlib.Path('other.jsonl').replace('d.jsonl')",
    "shortened": "import os; os.truncate('d.jsonl', 1000)",
    "deleted": "pathlib.Path('d.jsonl').unlink()",
    "garbage": "pathlib.Path('d.jsonl').write_bytes(bytes(range(256)) * 9_000)",
    "sidecar": "pathlib.Path('d.yaml').write_text('evaluators: [{type: contains, value: no}]')",
}


def lines(text):
    filling = "x" * 1_000
    return [{"id": f"c{n}", "input": f"{text} {n} {filling}", "expected_outcome": "x"} for n in range(CASES)]


@pytest.fixture
def changing(project):
    """A project whose target changes the dataset during its tenth call."""

    def made(change, path="d.jsonl"):
        project.write("agent.py", AGENT.format(change=change))
        project.targets({"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 1})
        rows = lines("yes")
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (project.path / path).write_bytes(gzip.compress(data) if path.endswith(".gz") else data)
        project.write("other.jsonl", lines("other"))
        project.write("d.yaml", "evaluators: [{type: contains, value: 'yes'}]")
        return project

    return made


@only_on_posix("a file cannot be replaced while it is read")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_stops_the_run_before_a_changed_case_is_used(changing, change):
    project = changing(change)
    ended = project.command("eval", "d.jsonl", "--out", "out")
    assert ended.code == 2
    assert "The dataset d.jsonl changed during the run" in ended.stderr and "--resume" in ended.stderr
    assert "Traceback" not in ended.stderr
    records = project.records()
    assert 10 <= len(records) < CASES
    assert {record["score"] for record in records} == {1.0}
    assert "finished_at" not in project.manifest()


@only_on_posix("a file cannot be replaced while it is read")
def test_a_run_is_resumed_after_the_dataset_is_restored(changing):
    project = changing(CHANGES["replaced"])
    before = (project.path / "d.jsonl").read_bytes()
    assert project.command("eval", "d.jsonl", "--out", "out").code == 2
    assert project.command("eval", "--resume", "--out", "out").code == 2
    (project.path / "d.jsonl").write_bytes(before)
    assert project.command("eval", "--resume", "--out", "out", "--quiet").code == 0
    assert project.manifest()["counts"]["ok"] == CASES == len(project.records())


def test_a_compressed_dataset_that_changes_stops_the_run(changing):
    project = changing("pathlib.Path('d.jsonl.gz').write_bytes(b'not gzip')", "d.jsonl.gz")
    ended = project.command("eval", "d.jsonl.gz", "--out", "out")
    assert ended.code == 2 and "The dataset d.jsonl.gz changed during the run" in ended.stderr


@pytest.mark.parametrize(
    "change", ["pathlib.Path('d.jsonl').touch()", "p = pathlib.Path('d.jsonl'); p.write_bytes(p.read_bytes())"]
)
def test_a_file_that_is_written_again_unchanged_does_not_matter(changing, change):
    project = changing(change)
    assert project.command("eval", "d.jsonl", "--out", "out", "--quiet").code == 0
    assert len(project.records()) == CASES


def test_a_yaml_dataset_may_be_edited_during_the_run(project):
    project.write("agent.py", AGENT.format(change="pathlib.Path('d.yaml').write_text('evalcases: []')"))
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 1})
    project.dataset(*(["yes"] * 100))
    assert project.eval("--out", "out", "--quiet").code == 0
    assert project.summary()["mean"] == 1.0 and project.summary()["scored"] == 100


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_small_dataset_may_be_edited_during_the_run(changing, change):
    project = changing(change)
    rows = (project.path / "d.jsonl").read_bytes().splitlines(keepends=True)
    (project.path / "d.jsonl").write_bytes(b"".join(rows[:200]))
    assert project.command("eval", "d.jsonl", "--out", "out", "--quiet").code == 0
    assert project.summary()["mean"] == 1.0 and project.summary()["scored"] == 200


def test_a_changed_file_that_cases_name_is_an_error_and_not_a_score(project):
    change = "pathlib.Path('facts.md').write_text('other facts')"
    project.write("agent.py", AGENT.format(change=change))
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 1})
    project.write("facts.md", "yes")
    message = [{"role": "user", "content": [{"type": "file", "value": "facts.md"}]}]
    rows = [{"id": f"c{n}", "input": message, "expected_outcome": "x" * 1_000} for n in range(CASES)]
    project.write("d.jsonl", rows)
    project.write("d.yaml", "evaluators: [{type: contains, value: 'yes'}]")
    ended = project.command("eval", "d.jsonl", "--out", "out")
    assert ended.code == 2 and "File 'facts.md' changed after the dataset was read" in ended.stderr
    assert {(record["status"], record["score"]) for record in project.records()} == {("ok", 1.0), ("error", None)}


def test_a_file_that_changes_before_its_dataset_is_read_again_is_reported(project):
    project.write("agent.py", AGENT.format(change="pathlib.Path('facts.md').write_text('other facts')"))
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 1})
    project.write("facts.md", "yes")
    project.dataset(*(["yes"] * 70), name="a.yaml")
    message = [{"role": "user", "content": [{"type": "file", "value": "facts.md"}]}]
    project.dataset({"input": message}, name="b.yaml")
    ended = project.command("eval", "a.yaml", "b.yaml", "--out", "out")
    assert ended.code == 2
    assert "Files that the cases of b.yaml name changed during the run" in ended.stderr
    assert "--changed-since out" in ended.stderr
    assert project.command("eval", "--resume", "--out", "out").code == 2


def test_a_run_whose_dataset_changes_is_not_complete(project):
    project.write(
        "agent.py",
        "from pathlib import Path\n"
        "def answer(prompt):\n"
        "    Path('b.yaml').write_text(Path('a.yaml').read_text())\n"
        "    return prompt\n",
    )
    project.targets({"name": "default", "provider": "python", "function": "agent.py:answer", "workers": 1})
    project.dataset(*(["yes"] * 70), name="a.yaml")
    project.dataset(*(["yes"] * 90), name="b.yaml")
    ended = project.eval("a.yaml", "b.yaml", "--out", "out")
    assert ended.code == 2
    assert "The dataset b.yaml changed during the run" in ended.stderr and "--resume" in ended.stderr
    assert "finished_at" not in project.manifest()
    assert len(project.records()) <= 70
