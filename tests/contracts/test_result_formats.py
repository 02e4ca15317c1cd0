"""The contract of every result format: detection by content, complete records, errors with a location."""

import json
import sys

import msgspec
import pytest

from agentv.errors import AgentvError, UsageError
from agentv.model.result import JobKey, Result
from agentv.registry import RESULT_FORMATS
from agentv.runs.record import ScoreRecord, encode_record, format_of
from agentv.runs.store import RunStore
from made_results import made

OURS = [made(eval_id=name, candidate_answer=f"answer {name}") for name in "abc"]
ROWS = [{"test_id": name, "score": 1, "target": "t", "answer": f"answer {name}"} for name in "abc"]
FILES = {
    "jsonl": ("results.jsonl", b"".join(map(encode_record, OURS)), b'{"schema_version":1,"eval_id":"x"}\n'),
    "agentv-jsonl": ("index.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS).encode(), b'{"test_id":"x"}\n'),
    "agentv-yaml": ("eval_1.yaml", b"---\n".join(map(msgspec.yaml.encode, ROWS)), b"---\ntest_id: x\n"),
}
"""For each format: a file name, its contents, and a damaged record to append."""


def test_every_format_is_tested():
    others = {name for name in RESULT_FORMATS.names() if getattr(RESULT_FORMATS.find(name), "is_imported", False)}
    assert set(RESULT_FORMATS.names()) <= set(FILES) | others


@pytest.fixture(params=[name for name in FILES if name in RESULT_FORMATS.names()])
def file(request, tmp_path):
    name, content, _ = FILES[request.param]
    (tmp_path / name).write_bytes(content)
    return request.param, tmp_path / name


def test_content_decides_the_format_not_the_extension(file):
    name, path = file
    found = format_of(path.rename(path.with_suffix(".data")))
    assert type(found) is RESULT_FORMATS.find(name)


def test_records_are_read_completely_and_in_order(file):
    records = list(RESULT_FORMATS.find(file[0])().records(file[1]))
    assert [(record.eval_id, record.candidate_answer) for record in records] == [(n, f"answer {n}") for n in "abc"]
    assert all(isinstance(record, Result) for record in records)


def test_a_store_finds_each_record(file):
    with RunStore.open(file[1]) as run:
        whole = list(run.entries())
        assert [run.read(offset) for offset, _ in whole] == [record for _, record in whole]
        assert [run.read(offset, ScoreRecord).key for offset, _ in whole] == [record.key for _, record in whole]
        assert [offset for offset, _ in run.entries(ScoreRecord)] == [offset for offset, _ in whole]
        assert run.get(whole[1][1].key) == whole[1][1]
        assert run.get(JobKey("", "unknown", "t", None, 1)) is None


def test_a_damaged_record_is_refused_with_its_location(file):
    name, path = file
    path.write_bytes(path.read_bytes() + FILES[name][2])
    with pytest.raises(AgentvError, match=r"Invalid record at (line|document) 4"):
        list(RunStore.open(path).records())


def test_a_package_adds_a_format(tmp_path, monkeypatch):
    module = """
import msgspec
from agentv.model.result import Result

class Table:
    extensions = (".tsv",)
    unit = "row"

    def sniff(self, head, path):
        return head.startswith(b"case\\tscore")

    def records(self, path):
        for line in path.read_text().splitlines()[1:]:
            id, score = line.split("\\t")
            yield Result(timestamp="", run_id="r", eval_id=id, dataset="", dataset_path="", target="t", trial=1,
                         status="ok", score=float(score), verdict="pass")
"""
    site = tmp_path / "site"
    (site / "table-1.0.dist-info").mkdir(parents=True)
    (site / "table_format.py").write_text(module)
    (site / "table-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: table\nVersion: 1.0\n")
    (site / "table-1.0.dist-info" / "entry_points.txt").write_text(
        "[agentv.result_formats]\ntable = table_format:Table\n"
    )
    monkeypatch.syspath_prepend(site)
    (tmp_path / "scores.tsv").write_text("case\tscore\na\t1\nb\t0.5\n")
    run = RunStore.open(tmp_path / "scores.tsv")
    sys.modules.pop("table_format", None)
    assert [(record.eval_id, record.score) for record in run.records()] == [("a", 1.0), ("b", 0.5)]
    assert run.read(1).eval_id == "b" and run.figures().done == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [('{"a": [1,', "It is not valid JSON: Input data was truncated"), ('{"a": 1}', "not the results of a known tool")],
)
def test_a_json_file_that_is_not_a_run_is_explained(tmp_path, text, problem):
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(UsageError, match=problem):
        RunStore.open(tmp_path / "broken.json")


def test_another_file_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UsageError, match=r"Not a run: .*notes.txt\n  Supported files: .jsonl, .ndjson"):
        RunStore.open(tmp_path / "notes.txt")
