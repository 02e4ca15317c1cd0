"""The contract of every dataset format in the registry."""

import pytest

import agentv
from agentv.datasets.detection import detect
from agentv.datasets.discovery import find_datasets
from agentv.datasets.formats.dataset_format import (
    Content,
    DatasetFormat,
    ReadOptions,
    WrittenRow,
    load_format,
    read_head,
    source_of,
    suggested,
)
from agentv.registry import FORMATS

CASES = [
    {"id": "a", "expected_outcome": "x", "input": "q", "expected_output": "r"},
    {"id": "b", "expected_outcome": "y", "input": [{"role": "user", "content": "q"}], "metadata": {"k": [1, None]}},
    {"id": "c", "expected_outcome": "z", "input": "q", "evaluators": [{"type": "contains", "value": "w"}]},
]
WRITABLE = [name for name in FORMATS.names() if type(load_format(name)).write is not DatasetFormat.write]
SUFFIXES = [(name, suffix) for name in WRITABLE for suffix in load_format(name).suffixes]


@pytest.fixture(params=SUFFIXES, ids=lambda row: row[1])
def make(request, tmp_path):
    """Write rows in the format, to a file with one of its extensions."""
    name, suffix = request.param

    def write(rows, file=f"d{suffix}"):
        path = tmp_path / file
        source = source_of(str(path), name)
        source.format.write(Content({"dataset": "d"}, (WrittenRow(row, None, None) for row in rows)), str(path))
        return path

    write.kind = name
    return write


def ignore(_):
    pass


def test_a_format_is_detected_by_extension_and_content(make, tmp_path):
    path = make(CASES)
    assert suggested(str(path)) == [make.kind]
    assert load_format(make.kind).sniff(read_head(str(path)), str(path))
    assert detect(str(make(CASES, "d.unknown"))) == make.kind


@pytest.mark.parametrize("head", [b"", b"\0\xff\xfe", b"hello", b"[]", b"{", b"{}\n{}", b"a: 1", b"PK\3\4", b"<html>"])
@pytest.mark.parametrize("name", FORMATS.names())
def test_no_format_recognizes_what_is_not_a_dataset(name, head):
    assert not load_format(name).sniff(head, "d.txt")


def test_the_cases_are_the_same_in_every_format(make):
    cases = agentv.load_cases(make(CASES))
    assert [case.id for case in cases] == ["a", "b", "c"]
    assert cases == agentv.load_cases(make(CASES))
    assert cases == list(agentv.stream_cases(make(CASES)))


def test_rows_have_their_line_numbers(make):
    path = make(CASES)
    lines = path.read_text(encoding="utf-8").split("\n")
    for case in agentv.load_cases(path):
        assert f'"{case.id}"' in lines[case.line - 1] or f"id: {case.id}" in lines[case.line - 1]


def test_a_document_can_be_read_any_number_of_times(make):
    (source,) = find_datasets(str(make(CASES)), ignore, ignore)
    document = source.format.open(source)
    once, twice = (
        [row for batch in source.format.read(document, ReadOptions(max_line_bytes=1000)) for row in batch.rows]
        for _ in range(2)
    )
    assert once == twice == CASES


@pytest.mark.parametrize("bad", ["text", 5, ["list"]])
def test_a_row_that_is_not_an_object_is_an_error_with_its_line(make, bad):
    path = make([CASES[0], bad])
    with pytest.raises(agentv.DatasetError, match="Expected") as caught:
        agentv.load_cases(path)
    assert caught.value.line > 1
    assert caught.value.path == str(path)


def test_a_file_without_rows_is_an_error(make):
    with pytest.raises(agentv.DatasetError, match="No cases in"):
        agentv.load_cases(make([]))


def test_a_key_is_inserted_once_into_the_cases_it_is_for(make):
    path = make(CASES)
    inserted = load_format(make.kind).insert(path.read_bytes(), "rubrics", {"b": ["Says it"]})
    path.write_bytes(inserted)
    assert [len(case.rubrics) for case in agentv.load_cases(path)] == [0, 1, 0]
    assert load_format(make.kind).insert(inserted, "rubrics", {"b": ["Other"]}) == inserted


def test_a_valid_file_has_no_problems(make):
    (source,) = find_datasets(str(make(CASES)), ignore, ignore)
    assert list(source.format.lint(source.format.open(source), ReadOptions())) == []
