"""Agents with published instrumentations of the `openai` client: their tool calls are found in the model's spans.

Install openinference-instrumentation-openai, and opentelemetry-instrumentation-openai-v2 2.3b0 with `wrapt<2`.
"""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agentv.model.message import ToolCall
from agentv_testing import Answer, FaultyServer

AGENT = Path(__file__).with_name("openai_client_agent.py")
MODULES = {
    "openinference": "openinference.instrumentation.openai",
    "openai-v2": "opentelemetry.instrumentation.openai_v2",
}


@pytest.mark.peers
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("instrumentation", MODULES)
def test_tool_calls_come_from_spans_and_logs_of_the_openai_client(project, instrumentation):
    pytest.importorskip(MODULES[instrumentation], exc_type=ImportError)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
    }
    asks = Answer(tool_calls=(ToolCall("find_order", {"id": 17}),))
    with FaultyServer(answers=[asks, "It was shipped."]) as server:
        command = [sys.executable, str(AGENT), instrumentation, server.url]
        agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        try:
            url = f"http://127.0.0.1:{agent.stdout.readline().strip()}"
            body = {"prompt": "{{ prompt }}"}
            target = {"name": "default", "provider": "http", "url": url, "body": body, "response_path": "answer"}
            project.targets({**target, "traces": True})
            expected = [{"tool": "find_order", "args": {"id": 17}}]
            evaluator = {"type": "tool_trajectory", "mode": "exact", "expected": expected}
            project.dataset({"input": "Where is order 17?", "evaluators": [evaluator]}, evaluators=[])
            ended = project.eval("--out", "out", "--trace-port", str(port))
        finally:
            agent.kill()
            _, errors = agent.communicate()
    assert ended.code == 0, errors
    [record] = project.records()
    assert record["score"] == 1.0, record
    assert record["candidate_answer"] == "It was shipped."
    assert record["execution_metrics"]["token_usage"]["input"] > 0
