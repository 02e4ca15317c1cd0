"""Tool trajectories. Each row: mode, expected calls, actual calls, score."""

import pytest

from agentv.model.message import Message, ToolCall


def call(name, duration_ms=None, **arguments):
    return ToolCall(name, arguments or None, duration_ms=duration_ms)


def made(text):
    """Parse `a b(x=1) c@50`: tool calls with arguments and durations in ms."""
    calls = []
    for word in text.split():
        name, _, duration = word.partition("@")
        name, _, arguments = name.partition("(")
        pairs = (pair.split("=") for pair in arguments.rstrip(")").split(",") if pair)
        calls.append(call(name, float(duration) if duration else None, **{key: int(value) for key, value in pairs}))
    return calls


def expected(text):
    return [
        {"tool": each.tool}
        | ({"args": each.input} if each.input else {})
        | ({"max_duration_ms": each.duration_ms} if each.duration_ms is not None else {})
        for each in made(text)
    ]


# (mode, expected calls, actual calls, score)
ROWS = [
    ("in_order", "a b", "a b", 1),
    ("in_order", "a b", "a x b y", 1),
    ("in_order", "a b", "b a", 0),
    ("in_order", "a b", "a", 0),
    ("in_order", "a a", "a", 0),
    ("in_order", "a a", "a b a", 1),
    ("in_order", "a(x=1)", "a(x=2) a(x=1)", 1),
    ("in_order", "a(x=1)", "a(x=1,y=2)", 1),
    ("in_order", "a(x=1)", "a", 0),
    ("in_order", "a(x=1) b", "b a(x=1)", 0),
    ("in_order", "a@50 b", "a@40 b@99", 1),
    ("in_order", "a@50 b@50", "a@40 b@60", 2 / 3),
    ("in_order", "a@50 b@50", "a@60 b@60", 1 / 3),
    ("in_order", "a@50 b@50", "a@40 b", 1),
    ("in_order", "a@50", "a", 1),
    ("in_order", "a@50", "a@50", 1),
    ("in_order", "a@50", "a@51", 1 / 2),
    ("in_order", "a@50 b", "a@10", 0),
    ("in_order", "a", "", 0),
    ("exact", "a b", "a b", 1),
    ("exact", "a b", "a b c", 0),
    ("exact", "a b", "a x b", 0),
    ("exact", "a b", "a", 0),
    ("exact", "a b", "b a", 0),
    ("exact", "a(x=1) b", "a(x=1,y=2) b", 1),
    ("exact", "a(x=1) b", "a(x=3) b", 0),
    ("exact", "a@50 b@50", "a@50 b@51", 2 / 3),
    ("exact", "a", "", 0),
    ("superset", "a b", "b x a", 1),
    ("superset", "a b", "a x", 0),
    ("superset", "a a", "a b", 0),
    ("superset", "a a(x=1)", "a(x=1) a(x=2)", 1),
    ("superset", "a a(x=1)", "a(x=2) a(x=2)", 0),
    ("superset", "a@50", "a@60 b", 1 / 2),
    ("superset", "a", "", 0),
    ("subset", "a b", "a a", 1),
    ("subset", "a b", "b a", 1),
    ("subset", "a b", "a c", 0),
    ("subset", "a(x=1)", "a(x=2)", 0),
    ("subset", "a@50", "a@10 a@60", 2 / 3),
    ("subset", "a b", "", 1),
    ("subset", "", "", 1),
    ("subset", "", "a", 0),
    ("exact", "", "", 1),
    ("exact", "", "a", 0),
]


@pytest.mark.parametrize(("mode", "wanted", "calls", "score"), ROWS)
def test_calls_are_compared_with_expected_calls(scoring, mode, wanted, calls, score):
    messages = [Message("assistant", "", tuple(made(calls))), Message("assistant", "done")]
    entry = {"mode": mode, "expected": expected(wanted)}
    assert scoring.score("tool_trajectory", entry, messages=messages).score == pytest.approx(score)


def test_many_identical_calls_are_matched_quickly(scoring):
    entry = {"mode": "superset", "expected": [{"tool": "a"}] * 1500}
    messages = [Message("assistant", "", (call("a"),) * 1500)]
    assert scoring.score("tool_trajectory", entry, messages=messages).score == 1


MINIMUMS = [
    ({"a": 1}, "a", 1),
    ({"a": 2}, "a", 0),
    ({"a": 2}, "a b a", 1),
    ({"a": 1, "b": 1}, "a", 1 / 2),
    ({"a": 1, "b": 2, "c": 1}, "c a b b", 1),
    ({"a": 0}, "b", 1),
    ({"a": 0}, "", 0),
]


@pytest.mark.parametrize(("minimums", "calls", "score"), MINIMUMS)
def test_any_order_counts_tools_that_reach_their_minimum(scoring, minimums, calls, score):
    messages = [Message("assistant", "", (one,)) for one in made(calls)] or None
    entry = {"mode": "any_order", "minimums": minimums}
    assert scoring.score("tool_trajectory", entry, messages=messages).score == pytest.approx(score)


NESTED = {"query": {"text": "x", "top": 3}, "flag": True}

# (args, args_match, arguments of the call, score)
ARGUMENTS = [
    (NESTED, None, NESTED, 1),
    ({"query": {"text": "x"}}, None, NESTED, 0),
    ({"flag": 1}, None, NESTED, 0),
    ("any", None, None, 1),
    ("any", "exact", NESTED, 1),
    ({}, None, None, 1),
    ({}, "exact", {"a": 1}, 0),
    ({"a": 1}, "exact", {"a": 1.0}, 1),
    ({"a": 1}, "exact", {"a": 1, "b": 2}, 0),
    ({"a": 1, "b": 2}, "subset", {"a": 1}, 1),
    ({"a": 1}, "subset", {"a": 1, "b": 2}, 0),
    ({"a": 1}, "subset", None, 1),
    ({"a": 1}, "exact", None, 0),
    (NESTED, ["unheard"], None, 1),
    ({"a": 1}, "ignore", {"a": 2}, 1),
    (NESTED, ["query.text"], {"query": {"text": "x"}}, 1),
    (NESTED, ["query.text"], {"query": {"text": "y"}}, 0),
    (NESTED, ["flag", "unheard"], {"flag": True}, 1),
    ({"a.b": 1}, ["a.b"], {"a.b": 1}, 1),
    ({"a": 1}, None, "no object", 0),
]


@pytest.mark.parametrize(("args", "match", "given", "score"), ARGUMENTS)
def test_arguments_are_compared_by_args_match(scoring, args, match, given, score):
    item = {"tool": "t", "args": args} | ({"args_match": match} if match else {})
    messages = [Message("assistant", "", (ToolCall("t", given),))]
    assert scoring.score("tool_trajectory", {"mode": "exact", "expected": [item]}, messages=messages).score == score


def test_an_answer_without_calls_is_reported(scoring):
    score = scoring.score("tool_trajectory", {"mode": "any_order", "minimums": {"a": 1}}, "text")
    assert score.misses == ("No trace available for evaluation",)


def test_sentences_describe_the_alignment(scoring):
    messages = [Message("assistant", "", tuple(made("a x b(n=2)")))]
    entry = {"mode": "in_order", "expected": expected("a b(n=1) c")}
    score = scoring.score("tool_trajectory", entry, messages=messages)
    assert score.hits == ("expected call 1, a, is call 1",)
    assert score.misses == (
        'expected call 2, b({"n":1}), was made as b({"n":2})',
        "expected call 3, c, was not made",
    )
    assert score.reasoning == "Calls: a, x, b"
    assert score.details == {"alignment": ["= a()", "~ x()", '~ b({"n":2})', '- b({"n":1})', "- c"]}


# (mode, expected calls, actual calls, alignment)
ALIGNMENTS = [
    ("in_order", "a b c", "a c", "= a() | - b | = c()"),
    ("in_order", "a b", "x a y b z", "~ x() | = a() | ~ y() | = b() | ~ z()"),
    ("in_order", "a b c", "c a b", "~ c() | = a() | = b() | - c"),
    ("exact", "a b c", "a x c", "= a() | + x() | - b | = c()"),
    ("exact", "a b", "a b b", "= a() | = b() | + b()"),
    ("exact", "a", "b c", "+ b() | + c() | - a"),
    ("superset", "a b", "x a", "~ x() | = a() | - b"),
    ("subset", "a b", "x a a", "+ x() | = a() | = a()"),
]


@pytest.mark.parametrize(("mode", "wanted", "calls", "shown"), ALIGNMENTS)
def test_details_list_expected_and_actual_calls(scoring, mode, wanted, calls, shown):
    messages = [Message("assistant", "", tuple(made(calls)))]
    entry = {"mode": mode, "expected": expected(wanted)}
    assert scoring.score("tool_trajectory", entry, messages=messages).details["alignment"] == shown.split(" | ")


def test_one_missing_call_does_not_hide_others(scoring):
    messages = [Message("assistant", "", tuple(made("a c d")))]
    score = scoring.score("tool_trajectory", {"mode": "exact", "expected": expected("a b c d")}, messages=messages)
    assert score.misses == ("expected call 2, b, was not made",)
    assert len(score.hits) == 3


def test_a_failed_call_and_its_retry_are_two_calls(scoring):
    failed = ToolCall("search", {"q": "x"}, output={"error": "timed out"})
    again = ToolCall("search", {"q": "x"}, output=["found"])
    messages = [Message("assistant", None, (failed,)), Message("assistant", None, (again,)), Message("assistant", "ok")]
    once, twice = ({"mode": "exact", "expected": [{"tool": "search"}] * times} for times in (1, 2))
    assert scoring.score("tool_trajectory", once, messages=messages).score == 0
    assert scoring.score("tool_trajectory", twice, messages=messages).score == 1


def test_parallel_calls_keep_the_order_of_their_message(scoring):
    messages = [Message("assistant", None, tuple(made("b a"))), Message("assistant", None, tuple(made("c")))]
    scores = {
        mode: scoring.score("tool_trajectory", {"mode": mode, "expected": expected("a b c")}, messages=messages).score
        for mode in ("in_order", "exact", "superset", "subset")
    }
    assert scores == {"in_order": 0, "exact": 0, "superset": 1, "subset": 1}


def test_tool_results_are_not_calls(scoring):
    result = Message("tool", None, (ToolCall("a", output="found", id="1"),))
    messages = [Message("assistant", None, (ToolCall("a", id="1"),)), result, Message("assistant", "done")]
    assert scoring.score("tool_trajectory", {"mode": "exact", "expected": expected("a")}, messages=messages).score == 1
    alone = [result, Message("assistant", "done")]
    assert scoring.score("tool_trajectory", {"mode": "exact", "expected": expected("a")}, messages=alone).score == 1


def test_thousands_of_calls_are_compared_quickly(scoring):
    messages = [Message("assistant", "", tuple(made("a " * 20_000)))]
    score = scoring.score("tool_trajectory", {"mode": "in_order", "expected": expected("a b a")}, messages=messages)
    assert score.score == 0
    assert score.details["alignment"][-1].startswith("… ")


def test_a_limit_without_a_duration_is_skipped_with_a_warning(scoring):
    messages = [Message("assistant", "", tuple(made("a b@10")))]
    score = scoring.score("tool_trajectory", {"mode": "exact", "expected": expected("a@50 b@50")}, messages=messages)
    assert score.score == 1
    assert "call 1, a, has no duration; its limit was not checked" in score.reasoning


OUTPUT = {"results": [{"link": "a", "title": "A"}, {"link": "b"}], "total": 2}


@pytest.mark.parametrize(
    ("wanted", "output", "score"),
    [
        ({"total": 2}, OUTPUT, 1),
        ({"results": [{"link": "b"}]}, OUTPUT, 1),
        ({"results": [{"link": "a"}, {"link": "b"}]}, OUTPUT, 1),
        ({"results": [{"link": "c"}]}, OUTPUT, 0),
        ({"total": 2}, '{"total": 2}', 1),
        ({"total": 2}, "2 results", 0),
        ("2 results", "2 results", 1),
        ({"total": 2}, None, 0),
    ],
)
def test_the_expected_output_of_a_call_is_part_of_its_result(scoring, wanted, output, score):
    answer = Message("assistant", "", (ToolCall("search", None, output),))
    entry = {"mode": "in_order", "expected": [{"tool": "search", "output": wanted}]}
    found = scoring.score("tool_trajectory", entry, messages=[answer])
    assert found.score == score
    assert score or "its result does not have the expected output" in found.misses[0]
