"""Runs exported as traces: GenAI spans with the results of evaluators, received by a small collector."""

import gzip
import json
import re
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agentv.extensions.otel import trace_export
from agentv.extensions.otel.record_spans import RunFacts, spans_of_record
from agentv.extensions.otel.trace_export import SpanSender, traces_url
from agentv.model.call_trace import own_span_id
from agentv.model.result import ExecutionMetrics, Result

trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

DATASET = {
    "evaluators": [{"type": "contains", "value": "yes", "name": "says-yes"}],
    "evalcases": [
        {"id": "good", "input": "yes, please", "expected_outcome": "x", "tags": ["first"]},
        {"id": "bad", "input": "no", "expected_outcome": "x"},
    ],
}


def with_body(body, content_type="application/x-protobuf"):
    def reply(handler):
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def endless(handler):
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(b"x" * 1000)


class Collector:
    """Receives exports, and replies with `status` and `reply`."""

    def __init__(self):
        self.requests, self.status, self.reply, outer = [], 200, with_body(b""), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, dict(self.headers), body))
                self.send_response(outer.status)
                outer.reply(self)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def spans(self):
        found = []
        for _, headers, body in self.requests:
            export = trace_service.ExportTraceServiceRequest()
            export.ParseFromString(gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body)
            found += [span for each in export.resource_spans for scope in each.scope_spans for span in scope.spans]
        return found

    def named(self, name):
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def collector(monkeypatch):
    """A collector that replies; the end of a run waits for it even on a busy machine."""
    monkeypatch.setattr(trace_export, "_FIRST_S", 60.0)
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


def values(attributes):
    """Return attributes as a dict."""
    found = {}
    for each in attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        found[each.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found


@pytest.fixture
def project(folder):
    folder.write("d.yaml", DATASET)
    calls = [{"tool": "search", "input": {"q": "x"}, "output": "found", "duration_ms": 5}]
    target = {"name": "default", "provider": "mock", "tool_calls": calls, "token_usage": {"input": 7, "output": 3}}
    folder.write("targets.yaml", {"targets": [target]})
    return folder


def test_each_job_is_a_trace_with_the_results_of_its_evaluators(project, command, collector):
    ended = command("eval", "d.yaml", "--out", "out", "--otel", collector.url, "--experiment", "nightly")
    assert ended.code == 0
    assert f"Exported 6 spans to {collector.url}/v1/traces." in ended.stdout
    [job] = collector.named("test good")
    assert values(job.attributes) == {
        **values(job.attributes),
        "test.suite.name": "d",
        "test.case.name": "good",
        "test.case.result.status": "pass",
        "agentv.experiment": "nightly",
        "agentv.score": 1.0,
        "agentv.tags": ["first"],
    }
    call = next(span for span in collector.named("invoke_agent default") if span.parent_span_id == job.span_id)
    assert call.trace_id == job.trace_id
    assert call.kind == call.SPAN_KIND_CLIENT
    about = values(call.attributes)
    assert (about["gen_ai.operation.name"], about["gen_ai.usage.input_tokens"]) == ("invoke_agent", 7)
    [event] = call.events
    assert event.name == "gen_ai.evaluation.result"
    assert values(event.attributes) == {
        "gen_ai.evaluation.name": "says-yes",
        "gen_ai.evaluation.score.value": 1.0,
        "gen_ai.evaluation.score.label": "pass",
        "gen_ai.evaluation.explanation": "contains 'yes'",
    }
    tool = next(span for span in collector.named("execute_tool search") if span.parent_span_id == call.span_id)
    assert values(tool.attributes)["gen_ai.tool.name"] == "search"
    assert len({span.trace_id for span in collector.spans}) == 2


def test_a_stored_run_is_exported_with_the_same_ids(project, command, collector):
    command("eval", "d.yaml", "--out", "out", "--otel", collector.url)
    live = {(span.trace_id, span.span_id, span.name) for span in collector.spans}
    collector.requests.clear()
    ended = command("report", "out", "--otel", collector.url)
    assert ended.code == 0
    assert "Exported 6 spans" in ended.stderr
    assert {(span.trace_id, span.span_id, span.name) for span in collector.spans} == live


@pytest.mark.parametrize("captured", ["true", ""])
def test_texts_are_exported_only_if_the_environment_asks_for_them(project, command, collector, monkeypatch, captured):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", captured)
    command("eval", "d.yaml", "--out", "out", "--otel", collector.url, "--case", "good")
    [call] = collector.named("invoke_agent default")
    about = values(call.attributes)
    if not captured:
        assert "yes, please" not in str(collector.spans)
        assert not [key for key in about if "messages" in key]
        return
    assert json.loads(about["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "yes, please"}]}
    ]
    sent = json.loads(about["gen_ai.output.messages"])
    assert [part["type"] for message in sent for part in message["parts"]] == [
        "text",
        "tool_call",
        "tool_call_response",
    ]
    [tool] = collector.named("execute_tool search")
    assert values(tool.attributes)["gen_ai.tool.call.arguments"] == '{"q":"x"}'


def test_headers_come_from_the_environment_and_secrets_are_not_exported(project, command, collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=collector-key-123")
    monkeypatch.setenv("SHOP_API_KEY", "planted-secret-0123456789")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    target = {"name": "default", "provider": "mock", "response": "yes planted-secret-0123456789"}
    project.write("targets.yaml", {"targets": [target]})
    assert command("eval", "d.yaml", "--out", "out", "--otel", collector.url).code == 0
    assert {headers.get("x-key") for _, headers, _ in collector.requests} == {"collector-key-123"}
    assert "planted-secret" not in str(collector.spans)
    assert "collector-key-123" not in (project.path / "out" / "run.json").read_text()


def test_a_collector_that_is_down_costs_spans_but_no_result(project, command):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        ended = command("eval", "d.yaml", "--out", "out", "--otel", endpoint)
        assert ended.code == 0
        assert f"6 of 6 spans could not be delivered to {endpoint}/v1/traces" in ended.stdout
        assert len((project.path / "out" / "results.jsonl").read_text().splitlines()) == 2
        assert "Traceback" not in ended.stderr
        quiet = command("eval", "d.yaml", "--out", "other", "--otel", endpoint, "--quiet")
        assert "6 of 6 spans could not be delivered" in quiet.stderr


@pytest.mark.parametrize("status", [301, 304, 308, 403])
def test_a_collector_that_refuses_spans_fails_the_export_of_a_stored_run(project, command, collector, status):
    command("eval", "d.yaml", "--out", "out")
    collector.status = status
    ended = command("report", "out", "--otel", collector.url)
    assert ended.code == 2
    assert f"Cannot export the run to {collector.url}/v1/traces" in ended.stderr
    assert "OTEL_EXPORTER_OTLP_HEADERS" in ended.stderr


REJECTED = trace_service.ExportTraceServiceResponse(partial_success={"rejected_spans": 2})
REPLIES = {
    "endless": (endless, "Exported 3 spans"),
    "HTML": (with_body(b"<p>rejectedSpans</p>", "text/html"), "Exported 3 spans"),
    "rejected": (with_body(REJECTED.SerializeToString()), "2 of 3 spans could not be delivered"),
    "rejected JSON": (
        with_body(b'{"partialSuccess": {"rejectedSpans": "1"}}', "application/json"),
        "1 of 3 spans could not be delivered",
    ),
}


@pytest.mark.parametrize(("reply", "note"), REPLIES.values(), ids=REPLIES)
def test_replies_are_read_up_to_a_limit_and_rejected_spans_are_lost(project, command, collector, reply, note):
    """The spans of one job are one request; those of several may be more."""
    collector.reply = reply
    assert note in command("eval", "d.yaml", "--out", "out", "--otel", collector.url, "--case", "good").stdout
    stored = command("report", "out", "--otel", collector.url)
    assert stored.code == (2 if "could not" in note else 0)


def test_errors_have_an_error_type_and_no_score(project, command, collector):
    target = {"name": "default", "provider": "cli", "command_template": "exit 3", "max_retries": 0}
    project.write("targets.yaml", {"targets": [target]})
    command("eval", "d.yaml", "--out", "out", "--otel", collector.url, "--case", "good")
    [call] = collector.named("invoke_agent default")
    assert values(call.attributes)["error.type"] == "process"
    assert call.status.code == call.status.STATUS_CODE_ERROR
    [job] = collector.named("test good")
    assert "agentv.score" not in values(job.attributes)
    assert not call.events


def test_calls_of_judges_are_spans_of_their_own(project, command, collector):
    judge = {
        "name": "judge",
        "provider": "mock",
        "response": '{"score": 0.5}',
        "token_usage": {"input": 4, "output": 2},
    }
    project.write("targets.yaml", {"targets": [{"name": "default", "provider": "mock"}, judge]})
    options = ("-e", "{type: llm_judge, name: helpful}", "--case", "good")
    command("eval", "d.yaml", "--out", "out", "--otel", collector.url, *options)
    [span] = collector.named("chat judge")
    [job] = collector.named("test good")
    assert span.parent_span_id == job.span_id
    about = values(span.attributes)
    assert (about["agentv.evaluator"], about["gen_ai.usage.input_tokens"]) == ("helpful", 4)


def record_of(**fields):
    usual = {"timestamp": "2026-01-01T00:00:01.000Z", "run_id": "r", "eval_id": "c0", "dataset": "d", "trial": 1}
    usual |= {"dataset_path": "d.yaml", "target": "t", "status": "ok", "score": 1.0, "verdict": "pass"}
    return Result(**{**usual, **fields})


@pytest.mark.parametrize("timestamp", ["yesterday", "", "2026-01-01", "0001-01-01T00:00:00"])
def test_odd_values_in_records_of_other_tools_are_exported(collector, timestamp):
    calls = [{"tool": ["x"], "id": {"a": 1}, "duration_ms": "long"}]
    message = {"role": "assistant", "content": [1, None], "tool_calls": calls}
    odd = record_of(timestamp=timestamp, output_messages=(message,))
    facts = RunFacts("r", None, {}, has_content=True)
    sender = SpanSender(collector.url, lambda record: spans_of_record(record, facts, [{"content": {"a": 1}}]))
    sender.add(odd)
    assert sender.close().lost == 0
    assert [span.name for span in collector.spans] == ["test c0", "invoke_agent t", "execute_tool ['x']"]


def test_spans_join_the_trace_that_the_agent_continued():
    trace_id = "ab" * 16
    record = record_of(execution_metrics=ExecutionMetrics(duration_ms=250.0, trace_id=trace_id))
    job, call = spans_of_record(record, RunFacts("r", None, {}))
    assert (job.trace_id, call.trace_id, call.id) == (trace_id, trace_id, own_span_id(trace_id))
    assert (call.end - call.start) == 250_000_000


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
        ("https://host/api/public/otel", "https://host/api/public/otel/v1/traces"),
        ("https://host/v1/traces", "https://host/v1/traces"),
    ],
)
def test_the_path_of_traces_is_added_to_the_endpoint(endpoint, url):
    assert traces_url(endpoint) == url


@pytest.mark.parametrize(
    "endpoint", ["localhost:4318", "ftp://host", "http://", "http://host:x", "http://host?key=1", "http://ho\nst"]
)
def test_an_invalid_endpoint_is_an_error_before_the_run(project, command, endpoint):
    ended = command("eval", "d.yaml", "--out", "out", "--otel", endpoint)
    assert ended.code == 2
    assert "--otel must be an address" in ended.stderr
    assert not (project.path / "out").exists()


def test_a_run_is_exported_to_a_file_that_can_be_read_as_sessions(project, command, monkeypatch):
    monkeypatch.setattr(trace_export, "_FIRST_S", 60.0)
    ended = command("eval", "d.yaml", "--out", "out", "--otel", "traces.json")
    assert ended.code == 0 and "Exported 6 spans to traces.json." in ended.stdout
    exported = json.loads((project.path / "traces.json").read_text("utf-8"))
    spans = [span for each in exported["resourceSpans"] for scope in each["scopeSpans"] for span in scope["spans"]]
    assert len(spans) == 6 and all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in spans)
    assert command("report", "out", "--otel", "again.json").code == 0
    again = (project.path / "again.json").read_text("utf-8")
    assert {span["spanId"] for span in spans} == set(re.findall('"spanId":"([0-9a-f]{16})"', again))
    assert command("eval", "d.yaml", "--out", "other", "--otel", "nowhere/traces.json").code == 2


def test_a_password_in_the_endpoint_is_refused_and_not_printed(project, command):
    ended = command("eval", "d.yaml", "--out", "out", "--otel", "http://user:hunter22@127.0.0.1:4318")
    assert ended.code == 2 and "OTEL_EXPORTER_OTLP_HEADERS" in ended.stderr
    assert "hunter22" not in ended.stdout + ended.stderr
