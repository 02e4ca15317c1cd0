"""Errors carry information: a verdict must hold if those that one run has more than the other count against it."""

import random

import pytest
from compared_runs import record, write_run

from agentv.comparison.run_comparison import CompareOptions, compare_many, compare_runs
from agentv.comparison.scores import RunScores
from agentv.report.comparisons.comparison_text import comparison_lines, left_out, matrix_lines
from agentv.report.comparisons.verdict_text import verdict


@pytest.fixture
def runs(tmp_path):
    def written(*sides):
        """Write runs from lists of scores; None is an error."""
        for name, scores in zip("abcd", sides, strict=False):
            records = [record(n, score) for n, score in enumerate(scores)]
            write_run(tmp_path / f"{name}.jsonl", *records)
        return [RunScores(tmp_path / f"{name}.jsonl", name) for name, _ in zip("abcd", sides, strict=False)]

    return written


def flips(n, share, seed=3):
    draw = random.Random(seed)
    return [float(draw.random() < share) for _ in range(n)]


def test_failures_that_end_as_timeouts_are_not_an_improvement(runs):
    before, again = flips(400, 0.7), flips(400, 0.7, seed=4)
    after = [None if score == 0 and n % 5 else score for n, score in enumerate(again)]
    found = compare_runs(*runs(before, after))
    lost = after.count(None)
    assert (found.paired.answer, found.answer) == ("better", "cannot tell")
    assert found.errors.only == (0, lost)
    assert (found.exit_code("regression"), found.exit_code("never")) == (5, 0)
    assert verdict(found).startswith(f"Can't tell: B errored in {lost} more cases than A ({lost} against 0).")


def test_a_run_that_mostly_errors_is_not_better(runs):
    before = flips(400, 0.5)
    after = [1.0 if n < 20 else None for n in range(400)]
    found = compare_runs(*runs(before, after))
    assert (found.answer, found.exit_code("regression")) == ("cannot tell", 5)
    text = verdict(found)
    assert text.startswith("Can't tell: B errored in 380 more cases than A (380 against 0). Without errors, B is")
    assert text.endswith("B stays better unless more than 3 of its 380 errors would have failed.")
    [rate] = [line for line in left_out(found) if line.startswith("Error rate")]
    assert rate.startswith("Error rate: 0.0 % in A, 95.0 % in B (difference +0.950, 95 % +0.9")


def test_a_claim_that_holds_with_the_excess_of_errors_against_it_stays(runs):
    before, after = [0.0] * 100 + [1.0] * 100, [1.0] * 195 + [None] * 5
    found = compare_runs(*runs(before, after))
    assert (found.answer, found.errors.against.answer) == ("better", "better")
    lines = [text for text, _ in comparison_lines(found)]
    assert "Note: B stays better even if all of its 5 errors would have failed" in lines


@pytest.mark.parametrize(
    ("errors_before", "errors_after", "answer", "sentence"),
    [
        (12, 12, "better", "B stays better unless more than 6 of its 12 errors would have failed"),
        (6, 12, "better", "B stays better unless more than 6 of its 12 errors would have failed"),
        (12, 0, "better", "B stays better even if all of A's 12 errors would have passed"),
        (0, 60, "cannot tell", "B stays better unless more than 6 of its 60 errors would have failed"),
    ],
)
def test_only_the_excess_of_errors_counts_and_the_tipping_point_is_named(
    runs, errors_before, errors_after, answer, sentence
):
    # 30 wins against 16 losses are significant (mid-p 0.040), against 17 they are not (0.060).
    before, after = [0.0] * 80 + [1.0] * 120, [1.0] * 30 + [0.0] * 50 + [1.0] * 110 + [0.0] * 10
    before[100 : 100 + errors_before] = [None] * errors_before
    after[130 : 130 + errors_after] = [None] * errors_after
    found = compare_runs(*runs(before, after))
    assert (found.paired.answer, found.answer, found.errors.excess) == ("better", answer, errors_after - errors_before)
    lines = [text for text, _ in comparison_lines(found)]
    assert any(sentence in line for line in lines), lines[:4]


def test_errors_of_equal_number_leave_a_result_without_a_difference_undecided_but_not_open(runs):
    before = flips(400, 0.7)
    first, second = ([None if n % 20 == place else score for n, score in enumerate(before)] for place in (0, 1))
    found = compare_runs(*runs(first, second))
    assert (found.errors.only, found.errors.excess, found.exit_code("regression")) == ((20, 20), 0, 0)


def test_a_few_errors_do_not_block_a_comparison_without_a_difference(runs):
    before = flips(400, 0.7)
    found = compare_runs(*runs(before, [None, None, *before[2:]]))
    assert (found.answer, found.exit_code("regression")) == ("cannot tell", 0)


def test_errors_of_a_case_in_both_runs_are_left_out(runs):
    scores = [None] * 50 + flips(50, 0.5)
    assert compare_runs(*runs(scores, scores)).errors is None


def test_a_regression_must_hold_with_the_excess_of_errors_in_favour(runs):
    before, after = [1.0] * 60, [0.0] * 8 + [None] * 30 + [1.0] * 22
    found = compare_runs(*runs(before, after))
    assert (found.paired.answer, found.answer) == ("worse", "worse")
    before = [0.5] * 60
    after = [0.3] * 20 + [None] * 40
    found = compare_runs(*runs(before, after))
    assert (found.answer, found.exit_code("regression")) == ("cannot tell", 5)


def test_failed_trials_count_in_part(tmp_path):
    before = [record(n, 0.0, trial=trial) for n in range(30) for trial in (1, 2)]
    after = [record(n, 1.0, trial=1) for n in range(30)] + [record(n, None, trial=2) for n in range(30)]
    paths = [write_run(tmp_path / f"{name}.jsonl", *run) for name, run in (("a", before), ("b", after))]
    found = compare_runs(*(RunScores(path, path.stem) for path in paths))
    assert found.errors.only == (0, 30)
    assert (found.errors.against.mean_delta, found.errors.in_favour.mean_delta) == (0.5, 1.0)
    assert found.answer == "better"


def test_a_margin_must_hold_with_the_excess_of_errors_against_it(runs):
    before = [1.0] * 200
    found = compare_runs(*runs(before, before), CompareOptions(margin=0.05))
    assert (found.non_inferiority.outcome, found.exit_code("inconclusive")) == ("shown", 0)
    found = compare_runs(*runs(before, [None] * 20 + before[20:]), CompareOptions(margin=0.05))
    assert (found.non_inferiority.outcome, found.exit_code("inconclusive")) == ("inconclusive", 5)


def test_a_matrix_uses_the_same_rule(runs):
    before = flips(400, 0.5)
    better = [1.0] * 400
    errors = [1.0 if n < 20 else None for n in range(400)]
    matrix = compare_many(runs(before, better, errors))
    assert matrix.conclusion(0, 1) == "better"
    assert matrix.conclusion(0, 2) == "cannot tell"
    assert matrix.exit_code("regression") == 5


@pytest.mark.parametrize("gate", ["regression", "worse", "any-loss", "inconclusive"])
def test_no_gate_passes_if_errors_may_hide_a_loss(runs, gate):
    before, after = flips(400, 0.5), [1.0 if n < 20 else None for n in range(400)]
    found = compare_runs(*runs(before, after))
    assert found.exit_code(gate) == 5
    assert compare_many(runs(before, after, before)).exit_code("worse") == 5


def test_more_errors_are_part_of_the_headline(runs):
    before = flips(400, 0.7)
    found = compare_runs(*runs(before, [None if score == 0 else score for score in before]))
    assert "B errors more often: " in verdict(found)


def test_claims_of_several_runs_have_tipping_points_for_their_adjusted_p_values(runs):
    before = [0.0] * 80 + [1.0] * 120
    after = [1.0] * 30 + [0.0] * 50 + [1.0] * 110 + [0.0] * 10
    before[100:112] = after[130:142] = [None] * 12
    pair = compare_runs(*runs(before, after)).errors.tipping_point
    matrix = compare_many(runs(before, after, after))
    of_each = [matrix.errors[0, place].tipping_point for place in (1, 2)]
    assert [(point.claim, point.errors) for point in of_each] == [("better", 12)] * 2
    assert 0 < of_each[0].most == of_each[1].most < pair.most < 12
    lines = [text for text, _ in matrix_lines(matrix)]
    most = of_each[0].most
    assert f"Note: B stays better unless more than {most} of its 12 errors would have failed, compared with A" in lines
