"""The trace of a call to a target whose spans agentv receives, and what is sent with the call."""

from __future__ import annotations

import hashlib
import os
from typing import Protocol

import msgspec

from agentv.model.manifest import SpanCounts

TRACE_WAIT_S = 10.0
"""How long to wait for the spans of a call: SDKs of OpenTelemetry export them every 5 s."""

COMMAND_TRACE_WAIT_S = 2.0
"""The same after a command, which sends its spans before it ends."""


class ReceiverAddress(msgspec.Struct, frozen=True):
    """Where a receiver is, the token to collect spans from it, and what the trace ids of its run begin with."""

    url: str
    token: str
    prefix: str

    def new_trace(self) -> CallTrace:
        """Return a new trace of the run."""
        trace_id = self.prefix + os.urandom(8).hex()
        return CallTrace(trace_id, own_span_id(trace_id), self.url)


class SpanReceiver(Protocol):
    """Receives the spans of a run; the service `span-receiver` opens one."""

    address: ReceiverAddress

    def counts(self) -> SpanCounts:
        """Return what arrived so far."""


def own_span_id(trace_id: str) -> str:
    """Return the id of agentv's own span in a trace, which is the parent of the first span of the called system."""
    return hashlib.sha256(trace_id.encode()).hexdigest()[:16]


class CallTrace(msgspec.Struct, frozen=True, gc=False):
    """The trace of one call: its id, the id of agentv's own span in it, and where its spans can be sent."""

    trace_id: str
    span_id: str
    endpoint: str

    @property
    def traceparent(self) -> str:
        """The header that makes the spans of the called system part of the trace."""
        return f"00-{self.trace_id}-{self.span_id}-01"


def is_traced(target: object) -> bool:
    """Whether the calls of a target are part of traces, whose spans agentv receives."""
    return bool(getattr(target, "traces", False))


def trace_headers(trace: CallTrace | None) -> dict[str, str]:
    """Return the headers that make a call part of its trace; none if it has no trace."""
    return {} if trace is None else {"traceparent": trace.traceparent}


def trace_variables(trace: CallTrace | None) -> dict[str, str]:
    """Return the variables that make the spans of a command part of its trace, and let them arrive here."""
    if trace is None:
        return {}
    return {
        "TRACEPARENT": trace.traceparent,
        "OTEL_EXPORTER_OTLP_ENDPOINT": trace.endpoint,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{trace.endpoint}/v1/traces",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
