"""Similarity of texts by characters, words and embeddings."""

import pytest

from agentv.evaluators.checks.similarity import cosine
from agentv.model.evaluator import EvaluatorFailure

REORDERED = "the blue house on the hill"
ORDER = "on the hill the blue house"

# (method, value, answer, score)
ROWS = [
    ("ratio", "Paris", "Paris", 1),
    ("ratio", "abcd", "abxy", 0.5),
    ("ratio", "abcd", "", 0),
    ("ratio", ["zzzz", "abcd"], "abxy", 0.5),
    ("ratio", "  Paris ", "Paris\n", 1),
    ("ratio", 42, "42", 1),
    ("partial_ratio", "Paris", "It is Paris, of course", 1),
    ("partial_ratio", "zzz", "It is Paris", 0),
    ("token_sort_ratio", ORDER, REORDERED, 1),
    ("token_sort_ratio", "a b", "a b c d", 2 * 3 / 10),
    ("token_set_ratio", "a b", "a b c d", 1),
    ("token_set_ratio", ORDER, REORDERED, 1),
    ("token_set_ratio", "x", "y", 0),
]


@pytest.mark.parametrize(("method", "value", "answer", "score"), ROWS)
def test_texts_are_compared_by_characters_or_words(scoring, method, value, answer, score):
    found = scoring.score("similarity", {"value": value, "method": method}, answer)
    assert found.score == pytest.approx(score)


def test_the_sentence_names_the_method(scoring):
    found = scoring.score("similarity", {"value": "b a", "method": "token_sort_ratio", "threshold": 1}, "a b")
    assert found.hits == ("similarity 1 by token_sort_ratio to 'b a'; required: at least 1",)


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [([1, 0], [1, 0], 1), ([1, 0], [0, 1], 0), ([1, 0], [-1, 0], 0), ([1, 1], [1, 0], 0.5**0.5), ([2, 0], [9, 0], 1)],
)
def test_a_cosine_is_between_0_and_1(one, other, share):
    assert cosine(one, other) == pytest.approx(share)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [([1], [1, 2], "different lengths"), ([0, 0], [1, 2], "no direction"), ([float("inf"), 0], [1, 2], "no direction")],
)
def test_a_zero_vector_is_an_error(one, other, message):
    with pytest.raises(EvaluatorFailure, match=message):
        cosine(one, other)


LONG = "word " * 210_000


@pytest.mark.parametrize(
    ("type_", "settings"),
    [
        ("levenshtein", {}),
        ("similarity", {}),
        ("similarity", {"method": "partial_ratio"}),
        ("rouge", {}),
        ("rouge", {"variant": "rougeLsum"}),
        ("bleu", {}),
    ],
)
def test_texts_whose_comparison_would_block_the_run_are_an_error(scoring, type_, settings):
    pytest.importorskip("rouge_score")
    with pytest.raises(
        EvaluatorFailure, match=r"Cannot compare [\d,]+ (characters|words) with [\d,]+: it would take too long"
    ):
        scoring.score(type_, {"value": LONG, **settings}, LONG)
