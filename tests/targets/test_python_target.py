"""The Python target: function references, arguments, returned values and failures."""

import asyncio
import functools
import subprocess
import sys
import threading

import msgspec
import pytest

from agentv.errors import AgentvError
from agentv.model.message import FilePart, ImagePart, Message, TextPart, ToolCall
from agentv.model.response import Response, TargetFailure, answer
from agentv.model.result import TokenUsage
from agentv.model.values import FrozenDict
from agentv.targets.python import FunctionTarget, PythonTarget
from waiting import let_others_run

AGENT = """
import asyncio
from polishing_neighbour import polish


def shout(prompt):
    return polish(prompt)


async def whisper(text):
    await asyncio.to_thread(str)
    return text.lower()


class Agent:
    made = 0

    def __init__(self):
        Agent.made += 1

    def ask(self, prompt):
        return f"{prompt} ({Agent.made})"

    async def ask_later(self, prompt):
        return prompt

    async def __call__(self, prompt):
        return f"called with {prompt}"

    @staticmethod
    def plain(prompt):
        return prompt


agent = Agent()


def broken(prompt):
    return deeper(prompt)


def deeper(prompt):
    raise ValueError("no luck\\nwith this")
"""


@pytest.fixture
def agents(tmp_path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "agent.py").write_text(AGENT)
    (tmp_path / "agents" / "polishing_neighbour.py").write_text("def polish(text):\n    return text.upper()\n")
    return tmp_path


def named(function, **settings):
    return PythonTarget(name="p", provider="python", function=function, **settings)


def given(call):
    return FunctionTarget(name="p", provider="python", call=call)


NAMES = {
    "a function": ("agents/agent.py:shout", "HELLO"),
    "an async function": ("agents/agent.py:whisper", "hello"),
    "a method of an object": ("agents/agent.py:agent.ask", "Hello (1)"),
    "an async method": ("agents/agent.py:agent.ask_later", "Hello"),
    "an object that is called": ("agents/agent.py:agent", "called with Hello"),
    "a class that is called": ("agents/agent.py:Agent", "called with Hello"),
    "a method of a class": ("agents/agent.py:Agent.ask_later", "Hello"),
    "a static method": ("agents/agent.py:Agent.plain", "Hello"),
    "a module": ("agents.agent:shout", "HELLO"),
    "a module of Python's own": ("textwrap:dedent", "Hello"),
}


@pytest.mark.parametrize(("function", "text"), NAMES.values(), ids=NAMES)
def test_function_references(agents, ask, function, text, monkeypatch):
    monkeypatch.syspath_prepend(str(agents / "agents"))
    for name in [name for name in sys.modules if name.startswith(("agents", "polishing_neighbour"))]:
        monkeypatch.delitem(sys.modules, name)
    assert ask(named(function), home=agents).text == text


WRONG_NAMES = {
    "no such file": ("agents/agnt.py:shout", "File 'agents/agnt.py' cannot be read: No such file or directory"),
    "no such module": ("no_such_module_here:shout", "There is no module 'no_such_module_here'"),
    "no such name": (
        "agents/agent.py:shoot",
        "agents/agent.py has no 'shoot'. Did you mean 'shout'?",
    ),
    "no such method": ("agents/agent.py:agent.asks", "agents/agent.py has no 'asks'. Did you mean 'ask'?"),
    "not a function": ("agents/wrong.py:number", "It is not a function but of type int"),
    "too many parameters": ("agents/wrong.py:greedy", "It has unknown parameters: a, b"),
    "a class with required arguments": ("agents/wrong.py:Needy", "TypeError: Needy.__init__() missing 1 required"),
    "a file that fails": ("agents/fails.py:x", "ZeroDivisionError: division by zero (fails.py, line 2)"),
    "a file that exits": ("agents/exits.py:x", "SystemExit: 3 (exits.py, line 1)"),
    "a file that is not Python": ("agents/syntax.py:x", "SyntaxError"),
}


@pytest.mark.parametrize(("function", "message"), WRONG_NAMES.values(), ids=WRONG_NAMES)
def test_an_unusable_function_is_an_error_before_any_call(agents, function, message):
    wrong = "number = 1\ndef greedy(a, b): ...\nclass Needy:\n    def __init__(self, x): ...\n"
    (agents / "agents/wrong.py").write_text(wrong)
    (agents / "agents/fails.py").write_text("\n1 / 0")
    (agents / "agents/exits.py").write_text("raise SystemExit(3)")
    (agents / "agents/syntax.py").write_text("def x(:")
    with pytest.raises(AgentvError) as raised:
        named(function).open(str(agents))
    assert message in str(raised.value)


def all_by_name(messages, prompt, case, variables, trial):
    return f"{messages} {prompt} {case.id} {variables} {trial}"


PARAMETERS = {
    "all": (all_by_name, "[{'role': 'user', 'content': 'Hello'}] Hello one {'k': 1} 2"),
    "some": (lambda trial, case: f"{trial} {case.id}", "2 one"),
    "one unknown": (lambda question: question, "Hello"),
    "one unknown with known ones": (lambda trial, question: f"{trial} {question}", "2 Hello"),
    "one with a default": (lambda question="x": question, "Hello"),
    "known ones with a default": (lambda prompt, language="en": f"{prompt} {language}", "Hello en"),
    "none": (lambda: "nothing asked", "nothing asked"),
    "any positional": (lambda *texts: texts[0], "Hello"),
    "any by name": (lambda **known: ",".join(known), "messages,prompt,case,variables,trial"),
    "positional only": (eval("lambda trial, question, /: f'{trial} {question}'"), "2 Hello"),
    "a partial function": (functools.partial(lambda language, prompt: f"{language} {prompt}", "en"), "en Hello"),
    "a function without a signature": (str, "Hello"),
}


@pytest.mark.parametrize(("call", "text"), PARAMETERS.values(), ids=PARAMETERS)
def test_functions_get_the_arguments_they_name(ask, call, text):
    from agentv.model.case import CaseDetails

    details = CaseDetails(variables=FrozenDict({"k": 1}))
    assert ask(given(call), trial=2, details=details).text == text


RETURNED = {
    "text": ("hi", answer("hi")),
    "a response": (answer("hi", cost_usd=1.0), answer("hi", cost_usd=1.0)),
    "text with metrics": (
        {"text": "hi", "token_usage": {"input": 1, "output": 2, "cached": 1}, "cost_usd": 0.5, "duration_ms": 7},
        answer("hi", usage=TokenUsage(1, 2, 1), cost_usd=0.5, duration_ms=7.0),
    ),
    "messages": (
        [{"role": "assistant", "content": "hm", "timestamp": "x"}, {"role": "assistant", "content": "hi"}],
        Response(messages=(Message("assistant", "hm"), Message("assistant", "hi"))),
    ),
    "a message": ({"role": "assistant", "content": "hi"}, answer("hi")),
    "message objects": ([Message("assistant", "hi")], answer("hi")),
    "nested messages": (
        {
            "output_messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"tool": "Read", "input": {"a": 1}, "duration_ms": 5, "extra": 1}],
                },
                {"role": "assistant", "content": ["a", {"type": "text", "value": "b"}, {"type": "text", "text": "c"}]},
            ]
        },
        Response(
            messages=(
                Message("assistant", None, (ToolCall("Read", {"a": 1}, duration_ms=5),)),
                Message("assistant", (TextPart("a"), TextPart("b"), TextPart("c"))),
            )
        ),
    ),
    "tool calls of a chat API": (
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
            }
        ],
        Response(messages=(Message("assistant", None, (ToolCall("f", {"a": 1}, id="1"),)),)),
    ),
    "parts as in AgentV": (
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "See"},
                    {"type": "image", "media_type": "image/png", "source": "data:image/png;base64,QQ=="},
                    {"type": "file", "media_type": "text/csv", "path": "a.csv"},
                ],
            }
        ],
        Response(
            messages=(
                Message(
                    "assistant",
                    (
                        TextPart("See"),
                        ImagePart("data:image/png;base64,QQ=="),
                        FilePart("a.csv", media_type="text/csv"),
                    ),
                ),
            )
        ),
    ),
    "data": ({"riskLevel": "Low"}, Response(messages=(Message("assistant", {"riskLevel": "Low"}),))),
    "a list of data": ([1, 2], Response(messages=(Message("assistant", [1, 2]),))),
    "a number": (4, Response(messages=(Message("assistant", 4),))),
}


@pytest.mark.parametrize(("value", "response"), RETURNED.values(), ids=RETURNED)
def test_returned_values(ask, value, response):
    found = ask(given(lambda: value))
    reports_messages = isinstance(value, dict) and "output_messages" in value
    assert msgspec.structs.replace(found, calls_unknown=False) == response
    assert not (found.calls_unknown and reports_messages)


NO_ANSWERS = {
    "nothing": (None, "returned None"),
    "bytes": (b"hello", "The function returned bytes; decode it to text"),
    "not JSON": (object(), "which cannot be converted to JSON"),
    "an unknown role": (
        {"output_messages": [{"role": "bot", "content": "x"}]},
        "'output_messages[0]' is not a message",
    ),
    "messages that are not a list": ({"output_messages": "x"}, "'output_messages' must be an array"),
    "an unknown part": (
        [{"role": "user", "content": [{"type": "video"}]}],
        "content[0]' is not a content part",
    ),
    "a tool call without a tool": ([{"role": "assistant", "tool_calls": [{}]}], "tool_calls[0]' is not a tool call"),
    "an incomplete usage": ({"text": "x", "token_usage": {"input": 1}}, "'token_usage' must have the numbers"),
    "a negative usage": ({"text": "x", "token_usage": {"input": -1, "output": 1}}, "negative"),
    "an invalid cost": ({"text": "x", "cost_usd": "much"}, "'cost_usd' must be a non-negative number"),
    "a negative duration": ({"text": "x", "duration_ms": -1}, "'duration_ms' must be a non-negative number"),
    "an infinite cost": ({"text": "x", "cost_usd": float("nan")}, "'cost_usd' must be a non-negative number"),
}


@pytest.mark.parametrize(("value", "message"), NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_invalid_answers_are_failures(ask, value, message):
    with pytest.raises(TargetFailure) as failed:
        ask(given(lambda: value))
    assert failed.value.error_class == "invalid_response"
    assert message in failed.value.message


def test_an_exception_is_a_failure_with_the_users_line(agents, ask):
    with pytest.raises(TargetFailure) as failed:
        ask(named("agents/agent.py:broken"), home=agents)
    line = AGENT[: AGENT.index("    raise ValueError")].count("\n") + 1
    assert failed.value.error_class == "process"
    assert failed.value.message == f"ValueError: no luck\nwith this (agent.py, line {line})"


class OddError(BaseException):
    """An error that `except Exception` does not catch, as in some libraries."""


def raising(error):
    def call():
        raise error

    async def call_later():
        raise error

    return [call, call_later]


FAILURES = {
    "an exception": (ValueError("no luck"), "process", "ValueError: no luck (test_python_target.py, line "),
    "an exit": (SystemExit(3), "process", "SystemExit: 3"),
    "a KeyboardInterrupt": (KeyboardInterrupt(), "process", "KeyboardInterrupt"),
    "a CancelledError": (asyncio.CancelledError("scope"), "process", "CancelledError: scope"),
    "a BaseException": (OddError("odd"), "process", "OddError: odd"),
    "a TimeoutError": (TimeoutError("too late"), "timeout", "TimeoutError: too late"),
    "a StopIteration": (StopIteration(), "process", "StopIteration"),
    "a failure with its class": (TargetFailure("rate_limit", "slow down"), "rate_limit", "slow down"),
}


@pytest.mark.parametrize("kind", [0, 1], ids=["plain", "async"])
@pytest.mark.parametrize(("error", "error_class", "message"), FAILURES.values(), ids=FAILURES)
def test_every_exception_is_a_failure(ask, error, error_class, message, kind):
    with pytest.raises(TargetFailure) as failed:
        ask(given(raising(error)[kind]))
    assert failed.value.error_class == error_class
    assert message in failed.value.message


def test_sync_functions_run_concurrently(new_request):
    meeting = threading.Barrier(8, timeout=200)

    async def run_concurrently():
        responder = given(lambda: str(meeting.wait() >= 0)).open(".")
        answers = await asyncio.gather(*(responder.respond(new_request(str(number))) for number in range(8)))
        await responder.aclose()
        return [response.text for response in answers]

    assert asyncio.run(run_concurrently()) == ["True"] * 8


def test_threads_are_reused(new_request):
    async def run_in_turn():
        responder = given(lambda: threading.current_thread().name).open(".")
        names = {(await responder.respond(new_request())).text for _ in range(20)}
        await responder.aclose()
        return names

    assert len(asyncio.run(run_in_turn())) == 1


async def never_return():
    await asyncio.Event().wait()


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_slow_function_is_a_timeout(ask, kind):
    release = threading.Event()
    with pytest.raises(TargetFailure) as failed:
        ask(given((lambda: release.wait()) if kind == "plain" else never_return), timeout_s=0.02)
    release.set()
    assert failed.value.error_class == "timeout"


def test_a_hanging_function_does_not_prevent_exit(tmp_path):
    code = """
import asyncio, threading
from agentv.engine.job.request import CaseRequest
from agentv.model.case import EvalCase
from agentv.targets.python import FunctionTarget

async def main():
    responder = FunctionTarget(name="p", provider="python", call=lambda: threading.Event().wait()).open(".")
    request = CaseRequest(EvalCase("one", input="Hello"))
    request.timeout_s = 0.02
    try:
        await responder.respond(request)
    finally:
        await responder.aclose()

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert "did not return within 0.02 s" in ended.stderr


def test_a_cancelled_call_ends_immediately(new_request):
    async def cancelled():
        responder = given(never_return).open(".")
        call = asyncio.ensure_future(responder.respond(new_request()))
        await let_others_run()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())


def test_a_file_is_imported_once_for_all_targets(agents, ask):
    counting = "import itertools\ncounter = itertools.count()\ndef a():\n    return str(next(counter))\nb = a\n"
    (agents / "counting.py").write_text(counting)
    assert [ask(named(f"counting.py:{name}"), home=agents).text for name in "ab"] == ["0", "1"]
