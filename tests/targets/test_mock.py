"""The mock target: answers, delays and faults, which are the same in every run."""

import asyncio
import time
from itertools import pairwise

import pytest

import virtual_time
from agentv.model.message import Message, ToolCall
from agentv.model.response import TargetFailure
from agentv.model.result import TokenUsage
from agentv.targets.mock import Mock


def mock(**settings):
    return Mock(name="m", provider="mock", **settings)


ANSWERS = {
    "an echo": ({}, {"text": "Hello"}, "Hello"),
    "an echo of the last user message": (
        {},
        {"text": (Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d"))},
        "c",
    ),
    "an echo without a user message": ({}, {"text": (Message("system", "rules"),)}, "rules"),
    "one response": ({"response": "yes"}, {}, "yes"),
    "an empty response": ({"response": ""}, {}, ""),
    "a response by id": ({"responses": {"one": "1", "two": "2"}}, {}, "1"),
    "a response by glob": ({"responses": {"t*": "2", "o?e": "1"}}, {}, "1"),
    "an id before a glob": ({"responses": {"*": "any", "one": "1"}}, {}, "1"),
    "the first matching glob": ({"responses": {"*e": "first", "o*": "second"}}, {}, "first"),
    "a glob over slashes": ({"responses": {"a*c": "1"}}, {"id": "a/b/c"}, "1"),
    "one response without a matching glob": ({"responses": {"x*": "2"}, "response": "rest"}, {}, "rest"),
    "an echo without a matching glob": ({"responses": {"x*": "2"}}, {}, "Hello"),
}


@pytest.mark.parametrize(("settings", "fields", "text"), ANSWERS.values(), ids=ANSWERS)
def test_answers(ask, settings, fields, text):
    assert ask(mock(**settings), **fields).text == text


def test_tool_calls_and_usage_come_from_the_settings(ask):
    calls, usage = (ToolCall("Read", {"path": "a"}),), TokenUsage(3, 4)
    response = ask(mock(tool_calls=calls, token_usage=usage))
    assert (response.messages[-1].tool_calls, response.usage) == (calls, usage)


def test_an_immediate_answer_needs_no_event_loop(new_request):
    answering = mock(response="yes").open(".").respond(new_request())
    with pytest.raises(StopIteration) as ended:
        answering.send(None)
    assert ended.value.value.text == "yes"


def test_an_immediate_answer_takes_as_long_as_a_few_calls(new_request):
    responder, request = mock(response="yes").open("."), new_request()

    async def echo(text):
        return text

    async def cpu_s(respond):
        started = time.thread_time()
        for _ in range(2000):
            await respond(request)
        return time.thread_time() - started

    ours, floor = (min(asyncio.run(cpu_s(respond)) for _ in range(7)) for respond in (responder.respond, echo))
    assert ours < 10 * floor


def test_delay(ask):
    started = time.perf_counter()
    ask(mock(delay_ms=20.0))
    assert time.perf_counter() - started >= 0.02


def delays(new_request, trial):
    """Return the delays of 200 answers, measured with a virtual clock."""

    async def answered():
        responder = mock(delay_ms=[100.0, 300.0]).open(".")
        moments = [asyncio.get_running_loop().time()]
        for number in range(200):
            await responder.respond(new_request(f"case-{number}", trial=trial))
            moments.append(asyncio.get_running_loop().time())
        return [round(after - before, 6) for before, after in pairwise(moments)]

    return virtual_time.run(answered())


def test_delays_cover_their_range_and_are_reproducible(new_request):
    first = delays(new_request, 1)
    assert 0.1 <= min(first) < 0.11 < 0.29 < max(first) <= 0.3
    assert 0.17 < sum(first) / len(first) < 0.23
    assert first == delays(new_request, 1)
    assert first != delays(new_request, 2)


def test_a_delay_longer_than_the_timeout_is_a_timeout(ask):
    with pytest.raises(TargetFailure) as failed:
        ask(mock(delay_ms=10_000.0), timeout_s=0.01)
    assert failed.value.error_class == "timeout"


def faults(new_request, rate, attempt=1):
    async def count():
        responder = mock(fault_rate=rate, response="yes").open(".")
        failed = set()
        for number in range(1000):
            try:
                await responder.respond(new_request(f"case-{number}", attempt=attempt))
            except TargetFailure as failure:
                assert failure.error_class == "server"
                failed.add(number)
        return failed

    return asyncio.run(count())


def test_faults_match_their_rate_and_are_reproducible(new_request):
    assert 250 < len(faults(new_request, 0.3)) < 350
    assert faults(new_request, 0.3) == faults(new_request, 0.3)
    assert len(faults(new_request, 1.0)) == 1000


def test_another_attempt_may_succeed(new_request):
    first, second = faults(new_request, 0.3, attempt=1), faults(new_request, 0.3, attempt=2)
    assert 50 < len(first & second) < 130
