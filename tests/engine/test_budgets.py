"""Budgets in runs: what was paid, as counted by the server, stays within the budget."""

import pytest

from agentv.model.result import TokenUsage
from agentv_testing import Answer, RawReply

CENT = TokenUsage(1000, 900)
PRICES = {"input": 1, "output": 10}
GOOD = Answer("yes", usage=CENT)
JUDGED = Answer('{"score": 1, "reasoning": "good", "hits": [], "misses": []}', usage=CENT)


def model(server, name="default", **settings):
    own = {"provider": "openai", "base_url": server.url, "model": name, "prices": PRICES}
    return {"name": name, **own, **settings}


def paid(server):
    return 0.01 * server.counts.requests


@pytest.mark.parametrize(
    "answer",
    [
        Answer(refusal="no", usage=CENT),
        Answer("", stop_reason="length", usage=CENT),
        RawReply(b'{"id": "x", "choices": [{"message": {"content": "yes, this reply is cut off he'),
    ],
    ids=["refused", "no output", "cut off"],
)
def test_errors_that_were_paid_for_use_up_the_budget(project, agentv_server, answer):
    server = agentv_server(answer)
    project.targets(model(server, max_output_tokens=900, max_retries=0))
    project.dataset(*["question " * 450] * 60)
    ended = project.eval("--out", "out", "--budget-usd", "0.1", "--workers", "4")
    assert (ended.code, "the budget is used up" in ended.stderr) == (4, True)
    assert 0.1 <= paid(server) <= 0.13


def test_calls_in_flight_are_reserved(project, agentv_server):
    server = agentv_server(GOOD, latency_s=0.02)
    project.targets(model(server))
    project.dataset(*["yes"] * 300)
    assert project.eval("--out", "out", "--budget-usd", "1", "--workers", "100").code == 4
    assert 0.9 <= paid(server) <= 1.05
    assert project.summary()["cost_usd"] == pytest.approx(paid(server))


@pytest.mark.parametrize("executor", ["local", "process", pytest.param("ray", marks=pytest.mark.cluster)])
def test_judges_are_reserved_with_the_answers_that_they_score(project, agentv_server, executor):
    server = agentv_server(lambda request: JUDGED if request.model == "judge" else GOOD, latency_s=0.01)
    project.targets(model(server), model(server, "judge"))
    project.dataset(*["yes"] * 120, evaluators=[{"type": "llm_judge", "votes": 2}])
    arguments = ("--target", "default", "--out", "out", "--workers", "60", "--executor", executor, "--processes", "2")
    assert project.eval(*arguments, "--budget-usd", "1").code == 4
    assert 0.9 <= paid(server) <= 1.08
    records, manifest = project.records(), project.manifest()
    assert all(record["status"] == "ok" for record in records)
    assert 0.03 * len(records) + manifest.get("unrecorded_cost_usd", 0) == pytest.approx(paid(server))
    before = paid(server)
    assert project.eval("--resume", "--out", "out", "--budget-usd", "2").code == 4
    assert 1.9 <= paid(server) <= 2.1 and paid(server) > before


def test_a_tool_loop_stops_within_the_budget(project, agentv_server):
    from agentv.model.message import ToolCall

    project.write("tools.py", "def look(place):\n    return 'nothing'\n")
    server = agentv_server(Answer(None, (ToolCall("look", {"place": "here"}),), usage=CENT))
    tool = {"name": "look", "function": "tools.py:look", "parameters": {"type": "object"}}
    project.targets(model(server, tools=[tool], max_turns=20))
    project.dataset("yes", "yes")
    assert project.eval("--out", "out", "--budget-usd", "0.05").code == 4
    assert paid(server) == pytest.approx(0.06)
    assert project.records() == []
    assert project.manifest()["unrecorded_cost_usd"] == pytest.approx(0.06)


def test_a_resumed_run_knows_what_it_has_spent(project, agentv_server):
    server = agentv_server(GOOD)
    project.targets(model(server, workers=1))
    project.dataset(*["yes"] * 12)
    assert project.eval("--out", "out", "--budget-usd", "0.05").code == 4
    assert project.eval("--resume", "--out", "out").code == 4
    assert server.counts.requests == 5
    assert project.eval("--resume", "--out", "out", "--budget-usd", "0.08").code == 4
    assert server.counts.requests == 8
    assert project.eval("--resume", "--out", "out", "--budget-usd", "1").code == 0
    assert (server.counts.requests, len(project.records())) == (12, 12)


def test_free_targets_run_at_full_speed_with_a_budget(project, agentv_server):
    server = agentv_server("yes", latency_s=0.1)
    project.targets({"name": "default", "provider": "vllm", "base_url": server.url, "model": "m"})
    project.dataset(*["yes"] * 20)
    assert project.eval("--out", "out", "--budget-usd", "1", "--workers", "20").code == 0
    assert server.counts.most_at_once == 20
