"""Spans that instrumented agents send while a run executes become messages and tool calls of the right case."""

import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

AGENT = Path(__file__).with_name("instrumented_agent.py")
VARIANTS = [("genai", "protobuf"), ("openinference", "json")]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RunningAgent:
    """The instrumented agent in a process of its own, and the port that it sends its spans to."""

    def __init__(self, convention, encoding):
        self.trace_port = free_port()
        endpoint = f"http://127.0.0.1:{self.trace_port}"
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
        command = [sys.executable, str(AGENT), convention, encoding]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}"

    def target(self, **settings):
        body = {"prompt": "{{ prompt }}"}
        common = {"name": "default", "provider": "http", "url": self.url, "body": body, "response_path": "answer"}
        return {**common, "traces": True, **settings}

    def flush(self, times=1):
        urlopen(Request(f"{self.url}/flush/{times}", data=b"")).read()

    def close(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module", params=VARIANTS, ids=" over ".join)
def each_agent(request):
    agent = RunningAgent(*request.param)
    yield agent
    agent.close()


@pytest.fixture(scope="module")
def agent():
    agent = RunningAgent("genai", "protobuf")
    yield agent
    agent.close()


def calls(*tools, mode="exact"):
    return {"type": "tool_trajectory", "mode": mode, "expected": [{"tool": tool} for tool in tools]}


def case(number, prompt, *expected):
    return {"id": f"c{number}", "input": prompt, "evaluators": [calls(*expected)]}


def port_option(agent):
    return "--trace-port", str(agent.trace_port)


def test_each_case_gets_the_tool_calls_of_its_own_trace(project, each_agent):
    project.targets(each_agent.target())
    tools = [("search",), ("search", "fetch"), ("fetch", "search"), ("search", "search", "fetch")] * 5
    cases = [case(number, f"{number} call {', '.join(names)}", *names) for number, names in enumerate(tools)]
    project.dataset(*cases, case(20, "call fetch", "search"), evaluators=[])
    assert project.eval("--out", "out", *port_option(each_agent)).code == 0
    records = project.by_id()
    scores = {id: record["score"] for id, record in records.items()}
    assert scores == {**{f"c{number}": 1.0 for number in range(20)}, "c20": 0.0}
    first = records["c0"]
    assert first["candidate_answer"] == "Done: 0 call search"
    [call] = first["output_messages"][0]["tool_calls"]
    assert (call["tool"], call["input"], call["output"]) == ("search", {"for": "search"}, "result of search")
    assert first["execution_metrics"]["token_usage"] == {"input": 20, "output": 10}
    spans = project.manifest()["spans"]
    assert spans["calls"] == 21
    assert spans["used"] == spans["received"]
