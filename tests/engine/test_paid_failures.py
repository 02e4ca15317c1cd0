"""Replies that were paid for but end in an error: their tokens and cost are in the record and in the summary."""

import json

import pytest

from agentv.model.result import TokenUsage
from agentv_testing import Answer, RawReply

USAGE = TokenUsage(1000, 100)
COST = 0.002  # of one call
REPORTED = {"prompt_tokens": 1000, "completion_tokens": 100}
PRICES = {"input": 1, "output": 10}


def openai(server, **settings):
    own = {"provider": "openai", "base_url": server.url, "model": "m", "prices": PRICES, "workers": 1}
    return {"name": "default", **own, **settings}


def used(record):
    return {name: record["execution_metrics"][name] for name in ("token_usage", "cost_usd")}


BILLED = {
    "refused": Answer(refusal="I cannot help with that.", usage=USAGE),
    "filtered": Answer("x", stop_reason="content_filter", usage=USAGE),
    "cut off while thinking": Answer("", stop_reason="length", usage=USAGE),
    "without a message": RawReply(json.dumps({"choices": [{"finish_reason": "stop"}], "usage": REPORTED}).encode()),
}


@pytest.mark.parametrize("answer", BILLED.values(), ids=BILLED)
def test_an_unusable_reply_has_its_cost(project, agentv_server, answer):
    project.targets(openai(agentv_server(answer)))
    project.dataset("yes")
    assert project.eval("--out", "out").code == 3
    record = project.by_id()["c0"]
    assert record["status"] == "error"
    assert record["execution_metrics"]["cost_usd"] == pytest.approx(COST)
    assert project.summary()["cost_usd"] == pytest.approx(COST)


@pytest.mark.parametrize(
    ("provider", "address"), [("anthropic", "origin"), ("gemini", "origin"), ("openai", "url")], ids=lambda each: each
)
def test_every_api_reports_the_tokens_of_a_refusal(project, agentv_server, provider, address):
    server = agentv_server(Answer("x", refusal="no", stop_reason="content_filter", usage=USAGE))
    settings = {"provider": provider, "base_url": getattr(server, address), "model": "m", "api_key": "none"}
    project.targets({"name": "default", **settings, "prices": PRICES})
    project.dataset("yes")
    project.eval("--out", "out")
    record = project.by_id()["c0"]
    assert (record["error"]["class"], record["execution_metrics"]["cost_usd"]) == ("refused", pytest.approx(COST))


def test_an_answer_that_cannot_be_transformed_keeps_its_cost(project, agentv_server):
    project.targets(openai(agentv_server(Answer("no JSON", usage=USAGE)), transform={"json_path": "$.a"}))
    project.dataset("yes")
    project.eval("--out", "out")
    assert project.by_id()["c0"]["execution_metrics"]["cost_usd"] == pytest.approx(COST)


def test_a_fallback_adds_to_the_cost_of_the_refused_call(project, agentv_server):
    def answer(request):
        return BILLED["refused"] if request.model == "m" else Answer("yes", usage=USAGE)

    server = agentv_server(answer)
    project.targets(openai(server, fallback_targets=["other"]), {**openai(server), "name": "other", "model": "n"})
    project.dataset("yes")
    assert project.eval("--target", "default", "--out", "out").code == 0
    metrics = project.by_id()["c0"]["execution_metrics"]
    assert (metrics["token_usage"]["input"], metrics["cost_usd"]) == (2000, pytest.approx(2 * COST))


def test_a_retried_reply_was_paid_for_too(project, agentv_server):
    error = {"error": {"message": "upstream", "code": 502}, "usage": REPORTED}
    replies = iter([RawReply(json.dumps(error).encode())])
    server = agentv_server(lambda _: next(replies, Answer("yes", usage=USAGE)))
    project.targets(openai(server, retry_initial_delay_ms=1))
    project.dataset("yes")
    assert project.eval("--out", "out").code == 0
    record = project.by_id()["c0"]
    assert (record["attempts"], record["execution_metrics"]["cost_usd"]) == (2, pytest.approx(2 * COST))


def test_a_conversation_that_fails_keeps_the_cost_of_all_its_turns(project, agentv_server):
    server = agentv_server({"one": Answer("yes", usage=USAGE), "two": BILLED["refused"]})
    project.targets(openai(server))
    project.dataset({"input": "one", "turns": [{"input": "two"}]})
    project.eval("--out", "out")
    assert project.by_id()["c0"]["execution_metrics"]["cost_usd"] == pytest.approx(2 * COST)


def test_a_judge_that_refuses_has_its_cost(project, agentv_server):
    server = agentv_server(BILLED["refused"])
    project.targets({"name": "default", "provider": "mock"}, {**openai(server), "name": "judge"})
    project.dataset("yes", evaluators=[{"type": "llm_judge", "votes": 2}])
    project.eval("--target", "default", "--out", "out")
    (found,) = project.by_id()["c0"]["evaluator_results"]
    assert found["score"] is None
    assert (found["cost_usd"], found["token_usage"]["input"]) == (pytest.approx(2 * COST), 2000)
    assert project.summary()["judge_cost_usd"] == pytest.approx(2 * COST)


def test_a_replay_repeats_the_cost_of_failures(project, agentv_server):
    project.targets(openai(agentv_server(BILLED["refused"])))
    project.dataset("yes")
    project.eval("--out", "out", "--record", "calls.jsonl")
    project.eval("--out", "again", "--replay", "calls.jsonl")
    assert used(project.by_id("again")["c0"]) == used(project.by_id()["c0"])


CUT = RawReply(b'{"id": "x", "choices": [{"message": {"content": "yes, this reply is cut off he')


def test_a_reply_that_was_cut_off_has_an_estimated_cost(project, agentv_server):
    replies = iter([Answer("yes", usage=USAGE), CUT])
    project.targets(openai(agentv_server(lambda _: next(replies)), max_retries=0))
    project.dataset("one", "two")
    ended = project.eval("--out", "out")
    costs = [record["execution_metrics"]["cost_usd"] for record in project.records()]
    assert costs == [pytest.approx(COST)] * 2  # as much as the other call
    assert [record["execution_metrics"].get("estimated_cost_usd") for record in project.records()] == [None, COST]
    summary = project.summary()
    assert (summary["cost_usd"], summary["estimated_cost_usd"]) == (pytest.approx(2 * COST), pytest.approx(COST))
    assert "$0.0040 (2 jobs, $0.0020 of it estimated)" in ended.stdout


def test_a_cut_off_reply_that_was_retried_was_paid_for_too(project, agentv_server):
    server = agentv_server(Answer("yes", usage=USAGE), faults=[None, "half_closed"])
    project.targets(openai(server, retry_initial_delay_ms=1))
    project.dataset("one", "two")
    assert project.eval("--out", "out").code == 0
    (metrics,) = (each for record in project.records() if "estimated_cost_usd" in (each := record["execution_metrics"]))
    assert (metrics["cost_usd"], metrics["estimated_cost_usd"]) == (pytest.approx(2 * COST), pytest.approx(COST))


def test_a_judge_reply_that_was_cut_off_has_an_estimated_cost(project, agentv_server):
    project.targets(
        {"name": "default", "provider": "mock"}, {**openai(agentv_server(CUT), max_retries=0), "name": "judge"}
    )
    project.dataset("yes", evaluators=[{"type": "llm_judge"}])
    project.eval("--target", "default", "--out", "out")
    (found,) = project.by_id()["c0"]["evaluator_results"]
    (call,) = found["evaluator_provider_request"]["calls"]
    assert found["cost_usd"] == call["cost_usd"] == call["estimated_cost_usd"] > 0


def test_estimated_costs_count_against_the_budget_after_a_resume(project, agentv_server):
    server = agentv_server(CUT)
    project.targets(openai(server, max_retries=0, max_output_tokens=1000))
    project.dataset(*["yes"] * 9)
    assert project.eval("--out", "out", "--budget-usd", "0.03").code == 4
    assert (server.counts.requests, project.eval("--resume", "--out", "out", "--budget-usd", "0.031").code) == (3, 4)
    assert server.counts.requests <= 4


def test_a_call_that_timed_out_counts_in_the_budget_as_its_expected_cost(project, agentv_server):
    project.targets(openai(agentv_server(Answer("yes", usage=USAGE), faults=(None, "hang")), max_retries=0))
    project.dataset("yes 1", "yes 2", "yes 3", "yes 4", "yes 5")
    limits = ("--timeout", "3", "--budget-usd", str(2.5 * COST), "--max-outage", "0")
    ended = project.eval("--out", "out", *limits)
    assert ended.code == 4, ended.stderr
    assert [record["status"] for record in project.records()] == ["ok", "error", "ok"]
    assert project.by_id()["c1"]["execution_metrics"]["cost_usd"] == pytest.approx(COST)
    assert project.summary()["cost_usd"] == pytest.approx(3 * COST)
