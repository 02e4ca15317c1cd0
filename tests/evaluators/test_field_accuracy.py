"""Fields of a JSON answer. Each row: rule, actual value, expected value, score."""

import json
from datetime import date

import pytest

from agentv.evaluators.checks.field_accuracy import read_date

ABSENT = object()
NUMBER = {"match": "numeric_tolerance"}
CENT = NUMBER | {"tolerance": 0.01}
SHARE = NUMBER | {"tolerance": 0.1, "relative": True}
DATE = {"match": "date"}
FUZZY = {"match": "fuzzy"}

# (rule, actual value, expected value, score)
ROWS = [
    ({}, "Acme", "Acme", 1),
    ({}, "acme", "Acme", 0),
    ({}, "Acme ", "Acme", 0),
    ({}, 5, 5.0, 1),
    ({}, "5", 5, 0),
    ({}, True, 1, 0),
    ({}, None, None, 1),
    ({}, ABSENT, None, 0),
    ({}, [1, {"a": 2}], [1, {"a": 2}], 1),
    ({}, [1, {"a": 2}], [{"a": 2}, 1], 0),
    ({}, ABSENT, "Acme", 0),
    (NUMBER, 10, 10, 1),
    (NUMBER, 10.1, 10, 0),
    (CENT, 10.01, 10, 1),
    (CENT, 10.011, 10, 0),
    (CENT, 10.3, 10.29, 1),
    (CENT, "10.00", 10, 1),
    (CENT, " 1,234.5 ", 1234.5, 1),
    (CENT, "1,5", 15, 0),
    (CENT, "12 apples", 12, 0),
    (CENT, "nan", 12, 0),
    (CENT, True, 1, 0),
    (SHARE, 110, 100, 1),
    (SHARE, 110.1, 100, 0),
    (SHARE, -90, -100, 1),
    (SHARE, 0.1, 0, 1),
    (SHARE, 0.2, 0, 0),
    (DATE, "2025-01-15", "2025-01-15", 1),
    (DATE, "2025-01-15", "15-JAN-2025", 1),
    (DATE, "January 15, 2025", "2025-01-15", 1),
    (DATE, "15 Sept 2025", "2025-09-15", 1),
    (DATE, "01/15/2025", "2025-01-15", 1),
    (DATE, "15/01/2025", "2025-01-15", 1),
    (DATE, "03/04/2025", "2025-03-04", 1),
    (DATE, "03.04.2025", "2025-04-03", 1),
    (DATE | {"formats": ["DD/MM/YYYY"]}, "03/04/2025", "2025-04-03", 1),
    (DATE | {"formats": ["DD/MM/YYYY"]}, "04/25/2025", "2025-04-25", 0),
    (DATE, "2025-01-15T23:30:00Z", "2025-01-15", 1),
    (DATE, "2025-02-30", "2025-03-02", 0),
    (DATE, "soon", "2025-03-02", 0),
    (DATE, 20250302, "2025-03-02", 0),
    (FUZZY, "Acme Corp", "ACME  corp", 1),
    (FUZZY, "abxy", "abcd", 0.5),
    (FUZZY | {"tolerance": 0.5}, "abxy", "abcd", 1),
    (FUZZY | {"tolerance": 0.4}, "abxy", "abcd", 0),
]


@pytest.mark.parametrize(("rule", "given", "wanted", "score"), ROWS)
def test_a_field_is_compared(scoring, rule, given, wanted, score):
    answer = json.dumps({} if given is ABSENT else {"field": given})
    entry = {"fields": [{"path": "field"} | rule]}
    assert scoring.score("field_accuracy", entry, answer, expected={"field": wanted}).score == pytest.approx(score)


EXPECTED = {"total": 10, "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}], "note": "x", "odd key": 1}
RIGHT = json.dumps(EXPECTED)


def weighed(**weights):
    return [{"path": path, "weight": weight} for path, weight in weights.items()]


# (settings, answer, score)
WHOLE = [
    ({"fields": [{"path": "lines[1].sku"}, {"path": "$.lines.0.n"}, {"path": "['odd key']"}]}, RIGHT, 1),
    ({"fields": [{"path": "lines[-1].n"}, {"path": "lines[7].n", "required": False}]}, RIGHT, 1),
    ({"fields": weighed(total=3, note=1)}, '{"total": 10, "note": "y"}', 0.75),
    ({"fields": weighed(total=3, note=0)}, '{"total": 10, "note": "y"}', 1),
    ({"fields": weighed(total=1, note=1), "aggregation": "all_or_nothing"}, '{"total": 10, "note": "y"}', 0),
    ({"fields": weighed(total=1, note=0), "aggregation": "all_or_nothing"}, '{"total": 10, "note": "y"}', 1),
    ({"fields": weighed(total=1, note=1), "aggregation": "all_or_nothing"}, RIGHT, 1),
    ({"fields": [{"path": "total"}, {"path": "note", "required": False}]}, '{"total": 10}', 1),
    ({"fields": [{"path": "total"}, {"path": "note", "required": False}]}, '{"total": 10, "note": "y"}', 0.5),
    ({"fields": [{"path": "note", "required": False}]}, "{}", 0),
    ({"fields": [{"path": "total"}, {"path": "unheard"}]}, '{"total": 11}', 0.5),
    ({"fields": weighed(total=1)}, f"Here it is:\n```json\n{RIGHT}\n```\nAnything else?", 1),
    ({"fields": weighed(total=1)}, f"The result is {RIGHT}.", 1),
    ({"fields": weighed(total=1)}, "I cannot say.", 0),
    ({"fields": weighed(total=1)}, "10", 0),
]


@pytest.mark.parametrize(("entry", "answer", "score"), WHOLE)
def test_field_scores_are_combined(scoring, entry, answer, score):
    assert scoring.score("field_accuracy", entry, answer, expected=EXPECTED).score == pytest.approx(score)


FAILURES = [
    ({"path": "a"}, {}, "needs an expected_output that is JSON data"),
    ({"path": "a"}, {"expected": "plain text"}, "needs an expected_output that is JSON data"),
    ({"path": "b"}, {"expected": {"a": 1}}, "The expected output has none of the fields: b"),
    ({"path": "a", "match": "date"}, {"expected": {"a": "soon"}}, "a: the expected value 'soon' is not a date"),
    (
        {"path": "a", "match": "numeric_tolerance"},
        {"expected": {"a": "x"}},
        "a: the expected value 'x' is not a number",
    ),
]


@pytest.mark.parametrize(("rule", "more", "message"), FAILURES)
def test_an_unusable_expected_output_is_an_error(scoring, rule, more, message):
    assert message in scoring.failure("field_accuracy", {"fields": [rule]}, '{"a": "2025-01-01"}', **more)


def test_the_expected_output_may_be_json_in_a_code_fence(scoring):
    entry = {"fields": [{"path": "a"}]}
    assert scoring.score("field_accuracy", entry, '{"a": 1}', expected='```json\n{"a": 1}\n```').score == 1


def test_sentences_name_the_field_and_both_values(scoring):
    entry = {"fields": [{"path": "total", "match": "numeric_tolerance"}, {"path": "note"}, {"path": "lines[0].sku"}]}
    score = scoring.score("field_accuracy", entry, '{"total": 12, "note": "x"}', expected=EXPECTED)
    assert score.hits == ("note: 'x'",)
    assert score.misses == (
        "total: '12', expected '10' (off by 2, tolerance 0)",
        "lines[0].sku: missing, expected 'a'",
    )
    assert score.details == {"total": 0.0, "note": 1.0, "lines[0].sku": 0.0}


@pytest.mark.parametrize(
    ("text", "formats", "day"),
    [
        ("2025-1-5", (), date(2025, 1, 5)),
        ("2025/01/05", (), date(2025, 1, 5)),
        ("5. March 2025", (), date(2025, 3, 5)),
        ("05-01-25", ("DD-MM-YY",), date(2025, 1, 5)),
        ("05-01-99", ("DD-MM-YY",), date(1999, 1, 5)),
        ("2025-01-05 14:30:00", ("YYYY-MM-DD HH:mm:ss",), date(2025, 1, 5)),
        ("01/02/2025", ("DD/MM/YYYY", "MM/DD/YYYY"), date(2025, 2, 1)),
        ("13/14/2025", (), None),
        ("5 Marble 2025", (), None),
        ("", (), None),
    ],
)
def test_dates_are_parsed_in_many_formats(text, formats, day):
    assert read_date(text, formats) == day
