"""Transforms in runs: a failed one is an error of its job, and a scored text is stored next to the raw one."""

import pytest

REFUND = "I will refund you right now, not JSON"
POLITE = {"type": "contains", "value": "refund", "negate": True}
CLEAN = "def clean(text):\n    return {'empty': '', 'null': None}[text]\n"

# Transforms that yield nothing for the answer.
FAILURES = {
    "no JSON": ({"json_path": "answer"}, REFUND),
    "a missing key": ({"json_path": "answer"}, '{"other": "refund"}'),
    "a null": ({"json_path": "answer"}, '{"answer": null, "refund": 1}'),
    "no match": ({"regex": "ANSWER: (.*)"}, REFUND),
    "only thinking": ({"strip": ["thinking"]}, "<think>a refund, then"),
    "an exception": ({"function": "clean.py:clean"}, REFUND),
    "a result that is not text": ({"function": "clean.py:clean"}, "null"),
    "an empty result": ({"function": "clean.py:clean"}, "empty"),
}


def _cases(transform):
    """The transform at each place where there can be one: the settings of the target, and the case."""
    own, unweighted = {**POLITE, "transform": transform}, {"transform": transform, "weight": 0}
    composite = {"type": "composite", "aggregator": "weighted_average"}
    return {
        "target": ({"transform": transform}, {"evaluators": [POLITE]}),
        "evaluator": ({}, {"evaluators": [POLITE, own]}),
        "unweighted evaluator": ({}, {"evaluators": [POLITE, {**POLITE, **unweighted}]}),
        "composite": ({}, {"evaluators": [{**composite, "evaluators": [POLITE], "transform": transform}]}),
        "member": ({}, {"evaluators": [{**composite, "evaluators": [POLITE, {**POLITE, **unweighted}]}]}),
        "turn": ({"transform": transform}, {"turns": [{"input": "hi", "evaluators": [POLITE]}], "evaluators": []}),
    }


@pytest.fixture(params=_cases({}))
def scored(request, project):
    """Score an answer after a transform at one of its places; return its record and the command's end."""

    def run(transform, answer):
        project.write("clean.py", CLEAN)
        settings, case = _cases(transform)[request.param]
        project.targets({"name": "default", "provider": "mock", "response": answer, **settings})
        project.dataset({"input": "hi", **case})
        ended = project.eval("--out", "run", "--min-pass-rate", "0")
        return project.by_id("run")["c0"], ended

    return run


@pytest.mark.every(5)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_transform_is_an_error_of_its_job(scored, failure):
    record, ended = scored(*FAILURES[failure])
    assert (record["status"], record["score"], record["verdict"]) == ("error", None, None)
    assert "Cannot transform the answer: " in record["error"]["message"]
    assert ended.code != 0


def test_an_allowed_empty_text_is_scored(scored):
    record, ended = scored({"strip": ["thinking"], "allow_empty": True}, "<think>a refund, then")
    assert (record["status"], ended.code) == ("ok", 0)


def test_a_record_has_the_raw_answer_and_the_text_that_was_scored(project):
    project.targets({"name": "default", "provider": "mock", "transform": {"regex": "<(.*)>"}})
    first = {"type": "contains", "value": "a", "transform": {"regex": "a+"}}
    project.dataset(
        {"input": "x <aab> y", "evaluators": [first, {**first, "name": "same", "transform": {"strip": []}}]}
    )
    assert project.eval("--out", "run").code == 0
    record = project.by_id("run")["c0"]
    assert (record["raw_answer"], record["candidate_answer"]) == ("x <aab> y", "aab")
    assert [each.get("candidate_answer") for each in record["evaluator_results"]] == ["aa", None]


def test_an_answer_that_no_transform_changed_is_stored_once(project):
    project.targets({"name": "default", "provider": "mock", "transform": {"strip": ["thinking"]}})
    project.dataset("yes")
    project.eval("--out", "run")
    record = project.by_id("run")["c0"]
    assert "raw_answer" not in record and "candidate_answer" not in record["evaluator_results"][0]


def test_the_scored_text_of_a_turn_is_in_its_result(project):
    project.targets({"name": "default", "provider": "mock", "response": "<yes>", "transform": {"regex": "<(.*)>"}})
    check = {"type": "equals", "value": "yes"}
    project.dataset({"input": "hi", "turns": [{"input": "hi", "evaluators": [check]}], "evaluators": []})
    project.eval("--out", "run")
    results = project.by_id("run")["c0"]["evaluator_results"]
    assert next((each["score"], each.get("candidate_answer")) for each in results) == (1.0, "yes")


@pytest.mark.parametrize("executor", ["local", "process"])
def test_an_answer_whose_transform_failed_is_kept_and_rescored(project, executor):
    target = {"name": "default", "provider": "mock", "response": "ANSWER: yes"}
    project.targets({**target, "transform": {"regex": "ANSWER is (.*)"}})
    project.dataset("hi")
    project.eval("--out", "run", "--executor", executor)
    record = project.by_id("run")["c0"]
    assert (record["raw_answer"], record["error"]["class"]) == ("ANSWER: yes", "invalid_response")
    assert "candidate_answer" not in record
    # The same transform fails again, and the answer is still there.
    assert project.command("rescore", "run", "--out", "same").code == 3
    project.targets({**target, "transform": {"regex": "ANSWER: (.*)"}})
    assert project.command("rescore", "same", "--out", "fixed").code == 0
    record = project.by_id("fixed")["c0"]
    assert (record["score"], record["candidate_answer"], record["raw_answer"]) == (1.0, "yes", "ANSWER: yes")
    # And the other way round: an answer that was scored becomes an error.
    project.targets({**target, "transform": {"json_path": "answer"}})
    project.command("rescore", "fixed", "--out", "broken")
    record = project.by_id("broken")["c0"]
    assert (record["status"], record["raw_answer"]) == ("error", "ANSWER: yes")
    assert "it is not valid JSON" in record["error"]["message"]


def test_an_answer_whose_transform_failed_stays_an_error_without_its_target(project):
    project.targets({"name": "gone", "provider": "mock", "response": "yes", "transform": {"regex": "no"}})
    project.dataset("hi")
    project.eval("--out", "run", "--target", "gone")
    project.targets({"name": "default", "provider": "mock"})
    project.command("rescore", "run", "--out", "again")
    record = project.by_id("again")["c0"]
    assert (record["status"], record["raw_answer"]) == ("error", "yes")


def test_a_replay_applies_the_transform_to_the_raw_answer(project):
    target = {"name": "default", "provider": "mock", "response": "<yes>"}
    project.targets({**target, "transform": {"regex": "no"}})
    project.dataset("hi")
    project.eval("--out", "run")
    project.targets({**target, "transform": {"regex": "<(.*)>"}})
    assert project.eval("--replay", "run", "--out", "again").code == 0
    assert project.by_id("again")["c0"]["candidate_answer"] == "yes"
