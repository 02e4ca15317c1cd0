"""`json_diff`: every value of a JSON answer is compared with the reference."""

import pytest

ORDER = {"status": "shipped", "items": [{"name": "cup"}, {"name": "plate"}], "total": 12}

# (answer, reference, settings, score)
ROWS = [
    ('{"a": 1}', {"a": 1.0}, {}, 1),
    ('{"a": 1}', '{"a": 1}', {}, 1),
    ('{"a": true}', {"a": 1}, {}, 0),
    ('{"a": 1, "b": 2}', {"a": 1}, {}, 1 / 2),
    ('{"a": 1}', {"a": 1, "b": None}, {}, 1 / 2),
    ("[1, 2]", [1, 2, 3], {}, 2 / 3),
    ("[2, 1]", [1, 2], {}, 0),
    ('{"a": {"b": 1}}', {"a": []}, {}, 0),
    ("{}", {}, {}, 1),
    ('{"a": {}}', {"a": {}}, {}, 1),
    ('{"id": 7, "a": 1}', {"id": 8, "a": 1}, {"ignore": ["id"]}, 1),
    ('{"a": [{"id": 1}, {"id": 2}]}', {"a": [{"id": 1}, {"id": 3}]}, {"ignore": ["a[1].id"]}, 1),
    ('{"id": 7}', {"id": 8}, {"ignore": ["id"]}, 1),
    ('{"a": 1, "b": 2}', {"a": 1, "b": 3}, {"threshold": 0.5}, 1),
    ('{"a": 1, "b": 2}', {"a": 1, "b": 3}, {"threshold": 0.6}, 0),
    ("no JSON", {"a": 1}, {}, 0),
    ("", {"a": 1}, {}, 0),
]


@pytest.mark.parametrize(("answer", "reference", "settings", "score"), ROWS)
def test_the_score_is_the_fraction_of_equal_values(scoring, answer, reference, settings, score):
    assert scoring.score("json_diff", settings, answer, reference).score == pytest.approx(score)
    assert scoring.score("json_diff", {**settings, "value": reference}, answer).score == pytest.approx(score)


def test_differences_are_listed_with_their_paths(scoring):
    answer = '{"status": "lost", "items": [{"name": "cup"}], "note": 1, "total": 12}'
    found = scoring.score("json_diff", {}, answer, ORDER)
    assert found.details["differences"] == [
        "status: 'lost', expected 'shipped'",
        'items[1]: missing, expected \'{"name":"plate"}\'',
        "note: '1' is not expected",
    ]
    assert found.score == pytest.approx(2 / 5)


def test_a_reference_that_is_not_json_is_an_error(scoring):
    assert "needs a reference that is JSON" in scoring.failure("json_diff", {}, "{}", "plain text")
