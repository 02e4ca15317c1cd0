"""An agent behind HTTP that uses the `openai` client with a published instrumentation.

`python openai_client_agent.py INSTRUMENTATION MODEL_URL`: `openinference` records attributes, `openai-v2` log records.
The port is printed.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai
from opentelemetry import propagate, trace
from opentelemetry.context import attach, detach
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

INSTRUMENTATION, MODEL_URL = sys.argv[1:3]
PROVIDER, LOGS = TracerProvider(), LoggerProvider()
PROVIDER.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=50))
LOGS.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(), schedule_delay_millis=50))

if INSTRUMENTATION == "openinference":
    from openinference.instrumentation.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument(tracer_provider=PROVIDER)
else:
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

    OpenAIInstrumentor().instrument(tracer_provider=PROVIDER, logger_provider=LOGS)

CLIENT = openai.OpenAI(base_url=MODEL_URL, api_key="none")
TOOL = {"type": "function", "function": {"name": "find_order", "parameters": {"type": "object", "properties": {}}}}


def answer(prompt):
    messages = [{"role": "user", "content": prompt}]
    while True:
        reply = CLIENT.chat.completions.create(model="tiny", messages=messages, tools=[TOOL]).choices[0].message
        if not reply.tool_calls:
            return reply.content
        messages.append(reply.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "shipped"} for call in reply.tool_calls]


class Agent(BaseHTTPRequestHandler):
    def do_POST(self):
        prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
        token = attach(propagate.extract(dict(self.headers)))
        with trace.get_tracer("agent", tracer_provider=PROVIDER).start_as_current_span("POST", kind=SpanKind.SERVER):
            data = json.dumps({"answer": answer(prompt)}).encode()
        detach(token)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


SERVER = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
print(SERVER.server_address[1], flush=True)
SERVER.serve_forever()
