"""Fallback targets: they answer when all attempts of a call have failed, and records say so."""

import json

import pytest

BROKEN = {"name": "default", "provider": "mock", "fault_rate": 1, "max_retries": 1, "retry_initial_delay_ms": 0}
WORKING = {"name": "spare", "provider": "mock", "response": "yes"}


def test_a_fallback_answers_after_all_attempts_have_failed(project):
    project.targets({**BROKEN, "fallback_targets": ["worse", "spare"]}, {**BROKEN, "name": "worse"}, WORKING)
    project.dataset("q")
    ended = project.eval("--out", "out")
    assert "1 of 1 answer came from a fallback target" in ended.stdout
    [record] = project.records()
    assert (record["target"], record["status"], record["candidate_answer"]) == ("default", "ok", "yes")
    assert record["execution_metrics"]["answered_by"] == "spare"
    assert record["attempts"] == 5
    assert project.summary()["fallbacks"] == 1


def test_if_all_fallbacks_fail_the_error_names_each(project):
    project.targets(
        {**BROKEN, "fallback_targets": ["worse"]}, {**BROKEN, "name": "worse", "fallback_targets": ["default"]}
    )
    project.dataset("q")
    assert project.eval("--out", "out").code == 3
    [record] = project.records()
    assert "; fallback 'worse' failed (" in record["error"]["message"]
    assert record["attempts"] == 4


def test_a_target_that_answers_has_no_use_for_its_fallbacks(project):
    project.targets({"name": "default", "provider": "mock", "fallback_targets": ["spare"]}, WORKING)
    project.dataset("yes")
    project.eval("--out", "out")
    assert "answered_by" not in project.records()[0]["execution_metrics"]
    assert project.summary()["fallbacks"] == 0


@pytest.mark.parametrize("fallback", [{"provider": "vscode"}, {"provider": "openai", "model": "${{ NOT_THERE }}"}])
def test_a_fallback_of_a_used_target_must_be_valid(project, fallback):
    project.targets({**BROKEN, "fallback_targets": ["spare"]}, {"name": "spare", **fallback})
    project.dataset("q")
    ended = project.eval("--out", "out")
    assert ended.code == 2
    assert "Invalid target" in ended.stderr


def test_a_fallback_may_answer_for_a_judge(project):
    verdict = json.dumps({"score": 1, "reasoning": "fine"})
    project.targets(
        {"name": "default", "provider": "mock"},
        {**BROKEN, "name": "judge", "fallback_targets": ["spare"]},
        {**WORKING, "response": verdict},
    )
    project.dataset("q", evaluators=[{"type": "llm_judge"}])
    project.eval("--out", "out")
    [record] = project.records()
    assert record["score"] == 1
    [call] = record["evaluator_results"][0]["evaluator_provider_request"]["calls"]
    assert (call["target"], call["answered_by"]) == ("judge", "spare")


def test_a_changed_fallback_changes_the_target(project):
    prints = []
    for response in ("yes", "no"):
        project.targets({**BROKEN, "fallback_targets": ["spare"]}, {**WORKING, "response": response})
        project.dataset("q")
        project.eval("--out", response)
        prints.append(project.manifest(response)["targets"][0]["fingerprint"])
    assert prints[0] != prints[1]


def test_a_recording_replays_the_fallback(project):
    project.targets({**BROKEN, "fallback_targets": ["spare"]}, WORKING)
    project.dataset("q")
    assert project.eval("--out", "first", "--record", "calls.jsonl").code == 0
    assert project.eval("--out", "second", "--replay", "calls.jsonl").code == 0
    assert project.records("second")[0]["execution_metrics"]["answered_by"] == "spare"
