"""The contract of every target that can run in tests."""

import asyncio
import json
import os
import pickle
import subprocess
import sys
from contextlib import ExitStack

import pytest

from agentv.engine.job.request import CaseRequest
from agentv.model.case import EvalCase
from agentv.model.environment import Environment
from agentv.model.response import Response, TargetFailure
from agentv.registry import TARGETS
from agentv.runs.record import encode_record
from agentv.settings.environment import Home
from agentv.targets.target import ModelApi
from agentv_testing import FaultyServer
from made_results import made as made_result
from waiting import let_others_run

AGENT = """
import asyncio, threading

def plain(prompt):
    return "Hello"

async def later(prompt):
    await asyncio.to_thread(str)
    return "Hello"

async def never(prompt):
    await asyncio.Event().wait()

def stuck(prompt):
    threading.Event().wait()

def broken(prompt):
    raise ValueError("broken")
"""

METHODS = {
    "plain": "return { output: 'Hello' };",
    "stuck": "await new Promise(() => setInterval(() => {}, 1000));",
    "broken": "throw new Error('broken');",
}
"""Methods of JavaScript providers."""

PROGRAM = """#!/bin/sh
test -z "$WAITS" || { tail -f /dev/null & tail -f /dev/null; }
cat > /dev/null
cat "$(dirname "$0")/events.jsonl"
test -z "$FAILS"
"""

# The output of each coding agent for the answer "Hello".
EVENTS = {
    "claude-code": [
        {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "Hello"}]}},
        {"type": "result", "subtype": "success"},
    ],
    "codex": [
        {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "Hello"}},
        {"type": "turn.completed", "usage": {}},
    ],
    "copilot-cli": [
        {"type": "assistant.message", "data": {"turnId": "1", "content": "Hello"}},
        {"type": "result", "exitCode": 0},
    ],
    "gemini-cli": [{"type": "message", "role": "assistant", "content": "Hello"}, {"type": "result"}],
    "opencode": [
        {"type": "text", "part": {"messageID": "m", "text": "Hello"}},
        {"type": "step_finish", "part": {"reason": "stop"}},
    ],
    "pi-coding-agent": [
        {
            "type": "message_end",
            "message": {"role": "assistant", "stopReason": "stop", "content": [{"type": "text", "text": "Hello"}]},
        }
    ],
}

# A recorded session of Copilot.
SESSION = [
    {"type": "user.message", "data": {"content": "Hi"}},
    {"type": "assistant.message", "data": {"content": "Hello"}},
]

# Settings of other providers than model APIs and coding agents: answering, waiting, failing.
PROGRAMS = {
    "mock": ({}, {"delay_ms": 60_000.0}, {"fault_rate": 1.0}),
    "python": ({"function": "agent.py:plain"}, {"function": "agent.py:stuck"}, {"function": "agent.py:broken"}),
    "cli": (
        {"command_template": "echo {PROMPT}"},
        {"command_template": "tail -f /dev/null & tail -f /dev/null"},
        {"command_template": "exit 1"},
    ),
    "javascript": ({"file": "plain.cjs"}, {"file": "stuck.cjs"}, {"file": "broken.cjs"}),
    "replay": ({"source": "results.jsonl"}, None, {"source": "others.jsonl"}),
    "copilot-log": ({"session_dir": "session"}, None, {"session_dir": "empty"}),
}
VARIANTS = {
    "openai, responses": ("openai", {"api": "responses"}),
    "mock with a delay": ("mock", {"delay_ms": 1.0}),
    "python, async": ("python", {"function": "agent.py:later"}),
    "cli with files": ("cli", {"command_template": "cat {PROMPT_FILE} > {OUTPUT_FILE}"}),
}
ONE_PROCESS = {"javascript"}
"""Providers with a process for all calls. It ends when the target is closed."""
ERRORS = {"mock": "server", "replay": "invalid_response", "copilot-log": "invalid_response"}

# Providers with packages of their own have their own tests.
PROVIDERS = [name for name in TARGETS.names() if not TARGETS.find(name).extra]
ROWS = {**{name: (name, {}) for name in PROVIDERS}, **VARIANTS}
ANSWERING, WAITING, FAILING = range(3)


@pytest.fixture(scope="module")
def servers():
    """Model servers that answer, hang, or refuse every key."""
    with ExitStack() as stack:
        faults = ((), {"hang": 1.0}, {"401": 1.0})
        yield [stack.enter_context(FaultyServer("Hello", faults=each)) for each in faults]


@pytest.fixture
def made(servers):
    """Build a target of a provider that answers, waits or fails."""

    def make(row, behaviour):
        provider, more = ROWS[row]
        kind = TARGETS.find(provider)
        if issubclass(kind, ModelApi):
            server = servers[behaviour]
            address = server.origin if provider in ("azure", "anthropic", "gemini") else server.url
            field = "endpoint" if provider == "azure" else "base_url"
            settings = {"model": "m", "api_key": "none", field: address}
        elif provider == "promptfoo_http":
            body = {"model": "m", "messages": [{"role": "user", "content": "{{prompt}}"}]}
            settings = {"url": f"{servers[behaviour].url}/chat/completions", "body": body}
            settings["javascript"] = "JSON.parse(output).choices[0].message.content"
        elif provider == "http":
            body = {"model": "m", "messages": "{{ messages }}"}
            settings = {"url": f"{servers[behaviour].url}/chat/completions", "body": body}
            settings["response_path"] = "choices[0].message.content"
        elif kind.takes_skills:
            env = ({}, {"WAITS": "yes"}, {"FAILS": "yes"})[behaviour]
            settings = {"executable": f"./{provider}/agent.sh", "env": env}
        else:
            settings = PROGRAMS[provider][behaviour]
        return kind(name="t", provider=provider, **{**settings, **(more if behaviour == ANSWERING else {})})

    return make


@pytest.fixture
def home(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    for name, code in METHODS.items():
        (tmp_path / f"{name}.cjs").write_text(f"module.exports = class {{ async callApi() {{ {code} }} }};")
    for name, events in EVENTS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        (tmp_path / name / "agent.sh").write_text(PROGRAM)
        (tmp_path / name / "agent.sh").chmod(0o755)
    for name, id in {"results.jsonl": "one", "others.jsonl": "two"}.items():
        (tmp_path / name).write_bytes(encode_record(made_result(eval_id=id, dataset="", candidate_answer="Hello")))
    for name, count in {"session": 2, "empty": 1}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in SESSION[:count]))
    return Home(str(tmp_path), Environment())


@pytest.fixture(params=ROWS)
def target(request, made):
    return made(request.param, ANSWERING)


@pytest.fixture(params=[name for name in PROVIDERS if TARGETS.find(name).is_live])
def waiting(request, made):
    return made(request.param, WAITING)


def test_every_provider_of_the_registry_is_in_this_suite():
    kinds = {name: TARGETS.find(name) for name in PROVIDERS}
    others = {name for name, kind in kinds.items() if not issubclass(kind, ModelApi) and not kind.takes_skills}
    assert others == {*PROGRAMS, "http", "promptfoo_http"} & {*PROVIDERS}
    assert {name for name, kind in kinds.items() if kind.takes_skills} == set(EVENTS).intersection(PROVIDERS)


def question(timeout_s=200.0):
    question = CaseRequest(EvalCase("one", input="Hello"))
    question.timeout_s = timeout_s
    return question


def children():
    """Return the child processes that still exist, including zombies."""
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


def test_it_names_the_resource_its_calls_share(target, home):
    responder = target.open(home)
    assert isinstance(responder.endpoint, str)
    assert responder.endpoint
    asyncio.run(responder.aclose())


def test_it_can_be_closed_any_number_of_times(target, home):
    async def close(answers):
        responder = target.open(home)
        if answers:
            assert await responder.respond(question())
        assert [await responder.aclose() for _ in range(2)] == [None, None]

    asyncio.run(close(answers=False))
    asyncio.run(close(answers=True))


def test_its_settings_can_be_sent_to_another_process(target):
    assert pickle.loads(pickle.dumps(target)) == target


ELSEWHERE = """
import asyncio, pickle, sys
async def answer(target, home, question):
    responder = target.open(home)
    print((await responder.respond(question)).text, flush=True)
    await responder.aclose()
while sys.stdin.buffer.peek(1):
    sent = pickle.load(sys.stdin.buffer)
    try:
        asyncio.run(answer(*sent))
    except Exception as error:
        print(ascii(str(error)), flush=True)
"""


@pytest.fixture(scope="module")
def another_process():
    """Ask a target in a process that has only received its settings."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", ELSEWHERE], cwd="/", **pipes) as process:

        def ask(*sent):
            process.stdin.write(pickle.dumps(sent))
            process.stdin.flush()
            return process.stdout.readline()

        yield ask
        assert process.communicate() == (b"", b"")


def test_it_answers_in_another_process_from_its_settings_alone(target, home, another_process):
    reply = another_process(target, home, question())
    assert reply == b"Hello\n", reply.decode()


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="counts processes in /proc")
def test_a_cancelled_call_ends_and_leaves_no_process_behind(waiting, home):
    before = set(children())

    async def cancelled():
        responder = waiting.open(home)
        call = asyncio.ensure_future(responder.respond(question()))
        await let_others_run(20)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        left = set(children()) - before
        await responder.aclose()
        return set(children()) - before if waiting.provider in ONE_PROCESS else left

    assert asyncio.run(cancelled()) == set()


def test_a_call_that_takes_too_long_is_a_timeout(waiting, home):
    async def timed_out():
        responder = waiting.open(home)
        try:
            with pytest.raises(TargetFailure) as failed:
                await responder.respond(question(0.03))
        finally:
            await responder.aclose()
        return failed.value.error_class

    assert asyncio.run(timed_out()) == "timeout"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_failure_is_classified_and_can_be_pickled(provider, made, home):
    target = made(provider, FAILING)
    error_class = "auth" if target.is_api else ERRORS.get(provider, "process")

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


@pytest.mark.parametrize("module", sorted({TARGETS.find(name).__module__ for name in PROVIDERS}))
def test_settings_are_checked_without_importing_the_engine(module):
    heavy = "asyncio", "subprocess", "concurrent.futures", "tempfile"
    code = f"import sys, {module}; print(*set(sys.modules) & set({heavy!r}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
