"""Aligned tool calls: what is kept, what differs, and the first step that does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.comparison.behaviour.trajectory import align, first_divergence
from agentv.model.message import StoredCall, stored_tool_calls

CALLS = st.lists(
    st.builds(StoredCall, st.sampled_from(["search", "read", "refund"]), st.sampled_from([None, {"q": 1}, {"q": 2}])),
    max_size=12,
)


def calls(text):
    """The calls of `search:1 read:2`."""
    return [
        StoredCall(tool, {"q": given} if given else None) for tool, _, given in (c.partition(":") for c in text.split())
    ]


@given(CALLS, CALLS)
def test_an_alignment_contains_both_trajectories_in_order(before, after):
    steps = align(before, after)
    assert [StoredCall(s.tool, s.before) for s in steps if s.kind != "only in B"] == before
    assert [StoredCall(s.tool, s.after) for s in steps if s.kind != "only in A"] == after


@given(CALLS, CALLS)
def test_only_equal_calls_are_the_same_and_only_then_is_there_no_divergence(before, after):
    steps, found = align(before, after), first_divergence(before, after)
    assert all((s.before == s.after) == (s.kind == "same") for s in steps if s.kind in ("same", "arguments"))
    assert (found is None) == (before == after) == all(s.kind == "same" for s in steps)


@given(CALLS, CALLS)
def test_the_calls_before_the_first_divergence_are_equal(before, after):
    found = first_divergence(before, after)
    if found is not None:
        place = found.step - 1
        assert before[:place] == after[:place]
        assert before[place : place + 1] != after[place : place + 1]
        assert all(step.kind == "same" for step in align(before, after)[:place])


@given(CALLS)
def test_a_trajectory_is_aligned_with_itself(trajectory):
    assert [step.kind for step in align(trajectory, trajectory)] == ["same"] * len(trajectory)


@pytest.mark.parametrize(
    ("before", "after", "kinds", "divergence"),
    [
        ("search:1 read:1", "search:2 read:1", "~=", (1, "other arguments", "search", "search")),
        ("search:1 read:1", "search:1 refund:1", "=-+", (2, "other tool", "read", "refund")),
        ("search:1 read:1", "search:1", "=-", (2, "stopped", "read", None)),
        ("search:1", "search:1 read:1", "=+", (2, "went on", None, "read")),
        ("", "search:1", "+", (1, "went on", None, "search")),
        ("search:1 search:2 read:1", "search:2 read:1", "-==", (1, "other arguments", "search", "search")),
        ("a b c d", "a x b c d", "=+===", (2, "other tool", "b", "x")),
    ],
)
def test_steps_are_marked_and_the_first_difference_is_named(before, after, kinds, divergence):
    signs = {"same": "=", "arguments": "~", "only in A": "-", "only in B": "+"}
    assert "".join(signs[step.kind] for step in align(calls(before), calls(after))) == kinds
    found = first_divergence(calls(before), calls(after))
    assert (found.step, found.kind, found.before, found.after) == divergence


def test_the_order_of_keys_in_arguments_has_no_effect():
    assert first_divergence([StoredCall("f", {"a": 1, "b": 2})], [StoredCall("f", {"b": 2, "a": 1})]) is None


@pytest.mark.parametrize(
    "call",
    [
        {"tool": "search", "input": {"q": 1}},
        {"name": "search", "arguments": {"q": 1}},
        {"type": "function", "function": {"name": "search", "arguments": {"q": 1}}},
    ],
)
def test_calls_of_other_tools_records_are_read(call):
    assert stored_tool_calls([{"role": "assistant", "tool_calls": [call, "broken", {}]}]) == [
        StoredCall("search", {"q": 1})
    ]


def test_results_in_tool_messages_are_not_counted_twice():
    message = {"tool_calls": [{"tool": "search"}]}
    assert len(stored_tool_calls([{"role": "assistant", **message}, {"role": "tool", **message}])) == 1
    assert len(stored_tool_calls([{"role": "tool", **message}])) == 1
