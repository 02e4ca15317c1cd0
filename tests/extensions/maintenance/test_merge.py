"""`agentv runs merge`: the runs of shards become one run that every command accepts."""

import json
import os
import signal
import subprocess
import sys

import pytest
from run_project import jobs_of

NOTE = {"type": "file", "value": "note.md"}
CASES = [f"{'yes' if number % 3 else 'no'} {number}" for number in range(24)]


@pytest.fixture
def shards(project):
    """Three shards of one dataset, and the same without shards in `whole`."""
    project.dataset(*CASES)
    project.eval("--out", "whole")
    for number in (1, 2, 3):
        assert project.eval("--shard", f"{number}/3", "--out", f"s{number}").code == 0
    return project


def merge(project, *shards, out="merged"):
    return project.command("runs", "merge", *shards, "--out", out)


def change(project, run, **changes):
    path = project.path / run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def files(project, out="merged"):
    return {path.name: path.read_bytes() for path in sorted((project.path / out).iterdir())}


def without_times(summary):
    return {key: value for key, value in summary.items() if key != "duration_ms"}


def test_merged_shards_equal_the_run_of_one_machine(shards):
    done = merge(shards, "s1", "s2", "s3")
    assert (done.code, done.stdout + done.stderr) == (0, "Merged 3 runs with 24 results into merged\n")
    assert jobs_of(shards.records("merged")) == jobs_of(shards.records("whole"))
    assert sorted(case["id"] for case in shards.lines("cases.jsonl", "merged")) == sorted(f"c{n}" for n in range(24))
    assert without_times(shards.summary("merged")) == without_times(shards.summary("whole"))
    merged, whole = shards.manifest("merged"), shards.manifest("whole")
    for same in ("datasets", "targets", "fingerprints", "options", "paths", "versions"):
        assert merged[same] == whole[same], same
    assert merged["counts"] == whole["counts"]
    assert [link["run_id"] for link in merged["merged_from"]] == sorted(
        shards.manifest(f"s{number}")["run_id"] for number in (1, 2, 3)
    )


def test_other_commands_accept_a_merged_run(shards):
    merge(shards, "s1", "s2", "s3")
    assert "Can't tell yet" in shards.command("compare", "whole", "merged").stdout
    assert shards.command("report", "merged", "--json").code == 0
    resumed = shards.eval("--resume", "--out", "merged")
    assert resumed.code == 0 and len(shards.records("merged")) == 24
    assert shards.command("rescore", "merged", "--out", "again").code == 0


def test_merging_again_changes_nothing_even_with_a_shard_named_twice(shards):
    merge(shards, "s1", "s2", "s3")
    before = files(shards)
    assert merge(shards, "s3", "s2", "s1", "s1").code == 0
    assert files(shards) == before


def test_missing_shards_are_named_and_can_be_run_or_merged_later(shards):
    done = merge(shards, "s1", "s3")
    assert done.code == 1
    assert "Shard 2/3 is missing" in done.stderr and "agentv eval --resume --out merged" in done.stderr
    assert "finished_at" not in shards.manifest("merged")
    assert merge(shards, "s1", "s2", "s3").code == 0
    assert jobs_of(shards.records("merged")) == jobs_of(shards.records("whole"))


def test_resuming_a_merged_run_runs_the_missing_shards(shards):
    merge(shards, "s1", "s3")
    assert shards.eval("--resume", "--out", "merged").code == 0
    assert jobs_of(shards.records("merged")) == jobs_of(shards.records("whole"))
    # The records that the resumed run made and those of the late shard are of the same jobs.
    before = files(shards)
    late = merge(shards, "s1", "s2", "s3")
    assert late.code == 2 and "Another run has a different record for" in late.stderr
    assert files(shards) == before


def test_an_unfinished_shard_leaves_the_merged_run_unfinished(shards):
    path = shards.path / "s2" / "results.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]) + b'{"torn')
    change(shards, "s2", finished_at=None)
    done = merge(shards, "s1", "s2", "s3")
    assert done.code == 1 and "s2 is unfinished" in done.stderr
    assert len(shards.records("merged")) == 23
    assert shards.eval("--resume", "--out", "merged").code == 0
    assert jobs_of(shards.records("merged")) == jobs_of(shards.records("whole"))


DIFFERENT = {
    "the dataset": ({"datasets": [{"path": "d.yaml", "name": "d", "digest": "0", "cases": 8}]}, "the dataset d.yaml"),
    "a target": ({"targets": [{"name": "default", "provider": "mock", "fingerprint": "0"}]}, "the target default"),
    "an option": ({"options": {"paths": ["d.yaml"], "shard": [2, 3], "trials": 2}}, "the option trials"),
    "the version": ({"versions": {"agentv": "0", "python": "3"}}, "the version of agentv"),
    "the seed": ({"seed": 7}, "the seed"),
    "the defaults": ({"defaults": {"trials": 2}}, ".agentv/config.yaml"),
    "the number of shards": (
        {"options": {"paths": ["d.yaml"], "shard": [2, 4]}},
        "They differ in the number of shards: 3 and 4",
    ),
    "a rescored run": ({"rescored_from": {"run_id": "r", "path": "p", "digest": "0"}}, "It was merged or rescored"),
    "a run with --stop-when": ({"options": {"stop_when": "0.8"}}, "It used --stop-when"),
}


@pytest.mark.parametrize(("changes", "message"), DIFFERENT.values(), ids=DIFFERENT)
def test_runs_of_different_evaluations_are_refused(shards, changes, message):
    change(shards, "s2", **changes)
    done = merge(shards, "s1", "s2")
    assert done.code == 2 and message in done.stderr
    assert not (shards.path / "merged").exists()


def test_a_target_of_only_two_later_shards_is_compared(shards):
    for number in (2, 3):
        entry = {"name": "other", "provider": "mock", "fingerprint": str(number)}
        change(shards, f"s{number}", targets=[*shards.manifest(f"s{number}")["targets"], entry])
    assert "They differ in the target other" in merge(shards, "s1", "s2", "s3").stderr


def test_an_evaluator_whose_file_changed_between_shards_is_refused(project):
    project.write("rule.py", "def check(answer):\n    return 'yes' in answer\n")
    project.dataset(*CASES, evaluators=[{"type": "python", "function": "rule.py:check", "name": "rule"}])
    project.eval("--shard", "1/2", "--out", "s1")
    project.write("rule.py", "def check(answer):\n    return True\n")
    project.eval("--shard", "2/2", "--out", "s2")
    done = merge(project, "s1", "s2")
    assert done.code == 2 and "An evaluator of case" in done.stderr
    assert not (project.path / "merged").exists()


def test_two_runs_of_the_same_jobs_are_refused(shards):
    shards.eval("--shard", "1/3", "--out", "twice")
    done = merge(shards, "s1", "twice")
    assert done.code == 2
    assert "Another run has a different record for c" in done.stderr


def test_cases_with_files_and_their_own_evaluators_are_merged(project):
    project.write("note.md", "Answer yes.")
    cases = [
        {
            "input": [
                {"role": "user", "content": [{"type": "file", "value": "note.md"}, {"type": "text", "value": text}]}
            ],
            "evaluators": [{"type": "contains", "value": text.split()[1], "name": "own"}],
        }
        for text in CASES
    ]
    project.dataset(*cases)
    for number in (1, 2):
        project.eval("--shard", f"{number}/2", "--out", f"s{number}")
    assert merge(project, "s1", "s2").code == 0
    project.eval("--out", "whole")
    assert project.manifest("merged")["datasets"] == project.manifest("whole")["datasets"]
    resumed = project.eval("--resume", "--out", "merged")
    assert resumed.code == 0, resumed.stderr
    merge(project, "s1", out="half")
    resumed = project.eval("--resume", "--out", "half")
    assert resumed.code == 0, resumed.stderr
    assert jobs_of(project.records("half")) == jobs_of(project.records("whole"))


def test_a_folder_with_another_run_and_a_file_of_results_are_refused(shards):
    assert "It contains another run" in merge(shards, "s1", "s2", out="whole").stderr
    assert "It is not a run folder" in merge(shards, "s1", "s2/results.jsonl").stderr
    merge(shards, "s1", "s2")
    assert "It is a merge of other runs" in merge(shards, "s1", "s3").stderr


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
@pytest.mark.parametrize("moment", ["cases.jsonl", "results.jsonl", "summary.json", "run.json"])
def test_a_merge_that_was_killed_is_completed_by_the_next(shards, moment):
    killing = (
        "import os, signal, sys; from agentv.runs import folder; from agentv.extensions.maintenance import merge\n"
        "def kill(path, data, write=folder.write_whole):\n"
        "    at_end = path.with_name('summary.json').exists()\n"
        f"    if path.name == {moment!r} and (path.name != 'run.json' or at_end):\n"
        "        path.with_name('.half.tmp').write_bytes(b'half'); os.kill(os.getpid(), signal.SIGKILL)\n"
        "    write(path, data)\n"
        "folder.write_whole = merge.write_whole = kill\n"
        "merge.merge_runs(['s1', 's2', 's3'], 'merged')"
    )
    assert subprocess.run([sys.executable, "-c", killing], cwd=shards.path).returncode == -signal.SIGKILL
    assert "finished_at" not in shards.manifest("merged")
    assert merge(shards, "s1", "s2", "s3").code == 0
    assert jobs_of(shards.records("merged")) == jobs_of(shards.records("whole"))
    assert not list((shards.path / "merged").glob("*.tmp")) and not list((shards.path / "merged").glob(".half*"))


def test_a_run_that_is_being_written_is_refused(shards):
    lock = "from agentv.runs.folder import RunFolder; l = RunFolder('s1').lock(); print(1, flush=True); input()"
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", lock], cwd=shards.path, **streams) as process:
        process.stdout.readline()
        done = merge(shards, "s1", "s2")
        process.communicate(b"\n")
    assert done.code == 2 and "A process is writing to it" in done.stderr


@pytest.mark.parametrize("name", ["cases.jsonl", "results.jsonl"])
def test_a_shard_with_lost_lines_is_refused(shards, name):
    path = shards.path / "s2" / name
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    done = merge(shards, "s1", "s2", "s3")
    assert (
        done.code == 2 and f"The run s2 is damaged\n  {name}  2 " in done.stderr and "agentv runs repair" in done.stderr
    )
    assert not (shards.path / "merged").exists()


def test_check_finds_no_damage_in_a_merged_run(shards):
    merge(shards, "s1", "s2", "s3")
    assert (
        shards.command("runs", "check", "merged").stdout
        == "merged: no damage (24 readable cases, 24 readable records)\n"
    )
