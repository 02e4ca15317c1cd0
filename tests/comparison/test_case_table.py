"""The cases of a run in little memory: numbered as a dict would, matched by hashes, read in bounded memory."""

import tracemalloc

import numpy as np
from compared_runs import judged, record, used, write_run
from hypothesis import given
from hypothesis import strategies as st

import agentv
from agentv.comparison.case_table import CaseTable, first_places, number_codes
from agentv.comparison.scores import RunScores

names = st.text(st.characters(categories=("L", "Cs", "Cc")), max_size=3)
keys = st.lists(st.tuples(st.sampled_from("de"), names, st.sampled_from("tu"), st.sampled_from([None, "p"])))


@given(keys)
def test_cases_are_numbered_in_order_of_appearance(given_keys):
    table, expected = CaseTable(), {}
    for key in given_keys:
        assert table.add(key) == expected.setdefault(key, len(expected))
    assert list(table) == list(expected)
    numbers, names = table.datasets()
    assert [names[number] for number in numbers] == [key[0] for key in expected]


@given(keys)
def test_names_have_equal_codes_if_and_only_if_they_are_equal(given_keys):
    table = CaseTable()
    for key in given_keys:
        table.add(key)
    groups: dict[object, int] = {}
    expected = [groups.setdefault((key[0], key[1], key[3]), len(groups)) for key in table]
    first, numbers = number_codes(table.codes((0, 1, 3)))
    assert numbers.tolist() == expected
    assert first.tolist() == [expected.index(number) for number in range(len(groups))]


def test_a_table_grows_past_its_slots():
    table = CaseTable()
    ids = [f"case-{number}" for number in range(6_000)]
    assert [table.add(("d", id, "t", None)) for id in (*ids, *ids)] == 2 * [*range(6_000)]


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_first_places_are_those_of_a_list(codes, wanted):
    found = first_places(np.array(codes, dtype=np.int64), np.array(wanted, dtype=np.int64))
    assert found.tolist() == [codes.index(code) if code in codes else -1 for code in wanted]


def test_the_scores_of_a_run_take_less_than_200_bytes_a_case(tmp_path):
    known = {"evaluator_results": judged(check=1.0), "execution_metrics": used(0.01, 12.0)}
    path = write_run(tmp_path / "run.jsonl", *(record(f"case-{number:07d}", 0.5, **known) for number in range(3_000)))
    RunScores(path, "imports")
    tracemalloc.start()
    try:
        run = RunScores(path, "run")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(run.cases) == 3_000
    assert held < 200 * 3_000


def test_a_conversation_is_one_cluster_whichever_run_names_it(tmp_path):
    scores = [0.1, 0.4, 0.3, 0.9, 0.2, 0.8]
    first = [record(number, score, conversation_id=f"c{number // 2}") for number, score in enumerate(scores)]
    second = [record(number, 1 - score) for number, score in enumerate(scores)]
    paths = [write_run(tmp_path / "a.jsonl", *first), write_run(tmp_path / "b.jsonl", *reversed(second))]
    assert agentv.compare(*paths).paired.clusters == agentv.compare(*reversed(paths)).paired.clusters == 3
