"""Functions as evaluators in `agentv.evaluate`, and `agentv.assert_passes`."""

import asyncio
from functools import partial

import pytest

import agentv
from agentv import AgentvError, Score

CALLS = [{"role": "assistant", "content": "Done", "tool_calls": [{"tool": "search", "input": {"q": "x"}}]}]


def ends_with_full_stop(answer):
    return answer.endswith(".")


def searched(tool_calls):
    return [call.tool for call in tool_calls] == ["search"]


async def half(case, expected):
    await asyncio.sleep(0)
    return Score(0.5, hits=(f"{case.id}: {expected}",))


class Longer:
    def __init__(self, than):
        self.than = than

    def __call__(self, text):
        return len(text) > self.than


def run(answer, *evaluators, **options):
    case = {"id": "a", "input": "question", "expected_output": "reference"}
    (result,) = agentv.evaluate([case], lambda prompt: answer, list(evaluators), **options).results
    return result


def scores(result):
    return {found.name: found.score for found in result.evaluator_results}


def test_functions_and_entries_are_evaluators_in_order(folder):
    found = run("Yes.", ends_with_full_stop, {"type": "contains", "value": "No"}, lambda answer: 0.25)
    assert scores(found) == {"ends_with_full_stop": 1.0, "contains": 0.0, "lambda": 0.25}
    assert list(scores(found)) == ["ends_with_full_stop", "contains", "lambda"]


@pytest.mark.parametrize(
    ("function", "score"),
    [
        (searched, 1.0),
        (half, 0.5),
        (Longer(2), 1.0),
        (partial(lambda least, answer: len(answer) >= least, 5), 0.0),
        (
            lambda output, input, expected_output: (
                (output, input, expected_output) == ("Done", "question", "reference")
            ),
            1,
        ),
        (lambda context: context.candidate_answer == "Done" and context.case.id == "a", 1.0),
        (lambda messages: messages[0]["tool_calls"][0]["input"] == {"q": "x"}, 1.0),
        (lambda metrics: metrics.duration_ms is not None, 1.0),
        (lambda **given: given["answer"] == "Done" and given["case"].id == "a", 1.0),
        (lambda answer: {"score": 0.75, "reasoning": "good"}, 0.75),
    ],
)
def test_a_function_receives_what_its_parameters_name(folder, function, score):
    found = run(CALLS, function)
    assert found.status == "ok", found.error
    assert found.score == score


def test_hits_of_a_function_are_recorded(folder):
    assert run("x", half).evaluator_results[0].hits == ("a: reference",)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda answer: 1 / 0, "lambda failed: ZeroDivisionError"),
        (lambda answer: 2, "a score is a number from 0 to 1"),
        (lambda answer: None, "must return a Score, a dict, a number or a bool, got NoneType"),
        (lambda answer: "yes", "must return a Score, a dict, a number or a bool, got str"),
    ],
)
def test_a_function_that_fails_is_an_error_not_a_score(folder, function, message):
    found = run("x", function)
    assert found.status == "error" and found.score is None and message in found.error.message


def test_unknown_parameters_are_refused_before_the_first_call(folder):
    called = []
    with pytest.raises(AgentvError, match="unknown parameters: foo, bar"):
        agentv.evaluate([{"id": "a", "input": "x"}], called.append, [lambda foo, bar: 1])
    assert called == []


def test_functions_of_the_same_name_get_different_names(folder):
    assert list(scores(run("x", lambda answer: 1, lambda answer: 0))) == ["lambda", "lambda-2"]


def test_a_changed_function_reruns_what_it_scored(folder):
    case = [{"id": "a", "input": "x"}]
    folder.write("target.py", "def echo(prompt):\n    return prompt\n")
    target = {"provider": "python", "function": "target.py:echo"}
    agentv.evaluate(case, target, [ends_with_full_stop], out="first")
    for evaluator, carried in ((ends_with_full_stop, True), (searched, False)):
        again = agentv.evaluate(case, target, [evaluator], changed_since="first", out=f"again-{carried}")
        assert (again.results[0].carried_from is not None) == carried


def test_module_functions_can_be_sent_to_worker_processes(folder):
    found = run("Yes.", ends_with_full_stop, executor="local")
    assert found.score == 1.0
    with pytest.raises(AgentvError, match="cannot be sent to another process"):
        agentv.evaluate([{"id": "a", "input": "x"}], ends_with_full_stop, [lambda answer: 1], executor="process")


def test_assert_passes_returns_the_record_of_a_good_answer(folder):
    found = agentv.assert_passes("Paris.", [{"type": "contains", "value": "Paris"}, ends_with_full_stop])
    assert (found.verdict, found.score) == ("pass", 1.0)
    assert not list(folder.path.iterdir())


def test_assert_passes_raises_with_the_reasons(folder):
    with pytest.raises(AssertionError, match="does not contain 'Paris'"):
        agentv.assert_passes("Berlin", [{"type": "contains", "value": "Paris"}])


@pytest.mark.parametrize(
    "given", [{"case": {"id": "x", "input": "q", "expected_output": "Paris"}}, {"expected_output": "Paris"}]
)
def test_assert_passes_knows_the_case(folder, given):
    agentv.assert_passes("Paris", [{"type": "equals"}], **given)
    with pytest.raises(AssertionError):
        agentv.assert_passes("Berlin", [{"type": "equals"}], **given)


def test_assert_passes_uses_the_evaluators_of_the_case(folder):
    case = {"id": "x", "input": "q", "evaluators": [{"type": "contains", "value": "Paris"}]}
    with pytest.raises(AssertionError):
        agentv.assert_passes("Berlin", case=case)


def test_assert_passes_reads_tool_calls(folder):
    agentv.assert_passes(CALLS, [searched])


def test_an_answer_that_cannot_be_scored_is_not_a_failure(folder):
    with pytest.raises(AgentvError, match="could not be scored"):
        agentv.assert_passes("x", [lambda answer: 1 / 0])


@pytest.mark.parametrize("given", [{}, {"case": {"id": "x", "input": "q"}, "input": "q"}])
def test_assert_passes_needs_evaluators_and_one_case(folder, given):
    with pytest.raises(agentv.UsageError):
        agentv.assert_passes("x", None if not given else ["polite"], **given)


def test_assert_passes_without_evaluators_is_an_error(folder):
    with pytest.raises(ValueError, match="assert_passes needs evaluators"):
        agentv.assert_passes("x", [])


def test_assert_passes_with_weightless_evaluators_is_an_error(folder):
    with pytest.raises(agentv.AgentvError, match="The answer was not scored"):
        agentv.assert_passes("x", [{"type": "contains", "value": "x", "weight": 0}])
