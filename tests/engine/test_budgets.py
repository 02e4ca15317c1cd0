"""Budgets in runs: what was paid, as counted by the server, stays within the budget."""

import pytest

from agentv.model.result import TokenUsage
from agentv_testing import Answer, RawReply
from platforms import only_on_posix
from waiting import wait_until

pytestmark = pytest.mark.ci

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
    server = agentv_server("yes", together=20)
    project.targets({"name": "default", "provider": "vllm", "base_url": server.url, "model": "m"})
    project.dataset(*["yes"] * 20)
    assert project.eval("--out", "out", "--budget-usd", "1", "--workers", "20").code == 0
    assert server.counts.most_at_once == 20


@only_on_posix("shards do not share a budget")
@pytest.mark.parametrize("executor", ["local", "process"])
def test_shards_share_a_budget_even_if_one_is_killed(project, agentv_server, executor):
    server = agentv_server(GOOD, latency_s=0.02)
    project.targets(model(server))
    project.dataset(*[f"question {number}" for number in range(150)])

    def arguments(number, budget_usd="0.6"):
        own = ("--shard", f"{number}/3", "--out", f"s{number}", "--budget-usd", budget_usd)
        return ("d.yaml", *own, "--workers", "4", "--executor", executor, "--processes", "1")

    killed = project.spawn(*arguments(1))
    wait_until(lambda: server.counts.requests > 8, killed)
    others = [project.spawn(*arguments(number)) for number in (2, 3)]
    wait_until(lambda: server.counts.requests > 24)
    killed.kill()
    killed.communicate()
    said = [other.communicate(timeout=200)[0] for other in others]
    assert [other.returncode for other in others] == [4, 4]
    assert 0.6 <= paid(server) <= 0.63 + 0.04
    assert "shards have spent $0.6" in said[0] + said[1]
    before = server.counts.requests
    ended = project.eval("--resume", "--out", "s2", "--quiet")
    assert ended.code == 4 and "the budget is used up: 3 shards have spent $0.6" in ended.stderr
    assert server.counts.requests <= before + 1
    assert [project.eval("--resume", "--out", f"s{number}", "--budget-usd", "2").code for number in (1, 2, 3)] == [
        0
    ] * 3
    assert sum(len(project.records(f"s{number}")) for number in (1, 2, 3)) == 150
