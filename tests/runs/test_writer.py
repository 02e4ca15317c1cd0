"""Written lines survive a kill, a full disk and an incomplete write."""

import hashlib
import json
import random
import shutil
import subprocess
import sys
import threading

import msgspec
import pytest

from agentv import AgentvError
from agentv.runs import writer as writing
from agentv.runs.record import decode_record, encode_record
from agentv.runs.redaction import Redactor
from agentv.runs.writer import ResultWriter
from made_results import made
from waiting import wait_until


def record(number=0, answer=""):
    return made(eval_id=f"case-{number}", candidate_answer=answer)


def results_in(path):
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    return list(map(decode_record, lines))


def test_each_record_is_on_disk_when_write_returns(tmp_path):
    path = tmp_path / "results.jsonl"
    with ResultWriter(path) as writer:
        for number in range(3):
            writer.write(encode_record(record(number)))
            assert results_in(path) == [record(n) for n in range(number + 1)]


def test_a_second_writer_appends_to_the_same_file(tmp_path):
    path = tmp_path / "results.jsonl"
    for number in range(2):
        with ResultWriter(path) as writer:
            assert writer.cut_bytes == 0
            writer.write(encode_record(record(number)))
    assert results_in(path) == [record(0), record(1)]


@pytest.mark.parametrize("kept", [0, 1, 7, 200_000])
def test_an_incomplete_last_line_is_removed(tmp_path, kept):
    path = tmp_path / "results.jsonl"
    whole = msgspec.json.encode(record(1)) + b"\n"
    torn = (msgspec.json.encode(record(2, "x" * 300_000)))[:kept]
    path.write_bytes(whole * 3 + torn)
    with ResultWriter(path) as writer:
        assert writer.cut_bytes == kept
        writer.write(encode_record(record(4)))
    assert path.read_bytes() == whole * 3 + msgspec.json.encode(record(4)) + b"\n"


@pytest.mark.parametrize("content", [b"", b'{"no end', b"\0\0\0\0"])
def test_a_file_without_a_complete_line_is_emptied(tmp_path, content):
    path = tmp_path / "results.jsonl"
    path.write_bytes(content)
    with ResultWriter(path) as writer:
        assert writer.cut_bytes == len(content)
    assert path.read_bytes() == b""


def test_every_line_is_redacted(tmp_path):
    path = tmp_path / "cases.jsonl"
    with ResultWriter(path, redact=Redactor(["sk-planted-secret"]).redact_line) as writer:
        writer.write(b'{"id":"a","input":"use sk-planted-secret"}\n')
    assert path.read_bytes() == b'{"id":"a","input":"use [redacted]"}\n'


def test_a_record_is_synced_without_waiting_for_the_next(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(writing, "_sync", synced.append)
    monkeypatch.setattr(writing, "SYNC_INTERVAL_S", 0.01)
    with ResultWriter(tmp_path / "results.jsonl") as writer:
        for number in range(3):
            writer.write(encode_record(record(number)))
            wait_until(lambda wanted=number + 1: len(synced) == wanted)
    assert len(synced) == 3


def test_a_failed_sync_is_reported_and_is_an_error_of_the_next_write(tmp_path, monkeypatch):
    def fail(file):
        raise OSError(5, "Input/output error")

    failed = threading.Event()
    monkeypatch.setattr(writing, "_sync", fail)
    monkeypatch.setattr(writing, "SYNC_INTERVAL_S", 0.01)
    writer = ResultWriter(tmp_path / "results.jsonl")
    writer.watch(failed.set)
    writer.write(encode_record(record()))
    assert failed.wait(200)
    for use in (writer.check, lambda: writer.write(encode_record(record())), writer.close):
        with pytest.raises(AgentvError, match="Input/output error"):
            use()


@pytest.mark.parametrize("change", ["delete", "move", "replace"])
def test_a_deleted_or_moved_file_is_noticed_at_the_next_sync(tmp_path, monkeypatch, change):
    path, failed = tmp_path / "run" / "results.jsonl", threading.Event()
    path.parent.mkdir()
    monkeypatch.setattr(writing, "SYNC_INTERVAL_S", 0.01)
    writer = ResultWriter(path)
    writer.watch(failed.set)
    writer.write(encode_record(record()))
    if change == "delete":
        shutil.rmtree(path.parent)
    elif change == "move":
        path.parent.rename(tmp_path / "moved")
    else:
        (tmp_path / "other").write_bytes(b"")
        (tmp_path / "other").replace(path)
    assert failed.wait(200)
    with pytest.raises(AgentvError, match=r"Cannot write .*\n  The file was deleted, moved or replaced"):
        writer.close()


def test_the_digest_covers_the_whole_file_without_incomplete_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "SYNC_INTERVAL_S", 0.001)
    path = tmp_path / "results.jsonl"
    path.write_bytes(encode_record(record(0)) + b'{"torn')
    writer = ResultWriter(path)
    writer.watch()
    for number in range(1, 200):
        writer.write(encode_record(record(number)))
    writer.close()
    assert writer.digest() == hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def test_a_missing_folder_is_a_clear_error(tmp_path):
    with pytest.raises(AgentvError, match=r"Cannot write .*results.jsonl\n  No such file or directory"):
        ResultWriter(tmp_path / "gone" / "results.jsonl")


WRITES_UNTIL_FULL = """
import resource, sys
from agentv import AgentvError
from agentv.runs.writer import ResultWriter

limit = int(sys.argv[2])
with ResultWriter(sys.argv[1]) as writer:
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    written = 0
    try:
        while True:
            writer.write(b'{"number":%d,"filling":"%s"}\\n' % (written, b"x" * 900))
            written += 1
    except AgentvError as error:
        print(written, str(error).replace("\\n", " "))
    if limit:
        try:
            writer.write(b'{"still":"full"}' + b" " * 900 + b"\\n")
        except AgentvError:
            print("still full")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        writer.write(b'{"there":"is room again"}\\n')
"""


def whole_lines(path):
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def test_a_file_that_cannot_be_created_has_no_hint_to_resume(tmp_path):
    with pytest.raises(AgentvError) as raised:
        ResultWriter(tmp_path / "nowhere" / "results.jsonl")
    assert (raised.value.detail, raised.value.hint) == ("No such file or directory", "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
@pytest.mark.parametrize("limit", [9_400, 9_401, 65_536])
def test_a_write_beyond_the_size_limit_leaves_complete_lines(tmp_path, limit):
    path = tmp_path / "results.jsonl"
    ended = subprocess.run(
        [sys.executable, "-c", WRITES_UNTIL_FULL, str(path), str(limit)], capture_output=True, text=True, check=True
    )
    first, again = ended.stdout.splitlines()
    written, message = first.split(" ", 1)
    assert "File too large" in message
    assert "All earlier lines are complete" in message and "then continue with --resume" in message
    assert again == "still full"
    *lines, last = whole_lines(path)
    assert [line["number"] for line in lines] == list(range(int(written)))
    assert last == {"there": "is room again"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a small tmpfs")
def test_a_full_disk_leaves_complete_lines(tmp_path):
    shell = (
        'mount -t tmpfs -o size=64k none "$1" || exit 77; "$2" -c "$3" "$1/results.jsonl" 0; '
        'ended=$?; cp "$1/results.jsonl" "$4"; exit $ended'
    )
    mounted = tmp_path / "small"
    mounted.mkdir()
    ended = subprocess.run(
        ["unshare", "-rm", "sh", "-c", shell, "sh", mounted, sys.executable, WRITES_UNTIL_FULL, tmp_path / "copy"],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode in (1, 77) and not ended.stdout:
        pytest.skip("no small file system can be mounted here")
    written, message = ended.stdout.split(" ", 1)
    assert "No space left on device" in message
    assert len(whole_lines(tmp_path / "copy")) == int(written) > 10


WRITES_FOR_EVER = """
import os, sys
from agentv.runs.writer import ResultWriter

writer = ResultWriter(sys.argv[1])
number = int(sys.argv[2])
os.write(1, b"ready\\n")
while True:
    writer.write(b'{"number":%d,"filling":"%s"}\\n' % (number, b"x" * (number * 37 % 5000)))
    os.write(1, b"%d\\n" % number)
    number += 1
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9")
def test_written_records_survive_a_killed_process(tmp_path):
    chance = random.Random(7)
    path = tmp_path / "results.jsonl"
    known = 0
    for _ in range(10):
        arguments = [sys.executable, "-c", WRITES_FOR_EVER, path, str(known)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            early = [int(process.stdout.readline()) for _ in range(chance.randrange(40))]
            process.kill()
            late = process.stdout.read().splitlines(keepends=True)
        told = early + [int(line) for line in late if line.endswith(b"\n")]
        ResultWriter(path).close()
        numbers = [line["number"] for line in whole_lines(path)]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= (told[-1] + 1 if told else known)
        known = len(numbers)
    assert known > 10
