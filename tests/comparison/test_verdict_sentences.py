"""The sentences of `agentv compare` claim what the figures show, and no more."""

import json

import pytest
from compared_runs import judged, record, write_run, write_scores

from agentv.comparison.run_comparison import CompareOptions, compare_runs
from agentv.comparison.scores import RunScores
from agentv.report.comparisons.comparison_text import comparison_lines, tables
from agentv.report.comparisons.verdict_text import margin_sentence, sentence, verdict


@pytest.fixture
def compared(tmp_path):
    def compare(before, after, **options):
        paths = [write_scores(tmp_path / f"{name}.jsonl", side) for name, side in (("a", before), ("b", after))]
        return compare_runs(*(RunScores(path, path.stem) for path in paths), CompareOptions(**options))

    return compare


@pytest.mark.parametrize(
    ("before", "after", "start"),
    [
        ([1.0] * 20_000, [1.0] * 20_000, "No difference larger than 0.001. B scored the same on 20,000 shared cases"),
        (
            [0.0, 1.0] * 2_000,
            [0.0, 1.0] * 1_995 + [1.0, 0.0] * 5,
            "No difference larger than 0.002. B scored the same on 4,000 shared cases",
        ),
        ([0.5] * 400, [0.5] * 400, "No difference larger than 0.005. B scored the same"),
        ([1.0] * 50, [1.0] * 50, "Can't tell yet. B scored the same on 50 shared cases"),
    ],
)
def test_a_narrow_interval_around_zero_is_a_result(compared, before, after, start):
    found = compared(before, after)
    assert found.answer == "cannot tell"
    assert verdict(found).startswith(start)
    assert ("agentv plan" in verdict(found)) == start.startswith("Can't")


@pytest.mark.parametrize(
    ("margin", "text", "sentence"),
    [
        (0.1, ", but within the margin of 0.1.", "Worse, but within the margin: B is at most 0.1 worse than A"),
        (0.02, " 400 shared cases).", "Can't tell whether B is more than 0.02 worse than A"),
    ],
)
def test_worse_but_within_the_margin(compared, margin, text, sentence):
    before = [1.0] * 400
    found = compared(before, [0.0] * 12 + before[12:], margin=margin)
    assert verdict(found).startswith("B is worse by 0.030") and verdict(found).endswith(text)
    assert margin_sentence(found).startswith(sentence)


def test_a_run_that_is_not_shown_to_be_worse_is_not_worse_than_the_margin(compared):
    found = compared([1.0] * 10, [0.0] * 5 + [1.0] * 5, margin=0.05)
    assert found.answer == "cannot tell" and found.exit_code("regression") == 0
    assert margin_sentence(found) == "Can't tell whether B is more than 0.05 worse than A: 10 cases are too few."


def test_a_small_suite_states_the_weaker_truth_in_its_own_sentence(compared):
    before = [0.5 + 0.01 * (n % 7) for n in range(20)]
    after = [score + 0.1 for score in before[:19]] + [before[19] - 0.01]
    found = compared(before, after)
    assert found.answer == "cannot tell"
    assert "19 of 20 cases improved; the mean could still hide a rare failure." in verdict(found)
    assert "20 of 20 cases got worse; the mean could still hide a rare gain." in verdict(
        compared([score + 0.03 for score in before], before)
    )
    assert "improved" not in verdict(compared(before, before[::-1]))
    judged = sentence(found.paired, judged_only=True)
    assert judged.endswith("The judge scores 19 of 20 cases higher; the mean could still hide a rare failure.")


def test_only_adjusted_p_values_are_called_adjusted(tmp_path):
    def run(name, shift):
        records = [
            record(n, score := (n * 7 % 11 / 11 + shift) % 1, evaluator_results=judged(x=score, y=n % 5 / 5))
            for n in range(40)
        ]
        return RunScores(write_run(tmp_path / f"{name}.jsonl", *records), name)

    found = compare_runs(run("a", 0.0), run("b", 0.3))
    parts = [(title, rows) for title, rows in tables(found) if title != "Cost and time per case"]
    assert parts
    for title, (head, *rows) in parts:
        assert "exploratory: the interval is for its row alone" in title
        assert ("adjusted p" in head) == (len(rows) > 1) == ("p is adjusted for the number of rows" in title)
        assert [row[6] == "-" for row in rows] == [False] * len(rows)


def test_no_probability_with_a_fixed_prior_is_claimed(compared, tmp_path, command):
    found = compared([0.0] * 30, [1.0] * 30)
    assert not any("robability that" in text for text, _ in comparison_lines(found))
    ended = command("compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), "--json")
    assert "probability_better" not in json.loads(ended.stdout)["summary"]
