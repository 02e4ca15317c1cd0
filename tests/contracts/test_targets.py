"""What every target that can run here must do, whatever answers behind it: one suite over all of them."""

import asyncio
import atexit
import json
import os
import pickle
import subprocess
import sys
from contextlib import ExitStack

import pytest

from agentv.engine.job.request import Question
from agentv.model.case import EvalCase
from agentv.model.response import Response, TargetFailure
from agentv.settings.environment import Environment, Home
from agentv.targets.agents.claude_code import ClaudeCode
from agentv.targets.apis.anthropic import Anthropic
from agentv.targets.apis.gemini import Gemini
from agentv.targets.apis.openai import Azure, Compatible, OpenAI
from agentv.targets.programs.cli import Cli
from agentv.targets.programs.mock import Mock
from agentv.targets.programs.python import PythonTarget
from agentv.targets.replay.replay import Replay
from agentv.testing import FaultyServer

AGENT = """
import asyncio, threading

def plain(prompt):
    return "Hello"

async def later(prompt):
    await asyncio.sleep(0)
    return "Hello"

async def never(prompt):
    await asyncio.Event().wait()

def stuck(prompt):
    threading.Event().wait()

def broken(prompt):
    raise ValueError("broken")
"""

PROGRAM = """#!/bin/sh
test -z "$WAITS" || { sleep 60 & sleep 60; }
cat > prompt
echo '{"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "'$(cat prompt)'"}]}}'
echo '{"type": "result", "subtype": "success"}'
test -z "$FAILS"
"""


def agent(**env):
    """A coding agent: a program that prints events as Claude Code does."""
    return ClaudeCode(name="t", provider="claude-code", executable="./agent.sh", env=env)


# Model APIs are asked at servers of this process; their addresses are settings, so they must be there first.
SERVERS = ExitStack()
HELLO = SERVERS.enter_context(FaultyServer("Hello"))
SILENT = SERVERS.enter_context(FaultyServer(faults={"hang": 1.0}))
BROKEN = SERVERS.enter_context(FaultyServer(faults={"401": 1.0}))
atexit.register(SERVERS.close)


def model_apis(server):
    common = {"name": "t", "model": "m", "api_key": "none"}
    return {
        "openai": OpenAI(provider="openai", base_url=server.url, **common),
        "openai, responses": OpenAI(provider="openai", base_url=server.url, api="responses", **common),
        "azure": Azure(provider="azure", endpoint=server.origin, **common),
        "anthropic": Anthropic(provider="anthropic", base_url=server.origin, **common),
        "gemini": Gemini(provider="gemini", base_url=server.origin, **common),
        "ollama": Compatible(provider="ollama", base_url=server.url, **common),
    }


ANSWERING = {
    **model_apis(HELLO),
    "mock": Mock(name="t", provider="mock"),
    "mock with a delay": Mock(name="t", provider="mock", delay_ms=1.0),
    "python": PythonTarget(name="t", provider="python", function="agent.py:plain"),
    "python, async": PythonTarget(name="t", provider="python", function="agent.py:later"),
    "cli": Cli(name="t", provider="cli", command_template="echo {PROMPT}"),
    "cli with files": Cli(name="t", provider="cli", command_template="cat {PROMPT_FILE} > {OUTPUT_FILE}"),
    "coding agent": agent(),
    "replay": Replay(name="t", provider="replay", source="results.jsonl"),
}
WAITING = {
    **model_apis(SILENT),
    "mock": Mock(name="t", provider="mock", delay_ms=60_000.0),
    "python": PythonTarget(name="t", provider="python", function="agent.py:stuck"),
    "python, async": PythonTarget(name="t", provider="python", function="agent.py:never"),
    "cli": Cli(name="t", provider="cli", command_template="sleep 60 & sleep 60"),
    "coding agent": agent(WAITS="yes"),
}
FAILING = {
    **{name: (target, "auth") for name, target in model_apis(BROKEN).items()},
    "mock": (Mock(name="t", provider="mock", fault_rate=1.0), "server"),
    "python": (PythonTarget(name="t", provider="python", function="agent.py:broken"), "process"),
    "cli": (Cli(name="t", provider="cli", command_template="exit 1"), "process"),
    "coding agent": (agent(FAILS="yes"), "process"),
    "replay": (Replay(name="t", provider="replay", source="others.jsonl"), "invalid_response"),
}


@pytest.fixture
def home(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "agent.sh").write_text(PROGRAM)
    (tmp_path / "agent.sh").chmod(0o755)
    for name, id in {"results.jsonl": "one", "others.jsonl": "two"}.items():
        (tmp_path / name).write_text(json.dumps({"eval_id": id, "target": "t", "candidate_answer": "Hello"}) + "\n")
    return Home(str(tmp_path), Environment())


@pytest.fixture(params=ANSWERING.values(), ids=ANSWERING)
def target(request):
    return request.param


def question(timeout_s=30.0):
    asked = Question(EvalCase("one", input="Hello"))
    asked.timeout_s = timeout_s
    return asked


def children():
    """The processes that this one has started and that are still there, ended ones that nobody asked after included."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stream:
                fields = stream.read().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[1] == str(os.getpid()):
            found.append(int(pid))
    return found


def test_it_answers(target, home):
    async def answer():
        responder = target.open(home)
        response = await responder.respond(question())
        await responder.aclose()
        return response

    response = asyncio.run(answer())
    assert isinstance(response, Response)
    assert response.text == "Hello"
    assert response.messages[-1].role == "assistant"


def test_it_answers_many_at_once(target, home):
    async def answers():
        responder = target.open(home)
        responses = await asyncio.gather(*(responder.respond(question()) for _ in range(10)))
        await responder.aclose()
        return {response.text for response in responses}

    assert asyncio.run(answers()) == {"Hello"}


def test_it_names_what_its_calls_compete_for(target, home):
    responder = target.open(home)
    assert isinstance(responder.endpoint, str)
    assert responder.endpoint
    asyncio.run(responder.aclose())


def test_it_can_be_closed_any_number_of_times(target, home):
    async def close(answers):
        responder = target.open(home)
        if answers:
            await responder.respond(question())
        await responder.aclose()
        await responder.aclose()

    asyncio.run(close(answers=False))
    asyncio.run(close(answers=True))


def test_its_settings_are_data_that_travels(target):
    assert pickle.loads(pickle.dumps(target)) == target


def test_it_answers_in_another_process_from_its_settings_alone(target, home, tmp_path):
    code = (
        "import asyncio, pickle, sys\n"
        "target, home, question = pickle.loads(sys.stdin.buffer.read())\n"
        "async def answer():\n"
        "    responder = target.open(home)\n"
        "    print((await responder.respond(question)).text)\n"
        "    await responder.aclose()\n"
        "asyncio.run(answer())\n"
    )
    sent = pickle.dumps((target, home, question()))
    ended = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=False, cwd="/")
    assert (ended.stdout, ended.stderr) == (b"Hello\n", b"")


@pytest.mark.parametrize("target", WAITING.values(), ids=WAITING)
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="counts processes in /proc")
def test_a_cancelled_call_ends_and_leaves_no_process_behind(target, home):
    before = set(children())

    async def cancelled():
        responder = target.open(home)
        call = asyncio.ensure_future(responder.respond(question()))
        await asyncio.sleep(0.03)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        left = set(children()) - before
        await responder.aclose()
        return left

    assert asyncio.run(cancelled()) == set()


@pytest.mark.parametrize("target", WAITING.values(), ids=WAITING)
def test_a_call_that_takes_too_long_is_a_timeout(target, home):
    async def timed_out():
        responder = target.open(home)
        try:
            with pytest.raises(TargetFailure) as failed:
                await responder.respond(question(0.03))
        finally:
            await responder.aclose()
        return failed.value.error_class

    assert asyncio.run(timed_out()) == "timeout"


@pytest.mark.parametrize(("target", "error_class"), FAILING.values(), ids=FAILING)
def test_a_failure_has_its_class_and_travels(target, error_class, home):
    async def failed():
        responder = target.open(home)
        try:
            with pytest.raises(TargetFailure) as raised:
                await responder.respond(question())
        finally:
            await responder.aclose()
        return pickle.loads(pickle.dumps(raised.value))

    failure = asyncio.run(failed())
    assert failure.error_class == error_class
    assert failure.message


@pytest.mark.parametrize(
    "kind", sorted({type(target) for target in ANSWERING.values()}, key=lambda kind: kind.__name__)
)
def test_settings_are_checked_without_the_machinery_of_runs(kind):
    heavy = "asyncio", "subprocess", "concurrent.futures", "tempfile"
    code = f"import sys, {kind.__module__}; print(*set(sys.modules) & set({heavy!r}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
