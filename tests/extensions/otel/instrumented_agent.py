"""An agent behind HTTP, instrumented with the SDK of OpenTelemetry: `python instrumented_agent.py CONVENTION ENCODING`.

A prompt lists the tools to call: `call search, fetch`. Its spans are sent in batches to OTEL_EXPORTER_OTLP_ENDPOINT.
The port is printed. Spans of tools that are called `slow …` are sent later, twice, when a prompt says `flush`.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind

CONVENTION, ENCODING = sys.argv[1:3]


class HeldExporter(SpanExporter):
    """Keeps the spans of slow tools until `send_held` is called."""

    def __init__(self, inner):
        self.inner, self.held = inner, []

    def export(self, spans):
        self.held += [span for span in spans if "slow" in span.name]
        others = [span for span in spans if "slow" not in span.name]
        return self.inner.export(others) if others else SpanExportResult.SUCCESS

    def send_held(self, times):
        for _ in range(times):
            self.inner.export(self.held)


def exporter():
    if ENCODING == "json":
        from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    return HeldExporter(OTLPSpanExporter())


def genai_model(tracer, messages, reply):
    with tracer.start_as_current_span("chat tiny", kind=SpanKind.CLIENT) as span:
        span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "tiny",
                "gen_ai.usage.input_tokens": 10,
                "gen_ai.usage.output_tokens": 5,
                "gen_ai.input.messages": json.dumps(messages),
                "gen_ai.output.messages": json.dumps([reply]),
            }
        )


def genai_tool(tracer, name, call_id):
    with tracer.start_as_current_span(f"execute_tool {name}") as span:
        span.set_attributes(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": call_id,
                "gen_ai.tool.call.arguments": json.dumps({"for": name}),
                "gen_ai.tool.call.result": f"result of {name}",
            }
        )


def openinference_model(tracer, messages, reply):
    with tracer.start_as_current_span("ChatCompletion") as span:
        span.set_attributes({"openinference.span.kind": "LLM", "llm.model_name": "tiny"})
        span.set_attributes({"llm.token_count.prompt": 10, "llm.token_count.completion": 5})
        for side, listed in (("input", messages), ("output", [reply])):
            for place, message in enumerate(listed):
                prefix = f"llm.{side}_messages.{place}.message"
                span.set_attribute(f"{prefix}.role", message["role"])
                for number, part in enumerate(message["parts"]):
                    if part["type"] == "text":
                        span.set_attribute(f"{prefix}.content", part["content"])
                    elif part["type"] == "tool_call":
                        call = f"{prefix}.tool_calls.{number}.tool_call"
                        span.set_attribute(f"{call}.id", part["id"])
                        span.set_attribute(f"{call}.function.name", part["name"])
                        span.set_attribute(f"{call}.function.arguments", json.dumps(part["arguments"]))
                    else:
                        span.set_attribute(f"{prefix}.tool_call_id", part["id"])
                        span.set_attribute(f"{prefix}.content", part["response"])


def openinference_tool(tracer, name, call_id):
    with tracer.start_as_current_span(name) as span:
        span.set_attributes({"openinference.span.kind": "TOOL", "tool.name": name, "tool_call.id": call_id})
        span.set_attributes({"input.value": json.dumps({"for": name}), "output.value": f"result of {name}"})


CALL_MODEL, CALL_TOOL = {
    "genai": (genai_model, genai_tool),
    "openinference": (openinference_model, openinference_tool),
}[CONVENTION]


def text(role, content):
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def answer(tracer, prompt, names):
    messages = [text("user", prompt)]
    for number, name in enumerate(names):
        call = {"type": "tool_call", "id": f"call-{number}", "name": name, "arguments": {"for": name}}
        reply = {"role": "assistant", "parts": [call], "finish_reason": "tool_call"}
        CALL_MODEL(tracer, messages, reply)
        CALL_TOOL(tracer, name, call["id"])
        result = {"type": "tool_call_response", "id": call["id"], "response": f"result of {name}"}
        messages += [reply, {"role": "tool", "parts": [result]}]
    CALL_MODEL(tracer, messages, {**text("assistant", f"Done: {prompt}"), "finish_reason": "stop"})
    return f"Done: {prompt}"


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        prompt = json.loads(body)["prompt"]
        _, is_task, tools = prompt.rpartition("call ")
        names = [name.strip() for name in tools.split(",")] if is_task else []
        if "flush" in prompt:
            EXPORTER.send_held(times=2)
        # An agent that does not propagate the context starts a trace of its own.
        context = None if "lost" in prompt else propagate.extract(dict(self.headers))
        with TRACER.start_as_current_span("POST /", context=context, kind=SpanKind.SERVER):
            reply = answer(TRACER, prompt, names)
        return self.reply(reply)

    def reply(self, answered):
        data = json.dumps({"answer": answered}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


PROVIDER, EXPORTER = TracerProvider(), exporter()
PROVIDER.add_span_processor(BatchSpanProcessor(EXPORTER, schedule_delay_millis=50))
TRACER = trace.get_tracer("agent", tracer_provider=PROVIDER)
SERVER = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
print(SERVER.server_address[1], flush=True)
SERVER.serve_forever()
