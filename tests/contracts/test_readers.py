"""What every dataset format must do, whatever it looks like on disk: one suite over all of them."""

import json
from importlib import import_module

import pytest

import agentv
from agentv.datasets.discovery import find_datasets
from agentv.datasets.formats.yaml_writer import write_yaml
from agentv.registry import READERS

CASES = [
    {"id": "a", "expected_outcome": "x", "input": "q", "expected_output": "r"},
    {"id": "b", "expected_outcome": "y", "input": [{"role": "user", "content": "q"}], "metadata": {"k": [1, None]}},
    {"id": "c", "expected_outcome": "z", "input": "q", "evaluators": [{"type": "contains", "value": "w"}]},
]
SUFFIXES = [(kind, suffix) for kind, (suffixes, _) in READERS.items() for suffix in suffixes]


@pytest.fixture(params=SUFFIXES, ids=lambda row: row[1])
def make(request, tmp_path):
    kind, suffix = request.param

    def write(rows):
        path = tmp_path / f"d{suffix}"
        if kind == "yaml":
            with path.open("wb") as stream:
                write_yaml({}, "evalcases", rows, stream)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            (tmp_path / "d.yaml").write_text("dataset: d\n", encoding="utf-8")
        return path

    return write


def ignore(_):
    pass


def test_the_module_has_the_two_functions_of_a_reader():
    for _, module in READERS.values():
        assert callable(import_module(module).open_document)
        assert callable(import_module(module).batches)


def test_the_cases_are_the_same_in_every_format(make):
    cases = agentv.load_cases(make(CASES))
    assert [case.id for case in cases] == ["a", "b", "c"]
    assert cases == agentv.load_cases(make(CASES))
    assert cases == list(agentv.stream_cases(make(CASES)))


def test_rows_stand_on_the_lines_they_were_written_on(make):
    path = make(CASES)
    lines = path.read_text(encoding="utf-8").split("\n")
    for case in agentv.load_cases(path):
        assert f'"{case.id}"' in lines[case.line - 1] or f"id: {case.id}" in lines[case.line - 1]


def test_a_document_can_be_read_any_number_of_times(make):
    (source,) = find_datasets(str(make(CASES)), ignore, ignore)
    reader = import_module(READERS[source.kind][1])
    document = reader.open_document(source)
    once, twice = (
        [row for batch in reader.batches(document, plain=False, max_line_bytes=1000) for row in batch.rows]
        for _ in range(2)
    )
    assert once == twice == CASES


@pytest.mark.parametrize("bad", ["text", 5, ["list"]])
def test_a_row_that_is_no_object_is_an_error_with_its_line(make, bad):
    with pytest.raises(agentv.DatasetError, match="Expected") as caught:
        agentv.load_cases(make([CASES[0], bad]))
    assert caught.value.line > 1
    assert caught.value.path.endswith(("d.yaml", "d.yml", "d.jsonl", "d.ndjson"))


def test_no_rows_at_all_is_an_error(make):
    with pytest.raises(agentv.DatasetError, match="No cases in"):
        agentv.load_cases(make([]))
