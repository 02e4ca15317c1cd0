"""The model server for tests, used with OpenAI's SDK: answers, streams and simulated failures."""

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

import agentv_testing
from agentv.model.message import ToolCall
from agentv.model.result import TokenUsage
from agentv_testing import Answer, Fault, FaultyServer, RawReply
from agentv_testing.faults import FaultPlan, RequestCap
from late import Late
from waiting import wait_until, wait_until_async

openai, pydantic = Late("openai"), Late("pydantic")

HELLO = [{"role": "user", "content": "Hello there"}]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
LOOKS_UP = [Answer(tool_calls=(ToolCall("weather", {"city": "Oslo"}, id="w1"),)), Answer("It is cold in Oslo.")]

ON_THE_PATH = {**os.environ, "PYTHONPATH": str(Path(agentv_testing.__file__).parents[1])}


def sdk(server: FaultyServer, **options):
    return openai.OpenAI(base_url=server.url, api_key="sk-test", **{"max_retries": 0, **options})


def create(server: FaultyServer, messages=HELLO, **options):
    with sdk(server) as client:
        return client.chat.completions.create(model="gpt", messages=messages, **options)


def post(server: FaultyServer, text="Hello", **fields) -> dict:
    """Send a request with the standard library and return the answer."""
    body = {"messages": [{"role": "user", "content": text}], **fields}
    request = urllib.request.Request(f"{server.url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=200) as reply:
        return json.load(reply)


def answer_to(server: FaultyServer, text: str) -> str:
    return post(server, text)["choices"][0]["message"]["content"]


def test_the_sdk_gets_an_echo_with_usage():
    with FaultyServer() as server:
        completion = create(server)
    assert completion.choices[0].message.content == "Hello there"
    assert completion.choices[0].finish_reason == "stop"
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens, completion.usage.total_tokens) == (
        2,
        2,
        4,
    )
    assert completion.model == "gpt"


def test_the_sdk_streams_text_and_usage():
    with FaultyServer(Answer("One  two\nthree ", usage=TokenUsage(5, 3, 1))) as server, sdk(server) as client:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(client.chat.completions.create(model="gpt", messages=HELLO, **options))
    deltas = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(deltas) == "One  two\nthree "
    assert len([delta for delta in deltas if delta]) > 2
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 1


@pytest.mark.parametrize("stream", [False, True])
def test_the_sdk_plays_a_script_of_tool_calls(stream):
    def ask(client, messages):
        if not stream:
            return client.chat.completions.create(model="gpt", messages=messages, tools=[WEATHER]).choices[0]
        with client.chat.completions.stream(model="gpt", messages=messages, tools=[WEATHER]) as events:
            return events.get_final_completion().choices[0]

    with FaultyServer({"*weather*": LOOKS_UP}) as server, sdk(server) as client:
        messages = [{"role": "user", "content": "How is the weather in Oslo?"}]
        first = ask(client, messages)
        [call] = first.message.tool_calls
        assert (first.finish_reason, call.id, call.function.name) == ("tool_calls", "w1", "weather")
        assert json.loads(call.function.arguments) == {"city": "Oslo"}
        call_again = {"id": "w1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call_again]})
        messages.append({"role": "tool", "tool_call_id": "w1", "content": "-3"})
        assert ask(client, messages).message.content == "It is cold in Oslo."
        assert ask(client, HELLO).message.content == "Hello there"


def test_the_sdk_parses_structured_output():
    class City(pydantic.BaseModel):
        name: str

    with FaultyServer('{"name": "Oslo"}') as server, sdk(server) as client:
        parsed = client.chat.completions.parse(model="gpt", messages=HELLO, response_format=City)
    assert parsed.choices[0].message.parsed == City(name="Oslo")
    assert server.requests[0].body["response_format"]["type"] == "json_schema"


def test_the_sdk_gets_refusals():
    class City(pydantic.BaseModel):
        name: str

    with FaultyServer(Answer(refusal="No")) as server, sdk(server) as client:
        parsed = client.chat.completions.parse(model="gpt", messages=HELLO, response_format=City)
    assert (parsed.choices[0].message.parsed, parsed.choices[0].message.refusal) == (None, "No")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("429", "RateLimitError"),
        ("500", "InternalServerError"),
        ("503", "InternalServerError"),
        ("401", "AuthenticationError"),
        ("400", "BadRequestError"),
        ("half_closed", "APIConnectionError"),
        ("reset", "APIConnectionError"),
        ("hang", "APITimeoutError"),
        (Fault("slow_drip", delay_s=0.5), "APITimeoutError"),
        ("truncated", None),
    ],
    ids=str,
)
def test_the_sdk_notices_every_fault(fault, error):
    with FaultyServer(faults=[fault]) as server, sdk(server) as client:
        timeout_s = 0.2 if error == "APITimeoutError" else 30.0
        with pytest.raises(getattr(openai, error) if error else ValueError):
            client.chat.completions.create(model="gpt", messages=HELLO, timeout=openai.Timeout(30, read=timeout_s))
        wait_until(lambda: server.counts.by_fault)
        assert client.chat.completions.create(model="gpt", messages=HELLO).choices[0].message.content == "Hello there"


@pytest.mark.parametrize("fault", ["half_closed", "truncated"])
def test_a_stream_breaks_in_the_middle(fault):
    with FaultyServer("one two three four", faults=[fault]) as server, sdk(server) as client:
        with pytest.raises((openai.APIError, ValueError)):
            list(client.chat.completions.create(model="gpt", messages=HELLO, stream=True))
        assert server.counts.by_fault == {fault: 1}


def test_a_stream_drips():
    with FaultyServer("one two", faults=[Fault("slow_drip", delay_s=0.002)]) as server, sdk(server) as client:
        chunks = client.chat.completions.create(model="gpt", messages=HELLO, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one two"


def test_the_sdk_retries_after_the_requested_delay():
    faults = [Fault("429", retry_after_s=0.01), Fault("503", retry_after_s=0.01)]
    with FaultyServer(faults=faults) as server, sdk(server, max_retries=2) as client:
        assert client.chat.completions.create(model="gpt", messages=HELLO).choices[0].message.content == "Hello there"
    assert server.counts.by_status == {429: 1, 503: 1, 200: 1}


def test_answers_by_match_by_function_and_raw():
    with FaultyServer({"exactly": "one", "*\n*": "lines", "a*": "two"}) as server:
        assert [answer_to(server, text) for text in ("exactly", "abc", "x\ny", "else")] == [
            "one",
            "two",
            "lines",
            "else",
        ]
    with FaultyServer(lambda received: f"{received.model} {received.number} {received.prompt.upper()}") as server:
        assert post(server, "hi", model="m")["choices"][0]["message"]["content"] == "m 1 HI"
    with FaultyServer(RawReply(b'{"own": true}', headers={"X-Own": "1"})) as server:
        assert post(server) == {"own": True}


def test_a_failing_script_is_a_server_error():
    with FaultyServer(lambda received: {}["missing"]) as server, pytest.raises(urllib.error.HTTPError) as raised:
        post(server)
    with raised.value as reply:
        assert (reply.status, json.load(reply)["error"]["message"]) == (
            500,
            "The answer script failed: KeyError('missing')",
        )


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"[]",
        b"{}",
        b'{"messages": []}',
        b'{"messages": ["x"]}',
        b'{"messages": [{"role": "robot"}]}',
        b'{"messages": [{"role": "tool", "tool_call_id": "1", "content": ""}]}',
        b'{"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}',
        b'{"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}, {"role": "user", "content": ""}]}',
    ],
)
def test_requests_that_openai_rejects_are_rejected(body):
    with FaultyServer() as server, pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"{server.url}/chat/completions", body, timeout=200)
    with raised.value as reply:
        assert reply.status == 400


def test_an_unknown_path_is_not_found():
    with FaultyServer() as server, pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"{server.url}/models", timeout=200)
    with raised.value as reply:
        assert reply.status == 404


def test_faults_by_rate_depend_on_seed_and_request_but_not_order():
    rates = {"429": 0.2, "hang": 0.1, Fault("latency", delay_s=1): 0.1}
    bodies = [str(number).encode() for number in range(2000)]

    def draw_faults(order, seed=1):
        plan = FaultPlan(rates, seed)
        return {body: [plan.next(body), plan.next(body)] for body in order}

    first = draw_faults(bodies)
    assert first == draw_faults(bodies[::-1])
    assert first != draw_faults(bodies, seed=2)
    assert any(tries[0] != tries[1] for tries in first.values())
    shares = Counter(tries[0].kind for tries in first.values() if tries[0])
    assert shares["429"] == pytest.approx(400, rel=0.2)
    assert shares["hang"] == pytest.approx(200, rel=0.3)
    assert shares["latency"] == pytest.approx(200, rel=0.3)


def test_invalid_rates_and_kinds_are_rejected():
    with pytest.raises(ValueError, match=r"add up to 1\.5"):
        FaultyServer(faults={"429": 0.75, "500": 0.75})
    with pytest.raises(ValueError, match="Unknown fault 'explode': a status such as '503', or latency, hang"):
        FaultyServer(faults=["explode"])
    with pytest.raises(ValueError, match="Unknown fault '200'"):
        Fault("200")


def test_requests_over_the_cap_get_a_retry_delay():
    with FaultyServer(requests_per_s=0.5, burst=3) as server:
        assert [answer_to(server, "x") for _ in range(3)] == ["x"] * 3
        with pytest.raises(urllib.error.HTTPError) as raised:
            post(server)
    with raised.value as reply:
        assert reply.status == 429
        assert reply.headers["Retry-After"] == "2"
        assert 1000 < int(reply.headers["retry-after-ms"]) <= 2000
        assert reply.headers["x-ratelimit-remaining-requests"] == "0"
    assert (server.counts.over_cap, server.counts.by_status) == (1, {200: 3, 429: 1})


def test_the_cap_allows_its_rate(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("agentv_testing.faults.time.monotonic", lambda: now[0])
    cap = RequestCap(20, burst=20)
    passed = 0
    for _ in range(10_000):
        passed += cap.wait_s() == 0
        now[0] += 0.001
    assert passed == pytest.approx(20 * 10 + 20, abs=1)


def test_requests_are_counted_and_kept():
    with FaultyServer(faults=[None, "500"], keep=2) as server:
        answer_to(server, "one")
        with pytest.raises(urllib.error.HTTPError):
            post(server, "two")
        answer_to(server, "three")
    assert [received.prompt for received in server.requests] == ["two", "three"]
    assert (server.counts.requests, server.counts.by_status, server.counts.by_fault) == (
        3,
        {200: 2, 500: 1},
        {"500": 1},
    )
    assert (server.counts.at_once, server.counts.most_at_once, server.counts.disconnected) == (0, 1, 0)


def test_the_server_runs_inside_a_running_loop():
    async def scenario():
        async with FaultyServer("inside") as server, openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
            completion = await client.chat.completions.create(model="gpt", messages=HELLO)
            return completion.choices[0].message.content

    assert asyncio.run(scenario()) == "inside"


def test_the_server_stops_while_requests_hang():
    async def hanging():
        async with FaultyServer(faults=["hang"]) as server:
            client = openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0)
            task = asyncio.create_task(client.chat.completions.create(model="gpt", messages=HELLO))
            await wait_until_async(lambda: server.counts.at_once)
        await asyncio.gather(task, return_exceptions=True)
        await client.close()

    start = time.monotonic()
    asyncio.run(hanging())
    assert time.monotonic() - start < 30


def test_a_custom_wire_format():
    class Shout:
        def serves(self, path):
            return path == "/shout"

        def read(self, received):
            from dataclasses import replace

            return replace(received, prompt=received.raw.decode())

        def whole(self, received, answer):
            return {"shouted": answer.text.upper()}

        def pieces(self, received, answer):
            return [answer.text.upper().encode()]

        def error(self, status, message):
            return {"oh": message}

    with FaultyServer(formats=[Shout()], faults=[None, "503"]) as server:
        with urllib.request.urlopen(f"{server.origin}/shout", b"hello", timeout=200) as reply:
            assert json.load(reply) == {"shouted": "HELLO"}
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(f"{server.origin}/shout", b"hello", timeout=200)
        with raised.value as reply:
            assert json.load(reply) == {"oh": "Simulated failure"}
        assert answer_to(server, "plain") == "plain"


def test_public_names():
    assert all(getattr(agentv_testing, name) for name in agentv_testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Server'"):
        _ = agentv_testing.Server


def test_the_unused_plugin_costs_nothing():
    code = "import sys, pytest; before = set(sys.modules); import agentv_testing.plugin; "
    code += "print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ON_THE_PATH)
    assert set(done.stdout.split()) <= {"agentv_testing", "agentv_testing.plugin"}


def test_fixture_servers_end_with_the_test(tmp_path):
    (tmp_path / "test_mine.py").write_text(
        "import urllib.request\n"
        "started = []\n"
        "def test_two_servers(agentv_server):\n"
        "    started.extend([agentv_server('one'), agentv_server(faults=['500'])])\n"
        "    assert started[0].url != started[1].url\n"
        "def test_they_are_gone():\n"
        "    assert [server.connections for server in started] == [0, 0]\n"
        "    assert not any(server._thread.is_alive() for server in started)\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "agentv_testing.plugin",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=ON_THE_PATH)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_client_that_disconnects_early_is_only_counted(caplog):
    arrived, left = threading.Event(), threading.Event()

    def answers(_):
        arrived.set()
        left.wait(200)
        return "word " * 1000

    with FaultyServer(answers) as server:
        caller = socket.create_connection(("127.0.0.1", int(server.origin.rpartition(":")[2])))
        body = json.dumps({"messages": HELLO, "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        caller.sendall(head.encode() + body)
        assert arrived.wait(200)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.close()  # with a reset
        left.set()
        assert post(server)["choices"]
    assert (server.counts.disconnected, server.counts.at_once) == (1, 0)
    assert "Traceback" not in caplog.text
