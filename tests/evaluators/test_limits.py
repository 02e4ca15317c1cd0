"""Limits on time, cost, tokens and calls. An unknown figure is an error, never zero."""

import math

import pytest

from agentv.model.message import Message, ToolCall
from agentv.model.result import ExecutionMetrics, TokenUsage

USED = {"usage": TokenUsage(100, 50, cached=80), "cost_usd": 0.3, "duration_ms": 1500.0}


def messages_with(*tools, answers=1):
    """Return the messages of a target that called these tools."""
    return [Message("assistant", "", tuple(ToolCall(tool) for tool in tools)), *[Message("assistant", "x")] * answers]


# (type, settings, usage, score)
ROWS = [
    ("latency", {"threshold": 1500}, USED, 1),
    ("latency", {"threshold": 1499.9}, USED, 0),
    ("latency", {"threshold": 2000}, USED, 1),
    ("latency", {"max_duration_ms": 0}, {"duration_ms": 0.0}, 1),
    ("cost", {"budget": 0.3}, {"cost_usd": 0.1 + 0.2}, 1),
    ("cost", {"budget": 0.29}, USED, 0),
    ("cost", {"budget": 0}, {"cost_usd": 0.0}, 1),
    ("cost", {"threshold": 1}, USED, 1),
    ("token_usage", {"max_total": 150}, USED, 1),
    ("token_usage", {"max_total": 149}, USED, 0),
    ("token_usage", {"max_input": 100, "max_output": 50}, USED, 1),
    ("token_usage", {"max_input": 99, "max_output": 50}, USED, 0),
    ("token_usage", {"max_input": 100, "max_output": 49}, USED, 0),
    ("token_usage", {"maxTotal": 1000, "max_output": 1}, USED, 0),
    ("execution_metrics", {"max_tokens": 150, "max_cost_usd": 0.2, "max_duration_ms": 1500}, USED, 2 / 3),
    ("execution_metrics", {"max_tokens": 149}, USED, 0),
    ("execution_metrics", {"max_tool_calls": 2}, {"messages": messages_with("a", "b")}, 1),
    ("execution_metrics", {"max_tool_calls": 1}, {"messages": messages_with("a", "b")}, 0),
    ("execution_metrics", {"max_tool_calls": 0}, {}, 1),
    ("execution_metrics", {"max_llm_calls": 3}, {"messages": messages_with("a", answers=2)}, 1),
    ("execution_metrics", {"max_llm_calls": 2}, {"messages": messages_with("a", answers=2)}, 0),
    (
        "execution_metrics",
        {"target_exploration_ratio": 0.5},
        {"messages": messages_with("Read", "grep", "edit", "run")},
        1,
    ),
    ("execution_metrics", {"target_exploration_ratio": 0.7}, {"messages": messages_with("Read", "edit")}, 1),
    ("execution_metrics", {"target_exploration_ratio": 0.71}, {"messages": messages_with("Read", "edit")}, 0),
    (
        "execution_metrics",
        {"target_exploration_ratio": 0.6, "exploration_tolerance": 0.1},
        {"messages": messages_with("WebSearch", "edit")},
        1,
    ),
    ("execution_metrics", {"target_exploration_ratio": 0.6}, {}, 0),
]


@pytest.mark.parametrize(("type_", "entry", "used", "score"), ROWS)
def test_limits_are_checked(scoring, type_, entry, used, score):
    assert scoring.score(type_, entry, "x", **used).score == pytest.approx(score)


FAILURES = [
    ("latency", {"threshold": 1}, {}, "The duration of the answer is unknown"),
    ("cost", {"budget": 1}, {}, "The cost of the answer is unknown"),
    ("cost", {"budget": 1}, {"cost_usd": math.nan}, "The cost of the answer is unknown"),
    ("cost", {"budget": 1}, {"cost_usd": math.inf}, "The cost of the answer is unknown"),
    ("token_usage", {"max_total": 1}, {"cost_usd": 1.0}, "The token usage of the answer is unknown"),
    ("execution_metrics", {"max_tokens": 1, "max_tool_calls": 9}, {}, "The token usage of the answer is unknown"),
    ("execution_metrics", {"max_cost_usd": 1}, {}, "The cost of the answer is unknown"),
    ("execution_metrics", {"max_tool_calls": 9}, {"calls_unknown": True}, "The calls of the target are unknown"),
    ("execution_metrics", {"max_llm_calls": 9}, {"calls_unknown": True}, "The calls of the target are unknown"),
    ("tool_trajectory", {"mode": "subset", "expected": [{"tool": "a"}]}, {"calls_unknown": True}, "are unknown"),
]


@pytest.mark.parametrize(("type_", "entry", "used", "message"), FAILURES)
def test_an_unknown_figure_is_an_error(scoring, type_, entry, used, message):
    assert message in scoring.failure(type_, entry, "x", **used)


def test_measured_figures_override_reported_ones(scoring):
    measured = ExecutionMetrics(duration_ms=10.0)
    judgement = scoring.judgement("x", duration_ms=5000.0, execution_metrics=measured)
    assert scoring.run(scoring.evaluator("latency", threshold=100), judgement).score == 1


def test_sentences_contain_the_figures(scoring):
    score = scoring.score("execution_metrics", {"max_tokens": 200, "max_cost_usd": 0.25}, "x", **USED)
    assert score.hits == ("150 tokens, within the limit of 200",)
    assert score.misses == ("0.3 USD, over the limit of 0.25",)
