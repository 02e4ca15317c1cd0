"""Grading of scores: weights, gates, negation, failures. No run is needed."""

import pytest

from agentv.engine.scoring.grades import evaluator_result, failed_result, grade, verdict_of
from agentv.model.evaluator import EvaluatorFailure, EvaluatorSpec, Score, Verdicts

FAILED = None


def graded(*entries, verdicts=None):
    """Each entry is a score, or None for an evaluator that failed, and the settings of its evaluator."""
    specs, results = [], []
    for number, entry in enumerate(entries):
        score, settings = entry if isinstance(entry, tuple) else (entry, {})
        spec = EvaluatorSpec(type="t", name=f"e{number}", **settings)
        specs.append(spec)
        results.append(
            failed_result(spec, "broke") if score is FAILED else evaluator_result(spec, Score(score), verdicts)
        )
    return grade(results, specs, verdicts)


@pytest.mark.parametrize(
    ("entries", "score", "verdict"),
    [
        ([1.0], 1.0, "pass"),
        ([0.0], 0.0, "fail"),
        ([1.0, 0.0], 0.5, "fail"),
        ([1.0, 0.5], 0.75, "borderline"),
        ([(1.0, {"weight": 3}), (0.0, {"weight": 1})], 0.75, "borderline"),
        ([(1.0, {"weight": 0.1}), (1.0, {"weight": 0.2})], 1.0, "pass"),
        ([(1.0, {}), (0.0, {"weight": 0})], 1.0, "pass"),
        ([(0.2, {"negate": True})], 0.8, "pass"),
        ([(1.0, {"negate": True}), 1.0], 0.5, "fail"),
    ],
)
def test_the_score_is_the_weighted_mean_and_decides_the_verdict(entries, score, verdict):
    found = graded(*entries)
    assert (found.status, found.verdict, found.error) == ("ok", verdict, None)
    assert found.score == pytest.approx(score, abs=1e-15)


@pytest.mark.parametrize(
    ("score", "verdict"), [(0.8, "pass"), (0.7999, "borderline"), (0.6, "borderline"), (0.5999, "fail"), (0, "fail")]
)
def test_a_case_passes_from_0_8_and_is_borderline_from_0_6(score, verdict):
    assert verdict_of(score, None) == verdict


@pytest.mark.parametrize(("score", "verdict"), [(0.5, "pass"), (0.4, "borderline"), (0.1, "fail")])
def test_a_case_may_set_its_own_verdict_limits(score, verdict):
    assert graded(score, verdicts=Verdicts(0.5, 0.2)).verdict == verdict


def test_floating_point_error_does_not_change_the_verdict():
    scores = [(score, {"weight": 0.1}) for score in (0.7, 0.8, 0.9)]
    mean = graded(*scores).score
    assert mean != 0.8 or graded(*scores).verdict == "pass"
    assert verdict_of(0.1 + 0.7, None) == "pass"
    assert 0.1 + 0.7 < 0.8


@pytest.mark.parametrize(
    ("required", "score", "verdict"),
    [
        (True, 0.8, "pass"),
        (True, 0.79, "fail"),
        (0.3, 0.3, "pass"),
        (0.3, 0.29, "fail"),
        (1.0, 0.99, "fail"),
        (0.0, 0.0, "pass"),
    ],
)
def test_a_required_evaluator_below_its_minimum_fails_the_case_whatever_the_mean(required, score, verdict):
    gate = (score, {"required": required, "weight": 0})
    found = graded(1.0, gate)
    assert (found.score, found.verdict) == (1.0, verdict)


@pytest.mark.parametrize(("score", "verdict"), [(0.5, "pass"), (0.4, "fail")])
def test_a_minimum_without_a_gate_decides_only_the_verdict_of_its_evaluator(score, verdict):
    spec = EvaluatorSpec(type="t", name="e", required=0.5, gate=False)
    result = evaluator_result(spec, Score(score), Verdicts(0.7, 0.2))
    assert result.verdict == verdict
    assert grade([result], [spec], Verdicts(0.4, 0.2)).verdict == "pass"
    assert grade([result], [spec], Verdicts(0.7, 0.6)).verdict == "fail"


def test_required_true_means_the_pass_limit_of_the_case():
    assert graded((0.5, {"required": True}), verdicts=Verdicts(0.5, 0.2)).verdict == "pass"
    assert graded(1.0, (0.5, {"required": True}), verdicts=Verdicts(0.7, 0.2)).verdict == "fail"


def test_a_required_evaluator_is_compared_after_negation():
    assert graded((0.1, {"required": 0.9, "negate": True})).verdict == "pass"
    assert graded((0.2, {"required": 0.9, "negate": True}), 1.0).verdict == "fail"


def test_negation_turns_hits_into_misses():
    spec = EvaluatorSpec(type="t", name="e", negate=True)
    found = evaluator_result(spec, Score(1.0, hits=("has it",), misses=("lacks it",)), None)
    assert (found.score, found.verdict, found.hits, found.misses) == (0.0, "fail", ("lacks it",), ("has it",))


@pytest.mark.parametrize("negate", [False, True])
def test_a_failed_evaluator_never_has_a_score(negate):
    found = graded((FAILED, {"negate": negate}))
    assert (found.status, found.score, found.verdict, found.partial_score) == ("error", None, None, None)
    assert (found.error.error_class, found.error.stage, found.error.message) == ("evaluator", "evaluator", "e0: broke")


def test_one_failure_leaves_a_partial_score_and_is_named():
    found = graded(1.0, FAILED, (0.5, {"weight": 3}), (FAILED, {"weight": 0.5}))
    assert (found.status, found.score, found.verdict) == ("error", None, None)
    assert found.partial_score == (1.0 + 3 * 0.5) / 4
    assert found.error.message == "e1: broke. Also not scored: e3"


def test_a_failure_without_weight_matters_only_if_required():
    assert graded(1.0, (FAILED, {"weight": 0})).verdict == "pass"
    found = graded(1.0, (FAILED, {"weight": 0, "required": True}))
    assert (found.status, found.verdict, found.partial_score) == ("error", None, 1.0)


@pytest.mark.parametrize("entries", [[], [(1.0, {"weight": 0})], [(FAILED, {"weight": 0})]])
def test_a_job_without_weighted_evaluators_is_unscored(entries):
    found = graded(*entries)
    assert (found.status, found.score, found.verdict, found.error) == ("unscored", None, None, None)


OTHER = EvaluatorSpec(type="t", name="other")


@pytest.mark.parametrize(
    ("entry", "score", "alone", "beside_another"),
    [
        ({}, Score(0.9, verdict="fail"), "fail", "fail"),
        ({"required": True}, Score(0.9, verdict="fail"), "fail", "fail"),
        ({"weight": 0}, Score(0.9, verdict="fail"), None, "pass"),
        ({"weight": 0, "required": True}, Score(0.9, verdict="fail"), None, "fail"),
        ({}, Score(0.7, verdict="pass"), "pass", "pass"),
        ({"required": True}, Score(0.7, verdict="pass"), "pass", "pass"),
        ({"required": 0.8}, Score(0.7, verdict="pass"), "fail", "fail"),
        ({"negate": True}, Score(0.0, verdict="fail"), "pass", "pass"),
        ({"negate": True, "required": True}, Score(0.0, verdict="fail"), "pass", "pass"),
        ({"negate": True}, Score(1.0, verdict="pass"), "fail", "fail"),
    ],
)
def test_a_weighted_evaluator_with_its_own_gate_decides_the_case(entry, score, alone, beside_another):
    spec = EvaluatorSpec(type="t", name="e", **entry)
    result, other = evaluator_result(spec, score, None), evaluator_result(OTHER, Score(1.0), None)
    assert grade([result], [spec], None).verdict == alone
    assert grade([result, other], [spec, OTHER], None).verdict == beside_another


def test_a_result_that_was_not_checked_in_full_has_no_opposite():
    incomplete, spec = Score(0.5, is_partial=True), EvaluatorSpec(type="t", name="e", negate=True)
    with pytest.raises(EvaluatorFailure, match="was not checked"):
        evaluator_result(spec, incomplete, None)
    assert evaluator_result(EvaluatorSpec(type="t", name="e"), incomplete, None).score == 0.5
