"""Failure groups: every failure is in exactly one, with counts that add up."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.runs.failure_groups import group_failures
from made_results import failed, judged, made, scored, unscored


def missed(evaluator, miss, score=0.0, **known):
    found = judged(evaluator, score, verdict="fail", misses=(miss,))
    return scored(score, evaluator_results=(found,), **known)


REFUNDS = [missed("contains", f"does not contain '{n}'", eval_id=f"r{n}", tags=("refund", "eu")) for n in range(18)]
OTHERS = [missed("llm_judge", "The answer is rude", eval_id=f"j{n}", tags=("eu",)) for n in range(4)]
TIMEOUTS = [failed("timeout", f"no response within {n} s", eval_id=f"t{n}") for n in range(9)]
PASSED = [scored(1.0, eval_id=f"p{n}", tags=("eu",)) for n in range(60)] + [scored(1.0, eval_id="x", tags=("refund",))]


def test_failures_are_grouped_by_cause_tag_and_wording():
    found = group_failures([*REFUNDS, *OTHERS, *TIMEOUTS, *PASSED])
    assert (found.results, found.failures, found.errors) == (92, 31, 9)
    first, second, third = found.groups
    assert (first.cause, first.count, first.tag, first.tag_failures, first.tag_results) == (
        "contains",
        18,
        "refund",
        18,
        19,
    )
    assert first.wording == "does not contain '0'"
    assert first.examples == ("r0", "r1", "r2")
    assert (second.kind, second.cause, second.count, second.tag) == ("error", "timeout", 9, None)
    assert (third.cause, third.count, third.tag) == ("llm_judge", 4, None)
    assert found.evaluators == {"contains": 18, "llm_judge": 4}
    assert found.error_classes == {"timeout": 9}
    assert found.tags == {"eu": 22, "refund": 18}


def test_the_order_of_the_results_has_no_effect():
    results = [*REFUNDS, *OTHERS, *TIMEOUTS, *PASSED]
    shuffled = random.Random(1).sample(results, len(results))
    before, after = group_failures(results), group_failures(shuffled)
    assert [(g.cause, g.count, g.tag) for g in before.groups] == [(g.cause, g.count, g.tag) for g in after.groups]


RESULTS = st.lists(
    st.one_of(
        st.builds(
            missed,
            st.sampled_from(["a", "b"]),
            st.text(max_size=30),
            st.sampled_from([0.0, 0.7]),
            tags=st.sampled_from([(), ("x",), ("x", "y")]),
        ),
        st.builds(failed, st.sampled_from(["timeout", "server"]), st.text(max_size=30)),
        st.sampled_from([scored(1.0), unscored()]),
    ),
    max_size=40,
)


@given(RESULTS)
def test_every_failure_is_in_exactly_one_group(results):
    found = group_failures(results)
    failures = [r for r in results if r.status == "error" or r.verdict in ("fail", "borderline")]
    assert sum(group.count for group in found.groups) == found.failures == len(failures)
    assert sum(found.evaluators.values()) + sum(found.error_classes.values()) == found.failures
    assert len({(g.kind, g.cause, g.tag, g.wording) for g in found.groups if g.wording}) == len(
        [g for g in found.groups if g.wording]
    )


def test_similar_wordings_are_one_group_and_others_are_not():
    rude = ["The answer is rude", "The answer is rather rude", "the answer is really rude"]
    facts = ["The date of the delivery is wrong", "The date of the delivery is missing"]
    found = group_failures([missed("llm_judge", text) for text in (*rude, *facts)])
    assert sorted(group.count for group in found.groups) == [2, 3]


def test_wordings_that_all_differ_are_one_group_without_a_wording():
    words = ["apple pie", "blue sky", "quick fox", "cold soup", "new moon", "wild rose", "old tree"]
    (found,) = group_failures([missed("llm_judge", text) for text in words]).groups
    assert (found.count, found.wording) == (7, None)


def test_many_different_failures_stay_bounded_and_complete():
    generator = random.Random(2)
    letters = "abcdefghij"
    texts = (" ".join("".join(generator.choices(letters, k=6)) for _ in range(6)) for _ in range(2_500))
    found = group_failures(missed("llm_judge", text) for text in texts)
    assert sum(group.count for group in found.groups) == found.failures == 2_500
    assert len(found.groups) <= 6


def test_the_evaluator_with_the_largest_weighted_loss_is_the_cause():
    results = (
        judged("style", 0.0, verdict="fail", weight=1.0),
        judged("facts", 0.5, verdict="fail", weight=4.0, misses=("wrong year",)),
    )
    (found,) = group_failures([scored(0.4, evaluator_results=results)]).groups
    assert (found.cause, found.wording) == ("facts", "wrong year")


def test_an_evaluator_that_errored_is_named():
    found = judged("llm_judge", None)
    result = failed("evaluator", "judge timed out", evaluator_results=(found,))
    assert group_failures([result]).groups[0].cause == "evaluator llm_judge"


@pytest.mark.parametrize(
    ("tools", "sequence"), [(["search", "search", "refund"], "search → refund"), ([], None), (["a"] * 50, "a")]
)
def test_the_usual_tool_calls_of_a_group_are_named(tools, sequence):
    messages = [{"role": "assistant", "tool_calls": [{"tool": tool} for tool in tools]}] if tools else []
    results = [missed("contains", "no", output_messages=tuple(messages)) for _ in range(3)]
    (found,) = group_failures(results).groups
    assert found.tools == (None if sequence is None else (sequence, 3))


def test_results_without_a_score_are_not_failures():
    assert group_failures([unscored(), made()]).failures == 0
