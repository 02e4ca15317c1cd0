"""Spans that instrumented agents send while a run executes become messages and tool calls of the right case."""

import socket
import subprocess
import sys
from pathlib import Path

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


def test_late_repeated_and_unmatched_spans_are_counted_and_reported(project, agent):
    project.targets(agent.target(trace_wait=1))
    late = case(0, "call slow search", "slow search")
    lost = case(1, "lost: call search", "search")
    # The agent sends the spans that it held back twice, after the first case was scored.
    flush = {**case(2, "flush: call fetch", "fetch"), "depends_on": ["c0"]}
    project.dataset(late, lost, flush, evaluators=[])
    ended = project.eval("--out", "out", *port_option(agent))
    assert ended.code == 0
    records = project.by_id()
    assert (records["c0"]["score"], records["c2"]["score"]) == (1.0, 1.0)
    assert "calls of the target are unknown" in records["c1"]["error"]["message"]
    found = project.manifest()["spans"]
    assert found == {**found, "calls": 3, "calls_without_spans": 1, "late_cases": ["c0"]}
    assert found["unmatched"] == 4  # the server's span, two of models and one of a tool
    assert (found["late"], found["repeated"]) == (1, 1)
    assert found["received"] == found["used"] + found["late"] + found["repeated"] + found["unmatched"]
    for note in ("1 span arrived after the answer was scored (in c0)", "1 span arrived more than once"):
        assert note in ended.stdout
    assert "4 spans had no trace of this run" in ended.stdout
    assert "No spans arrived for 1 of 3 calls" in ended.stdout


def test_worker_processes_collect_spans_from_the_one_receiver(project, agent):
    project.targets(agent.target())
    project.dataset(*(case(number, f"call t{number}", f"t{number}") for number in range(6)), evaluators=[])
    options = ("--executor", "process", "--processes", "2")
    assert project.eval("--out", "out", *options, *port_option(agent)).code == 0
    assert [record["score"] for record in project.records()] == [1.0] * 6


def test_turns_of_a_conversation_have_their_own_tool_calls(project, agent):
    project.targets(agent.target())
    turns = [{"input": f"call {tool}", "evaluators": [calls(tool)]} for tool in ("fetch", "read")]
    first = {**case(0, "call search", "search", "fetch", "read"), "turns": turns}
    project.dataset(first, evaluators=[])
    assert project.eval("--out", "out", *port_option(agent)).code == 0
    [record] = project.records()
    assert [result["score"] for result in record["evaluator_results"]] == [1.0, 1.0, 1.0]


COMMAND = """
import os, sys
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
context = propagate.extract({"traceparent": os.environ["TRACEPARENT"]})
with trace.get_tracer("t", tracer_provider=provider).start_as_current_span("look up", context) as span:
    span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": sys.argv[1]})
provider.shutdown()
print("ok")
"""


def test_a_command_sends_its_spans_to_the_address_it_is_given(project):
    project.write("agent.py", COMMAND)
    command = f"{sys.executable} agent.py {{PROMPT}}"
    project.targets({"name": "default", "provider": "cli", "command_template": command, "traces": True})
    project.dataset(case(0, "search", "search"), case(1, "search", "fetch"), evaluators=[])
    assert project.eval("--out", "out").code == 0
    assert {id: record["score"] for id, record in project.by_id().items()} == {"c0": 1.0, "c1": 0.0}


def test_stored_answers_without_tool_calls_are_known_to_have_none(project, agent):
    project.targets(agent.target())
    no_calls = {"type": "tool_trajectory", "mode": "subset", "expected": [{"tool": "search"}]}
    project.dataset({"id": "c0", "input": "hello", "evaluators": [no_calls]}, evaluators=[])
    assert project.eval("--out", "out", *port_option(agent)).code == 0
    assert project.command("rescore", "out", "--out", "again", "--all").code == 0
    assert [project.records(out)[0]["score"] for out in ("out", "again")] == [1.0, 1.0]


def test_merged_shards_have_the_spans_of_all(project):
    command = {"name": "default", "provider": "cli", "command_template": "echo yes", "traces": True, "trace_wait": 0}
    project.targets(command)
    project.dataset("one", "two", "three", "four")
    for shard in ("1", "2"):
        port = ("--trace-port", str(free_port()))
        assert project.eval("--shard", f"{shard}/2", "--out", f"shard{shard}", *port).code == 0
    assert project.command("runs", "merge", "shard1", "shard2", "--out", "all").code == 0
    assert project.manifest("all")["spans"] == {"calls": 4, "calls_without_spans": 4}


def test_a_resumed_run_adds_its_spans_to_those_before(project):
    command = {"name": "default", "provider": "cli", "command_template": "echo yes", "traces": True, "trace_wait": 0}
    project.targets(command)
    project.dataset(*map(str, range(12)))
    failing = ("-e", "{type: contains, value: no}")
    assert project.eval("--out", "out", "--fail-fast", "--workers", "1", *failing).code == 1
    assert 1 <= project.manifest()["spans"]["calls"] < 12
    while len(project.records()) < 12:
        project.eval("--resume", "--out", "out")
    assert project.manifest()["spans"]["calls"] == 12


def test_a_port_in_use_is_an_error_before_the_first_call(project, agent):
    project.targets(agent.target())
    project.dataset("call search")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ended = project.eval("--trace-port", str(other.getsockname()[1]))
    assert ended.code == 2
    assert "Cannot receive spans" in ended.stderr
    assert "--trace-port" in ended.stderr
    assert project.runs == []
