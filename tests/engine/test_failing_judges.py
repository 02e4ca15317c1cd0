"""Failing judges and scripts, at every place an evaluator can be used: an error with its reason, never a score."""

import json
import sys

import pytest

from agentv import evaluate
from waiting import HANGS

PYTHON = sys.executable

# A name, an evaluator that fails, and its reason.
FAILING = {
    "a program that crashes": (
        {"type": "code_judge", "script": [PYTHON, "-c", "import sys; sys.exit('it broke')"]},
        "exit code, use `type: command`): it broke",
    ),
    "a program that is killed": (
        {"type": "code_judge", "script": "kill -9 $$"},
        "The program was terminated by SIGKILL",
    ),
    "a program that takes too long": (
        {"type": "code_judge", "script": HANGS, "timeout_seconds": 0.3},
        "The program did not finish within 0.3 s",
    ),
    "a program that prints garbage": (
        {"type": "code_judge", "script": "echo '{\"score\": high}'"},
        "The program must print a JSON object with a score, but printed",
    ),
    "a program that prints nothing": (
        {"type": "code_judge", "script": "true"},
        "The program must print a JSON object with a score, but printed nothing",
    ),
    "a program that prints too much": (
        {"type": "code_judge", "script": "yes"},
        "The program printed more than 4 MiB",
    ),
    "a program that prints no score": (
        {"type": "code_judge", "script": "echo '{\"score\": null}'"},
        "The program printed no 'score'",
    ),
    "a program that prints a score of 2": (
        {"type": "code_judge", "script": "echo '{\"score\": 2}'"},
        "gave 2 as its score",
    ),
    "a program that is not there": (
        {"type": "code_judge", "script": ["no-such-program"]},
        "The program 'no-such-program' was not found",
    ),
    "a function that crashes": (
        {"type": "python", "function": "judges.py:crashes"},
        "its process ended with exit code 3 before it gave a score",
    ),
    "a function that takes too long": (
        {"type": "python", "function": "judges.py:hangs", "timeout_seconds": 0.3},
        "judges.py:hangs took longer than 0.3 s",
    ),
    "a function that eats memory": (
        {"type": "python", "function": "judges.py:eats", "memory_mb": 200},
        "judges.py:eats failed: MemoryError",
    ),
    "a function that returns garbage": (
        {"type": "python", "function": "judges.py:garbage"},
        "judges.py:garbage must return a Score, a dict, a number or a bool, got str",
    ),
    "a function that returns nothing": (
        {"type": "python", "function": "judges.py:nothing"},
        "judges.py:nothing must return a Score, a dict, a number or a bool, got NoneType",
    ),
    "a function that returns too much": (
        {"type": "python", "function": "judges.py:huge"},
        "judges.py:huge returned more than 4 MiB",
    ),
    "a function that raises": (
        {"type": "python", "function": "judges.py:raises"},
        "judges.py:raises failed: ZeroDivisionError: division by zero (judges.py, line",
    ),
    "a script that is kept warm and crashes": (
        {"type": "code_judge", "script": [PYTHON, "warm.py"]},
        "its process ended with exit code 4 before it gave a score",
    ),
}

if sys.platform == "win32":
    del FAILING["a function that eats memory"]  # memory is not limited there

JUDGES = """
import os
from agentv import Score
def crashes(context): os._exit(3)
def hangs(context):
    while True: pass
def eats(context): return len([b"x" * 2**20 for _ in range(500)])
def garbage(context): return "high"
def nothing(context): pass
def huge(context): return Score(1, reasoning="x" * 5_000_000)
def raises(context): return 1 / 0
"""

PLACES = {
    "alone": lambda entry: entry,
    "negated": lambda entry: entry | {"negate": True},
    "required": lambda entry: entry | {"required": True},
    "required from 0": lambda entry: entry | {"required": 0.0},
    "negated and required": lambda entry: entry | {"negate": True, "required": True},
    "in a composite": lambda entry: composite(entry),
    "negated in a composite": lambda entry: composite(entry | {"negate": True}),
    "in a negated composite": lambda entry: composite(entry) | {"negate": True},
    "in a required composite": lambda entry: composite(entry) | {"required": True},
    "in a composite in a composite": lambda entry: composite(composite(entry)),
    "in a composite of the share that passes": lambda entry: composite(
        entry, {"type": "threshold", "threshold": 0.5}
    ),
}  # fmt: skip


def composite(entry, aggregator="weighted_average"):
    passing = {"type": "contains", "value": "yes", "name": "inner"}
    return {"type": "composite", "evaluators": [passing, {"name": "inner failing", **entry}], "aggregator": aggregator}


def all_entries():
    """Every failure in every place, under a name of its own."""
    for failing, (entry, reason) in FAILING.items():
        for place, put in PLACES.items():
            yield f"{failing}, {place}", put(dict(entry)), reason


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """One run over all of them: each case has one that scores and one that fails; the last case has none that fails."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "judges.py").write_text(JUDGES)
    (folder / "warm.py").write_text("import os\ndef agentv_judge(payload): os._exit(4)\n")
    passing = {"type": "contains", "value": "yes", "name": "passing"}
    cases = [
        {"id": id, "expected_outcome": "x", "input": "yes", "evaluators": [passing, {"name": "failing", **entry}]}
        for id, entry, _ in all_entries()
    ]
    cases.append({"id": "sound", "expected_outcome": "x", "input": "no", "evaluators": [passing]})
    file = folder / "cases.yaml"
    file.write_text(json.dumps({"evalcases": cases}))
    run = evaluate(str(file), {"provider": "mock"}, out=str(folder / "out"), trust=str(folder))
    return {result.eval_id: result for result in run.results}, run.summary.targets["target"]


@pytest.mark.parametrize(("id", "reason"), [(id, reason) for id, _, reason in all_entries()])
def test_a_failed_judge_is_an_error_with_its_reason(rows, id, reason):
    result = rows[0][id]
    assert (result.status, result.score, result.verdict) == ("error", None, None)
    assert (result.error.error_class, result.error.stage) == ("evaluator", "evaluator")
    assert reason in result.error.message
    assert result.partial_score == 1.0
    passing, failing = result.evaluator_results
    assert passing.score == 1.0
    assert (failing.score, failing.verdict) == (None, None)
    assert reason in failing.error.message


def test_errors_of_judges_are_not_in_the_mean(rows):
    results, summary = rows
    assert (summary.cases, summary.scored, summary.errors) == (len(results), 1, len(results) - 1)
    assert summary.mean == 0.0
    assert "failing" not in summary.evaluators or summary.evaluators["failing"].n == 0


def test_errors_of_programs_suggest_rescoring_instead_of_a_retry(project):
    project.dataset({"input": "yes", "evaluators": [{"type": "command", "command": ["no-such-program"]}]}, "yes")
    ended = project.eval("--out", "out")
    assert "agentv rescore out  # after fixing the evaluators" in ended.stdout
    assert "--retry-errors" not in ended.stdout
