"""Tools of model targets: Python functions, commands and MCP servers, run until the model answers."""

import json
import subprocess
import sys

import pytest

import agentv
from agentv.errors import UsageError
from agentv.model.message import ToolCall
from agentv.model.result import TokenUsage
from agentv_testing import Answer, FaultyServer
from virtual_time import skipped_ahead

TOOLS = '''
import time

def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b

async def weather(city: str) -> dict:
    return {"city": city, "degrees": 7}

def broken(text: str) -> str:
    raise ValueError(f"no {text} today")

def slow() -> str:
    open("waiting", "w").close()
    time.sleep(60)
'''
SERVER = '''
from mcp.server import MCPServer

server = MCPServer("facts")

@server.tool()
def capital(country: str) -> str:
    """Return the capital of a country."""
    return {"Norway": "Oslo"}[country]

@server.tool()
def unused() -> str:
    return "no"

server.run()
'''
COMMAND = {
    "name": "shout",
    "description": "Shouts",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    "command": [sys.executable, "-c", "import json, sys; print(json.load(sys.stdin)['text'].upper())"],
}


def call(tool, id="call-1", **arguments):
    return Answer(tool_calls=(ToolCall(tool, arguments, id=id),), usage=TokenUsage(10, 2))


DONE = Answer("yes, done", usage=TokenUsage(20, 3))


@pytest.fixture
def run(project):
    """Run one case against a model that gives these answers; return its record and what the server received."""

    def evaluate(answers, *tools, name="default", **settings):
        project.write("tools.py", TOOLS)
        with FaultyServer(answers) as server:
            target = {"name": name, "provider": "openai", "base_url": server.url, "model": "m", "max_retries": 0}
            project.targets({**target, "tools": list(tools), **settings})
            project.dataset("What is 2 + 3?")
            ended = project.eval("--out", "out")
        assert (project.path / "out").exists(), ended.stderr
        return project.records()[0], [request.body for request in server.requests]

    return evaluate


def test_a_function_is_declared_called_and_its_result_sent_to_the_model(run):
    record, sent = run([call("add", a=2, b=3), DONE], "tools.py:add")
    [declared] = sent[0]["tools"]
    assert declared["function"]["name"] == "add"
    assert declared["function"]["description"] == "Add two numbers."
    assert declared["function"]["parameters"]["properties"] == {
        "a": {"type": "integer"},
        "b": {"type": "integer", "default": 1},
    }
    assert declared["function"]["parameters"]["required"] == ["a"]
    assert sent[1]["messages"][-1] == {"role": "tool", "tool_call_id": "call-1", "content": "5"}
    assert (record["score"], record["candidate_answer"]) == (1, "yes, done")


def test_the_record_has_every_call_and_the_tokens_of_all_turns(run):
    record, _ = run(
        [call("add", a=2), call("weather", id="call-2", city="Oslo"), DONE], "tools.py:add", "tools.py:weather"
    )
    calls = [each for message in record["output_messages"] for each in message.get("tool_calls", ())]
    assert [(each["tool"], each["input"], each["output"]) for each in calls] == [
        ("add", {"a": 2}, 3),
        ("weather", {"city": "Oslo"}, {"city": "Oslo", "degrees": 7}),
    ]
    assert all(each["duration_ms"] > 0 for each in calls)
    assert record["trace_summary"]["tool_calls_by_name"] == {"add": 1, "weather": 1}
    assert record["execution_metrics"]["token_usage"] == {"input": 40, "output": 7, "cached": 0}


def test_a_command_reads_its_arguments_from_standard_input(run):
    record, sent = run([call("shout", text="$(rm -rf /) \"'"), DONE], COMMAND)
    assert sent[0]["tools"][0]["function"]["parameters"] == COMMAND["parameters"]
    assert sent[1]["messages"][-1]["content"] == "$(RM -RF /) \"'"
    assert record["score"] == 1


def test_several_calls_of_one_turn_are_all_answered(run):
    both = Answer("Let me see", tool_calls=(ToolCall("add", {"a": 1}, id="x"), ToolCall("add", {"a": 5}, id="y")))
    _, sent = run([both, DONE], "tools.py:add")
    results = [(each["tool_call_id"], each["content"]) for each in sent[1]["messages"] if each["role"] == "tool"]
    assert results == [("x", "2"), ("y", "6")]


MISTAKES = {
    "an exception": ("broken", {"text": "bread"}, "Error: ValueError: no bread today (tools.py, line "),
    "invalid arguments": ("add", {"a": "many"}, "Error: invalid arguments: "),
    "missing arguments": ("add", {}, "Error: invalid arguments: "),
    "an unknown tool": ("ad", {"a": 1}, "Error: there is no tool 'ad'. Tools: add, broken, shout"),
    "a failing command": ("shout", {}, "Error: The tool 'shout' ended with exit code 1"),
}


@pytest.mark.parametrize(("tool", "arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_failing_tool_is_a_result_that_the_model_sees(run, tool, arguments, message):
    record, sent = run([call(tool, **arguments), DONE], "tools.py:add", "tools.py:broken", COMMAND)
    assert sent[1]["messages"][-1]["content"].startswith(message)
    assert (record["score"], record["trace_summary"]["error_count"]) == (1, 1)


def test_the_number_of_turns_is_limited(run, project):
    record, sent = run([call("add", a=1)] * 50, "tools.py:add", max_turns=3)
    assert len(sent) == 3
    assert record["execution_metrics"]["stop_reason"] == "max_turns"
    assert record["trace_summary"]["event_count"] == 3
    assert project.summary()["truncated"] == 1


def test_the_whole_loop_has_one_timeout(run, project):
    with skipped_ahead((project.path / "waiting").exists):
        record, _ = run([call("slow"), DONE], "tools.py:slow", timeout_seconds=60)
    assert record["error"]["class"] == "timeout"
    assert "The model and its tools did not finish within 60 s" in record["error"]["message"]


def test_calls_of_tools_that_are_only_declared_are_the_answer(run):
    declared = {"name": "book", "description": "Book a flight", "parameters": {"type": "object", "properties": {}}}
    record, sent = run([call("add", a=1), call("book", to="Rome")], "tools.py:add", declared)
    assert [tool["function"]["name"] for tool in sent[0]["tools"]] == ["book", "add"]
    last = record["output_messages"][-1]["tool_calls"][0]
    assert (last["tool"], "output" in last) == ("book", False)


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("tools.py:nothing", "tools.py has no 'nothing'"),
        ({"command": "x"}, "Missing required field: 'tools[0].name'"),
        ({"function": "add"}, "must have the form 'file.py:name' or 'module:name'"),
        ({"mcp": ["x"], "nly": []}, "Unknown field 'tools[0].nly'. Did you mean 'only'?"),
    ],
)
def test_an_invalid_tool_is_found_before_the_run(project, tool, message):
    project.write("tools.py", TOOLS)
    project.targets(
        {"name": "default", "provider": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m", "tools": [tool]}
    )
    project.dataset("q")
    ended = project.eval("--out", "out")
    assert ended.code == 2
    assert message in ended.stderr
    assert not (project.path / "out").exists()


def test_a_judge_may_use_tools(project):
    verdict = Answer(json.dumps({"score": 1, "reasoning": "checked"}))
    project.write("tools.py", TOOLS)
    with FaultyServer([call("add", a=2, b=3), verdict]) as server:
        judge = {"name": "judge", "provider": "openai", "base_url": server.url, "model": "m", "tools": ["tools.py:add"]}
        project.targets({"name": "default", "provider": "mock", "response": "5"}, judge)
        project.dataset("What is 2 + 3?", evaluators=[{"type": "llm_judge"}])
        project.eval("--out", "out")
    [record] = project.records()
    assert record["score"] == 1
    [made] = record["evaluator_results"][0]["evaluator_provider_request"]["calls"]
    assert [(each["tool"], each["output"]) for each in made["tool_calls"]] == [("add", 5)]


def test_a_recording_replays_the_loop_without_running_tools(project):
    project.write("counter.py", "import os\ndef count() -> int:\n    os.mkdir('counted')\n    return 1\n")
    with FaultyServer([call("count"), DONE]) as server:
        target = {"name": "default", "provider": "openai", "base_url": server.url, "model": "m"}
        project.targets({**target, "tools": ["counter.py:count"]})
        project.dataset("q")
        project.eval("--out", "first", "--record", "calls.jsonl")
    project.eval("--out", "second", "--replay", "calls.jsonl")
    assert (project.path / "counted").is_dir()
    assert project.records("second")[0]["output_messages"] == project.records("first")[0]["output_messages"]


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
def test_tools_work_with_other_apis(project, provider):
    project.write("tools.py", TOOLS)
    with FaultyServer([call("add", a=2, b=3), DONE]) as server:
        target = {"name": "default", "provider": provider, "base_url": server.url, "model": "m", "api_key": "none"}
        project.targets({**target, "tools": ["tools.py:add"]})
        project.dataset("q")
        ended = project.eval("--out", "out")
    [record] = project.records()
    assert record["candidate_answer"] == "yes, done", ended.stderr
    assert record["trace_summary"]["tool_calls_by_name"] == {"add": 1}


class TestMcp:
    """A real MCP server as a program."""

    @pytest.fixture(autouse=True)
    def write_server(self, project):
        pytest.importorskip("mcp")
        project.write("server.py", SERVER)

    def test_the_tools_of_a_server_are_declared_and_called(self, run):
        server = {"mcp": [sys.executable, "server.py"], "only": ["capital"]}
        calls = [call("capital", country="Norway"), call("capital", id="call-2", country="Nowhere")]
        record, sent = run([*calls, DONE], server)
        [declared] = sent[0]["tools"]
        assert declared["function"]["name"] == "capital"
        assert declared["function"]["description"] == "Return the capital of a country."
        assert sent[1]["messages"][-1]["content"] == "Oslo"
        assert "Error executing tool capital" in sent[2]["messages"][-1]["content"]
        trace = record["trace_summary"]
        assert (trace["tool_calls_by_name"], trace["error_count"]) == ({"capital": 2}, 1)

    @pytest.mark.parametrize(
        ("server", "message"),
        [
            ({"mcp": ["no-such-program"]}, "Cannot use the MCP server 'no-such-program': "),
            ({"mcp": [sys.executable, "server.py"], "only": ["capitol"]}, "it has no tool 'capitol'"),
        ],
    )
    def test_a_server_that_cannot_be_used_is_an_error(self, run, server, message):
        record, sent = run([DONE], server)
        assert record["error"]["class"] == "process"
        assert message in record["error"]["message"]
        assert sent == []

    def test_a_server_can_be_named_by_its_address(self, run, project):
        project.write("remote.py", SERVER.replace("server.run()", REMOTE))
        with subprocess.Popen([sys.executable, "remote.py"], cwd=project.path, stdout=subprocess.PIPE) as process:
            try:
                port = int(process.stdout.readline())
                server = {"mcp": f"http://127.0.0.1:{port}/mcp", "headers": {"X-Team": "a"}, "only": ["capital"]}
                record, sent = run([call("capital", country="Norway"), DONE], server)
            finally:
                process.terminate()
        assert sent[1]["messages"][-1]["content"] == "Oslo", record
        assert record["trace_summary"]["tool_calls_by_name"] == {"capital": 1}

    def test_an_address_without_a_server_is_an_error(self, run):
        record, sent = run([DONE], {"mcp": "http://127.0.0.1:1/mcp"})
        assert record["error"]["class"] == "process"
        assert "Cannot use the MCP server 'http://127.0.0.1:1/mcp': " in record["error"]["message"]
        assert sent == []


REMOTE = """
import socket
import uvicorn

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
app = server.streamable_http_app()
uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])
"""


class TestFunctionObjects:
    """Functions as `tools` of a target in Python."""

    def test_a_function_is_called_with_its_annotated_arguments(self, folder):
        seen = []

        def add(a: int, b: int = 1) -> int:
            """Add two numbers."""
            seen.append((a, b))
            return a + b

        async def weather(city: str) -> str:
            return f"7 degrees in {city}"

        answers = [call("add", a=2), call("weather", id="call-2", city="Oslo"), DONE]
        with FaultyServer(answers) as server:
            target = {"provider": "openai", "base_url": server.url, "model": "m", "tools": [add, weather]}
            found = agentv.evaluate([{"id": "a", "input": "q"}], target, [SAYS])
        assert (seen, found.results[0].score) == ([(2, 1)], 1.0)
        sent = [request.body for request in server.requests]
        assert [tool["function"]["name"] for tool in sent[0]["tools"]] == ["add", "weather"]
        assert sent[2]["messages"][-1]["content"] == "7 degrees in Oslo"

    def test_the_settings_of_a_function_can_be_given_next_to_it(self, folder):
        entry = {"function": lambda text: text.upper(), "name": "shout", "parameters": COMMAND["parameters"]}
        with FaultyServer([call("shout", text="hey"), DONE]) as server:
            target = {"provider": "openai", "base_url": server.url, "model": "m", "tools": [entry]}
            agentv.evaluate([{"id": "a", "input": "q"}], target, [SAYS])
        assert server.requests[1].body["messages"][-1]["content"] == "HEY"

    def test_a_parameter_without_a_json_schema_is_an_error_that_names_the_tool(self, folder):
        def odd(value: complex) -> str:
            return ""

        target = {"provider": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m", "tools": [odd]}
        with pytest.raises(UsageError, match=r"parameters of tool '.*odd' cannot be described"):
            agentv.evaluate([{"id": "a", "input": "q"}], target, [SAYS])


SAYS = {"type": "contains", "value": "yes"}


RECORDINGS = {
    "of a run": {"output_messages": [{"tool_calls": [{"tool": "weather", "input": {"city": "Oslo"}, "output": "7"}]}]},
    "of OpenAI": [
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "7"},
    ],
    "of tau2": [
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "weather", "arguments": {"city": "Oslo"}}]},
        {"role": "tool", "id": "c", "content": "7"},
    ],
    "of Claude": [
        {"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_result", "tool_use_id": "c", "content": "7"},
    ],
    "of ADK": {
        "tool_uses": [{"id": "c", "name": "weather", "args": {"city": "Oslo"}}],
        "tool_responses": [{"id": "c", "name": "weather", "response": {"result": "7"}}],
    },
}


@pytest.mark.parametrize("kind", RECORDINGS)
def test_recorded_tools_answer_as_they_did(project, run, kind):
    project.write("calls.json", json.dumps(RECORDINGS[kind]))
    record, bodies = run([call("weather", city="Oslo"), DONE], {"recorded": "calls.json"})
    output = {"result": "7"} if kind == "of ADK" else "7"
    assert record["output_messages"][0]["tool_calls"][0]["output"] == output
    parameters = bodies[0]["tools"][0]["function"]["parameters"]
    assert parameters == {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_a_call_without_one_recorded_result_fails(project, run):
    calls = [{"tool": "f", "input": {"a": 1}, "output": n} for n in (1, 2)]
    project.write("calls.jsonl", "\n".join(map(json.dumps, calls)))
    record, _ = run([call("f", a=1), call("f", a=2), DONE], {"recorded": "calls.jsonl"})
    outputs = [item["output"] for message in record["output_messages"] for item in message.get("tool_calls", ())]
    assert ["several results were" in outputs[0], "no result was" in outputs[1]] == [True, True]
    assert record["trace_summary"]["error_count"] == 2


@pytest.mark.parametrize(
    ("content", "entry", "problem"),
    [
        ("{}", {}, "no recorded results of tools"),
        ('{"tool": "f", "input": {}, "output": 1}', {"only": ["g"]}, "no recorded results of 'g'"),
        ("{", {}, "not valid JSON"),
        (None, {}, "Cannot read"),
    ],
)
def test_a_file_without_recorded_results_is_refused(project, run, content, entry, problem):
    if content is not None:
        project.write("calls.json", content)
    with pytest.raises(AssertionError, match=problem):  # no run was started
        run([DONE], {"recorded": "calls.json", **entry})
