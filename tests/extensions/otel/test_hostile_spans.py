"""Anything may arrive at the port where spans are received. It never breaks a run, and what is valid is used."""

import asyncio
import gzip
import json
import socket
import sys
import zlib
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec
import pytest

from agentv.extensions.otel import span_store
from agentv.extensions.otel.otlp_body import MAX_BODY_BYTES
from agentv.extensions.otel.span_receiver import open_receiver
from agentv.extensions.otel.span_store import CollectedSpans, Collection, SpanStore
from agentv.extensions.otel.spans import spans_in
from agentv.extensions.otel.trace_wrapper import with_spans
from agentv.model.call_trace import own_span_id
from agentv.model.manifest import SpanCounts
from agentv.model.message import tool_calls_in
from agentv.model.response import answer
from agentv.report.summary_text import span_notes

PREFIX = "ab" * 8
TRACE = PREFIX + "cd" * 8
JSON, PROTOBUF = "application/json", "application/x-protobuf"


@pytest.fixture(scope="module")
def receiver():
    with open_receiver(0) as running:
        yield running


def post(receiver, body, content_type=JSON, path="/v1/traces", **headers):
    url = f"{receiver.address.url}{path}"
    try:
        with urlopen(Request(url, data=body, headers={"Content-Type": content_type, **headers})) as reply:
            return reply.status
    except HTTPError as error:
        return error.code


def export(*spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def attributes(**values):
    return [{"key": key, "value": value} for key, value in values.items()]


def tool_span(id="01", name="search", **fields):
    about = {"gen_ai.operation.name": {"stringValue": "execute_tool"}, "gen_ai.tool.name": {"stringValue": name}}
    return {"traceId": TRACE, "spanId": id, "name": "t", "attributes": attributes(**about), **fields}


DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000
BODIES = {
    "no JSON": (b"{", JSON, 400),
    "a list": (b"[]", JSON, 400),
    "half a character": (b'{"a": "\xff"}', JSON, 400),
    "a deep value": (DEEP, JSON, 400),
    "no protobuf": (b"\xff\xff\xff", PROTOBUF, 400),
    "another type": (b"{}", "text/plain", 415),
    "nothing": (b"", PROTOBUF, 200),
    "resource spans that are no list": (b'{"resourceSpans": {"scopeSpans": 1}}', JSON, 200),
    "half a surrogate pair": (json.dumps(export(tool_span(name="\ud83d"))).encode(), JSON, 200),
}


CALLERS = {
    "a program": ({}, 200),
    "a program under the name localhost": ({"Host": "localhost:4318"}, 200),
    "a page under a name that leads here": ({"Host": "attacker.example:4318"}, 403),
    "a page of another site": ({"Origin": "https://attacker.example"}, 403),
    "a page without an origin": ({"Origin": "null"}, 403),
    "a request of a browser": ({"Sec-Fetch-Site": "cross-site"}, 403),
}


@pytest.mark.parametrize(("headers", "status"), CALLERS.values(), ids=CALLERS)
def test_web_pages_cannot_send_spans(receiver, headers, status):
    assert post(receiver, b"{}", **headers) == status


def test_protocol_buffers_without_their_package_are_refused(receiver, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.logs.v1.logs_service_pb2", None)
    assert post(receiver, b"", PROTOBUF) == 415
    assert post(receiver, b"{}") == 200


@pytest.mark.parametrize(("body", "content_type", "status"), BODIES.values(), ids=BODIES)
def test_a_body_that_cannot_be_read_is_refused_and_the_next_accepted(receiver, body, content_type, status):
    assert post(receiver, body, content_type) == status
    assert post(receiver, b"{}") == 200


def test_bodies_are_limited_after_they_are_decompressed(receiver):
    bomb = gzip.compress(b" " * (MAX_BODY_BYTES + 1))
    assert post(receiver, bomb, **{"Content-Encoding": "gzip"}) == 413
    for coding, compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        assert post(receiver, compress(b"{}"), **{"Content-Encoding": coding}) == 200
    assert post(receiver, b"{}", **{"Content-Encoding": "zstd"}) == 415


MANY = 600_000
LARGE_BODIES = {
    "resources": (b'{"resourceSpans":[' + b"{}," * MANY + b"{}]}", JSON),
    "lists": (b'{"resourceSpans":[' + b"[]," * MANY + b"{}]}", JSON),
    "resources in Protocol Buffers": (b"\x0a\x00" * MANY, PROTOBUF),
}


@pytest.mark.parametrize(("body", "content_type"), LARGE_BODIES.values(), ids=LARGE_BODIES)
def test_a_small_body_with_very_many_values_is_refused_unread(receiver, body, content_type):
    assert post(receiver, gzip.compress(body, 1), content_type, **{"Content-Encoding": "gzip"}) == 413


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_broken_compressed_body_is_refused_and_not_printed(receiver, caplog, coding):
    for body in (b"{}", gzip.compress(b"{}")[:-6]):
        assert post(receiver, body, **{"Content-Encoding": coding}) == 400
    assert not caplog.records


def test_requests_that_are_not_http_are_refused_and_not_printed(receiver, caplog):
    host, port = receiver.address.url.removeprefix("http://").split(":")
    http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
    for request in (http2, b"\x16\x03\x01SECRET\r\n\r\n", b"GET / HTTP/1.1\r\nSECRET\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=200) as connection:
            connection.sendall(request)
            reply = connection.makefile("rb").read()
        assert b" 400 " in reply.splitlines()[0] and b"SECRET" not in reply
    assert receiver.counts().grpc_connections == 1 and receiver.counts().unreadable_requests >= 2
    assert not caplog.records


@pytest.mark.parametrize("path", ["/agentv/open", "/agentv/collect", "/agentv/discard"])
def test_spans_are_collected_with_a_token_only(receiver, path):
    assert post(receiver, b"{}", path=path) == 403
    assert post(receiver, b"{}", path=path, Authorization="Bearer ☃".encode().decode("latin-1")) == 403


def test_metrics_are_accepted_and_ignored(receiver):
    assert post(receiver, b"anything", PROTOBUF, "/v1/metrics") == 200


ODD_VALUES = [
    {"stringValue": 5},
    {"intValue": "9" * 5000},
    {"intValue": "²"},
    {"intValue": "--5"},
    {"doubleValue": "NaN"},
    {"arrayValue": {"values": [{"kvlistValue": {"values": [{"key": 1}]}}]}},
    {"arrayValue": 7},
    {"unknownValue": [1, 2]},
    {"stringValue": "x" * 100_000},
    "text",
    None,
    [1],
]
KEYS = (
    *("gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.call.arguments", "gen_ai.operation.name"),
    *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
    *("llm.input_messages.0.message.role", "llm.output_messages.x.message", "llm.cost.total", "output.value"),
    *("openinference.span.kind", "gen_ai.response.finish_reasons", "gen_ai.conversation.id", "events"),
)


def opened_store():
    store = SpanStore(PREFIX)
    store.open(TRACE)
    return store


def response_with(*spans):
    """Return the response to a call whose trace has these spans, as they would arrive."""

    async def collected():
        store = opened_store()
        for span in spans_in(export(*spans)):
            store.add(span)
        return await store.collect(Collection(TRACE, "c0", 0.0))

    found = msgspec.json.decode(asyncio.run(collected()), type=CollectedSpans)
    return with_spans(answer("hello", calls_unknown=True), found, TRACE)


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: str(value)[:30])
def test_attributes_of_any_type_leave_the_other_tool_calls(value):
    odd = [
        {"traceId": TRACE, "spanId": f"a{number}", "name": ["x"], "attributes": attributes(**{key: value, **kind})}
        for number, key in enumerate(KEYS)
        for kind in ({}, {"gen_ai.request.model": {"stringValue": "m"}})
    ]
    response = response_with(*odd, tool_span("01", startTimeUnixNano=value, endTimeUnixNano="9" * 5000))
    assert "search" in [call.tool for call in tool_calls_in(response.messages)]
    assert response.text == "hello"


def test_long_chains_of_parents_end():
    chain = [tool_span(f"{number}", parentSpanId=f"{number - 1}") for number in range(1, 3000)]
    assert len(tool_calls_in(response_with(*chain).messages)) == 1


def test_tool_calls_whose_parents_form_a_circle_are_all_counted():
    circle = [tool_span("c1", "a", parentSpanId="c2"), tool_span("c2", "b", parentSpanId="c1")]
    itself = tool_span("c3", "c", parentSpanId="c3")
    below = [tool_span("d1", "inner", parentSpanId="c1"), tool_span("d2", "inner", parentSpanId="d1")]
    response = response_with(*below, *circle, itself)
    assert sorted(call.tool for call in tool_calls_in(response.messages)) == ["a", "b", "c"]


def test_the_calls_of_an_answer_with_rejected_spans_are_unknown():
    response = response_with(*(tool_span(str(number)) for number in range(10_001)))
    assert response.calls_unknown and not tool_calls_in(response.messages) and response.usage is None


def test_too_many_spans_of_a_call_are_rejected_and_counted():
    async def counts():
        store = opened_store()
        for span in spans_in(export(*(tool_span(str(number)) for number in range(10_005)))):
            store.add(span)
        await store.collect(Collection(TRACE, "c0", 0.0))
        return store.counts()

    found = asyncio.run(counts())
    assert (found.received, found.used, found.discarded, found.rejected) == (10_005, 0, 10_000, 5)


async def store_after(calls, spans_per_call, monkeypatch):
    """Return a store that remembers 30 calls and spans, after calls with late, repeated and made-up spans."""
    monkeypatch.setattr(span_store, "_MOST_REMEMBERED", 30)
    store = SpanStore(PREFIX)
    for number in range(calls):
        trace = PREFIX + f"{number:016x}"
        store.open(trace)
        sent = export(*(tool_span(str(each), traceId=trace) for each in range(spans_per_call + 1)))
        *spans, late = spans_in(sent)
        for span in (*spans, *spans):
            store.add(span)
        await store.collect(Collection(trace, f"c{number}", 0.0))
        for span in (late, late, spans[0]):
            store.add(span)
    for span in spans_in(export(*(tool_span(traceId=PREFIX + "ff" + f"{each:014x}") for each in range(calls)))):
        store.add(span)
    return store


def test_counts_are_exact_and_memory_bounded_after_many_calls(monkeypatch):
    store = asyncio.run(store_after(500, 2, monkeypatch))
    found = store.counts()
    assert (found.calls, found.used, found.repeated, found.late) == (500, 1_000, 2_000, 1_000)
    assert found.received == found.used + found.repeated + found.late
    assert not store._open and store._remembered <= 30 and len(store._recent) <= 30


def test_grpc_exporters_and_traces_of_the_agent_itself_are_reported_with_what_to_do():
    notes = "\n".join(span_notes(SpanCounts(received=3, unmatched=3, grpc_connections=2, unreadable_requests=1)))
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in notes and "(2 connections)" in notes
    assert "1 request could not be read, so spans are lost" in notes
    assert "3 spans had no trace of this run" in notes and "continue the trace of the `traceparent` header" in notes


def spans_with_root(kind, ended_before_s):
    async def collected():
        import time

        store, loop = opened_store(), asyncio.get_running_loop()
        end = str(time.time_ns() - int(ended_before_s * 1e9))
        about = {"gen_ai.operation.name": {"stringValue": "invoke_agent"}}
        root = {"traceId": TRACE, "spanId": "0a", "parentSpanId": own_span_id(TRACE), "kind": kind}
        [span] = spans_in(export({**root, "endTimeUnixNano": end, "attributes": attributes(**about)}))
        store.add(span)
        started = loop.time()
        await store.collect(Collection(TRACE, "c0", 1.0))
        return loop.time() - started

    return asyncio.run(collected())


@pytest.mark.parametrize(
    ("kind", "ended_before_s", "is_early"),
    [(2, 60, True), ("SPAN_KIND_SERVER", 60, True), (1, 0.1, True), (1, 60, False)],
)
def test_the_wait_ends_when_the_outermost_span_has_arrived(kind, ended_before_s, is_early):
    assert (spans_with_root(kind, ended_before_s) < 0.9) is is_early
