"""Rescoring reads answers and cases from disk when needed: in memory are only their hashes and offsets."""

import json
import tracemalloc
from contextlib import closing
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.engine.answers.stored_answers import StoredAnswers, StoredCases
from agentv.runs.folder import RunFolder
from agentv.runs.store import RunStore
from agentv.support.hash_table import OffsetTable


@given(st.lists(st.tuples(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**62))))
def test_offsets_of_a_hash_are_found_latest_first(entries):
    table = OffsetTable()
    for code, offset in entries:
        table.add(code, offset)
    for code in {*range(-3, 4), *(code for code, _ in entries)}:
        assert list(table.latest_first(code)) == [offset for known, offset in reversed(entries) if known == code]


@pytest.fixture
def run(project):
    """A run of 2,000 cases."""
    project.targets({"name": "default", "provider": "mock", "response": "yes"})
    row = {"input": "q" * 400, "expected_outcome": "x", "evaluators": [{"type": "contains", "value": "yes"}]}
    rows = "".join(json.dumps({"id": f"case-{number}", **row}) + "\n" for number in range(2_000))
    assert project.eval(project.write("d.jsonl", rows), "--out", "run", "--quiet").code == 0
    return project.path / "run"


def test_the_index_of_a_run_takes_less_than_150_bytes_a_job(run):
    StoredAnswers(str(run)).close()
    tracemalloc.start()
    try:
        with closing(StoredAnswers(str(run))) as answers:
            held, peak = tracemalloc.get_traced_memory()
            case = answers.stored_case(SimpleNamespace(dataset="d", id="case-1999", path="d.jsonl"))
    finally:
        tracemalloc.stop()
    assert case.id == "case-1999" and case.input_fingerprint
    assert held < 150 * 2_000 and peak < held + 1_500_000


def test_a_case_stored_twice_is_rescored_once(run):
    lines = (run / "cases.jsonl").read_bytes().splitlines(keepends=True)[:3]
    (run / "cases.jsonl").write_bytes(b"".join((*lines, *lines[1:])))
    store = RunStore(RunFolder(run))  # a run that is being written is not checked
    assert [case.id for case in StoredCases(store).stream()] == ["case-0", "case-1", "case-2"]
