"""Regressions in `agentv compare`: divergent tool calls, groups of failures, and single cases."""

import json

import pytest
from compared_runs import record, write_run

from agentv.comparison.run_comparison import CompareOptions, compare_runs
from agentv.comparison.scores import RunScores
from made_results import judged


def answered(id, score, *tools, **known):
    """A result whose answer called these tools; `tool=x` has an argument."""
    calls = [{"tool": tool, "input": {"q": given}} for tool, _, given in (each.partition("=") for each in tools)]
    messages = ({"role": "assistant", "tool_calls": calls}, {"role": "assistant", "content": "done"})
    found = judged(
        "contains", score, verdict="pass" if score >= 0.8 else "fail", misses=() if score else ("no refund",)
    )
    verdict = "pass" if score >= 0.8 else "fail"
    return record(id, score, verdict=verdict, output_messages=messages, evaluator_results=(found,), **known)


@pytest.fixture
def runs(tmp_path):
    """Ten cases: six diverge at search, two at refund, one makes the same calls, and one is as good as before."""
    before = [answered(n, 1.0, "search=a", "refund=b") for n in range(10)]
    after = [answered(n, 0.0, "search=x", "refund=b") for n in range(6)]
    after += [answered(n, 0.0, "search=a", "escalate=b") for n in (6, 7)]
    after += [answered(8, 0.0, "search=a", "refund=b"), answered(9, 1.0, "read=z")]
    return [str(write_run(tmp_path / name, *each)) for name, each in (("a.jsonl", before), ("b.jsonl", after))]


def test_the_first_divergent_step_is_counted_over_all_regressions(command, runs):
    text = command("compare", *runs).stdout
    assert "Regressions: 9 cases" in text
    assert "6 of 9 regressions diverge at `search` (other arguments): 0, 1, 2" in text
    assert "2 of 9 regressions diverge at `refund` (other tool): 6, 7" in text
    assert "1 of 9 regressions make the same tool calls in A and B" in text
    assert "9 of 9 regressions did not pass in B" in text
    assert "9  contains, wording like “no refund”" in text


def test_json_has_the_counts_and_the_aligned_steps(command, runs):
    found = json.loads(command("compare", *runs, "--json", "--changes", "1").stdout)
    regressions = found["regressions"]
    assert (regressions["total"], regressions["with_calls"], regressions["diverged"]) == (9, 9, 8)
    assert regressions["divergences"][0] == {
        "tool": "search", "count": 6, "kinds": {"other arguments": 6}, "examples": ["0", "1", "2"]
    }  # fmt: skip
    trajectory = found["changes"][0]["trajectory"]
    assert [step["kind"] for step in trajectory["steps"]] == ["arguments", "same"]
    assert trajectory["divergence"]["step"] == 1


def test_one_case_is_shown_in_detail(command, runs):
    text = command("compare", *runs, "--case", "6").stdout
    assert "tool calls: they diverge at step 2: A calls `refund`, B calls `escalate`" in text
    for line in ('= search {"q":"a"}', '- refund {"q":"b"}  <- first difference', '+ escalate {"q":"b"}'):
        assert line in text
    assert text.count("tool calls:") == 1


def test_markdown_has_the_same_parts(command, runs):
    text = command("compare", *runs, "--markdown").stdout
    assert "#### Regressions: 9 cases" in text
    assert "- 6 of 9 regressions diverge at" in text
    assert "| 9 of 9 | `contains` |" in text
    assert "```diff\n~ search" in text


def test_a_tag_whose_cases_became_worse_is_named(tmp_path):
    def run(name, *, lost):
        tags = {n: ("refund", "eu") if n % 4 == 0 else ("eu",) for n in range(20)}
        made = [answered(n, 0.0 if n % 4 == 0 and lost else 1.0, "read", tags=tags[n]) for n in range(20)]
        return RunScores(write_run(tmp_path / name, *made), name)

    found = compare_runs(run("a.jsonl", lost=False), run("b.jsonl", lost=True)).regressions
    (group,) = found.failures.groups
    assert (group.tag, group.count, group.tag_failures, group.tag_results) == ("refund", 5, 5, 5)


def test_an_unknown_case_is_a_usage_error(command, runs):
    ended = command("compare", *runs, "--case", "66")
    assert ended.code == 2
    assert "No shared case has the id '66'" in ended.stderr


def test_runs_without_a_loss_have_no_regressions(command, runs):
    assert json.loads(command("compare", runs[0], runs[0], "--json").stdout)["regressions"] is None
    assert "Regressions" not in command("compare", runs[0], runs[0]).stdout


def test_with_trials_the_worst_trial_shows_the_regression(tmp_path):
    before = [answered("c", 1.0, "search=a", trial=1), answered("c", 1.0, "search=a", trial=2)]
    after = [answered("c", 1.0, "search=a", trial=1), answered("c", 0.0, "read=a", trial=2)]
    first, second = write_run(tmp_path / "a.jsonl", *before), write_run(tmp_path / "b.jsonl", *after)
    found = compare_runs(RunScores(first, "a"), RunScores(second, "b"), CompareOptions())
    assert found.regressions.divergences[0].tool == "search"
    assert found.changes[0].behaviour.steps[0].kind == "only in A"


def test_only_the_largest_of_many_regressions_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("agentv.comparison.behaviour.regressions.MOST_EXAMINED", 3)
    before = write_run(tmp_path / "a.jsonl", *(answered(n, 1.0, "search") for n in range(6)))
    after = write_run(tmp_path / "b.jsonl", *(answered(n, n / 10, "read") for n in range(6)))
    found = compare_runs(RunScores(before, "a"), RunScores(after, "b")).regressions
    assert (found.total, found.examined, found.failures.results) == (6, 3, 3)
    assert found.divergences[0].examples == ("0", "1", "2")
