"""`--only … --from RUN`: select the cases that failed, were borderline or errored in an earlier run."""

import json
from pathlib import Path

import pytest

AGENT = """
def answer(prompt):
    if prompt == "break":
        raise ValueError("broken")
    return prompt
"""
SCORES = """
def score(context):
    return float(context.candidate_answer)
"""
CASES = [
    {"id": id, "expected_outcome": "Scores", "input": text}
    for id, text in {"good": "1", "fair": "0.7", "bad": "0.1", "worse": "0", "broken": "break"}.items()
]


@pytest.fixture
def run(folder, command):
    folder.write("cases.jsonl", CASES)
    folder.write("cases.yaml", {"evaluators": [{"type": "python", "function": "scores.py:score"}]})
    folder.write("agent.py", AGENT)
    folder.write("scores.py", SCORES)
    folder.write("targets.yaml", {"targets": [{"name": "t", "provider": "python", "function": "agent.py:answer"}]})

    def start(*options, expect=0):
        done = command("eval", *options, "--json", "-q")
        assert done.code == expect, done.stderr
        return Path(done.printed[0]["run"]) if expect in (0, 3) else done.stderr

    return start


def ids(run):
    lines = (run / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return sorted(json.loads(line)["eval_id"] for line in lines)


@pytest.mark.parametrize(
    ("only", "expected", "code"),
    [("failed", ["bad", "worse"], 0), ("borderline", ["fair"], 0), ("errors", ["broken"], 3)],
)
def test_cases_are_selected_by_outcome(run, only, expected, code):
    first = run("cases.jsonl")
    assert ids(run("cases.jsonl", "--only", only, "--from", str(first), expect=code)) == expected


def test_the_run_may_be_named_by_its_id_and_its_datasets_left_out(run):
    first = run("cases.jsonl")
    assert ids(run("--only", "failed", "--from", first.name)) == ["bad", "worse"]


def test_the_dataset_may_have_moved(run, folder):
    first = run("cases.jsonl")
    assert ids(run(str(folder.path / "cases.jsonl"), "--only", "borderline", "--from", str(first))) == ["fair"]


def test_filters_and_limits_apply_as_well(run):
    first = run("cases.jsonl")
    assert ids(run("cases.jsonl", "--only", "failed", "--from", str(first), "--limit", "1")) == ["bad"]
    assert ids(run("cases.jsonl", "--only", "failed", "--from", str(first), "-f", "w*")) == ["worse"]


def test_a_case_is_selected_if_one_of_its_trials_has_the_outcome(run, folder):
    first = run("cases.jsonl", "--trials", "2")
    assert ids(run("cases.jsonl", "--only", "borderline", "--from", str(first), "--trials", "1")) == ["fair"]


def test_an_empty_selection_is_an_error(run):
    good = run("cases.jsonl", "--case", "good")
    assert "No case failed in" in run("cases.jsonl", "--only", "failed", "--from", str(good), expect=2)
    first = run("cases.jsonl")
    output = run("cases.jsonl", "--only", "failed", "--from", str(first), "-f", "good", expect=2)
    assert "No case matches the filter 'good'" in output


@pytest.mark.parametrize("options", [["--only", "failed"], ["--from", "x"]])
def test_only_and_from_must_be_used_together(run, options):
    assert "--only and --from must be used together" in run("cases.jsonl", *options, expect=2)


def test_a_missing_run_is_an_error(run):
    assert "No such run: nowhere.jsonl" in run("cases.jsonl", "--only", "failed", "--from", "nowhere.jsonl", expect=2)
