"""Deterministic checks. Each row: type, settings, answer, reference, score."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.evaluators.checks.similarity import Levenshtein, Similarity
from agentv.evaluators.checks.text_checks import Contains

NONE = object()
RISK = {"risk": "high", "codes": [1, 2.0, True]}

# (type, settings, answer, expected_output, score)
ROWS = [
    ("equals", {"value": "Paris"}, "Paris", NONE, 1),
    ("equals", {"value": "Paris"}, "  Paris\n", NONE, 1),
    ("equals", {"value": " Paris "}, "Paris", NONE, 1),
    ("equals", {"value": "Paris"}, "paris", NONE, 0),
    ("equals", {"value": "Paris"}, "Paris.", NONE, 0),
    ("equals", {"value": ""}, " ", NONE, 1),
    ("equals", {"value": 42}, "42", NONE, 1),
    ("equals", {"value": 42}, "42.0", NONE, 1),
    ("equals", {"value": 42}, "43", NONE, 0),
    ("equals", {"value": 1.5}, "1.50", NONE, 1),
    ("equals", {"value": True}, "true", NONE, 1),
    ("equals", {"value": True}, "1", NONE, 0),
    ("equals", {"value": 1}, "true", NONE, 0),
    ("equals", {"value": "true"}, "true", NONE, 1),
    ("equals", {"value": RISK}, '{"codes": [1, 2, true],\n "risk": "high"}', NONE, 1),
    ("equals", {"value": RISK}, '{"codes": [1, 2, 1], "risk": "high"}', NONE, 0),
    ("equals", {"value": RISK}, '{"codes": [1, 2, true], "risk": "high", "more": null}', NONE, 0),
    ("equals", {"value": RISK}, "no JSON", NONE, 0),
    ("equals", {"value": [1, "a"]}, '[1,"a"]', NONE, 1),
    ("equals", {"value": [1, "a"]}, '["a",1]', NONE, 0),
    ("equals", {}, '{"b": [1.0], "a": "x"}', '{"a":"x","b":[1]}', 1),
    ("equals", {}, '{"a": "y"}', '{"a":"x"}', 0),
    ("equals", {}, "[a link](x)", "[a link](x)", 1),
    ("equals", {}, "42.0", "42", 0),
    ("equals", {}, "Paris", "Paris", 1),
    ("equals", {}, "Rome", "Paris", 0),
    ("equals", {}, "", "", 1),
    ("equals", {}, '{"b": 2, "a": 1}', {"a": 1, "b": 2}, 1),
    ("equals", {}, "7", 7, 1),
    ("equals", {"value": "x"}, "x", "y", 1),
    ("contains", {"value": "Paris"}, "It is Paris, of course.", NONE, 1),
    ("contains", {"value": "  Paris "}, "It is Paris.", NONE, 1),
    ("contains", {"value": "paris"}, "It is Paris.", NONE, 0),
    ("contains", {"value": "a.c"}, "abc", NONE, 0),
    ("contains", {"value": 42}, "The answer is 42.", NONE, 1),
    ("contains", {"value": True}, "It is true.", NONE, 1),
    ("contains", {"value": "naïve"}, "a naïve answer", NONE, 1),
    ("contains", {}, "It is Paris.", "Paris", 1),
    ("contains", {}, "It is Rome.", "Paris", 0),
    ("contains", {"value": "x"}, "", NONE, 0),
    ("icontains", {"value": "PARIS"}, "it is paris", NONE, 1),
    ("icontains", {"value": "STRASSE"}, "Straße 5", NONE, 0),
    ("icontains", {"value": "Rome"}, "it is paris", NONE, 0),
    ("icontains", {}, "IT IS PARIS", "Paris", 1),
    ("contains_any", {"value": ["Rome", "Paris"]}, "It is Paris.", NONE, 1),
    ("contains_any", {"value": ["Rome", "Oslo"]}, "It is Paris.", NONE, 0),
    ("contains_any", {"value": [1, True]}, "no. 1", NONE, 1),
    ("contains_any", {}, "It is Paris.", ["Rome", "Paris"], 1),
    ("contains_any", {}, "It is Paris.", "Paris", 1),
    ("contains_all", {"value": ["It", "Paris"]}, "It is Paris.", NONE, 1),
    ("contains_all", {"value": ["It", "Rome"]}, "It is Paris.", NONE, 0),
    ("contains_all", {"value": ["it", "paris"]}, "It is Paris.", NONE, 0),
    ("contains_all", {}, "b and a", ["a", "b"], 1),
    ("icontains_any", {"value": ["ROME", "PARIS"]}, "It is Paris.", NONE, 1),
    ("icontains_any", {"value": ["ROME"]}, "It is Paris.", NONE, 0),
    ("icontains_all", {"value": ["IT", "PARIS"]}, "It is Paris.", NONE, 1),
    ("icontains_all", {"value": ["IT", "ROME"]}, "It is Paris.", NONE, 0),
    ("contains-all", {"values": ["It"]}, "It is", NONE, 1),
    ("starts_with", {"value": "It"}, "\n It is Paris.", NONE, 1),
    ("starts_with", {"value": "is"}, "It is Paris.", NONE, 0),
    ("starts_with", {}, "Paris it is", "Paris", 1),
    ("ends_with", {"value": "Paris."}, "It is Paris. \n", NONE, 1),
    ("ends_with", {"value": "Paris"}, "It is Paris.", NONE, 0),
    ("regex", {"value": r"\bP\w+s\b"}, "It is Paris.", NONE, 1),
    ("regex", {"value": r"^Paris"}, "It is Paris.", NONE, 0),
    ("regex", {"value": r"^\d{4}$"}, " 2024\n", NONE, 1),
    ("regex", {"value": "paris"}, "It is Paris.", NONE, 0),
    ("regex", {"value": "paris", "flags": "i"}, "It is Paris.", NONE, 1),
    ("regex", {"value": "^b$", "flags": "m"}, "a\nb\nc", NONE, 1),
    ("regex", {"value": "a.b", "flags": "s"}, "a\nb", NONE, 1),
    ("regex", {"value": "a b # spaces", "flags": "x"}, "ab", NONE, 1),
    ("regex", {"value": r"\w{2}", "flags": "a"}, "éé", NONE, 0),
    ("regex", {"value": "PARIS", "flags": "gi"}, "paris", NONE, 1),
    ("regex", {}, "It is Paris.", "P.*s", 1),
    ("is_json", {}, '{"a": 1}', NONE, 1),
    ("is_json", {}, " 3 ", NONE, 1),
    ("is_json", {}, '"text"', NONE, 1),
    ("is_json", {}, "", NONE, 0),
    ("is_json", {}, "NaN", NONE, 0),
    ("is_json", {}, '{"a": 1} and more', NONE, 0),
    ("is_json", {}, "{'a': 1}", NONE, 0),
    ("is_json", {}, '```json\n{"a": 1}\n```', NONE, 0),
    ("is_json", {}, "[" * 100_000, NONE, 0),
    ("is_json", {"schema": {"type": "object", "required": ["a"]}}, '{"a": 1}', NONE, 1),
    ("is_json", {"value": {"type": "object", "required": ["a"]}}, '{"b": 1}', NONE, 0),
    ("json_schema", {"schema": {"type": "array", "items": {"type": "integer"}}}, "[1, 2]", NONE, 1),
    ("json_schema", {"schema": {"type": "array", "items": {"type": "integer"}}}, '[1, "2"]', NONE, 0),
    ("json_schema", {"schema": {"const": 1}}, "true", NONE, 0),
    ("json_schema", {"schema": {"$defs": {"n": {"minimum": 3}}, "$ref": "#/$defs/n"}}, "2", NONE, 0),
    ("json_schema", {"schema": {}}, "not JSON", NONE, 0),
    ("json_schema", {"schema": {"type": "string"}}, "[" * 300 + "]" * 300, NONE, 0),
    ("levenshtein", {"value": "kitten"}, "sitting", NONE, 1 - 3 / 7),
    ("levenshtein", {"value": "same"}, " same ", NONE, 1),
    ("levenshtein", {"value": "abc"}, "", NONE, 0),
    ("levenshtein", {"value": ""}, "", NONE, 1),
    ("levenshtein", {"value": "kitten", "threshold": 0.5}, "sitting", NONE, 1),
    ("levenshtein", {"value": "kitten", "threshold": 0.6}, "sitting", NONE, 0),
    ("levenshtein", {"value": "kitten", "max_distance": 3}, "sitting", NONE, 1),
    ("levenshtein", {"value": "kitten", "max_distance": 2}, "sitting", NONE, 0),
    ("levenshtein", {}, "Pariss", "Paris", 1 - 1 / 6),
    ("similarity", {"value": "abcd"}, "abcd", NONE, 1),
    ("similarity", {"value": "abcd"}, "wxyz", NONE, 0),
    ("similarity", {"value": "abcd"}, "abxy", NONE, 0.5),
    ("similarity", {"value": ["wxyz", "abcd"]}, "abxy", NONE, 0.5),
    ("similarity", {"value": ["zzz", 42]}, "42", NONE, 1),
    ("similarity", {"value": "abcd", "threshold": 0.5}, "abxy", NONE, 1),
    ("similarity", {"value": "abcd", "threshold": 0.51}, "abxy", NONE, 0),
    ("similar", {}, "Paris", "Paris", 1),
]


@pytest.mark.parametrize(("type_", "entry", "answer", "expected", "score"), ROWS)
def test_an_answer_is_scored(scoring, type_, entry, answer, expected, score):
    reference = {} if expected is NONE else {"expected": expected}
    assert scoring.score(type_, entry, answer, **reference).score == pytest.approx(score, abs=1e-12)


FAILURES = [
    *[(type_, {}, {}, "needs a 'value' or an expected_output") for type_ in ("equals", "contains", "icontains_any")],
    *[(type_, {}, {}, "needs a 'value' or an expected_output") for type_ in ("regex", "levenshtein", "similarity")],
    ("contains", {}, {"expected": "  "}, "is blank, so every answer would pass"),
    ("contains_all", {}, {"expected": ["a", ""]}, "is blank, so every answer would pass"),
    ("regex", {}, {"expected": "(a"}, "'(a' is not a valid regular expression"),
    ("regex", {}, {"expected": ""}, "is blank, so every answer would pass"),
    ("json_schema", {"schema": "nowhere.json"}, {}, "Cannot read schema 'nowhere.json'"),
]


@pytest.mark.parametrize(("type_", "entry", "more", "message"), FAILURES)
def test_an_answer_that_cannot_be_scored_is_an_error(scoring, type_, entry, more, message):
    assert message in scoring.failure(type_, entry, **({"answer": "1"} | more))


SENTENCES = [
    ("contains", {"value": "Paris"}, "Paris", ("contains 'Paris'",), ()),
    ("contains", {"value": "Paris"}, "Rome", (), ("does not contain 'Paris'",)),
    ("contains", {"value": "a\n  b"}, "", (), ("does not contain 'a b'",)),
    ("equals", {"value": {"a": 1}}, "[]", (), ("is '[]', not '{\"a\":1}'",)),
    ("starts_with", {"value": "A"}, "B", (), ("does not start with 'A'",)),
    ("contains_all", {"value": ["a", "b"]}, "a", ("contains 'a'",), ("does not contain 'b'",)),
    ("contains_any", {"value": ["a", "b"]}, "c", (), ("contains none of 'a', 'b'",)),
    ("regex", {"value": r"\d+"}, "in 1999", (r"matches '\d+' with '1999'",), ()),
    ("json_schema", {"schema": {"properties": {"a": {"items": {"type": "string"}}}}}, '{"a": ["x", 1]}', (),
     ('a[1]: 1 is not of type "string"',)),
    ("levenshtein", {"value": "cat", "max_distance": 0}, "hat", (),
     ("1 edit away from 'cat', similarity 0.667; required: at most 0",)),
    ("similarity", {"value": "ab", "threshold": 0.4}, "ac", ("similarity 0.5 to 'ab'; required: at least 0.4",), ()),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "entry", "answer", "hits", "misses"), SENTENCES)
def test_sentences_show_the_expected_text(scoring, type_, entry, answer, hits, misses):
    score = scoring.score(type_, entry, answer)
    assert (score.hits, score.misses) == (hits, misses)


def test_a_code_fence_around_json_gets_a_hint(scoring):
    assert "strip: [fences]" in scoring.score("is_json", {}, "```\n{}\n```").misses[0]


@pytest.mark.parametrize("type_", ["contains", "equals", "regex", "levenshtein"])
def test_sentences_stay_short(scoring, type_):
    score = scoring.score(type_, {"value": "x" * 10_000}, "y" * 10_000)
    assert all(len(sentence) < 500 for sentence in (*score.hits, *score.misses, score.reasoning or ""))


def test_a_schema_file_is_found_next_to_the_dataset_and_read_again_when_it_changes(scoring, tmp_path):
    file = tmp_path / "answer.json"
    file.write_text(json.dumps({"type": "object"}))
    evaluator = scoring.evaluator("json_schema", schema="answer.json")
    judgement = scoring.judgement("{}", workdir=str(tmp_path))
    assert scoring.run(evaluator, judgement).score == 1
    file.write_text(json.dumps({"type": "array"}))
    assert scoring.run(evaluator, judgement).score == 0


BAD_SETTINGS = [
    ("contains", {"value": " "}, "'value' is blank, so every answer would pass"),
    ("icontains_all", {"value": ["a", ""]}, "'value[1]' is blank, so every answer would pass"),
    ("regex", {"value": ""}, "'value' is blank, so every answer would pass"),
    ("json_schema", {"schema": {"type": "objekt"}}, "'schema' is not a valid JSON Schema"),
    ("is_json", {"schema": {"$ref": "https://example.com/schema.json"}}, "Retrieval is disabled"),
    ("json_schema", {"schema": {"$ref": "file:///etc/hostname"}}, "Retrieval is disabled"),
]


@pytest.mark.parametrize(("type_", "entry", "message"), BAD_SETTINGS)
def test_settings_without_effect_are_refused(scoring, type_, entry, message):
    from agentv.errors import UsageError

    with pytest.raises(UsageError) as raised:
        scoring.evaluator(type_, **entry)
    assert message in raised.value.detail


def test_an_evaluator_that_has_scored_still_pickles_and_equals_a_fresh_one(scoring):
    used, fresh = Contains(value="a"), Contains(value="a")
    scoring.run(used, scoring.judgement("a"))
    assert used == fresh
    assert pickle.loads(pickle.dumps(used)) == fresh


TEXTS = st.text(max_size=40)


@given(TEXTS, TEXTS)
def test_similarity_is_symmetric_and_between_0_and_1(scoring, one, other):
    for kind in (Levenshtein, Similarity):
        forth = kind(value=one).score(scoring.judgement(other)).score
        back = kind(value=other).score(scoring.judgement(one)).score
        assert 0 <= forth <= 1
        assert forth == pytest.approx(back)
        assert (forth == 1) == (one.strip() == other.strip())


@given(TEXTS.filter(str.strip), TEXTS)
def test_a_negated_check_inverts_the_score(scoring, value, answer):
    from agentv.engine.scoring.grades import evaluator_result
    from agentv.model.evaluator import EvaluatorSpec

    score = Contains(value=value).score(scoring.judgement(answer))
    plain, negated = (
        evaluator_result(EvaluatorSpec(type="contains", name="c", negate=negate), score, None)
        for negate in (False, True)
    )
    assert plain.score + negated.score == 1
    assert (plain.hits, plain.misses) == (negated.misses, negated.hits)


def test_scores_for_a_fixed_text_are_computed_once(scoring):
    evaluator = scoring.evaluator("contains", value="Paris")
    hit, miss = scoring.judgement("Paris"), scoring.judgement("Rome")
    assert evaluator.score(hit) is evaluator.score(hit)
    assert evaluator.score(miss) is evaluator.score(miss)
