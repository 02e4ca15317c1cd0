"""OpenTelemetry: receive the spans of systems under test, export runs as traces, and read traces as sessions."""

_OTEL = "agentv.extensions.otel"

ROWS = {
    "agentv.services": {
        "span-receiver": f"{_OTEL}.span_receiver:receive_spans",
        "span-wrapper": f"{_OTEL}.trace_wrapper:TraceWrapper",
        "run-export": f"{_OTEL}.trace_export:TraceExport",
    },
    "agentv.session_formats": {
        "otlp": f"{_OTEL}.otlp_traces:OTLP",
    },
}
