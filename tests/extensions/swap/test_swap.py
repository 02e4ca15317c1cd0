"""`agentv swap`: quality, cost, time, refusals and tool calls of two models, and a bridge between two judges."""

import json
import re

import pytest

from agentv.extensions.swap.model_swap import is_refusal
from agentv.model.result import ExecutionMetrics
from made_results import failed, made

TARGETS = """
import json

def number(prompt):
    return int(prompt.split()[-1])

def old(prompt):
    return "yes" if number(prompt) % 2 else "no"

def good(prompt):
    return "yes"

def bad(prompt):
    return "I'm sorry, but I can't help with that." if number(prompt) % 4 == 0 else "no"

def slow(prompt):
    if number(prompt) % 4 == 1:
        raise TimeoutError("no answer in 30 s")
    return "yes"

def judge(prompt, yes):
    "Give yes to answers that contain yes, and 0.2 less to all others."
    found = "yes" in prompt.rpartition("ANSWER:")[2]
    return json.dumps({"score": yes if found else yes - 0.2, "hits": [], "misses": [], "reasoning": "so"})

def strict(prompt):
    return judge(prompt, 0.6)

def lenient(prompt):
    return judge(prompt, 0.9)
"""
JUDGED = {"type": "llm_judge", "prompt": "Rate it. ANSWER: {{ candidate_answer }}"}


@pytest.fixture
def models(project):
    """A project with models that answer 40 questions, and two judges."""
    project.write("made.py", TARGETS)
    names = ("old", "good", "bad", "slow", "strict", "lenient")
    project.targets(*({"name": name, "provider": "python", "function": f"made.py:{name}"} for name in names))
    project.dataset(*(f"question {number}" for number in range(40)))
    return project


def swapped(project, *arguments, code=0):
    ended = project.command("swap", *arguments, "--out", "swap", "--json", "--quiet")
    assert ended.code == code, ended.stderr
    return json.loads(ended.stdout)


def test_a_better_model_is_recommended(models):
    found = swapped(models, "old", "good", "d.yaml")
    assert found["recommendation"].startswith("Switch: 'good' is better by 0.500 (95 % ")
    assert found["quality"]["summary"]["mean_delta"] == 0.5
    records = models.records("swap/answers")
    assert len(records) == 80 and {each["target"] for each in records} == {"old", "good"}


def test_a_worse_model_is_not_and_its_refusals_are_counted(models):
    found = swapped(models, "old", "bad", "d.yaml", code=1)
    assert found["recommendation"].startswith("Do not switch: 'bad' is worse by 0.500")
    assert "It has more refusals, 10 of 40 instead of 0 of 40" in found["recommendation"]
    refusals = next(rate for rate in found["rates"] if rate["name"] == "refusals")
    assert (refusals["before"], refusals["after"], refusals["of_after"]) == (0, 10, 40)
    assert refusals["paired"]["mean_delta"] == 0.25


def test_too_few_cases_cannot_tell(models):
    found = swapped(models, "old", "good", "d.yaml", "--limit", "3")
    assert found["recommendation"].startswith("Can't tell yet: the difference in quality is +0.667")
    assert swapped(models, "old", "good", "d.yaml", "--limit", "3", "--resume", "--fail-on", "inconclusive", code=5)


def test_errors_that_decide_are_named_with_the_number_that_may_hide_failures(models):
    found = swapped(models, "old", "slow", "d.yaml", "--max-retries", "0", code=5)
    start = "Can't tell: 'slow' errored in 10 more cases than 'old' (10 against 0). Without errors, 'slow' is better by"
    assert found["recommendation"].startswith(start)
    assert re.search(r"'slow' stays better unless more than \d of its 10 errors would have", found["recommendation"])


@pytest.mark.parametrize(("new", "start"), [("good", "Switch: the judge scores 'good' higher by 0.100"),
    ("bad", "Do not switch: the judge scores 'bad' lower by 0.100")])  # fmt: skip
def test_a_judge_without_labels_only_scores_a_model_higher_or_lower(models, new, start):
    models.dataset(*(f"question {number}" for number in range(40)), evaluators=[JUDGED])
    found = swapped(models, "old", new, "d.yaml", "--judge", "strict", code=int(new == "bad"))
    assert found["recommendation"].startswith(start)


def test_a_margin_shows_that_a_model_is_good_enough(models):
    models.targets(*({"name": name, "provider": "mock", "response": "yes"} for name in ("a", "b")))
    found = swapped(models, "a", "b", "d.yaml", "--margin", "0.1")
    assert found["recommendation"].startswith("Switch if the other figures suit you: 'b' is at most 0.1 worse")


def test_a_bridge_separates_the_judges_from_the_models(models):
    models.dataset(*(f"question {number}" for number in range(40)), evaluators=[JUDGED])
    found = swapped(models, "old", "good", "d.yaml", "--old-judge", "strict", "--new-judge", "lenient")
    bridge = found["bridge"]
    assert found["quality"]["summary"]["mean_delta"] == pytest.approx(0.1)
    assert bridge["quality"]["summary"]["mean_delta"] == pytest.approx(0.1)
    assert bridge["judge_shift"]["mean_delta"] == pytest.approx(0.3)
    assert bridge["judge_shift"]["n"] == 80
    assert bridge["total"]["mean_delta"] == pytest.approx(0.4)
    answers = {(each["eval_id"], each["target"]): each["candidate_answer"] for each in models.records("swap/answers")}
    rescored = models.records("swap/new-judge")
    assert {(each["eval_id"], each["target"]): each["candidate_answer"] for each in rescored} == answers


def test_cost_time_tokens_and_tool_calls_are_compared(models):
    def priced(name, tokens, *tools):
        calls = [{"tool": tool, "input": {"q": 1}} for tool in tools]
        usage = {"input": tokens, "output": 10}
        prices = {"input": 1, "output": 1}
        known = {"token_usage": usage, "prices": prices, "tool_calls": calls}
        return {"name": name, "provider": "mock", "response": "yes", **known}

    models.targets(priced("a", 1_000_000, "search", "read"), priced("b", 500_000, "search", "refund"))
    found = swapped(models, "a", "b", "d.yaml", "--limit", "8")
    assert found["quality"]["cost_usd"]["ratio"]["value"] == pytest.approx(0.5, rel=0.01)
    tokens = found["tokens"][0]
    assert (tokens["name"], tokens["before"], tokens["after"]) == ("input tokens", 1e6, 5e5)
    assert found["tool_calls"] == {"answers": 8, "with_calls": 8, "differing": 8, "first_at": {"read": 8}}
    assert "costs 0.5 times as much" in found["recommendation"]


def test_the_settings_of_a_target_are_used_with_another_model(models, agentv_server):
    server = agentv_server("yes")
    known = {"provider": "openai", "base_url": server.url, "api_key": "k" * 20}
    models.targets({"name": "support", "model": "m-1", "system_prompt": "Be brief.", **known})
    swapped(models, "support", "support:m-2", "d.yaml", "--limit", "1")
    bodies = [request.body for request in server.requests]
    assert sorted(body["model"] for body in bodies) == ["m-1", "m-2"]
    assert all(body["messages"][0]["content"] == "Be brief." for body in bodies)


def test_a_model_needs_no_targets_file(models):
    (models.path / "targets.yaml").unlink()
    ended = models.command("swap", "openai:m-1", "anthropic:m-2", "d.yaml", "--dry-run", "--limit", "2")
    assert ended.code == 0, ended.stderr
    assert "openai:m-1" in ended.stdout and "anthropic:m-2" in ended.stdout


@pytest.mark.parametrize(("option", "start"), [("--md", "### Switch"), ("--html", "Switch")])
def test_reports_for_people(models, option, start):
    arguments = ("--html", "page.html") if option == "--html" else (option,)
    ended = models.command("swap", "old", "good", "d.yaml", "--quiet", *arguments)
    assert ended.stdout.startswith(start)
    if option == "--html":
        page = (models.path / "page.html").read_text()
        assert "mean score" in page and "<script" not in page


def test_an_interrupted_swap_is_resumed(models):
    priced = {"token_usage": {"input": 1_000_000, "output": 0}, "prices": {"input": 1, "output": 1}}
    models.targets(*({"name": name, "provider": "mock", "response": "yes", **priced} for name in ("a", "b")))
    arguments = ("--out", "swap", "--workers", "1", "--quiet")
    ended = models.command("swap", "a", "b", "d.yaml", "--limit", "4", "--budget-usd", "5", *arguments)
    assert ended.code == 4
    assert "Resume with: agentv swap --resume --out swap --budget-usd USD" in ended.stderr
    ended = models.command("swap", "--resume", "--budget-usd", "50", *arguments)
    assert ended.code == 0 and len(models.records("swap/answers")) == 8


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("old",), "Name both models and the datasets"),
        (("old", "old", "d.yaml"), "OLD and NEW are the same target"),
        (("old", "nobody", "d.yaml"), "Unknown target 'nobody'"),
        (("old", "nobody:x", "d.yaml"), "Unknown target 'nobody:x'"),
        (("old", "good", "d.yaml", "--json", "--md"), "--json and --markdown cannot be combined"),
    ],
)
def test_mistakes_are_explained(models, arguments, problem):
    ended = models.command("swap", *arguments)
    assert ended.code == 2
    assert problem in ended.stderr


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I\u2019m unable to assist with this request.", True),
        ("Unfortunately, I cannot provide medical advice.", True),
        ("I can't do that.", True),
        ("As an AI, I won't answer this.", True),
        ("I am sorry to hear that. Your refund is on its way.", False),
        ("I'm sorry for the delay. We can help: call us.", False),
        ("The command cannot find the file.", False),
        ("Yes.", False),
        ("", False),
    ],
)
def test_refusals_are_recognized_by_how_they_begin(answer, expected):
    assert is_refusal(made(candidate_answer=answer)) is expected


def test_refusals_are_recognized_by_error_class_and_stop_reason():
    assert is_refusal(failed("refused", "blocked"))
    assert not is_refusal(failed("timeout", "I'm sorry, I can't"))
    assert is_refusal(made(candidate_answer="x", execution_metrics=ExecutionMetrics(stop_reason="content_filter")))
