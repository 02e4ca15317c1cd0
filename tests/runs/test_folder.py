"""Run folders: created once, written by one process at a time, with atomic manifests."""

import errno
import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from agentv import AgentvError, UsageError
from agentv.model.manifest import RunManifest, TargetEntry
from agentv.runs.catalogue import last_unfinished
from agentv.runs.folder import RunFolder, new_run_id, new_run_path, write_whole
from agentv.runs.folder_lock import is_locked
from agentv.runs.redaction import Redactor
from agentv.runs.summary import RunSummary

if sys.platform != "win32":
    import fcntl


def manifest(run_id="r", **known):
    return RunManifest(run_id=run_id, started_at="2026-01-02T03:04:05Z", **known)


def test_run_ids_sort_by_start_time_in_any_time_zone():
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=3)))
    assert new_run_id(at).startswith("20260102-000405-")
    names = [new_run_id(at + timedelta(seconds=seconds)) for seconds in range(0, 200_000, 1000)]
    assert names == sorted(names)
    assert len({new_run_id(at) for _ in range(20)}) > 1


def test_a_new_run_never_gets_the_folder_of_another(tmp_path, monkeypatch):
    digits = iter([b"\0\1", b"\0\1", b"\0\2"])
    monkeypatch.setattr("os.urandom", lambda _: next(digits))
    first = new_run_path(tmp_path)
    first.mkdir()
    assert new_run_path(tmp_path) != first


def test_a_new_folder_contains_the_files_of_a_run(tmp_path):
    folder = RunFolder.create(tmp_path / "deep" / "run")
    folder.write_manifest(manifest(git_commit="abc"))
    folder.write_summary(RunSummary(run_id="r"))
    assert RunFolder.open(folder.path).read_manifest() == manifest(git_commit="abc")
    assert folder.read_summary() == RunSummary(run_id="r")
    assert sorted(os.listdir(folder.path)) == ["run.json", "summary.json"]
    assert (folder.cases_path.name, folder.results_path.name) == ("cases.jsonl", "results.jsonl")
    assert folder.manifest_path.read_text().startswith('{\n  "schema_version": 1,')


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"already exists: .*\n\n  Hint: .*--resume"):
        RunFolder.create(tmp_path)
    with pytest.raises(UsageError, match="Not a folder"):
        RunFolder.create(tmp_path / "notes.txt")


def test_an_empty_folder_or_the_leftovers_of_a_killed_start_are_accepted(tmp_path):
    (tmp_path / ".lock").write_text("1")
    (tmp_path / ".run.json.17.tmp").write_text("{")
    assert RunFolder.create(tmp_path).path == tmp_path


def test_a_folder_without_a_manifest_is_not_a_run(tmp_path):
    with pytest.raises(UsageError, match=r"Not a run folder: .*\n  It has no run.json"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Input data was truncated"),
        ('{"run_id": 1}', "Expected `str`"),
        ('{"schema_version": 9, "run_id": "r", "started_at": ""}', "schema_version is 9"),
    ],
)
def test_an_unreadable_manifest_is_an_error_with_its_path(tmp_path, content, message):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(AgentvError, match=rf"Cannot read .*run.json\n  .*{message}"):
        RunFolder.open(tmp_path).read_manifest()


def test_secrets_are_redacted_in_manifests(tmp_path):
    folder = RunFolder.create(tmp_path / "run", Redactor(["sk-planted-secret"]).redact_line)
    settings = {"api_key": "sk-planted-secret", "headers": {"X": 'Bearer "sk-planted-secret"'}}
    folder.write_manifest(
        manifest(targets=(TargetEntry(name="t", provider="openai", fingerprint="f", settings=settings),))
    )
    assert b"planted" not in folder.manifest_path.read_bytes()
    assert folder.read_manifest().targets[0].settings == {
        "api_key": "[redacted]",
        "headers": {"X": 'Bearer "[redacted]"'},
    }


def test_a_failed_write_keeps_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    write_whole(path, b"old")

    def full(file):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(AgentvError, match=r"Cannot write .*run.json\n  No space left"):
            write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["run.json"]


HOLDS = (
    "import sys; from agentv.runs.folder import RunFolder; l = RunFolder(sys.argv[1]).lock(); print(1, flush=True); "
)


def holding(path, then):
    process = subprocess.Popen([sys.executable, "-c", HOLDS + then, path], stdin=-1, stdout=-1, text=True)
    assert process.stdout.readline() == "1\n"
    return process


def test_two_processes_cannot_write_to_one_folder(tmp_path):
    with holding(tmp_path, "input()") as other:
        with pytest.raises(UsageError, match=rf"in use: .*\n  Process {other.pid} is writing to it\n\n  Hint: Wait"):
            RunFolder(tmp_path).lock()
        other.communicate("\n")
    with RunFolder(tmp_path).lock():
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
        with pytest.raises(UsageError, match=f"Process {os.getpid()} "):
            RunFolder(tmp_path).lock()
    assert os.listdir(tmp_path) == []


def test_a_killed_process_releases_its_lock(tmp_path):
    with holding(tmp_path, "input()") as other:
        other.kill()
        other.wait()
    with RunFolder(tmp_path).lock() as lock:
        lock.close()
    assert os.listdir(tmp_path) == []


WRITES = (
    "import sys; from agentv.runs.folder import RunFolder; from agentv.runs.store import RunStore; "
    "f = RunFolder(sys.argv[1]); l = f.lock(); s = RunStore(f); s.start_writing(); print(1, flush=True); input()"
)


def test_removing_the_lock_file_does_not_allow_a_second_writer(tmp_path):
    (tmp_path / "results.jsonl").write_bytes(b"")
    with subprocess.Popen([sys.executable, "-c", WRITES, tmp_path], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "1\n"
        (tmp_path / ".lock").unlink()
        assert is_locked(tmp_path)
        with pytest.raises(UsageError, match=r"The run folder is in use: .*\n  Another process is writing to it"):
            RunFolder(tmp_path).lock()
        assert not (tmp_path / ".lock").exists()
        other.communicate("\n")
    assert not is_locked(tmp_path)
    RunFolder(tmp_path).lock().close()


@pytest.mark.skipif(sys.platform == "win32", reason="flock")
def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    def no_locks(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(UsageError, match=r"support locks: .*\n  .*No locks available.*\n\n  Hint: .*local disk"):
        RunFolder(tmp_path).lock()
    assert os.listdir(tmp_path) == []


def project_with(tmp_path, **runs):
    for name, finished in runs.items():
        folder = RunFolder.create(tmp_path / ".agentv" / "results" / name)
        folder.write_manifest(manifest(name, finished_at=finished, paths=("d.yaml",)))
    return tmp_path


def test_the_last_unfinished_run_is_found(tmp_path):
    assert last_unfinished(tmp_path) is None
    root = project_with(tmp_path, run1=None, run2=None, run3="2026-01-02T03:05:05Z")
    (root / ".agentv" / "results" / "run4").mkdir()
    (root / ".agentv" / "results" / "run5").mkdir()
    (root / ".agentv" / "results" / "run5" / "run.json").write_text(json.dumps({"schema_version": 9}))
    assert last_unfinished(root).path.name == "run2"


def test_a_run_in_progress_is_chosen_only_if_there_is_no_other(tmp_path):
    root = project_with(tmp_path, run1=None, run2=None)
    with last_unfinished(root).lock():
        assert last_unfinished(root).path.name == "run1"
        with last_unfinished(root).lock():
            assert last_unfinished(root).path.name == "run2"
