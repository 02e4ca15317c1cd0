"""Composites: combined scores, gates, failures and nested members."""

import json
import math
import sys

import pytest

from agentv.evaluators.composite import MemberScore, threshold, weighted_average
from agentv.model.evaluator import EvaluatorFailure
from agentv.model.result import ErrorInfo, EvaluatorResult

LOST = None


def results(*scores, required=()):
    """Return a result for each score, with a run's verdict; None is a failed member."""
    return [
        EvaluatorResult(
            name=f"m{index}",
            type="x",
            score=score,
            weight=1.0,
            verdict=_verdict(score, required[index] if required else False),
            error=ErrorInfo("evaluator", "broke", "evaluator") if score is None else None,
        )
        for index, score in enumerate(scores)
    ]


def _verdict(score, required):
    if score is None:
        return None
    verdict = "pass" if score >= 0.8 else "borderline" if score >= 0.6 else "fail"
    return "fail" if required and verdict != "pass" else verdict


def members(scores, weights, required):
    """Return the members of a composite; a required one that does not pass misses its gate."""
    found = results(*scores, required=required)
    missed = [bool(needed) and result.verdict == "fail" for result, needed in zip(found, required, strict=True)]
    return list(map(MemberScore, found, weights, map(bool, required), missed))


AVERAGES = [
    # scores, weights, required, score, verdict
    ([1.0], [1], [0], 1.0, None),
    ([0.0], [1], [0], 0.0, None),
    ([1.0, 0.0], [1, 1], [0, 0], 0.5, None),
    ([1.0, 0.0, 0.5], [1, 1, 1], [0, 0, 0], 0.5, None),
    ([1.0, 0.0], [3, 1], [0, 0], 0.75, None),
    ([1.0, 0.0], [0.1, 0.2], [0, 0], 1 / 3, None),
    ([0.7, 0.7, 0.7], [0.1, 0.1, 0.1], [0, 0, 0], 0.7, None),
    ([1.0, 1.0, 1.0], [0.1, 0.2, 0.7], [0, 0, 0], 1.0, None),
    ([1.0, 0.0], [1, 0], [0, 0], 1.0, None),
    ([0.0, 1.0], [0, 2], [0, 0], 1.0, None),
    ([1.0, 0.5], [1, 1], [1, 1], 0.75, "fail"),
    ([1.0, 0.9], [1, 1], [1, 1], 0.95, None),
    ([0.7, 1.0], [1, 9], [1, 0], 0.97, "fail"),
    ([0.7, 1.0], [0, 1], [1, 0], 1.0, "fail"),
    ([LOST, 1.0], [0, 1], [0, 0], 1.0, None),
    ([1.0, 1e-300], [1e100, 1], [0, 0], 1.0, None),
]


@pytest.mark.parametrize(("scores", "weights", "required", "score", "verdict"), AVERAGES)
def test_weighted_average(scores, weights, required, score, verdict):
    found = weighted_average(members(scores, weights, required))
    assert math.isclose(found.score, score, abs_tol=1e-12) and found.score <= 1
    assert found.verdict == verdict


THRESHOLDS = [
    # scores, weights, required, threshold, score, verdict
    ([1.0, 1.0], [1, 1], [0, 0], 1.0, 1.0, "pass"),
    ([1.0, 0.0], [1, 1], [0, 0], 0.5, 0.5, "pass"),
    ([1.0, 0.0], [1, 1], [0, 0], 0.51, 0.5, "fail"),
    ([1.0, 1.0, 0.0], [1, 1, 1], [0, 0, 0], 2 / 3, 2 / 3, "pass"),
    ([1.0, 0.0, 0.0], [1, 1, 1], [0, 0, 0], 0.5, 1 / 3, "fail"),
    ([0.0, 0.0], [1, 1], [0, 0], 0.0, 0.0, "pass"),
    ([0.79, 0.8], [1, 1], [0, 0], 0.5, 0.5, "pass"),
    ([0.6, 0.7], [1, 1], [0, 0], 0.1, 0.0, "fail"),
    ([1.0, 0.0], [3, 1], [0, 0], 0.75, 0.75, "pass"),
    ([0.0, 1.0], [3, 1], [0, 0], 0.5, 0.25, "fail"),
    ([0.0, 1.0], [0, 1], [0, 0], 1.0, 1.0, "pass"),
    ([1.0, 0.0], [1, 1], [0, 1], 0.5, 0.5, "fail"),
    ([1.0, 0.0], [1, 1], [1, 0], 0.5, 0.5, "pass"),
    ([LOST, 1.0], [0, 1], [0, 0], 1.0, 1.0, "pass"),
]


@pytest.mark.parametrize(("scores", "weights", "required", "least", "share", "verdict"), THRESHOLDS)
def test_threshold(scores, weights, required, least, share, verdict):
    found = threshold(members(scores, weights, required), least)
    assert math.isclose(found.score, share, abs_tol=1e-12)
    assert found.verdict == verdict


@pytest.mark.parametrize("aggregate", [weighted_average, lambda *args: threshold(*args, 0.5)])
@pytest.mark.parametrize(
    ("scores", "weights", "required"),
    [
        ([LOST], [1], [0]),
        ([1.0, LOST], [1, 1], [0, 0]),
        ([1.0, LOST], [1, 0.001], [0, 0]),
        ([1.0, LOST], [1, 0], [0, 1]),
    ],
)
def test_no_score_if_a_member_that_counts_failed(aggregate, scores, weights, required):
    with pytest.raises(EvaluatorFailure, match="broke"):
        aggregate(members(scores, weights, required))


# In a run.

YES = {"type": "contains", "value": "yes", "name": "yes"}
NO = {"type": "contains", "value": "no", "name": "no"}
HALF = {"type": "levenshtein", "value": "yesyes", "name": "half"}
BROKEN = {"type": "code_judge", "script": ["false"], "name": "broken"}


THIRD = {"type": "threshold", "threshold": 0.3}


def composite(*members, aggregator="weighted_average", **entry):
    return {"type": "composite", "name": "all", "evaluators": list(members), "aggregator": aggregator, **entry}


@pytest.fixture
def run(folder, command):
    """Return the record of the one case `yes`, scored by the given entries."""

    def run(*entries, targets=()):
        mock = {"name": "default", "provider": "mock"}
        folder.write("targets.yaml", {"targets": [mock, *targets]})
        case = {"id": "c", "expected_outcome": "Says yes", "input": "yes", "evaluators": list(entries)}
        folder.write("d.yaml", {"evalcases": [case]})
        ended = command("eval", "d.yaml", "--json", "-q")
        assert ended.code in (0, 3), ended.stderr
        [line] = (folder.path / ended.printed[0]["run"] / "results.jsonl").read_text().splitlines()
        return json.loads(line)

    return run


def test_the_record_has_the_result_of_each_member(run):
    record = run(composite(YES, {**NO, "weight": 3}))
    [found] = record["evaluator_results"]
    assert (found["type"], found["score"], found["verdict"]) == ("composite", 0.25, "fail")
    assert [(each["name"], each["score"], each["weight"]) for each in found["evaluator_results"]] == [
        ("yes", 1.0, 1.0),
        ("no", 0.0, 3.0),
    ]
    assert found["hits"] == ["yes: contains 'yes'"]
    assert record["score"] == 0.25


@pytest.mark.parametrize(
    ("entry", "score", "verdict"),
    [
        (composite(YES, NO, aggregator={"type": "weighted_average", "weights": {"no": 0}}), 1.0, "pass"),
        (composite(YES, NO, aggregator={"type": "weighted-average", "weights": {"no": 3}}), 0.25, "fail"),
        (
            composite(YES, {**NO, "weight": 9}, aggregator={"type": "weighted_average", "weights": {"no": 1}}),
            0.5,
            "fail",
        ),
        (composite(YES, NO, aggregator={"type": "threshold", "threshold": 0.5}), 0.5, "pass"),
        (composite(YES, NO, aggregator={"type": "threshold", "threshold": 0.6}), 0.5, "fail"),
        (composite(YES, NO, aggregator={"type": "threshold", "threshold": 0.5}, required=True), 0.5, "pass"),
        (composite(YES, NO, aggregator={"type": "threshold", "threshold": 0.5}, required=0.6), 0.5, "fail"),
        (composite(YES, {**NO, "negate": True}), 1.0, "pass"),
        (composite(YES, NO, negate=True), 0.5, "fail"),
        (
            composite(YES, {**NO, "required": True}, aggregator={"type": "weighted_average", "weights": {"yes": 9}}),
            0.9,
            "fail",
        ),
        # It reaches its required 0.5, although it would not pass by itself.
        (composite({**HALF, "required": 0.5}, {**YES, "weight": 9}), 0.95, "pass"),
        (composite({**HALF, "required": 0.6}, {**YES, "weight": 9}), 0.95, "fail"),
        (composite({**HALF, "required": 0}, {**YES, "weight": 9}), 0.95, "pass"),
        (composite({**HALF, "required": True}, {**YES, "weight": 9}), 0.95, "fail"),
        (
            composite({**HALF, "required": 0.5}, YES, aggregator={"type": "threshold", "threshold": 0.5}),
            0.5,
            "pass",
        ),
        (composite(HALF, YES, aggregator={"type": "threshold", "threshold": 1, "pass_score": 0.5}), 1.0, "pass"),
        (
            composite(composite(YES, NO, aggregator=THIRD), YES, aggregator={**THIRD, "pass_score": 0.8}),
            1.0,
            "pass",
        ),
        # A member's gate fails its composite, as it fails a case, except with a threshold.
        (composite(composite({**NO, "required": True}, {**YES, "weight": 9}), {**YES, "name": "also"}), 0.95, "fail"),
        (
            composite(
                composite({**NO, "required": True}, {**YES, "weight": 9}),
                {**YES, "name": "also"},
                aggregator={"type": "threshold", "threshold": 0.5},
            ),
            0.5,
            "pass",
        ),
        (composite(composite(YES, NO, name="inner"), YES), 0.75, "borderline"),
        (composite(composite(composite(NO, name="c"), name="b"), name="a"), 0.0, "fail"),
        (composite({**YES, "transform": {"regex": "y(e)"}}, YES), 0.5, "fail"),
        (composite(YES, transform={"regex": "y(e)"}), 0.0, "fail"),
        (composite(YES, {**BROKEN, "weight": 0}), 1.0, "pass"),
    ],
)
def test_a_composite_scores_in_a_run(run, entry, score, verdict):
    record = run(entry)
    assert (record["status"], record["score"], record["verdict"]) == ("ok", pytest.approx(score), verdict)


@pytest.mark.every(5)
@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    "aggregator",
    [
        "weighted_average",
        {"type": "threshold", "threshold": 0.1},
        {"type": "code_judge", "script": "echo '{\"score\": 1}'"},
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_failed_member_makes_the_composite_fail_with_its_reason(run, negate, required, aggregator, nested):
    members = [composite(YES, BROKEN, name="inner")] if nested else [YES, BROKEN]
    record = run(composite(*members, aggregator=aggregator, negate=negate, required=required), YES)
    assert (record["status"], record["score"], record["verdict"]) == ("error", None, None)
    assert record["partial_score"] == 1.0
    assert "broken: The program" in record["error"]["message"] and record["error"]["class"] == "evaluator"
    found = record["evaluator_results"][0]
    assert (found["score"], found["verdict"]) == (None, None)
    inner = found["evaluator_results"][0]["evaluator_results"] if nested else found["evaluator_results"]
    assert [each["score"] for each in inner] == [1.0, None]


PROGRAM = """
import json, sys
payload = json.load(sys.stdin)
found = payload["results"]
assert payload["candidate_answer"] == "yes" and payload["expected_outcome"] == "Says yes", payload
assert found["yes"]["hits"] == ["contains 'yes'"] and found["yes"]["type"] == "contains", found
print(json.dumps({"score": min(each["score"] for each in found.values()), "reasoning": ", ".join(found)}))
"""


def test_a_program_combines_the_results(run, folder):
    folder.write("lowest.py", PROGRAM)
    script = [sys.executable, "lowest.py"]
    record = run(composite(YES, NO, aggregator={"type": "code_judge", "script": script}))
    assert (record["score"], record["reasoning"]) == (0.0, "all: yes, no")


@pytest.mark.parametrize("script", ["exit 3", "echo nonsense", "true", "echo '{\"score\": 2}'"])
def test_a_program_without_a_score_is_an_error(run, script):
    record = run(composite(YES, aggregator={"type": "code_judge", "script": script}), YES)
    assert (record["status"], record["score"], record["partial_score"]) == ("error", None, 1.0)
    assert record["evaluator_results"][0]["evaluator_results"][0]["score"] == 1.0


VERDICT = '{"score": 0.25, "hits": [], "misses": ["x"], "reasoning": "they disagree"}'


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        (None, '"yes":{"type":"contains","score":1.0'),
        ("Sum up {{ evaluator_results }}", 'Sum up {"yes":{"type":"contains","score":1.0'),
        ("Sum up {{EVALUATOR_RESULTS_JSON}}", 'Sum up {"yes":{"type":"contains","score":1.0'),
        ("Sum up {{ evaluator_results.yes.score }} for {{ candidate_answer }}", "Sum up 1.0 for yes"),
        ("sum_up.md", "From a file: 0"),
    ],
)
@pytest.mark.parametrize("where", ["aggregator", "entry"])
def test_a_judge_combines_the_results(run, folder, prompt, shown, where):
    folder.write("sum_up.md", "From a file: {{ evaluator_results.no.score }}")
    aggregator = {"type": "llm_judge", **({"prompt": prompt} if prompt else {})}
    entry = {}
    (aggregator if where == "aggregator" else entry)["target"] = "summer"
    record = run(
        composite(YES, NO, aggregator=aggregator, **entry),
        targets=[{"name": "summer", "provider": "mock", "response": VERDICT}],
    )
    assert (record["score"], record["reasoning"]) == (0.25, "all: they disagree")
    [call] = record["evaluator_results"][0]["evaluator_provider_request"]["calls"]
    assert shown in call["messages"][1]["content"]
