"""Read runs from folders and files, our own and those of AgentV (TypeScript)."""

import json

import msgspec
import pytest

from agentv import AgentvError, UsageError
from agentv.model.manifest import RunManifest
from agentv.runs.catalogue import find_runs
from agentv.runs.folder import RunFolder
from agentv.runs.record import ScoreRecord, encode_record
from agentv.runs.store import RunStore
from made_results import made

RESULTS = [made(run_id="run", eval_id=name) for name in "abc"]
LINES = b"".join(map(encode_record, RESULTS))
ROW = {"timestamp": "2026-01-03T12:06:39.922Z", "eval_id": "x", "score": 0.5, "target": "t"}
YAML = """\
timestamp: 2026-01-03T12:06:39.922Z
eval_id: 007
score: 0.5
hits: []
candidate_answer: no
target: t
---
eval_id: y
score: 1
candidate_answer: |
  two
  lines
error: null
---
test_id: z
score: 0
error: Request timed out
"""


def ours(path, lines=LINES):
    folder = RunFolder.create(path)
    folder.write_manifest(RunManifest(run_id=path.name, started_at=""))
    if lines is not None:
        folder.results_path.write_bytes(lines)
    return path


def test_a_run_is_read_from_its_folder_or_its_file(tmp_path):
    path = ours(tmp_path / "run")
    assert list(RunStore.open(path).records()) == list(RunStore.open(path / "results.jsonl").records()) == RESULTS


def test_a_run_without_a_result_is_empty(tmp_path):
    assert list(RunStore.open(ours(tmp_path / "run", None)).records()) == []


def test_a_finished_run_without_its_results_file_is_an_error(tmp_path):
    path = ours(tmp_path / "run", None)
    RunFolder(path).write_manifest(RunManifest(run_id="run", started_at="", finished_at="2026-01-02T03:04:05Z"))
    with pytest.raises(
        AgentvError, match=r"missing\n  run.json marks the run as finished, but there is no results.jsonl"
    ):
        RunStore.open(path).records()


@pytest.mark.parametrize("cut", [1, 20, len(encode_record(RESULTS[2])) - 1])
def test_an_incomplete_last_line_is_ignored(tmp_path, cut):
    path = ours(tmp_path / "run", LINES[:-cut])
    # If only the newline is missing, the record is complete.
    assert list(RunStore.open(path).records()) == (RESULTS if cut == 1 else RESULTS[:2])


@pytest.mark.parametrize("name", ["index.jsonl", ".internal/index.jsonl"])
def test_folders_of_agentv_typescript_are_read(folder, name):
    folder.write(f"2026-07-05T03-35-53-313Z/{name}", [ROW | {"test_id": "b"}])
    (result,) = RunStore.open("2026-07-05T03-35-53-313Z").records()
    assert (result.run_id, result.eval_id, result.score) == ("2026-07-05T03-35-53-313Z", "x", 0.5)


def test_files_with_a_byte_order_mark_or_without_a_last_newline_are_read(folder):
    folder.write("eval_1.jsonl", b"\xef\xbb\xbf" + json.dumps(ROW).encode() + b"\n\n" + json.dumps(ROW).encode())
    assert [result.run_id for result in RunStore.open("eval_1.jsonl").records()] == ["eval_1", "eval_1"]


def test_texts_in_yaml_documents_stay_texts(folder):
    folder.write("eval_1.yaml", YAML)
    first, second, third = RunStore.open("eval_1.yaml").records()
    assert (first.timestamp, first.eval_id, first.candidate_answer) == ("2026-01-03T12:06:39.922Z", "007", "no")
    assert (second.status, second.score, second.candidate_answer) == ("ok", 1.0, "two\nlines\n")
    assert (third.eval_id, third.status, third.error.error_class) == ("z", "error", "timeout")


def test_our_own_records_are_read_from_yaml(folder):
    folder.write("out.yaml", msgspec.yaml.encode(RESULTS[0]))
    assert list(RunStore.open("out.yaml").records()) == RESULTS[:1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "r.jsonl",
            b'{"eval_id":"a","score":1}\n{"id":"a"}\n',
            "Invalid record at line 2 in r.jsonl\n  Not a result: neit",
        ),
        ("r.jsonl", b'{"eval_id":"a","score":1}\n{"eval_id', "Invalid record at line 2 in r.jsonl\n  Invalid JSON"),
        ("r.jsonl", b"\xff\n", "Invalid record at line 1 in r.jsonl"),
        ("r.yaml", b"- a\n", "Invalid record at document 1 in r.yaml"),
        ("r.yaml", b"eval_id: a\n", "Invalid record at document 1 in r.yaml"),
        ("r.yaml", b"a: [", "Cannot read r.yaml"),
        ("r.yaml", b"eval_id: a\nscore: 1\nhits: [-]\n", "Cannot read r.yaml"),
    ],
)
def test_an_invalid_result_is_an_error_with_its_location(folder, name, content, message):
    folder.write(name, content)
    with pytest.raises(AgentvError) as raised:
        list(RunStore.open(name).records())
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["results.jsonl", "out.yaml"])
@pytest.mark.parametrize("between", [0, 300], ids=["near", "far"])
def test_a_job_with_two_records_is_an_error_for_every_reader(folder, name, between):
    records = [*RESULTS, *(made(eval_id=str(number), prompt="p") for number in range(between)), RESULTS[1]]
    path = folder.path / name
    path.write_bytes(b"".join(map(encode_record, records)) if name == "results.jsonl" else _documents(records))
    for read in (RunStore.records, lambda run: run.records(ScoreRecord), RunStore.figures):
        with pytest.raises(AgentvError, match="Duplicate record") as error:
            list(read(RunStore.open(path)))
        place = f"{'line' if name == 'results.jsonl' else 'document'} {len(records)}"
        assert f"Duplicate record at {place} in {path}\n  b in d.jsonl, target t, trial 1" in str(error.value)


def test_rows_of_other_tools_may_repeat_a_case(folder):
    folder.write("rows.jsonl", (json.dumps(ROW) + "\n") * 3)
    assert RunStore.open(folder.path / "rows.jsonl").figures().done == 3


def _documents(records):
    return b"---\n".join(map(msgspec.yaml.encode, records))


@pytest.mark.parametrize("name", ["gone", "gone.jsonl", "empty", "notes.txt"])
def test_a_path_that_is_not_a_run_is_refused_on_opening(folder, name):
    (folder.path / "empty").mkdir()
    folder.write("notes.txt", "x")
    with pytest.raises(UsageError, match=name):
        RunStore.open(name).records()


def test_runs_of_a_project_are_listed_newest_first(tmp_path):
    results = tmp_path / ".agentv" / "results"
    assert find_runs(results) == []
    ours(results / "20260101-000000-aaaa")
    ours(results / "20260102-000000-bbbb")
    (results / "eval_2026-01-03T12-06-39-922Z.jsonl").write_text(json.dumps(ROW))
    (results / "notes.jsonl").write_text("{}")
    (results / "2026-07-05T03-35-53-313Z" / ".internal").mkdir(parents=True)
    (results / "2026-07-05T03-35-53-313Z" / ".internal" / "index.jsonl").write_text(json.dumps(ROW))
    (results / "other").mkdir()
    found = find_runs(results)
    assert [(run.run_id, run.state) for run in found] == [
        ("eval_2026-01-03T12-06-39-922Z", "foreign"),
        ("2026-07-05T03-35-53-313Z", "foreign"),
        ("20260102-000000-bbbb", "unfinished"),
        ("20260101-000000-aaaa", "unfinished"),
    ]
    assert [run.done for run in found] == [1, 1, 3, 3]
