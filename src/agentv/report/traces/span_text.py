"""Notes about the spans that targets with `traces` sent during a run."""

from __future__ import annotations

from collections.abc import Iterator

from agentv.errors import plural
from agentv.model.manifest import SpanCounts


def span_notes(counts: SpanCounts | None) -> Iterator[str]:
    """Yield how many spans arrived, and what happened to those that are not part of an answer."""
    if counts is None or counts == SpanCounts():
        return
    yield f"Received {plural(counts.received, 'span')} for {plural(counts.calls, 'call')}; {counts.used:,} used."
    if counts.grpc_connections:
        yield (
            f"An exporter tried to send spans with gRPC ({plural(counts.grpc_connections, 'connection')}), which is "
            "not supported. Set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf for the agent."
        )
    if counts.unreadable_requests:
        yield (
            f"{plural(counts.unreadable_requests, 'request')} could not be read, so spans are lost: the data "
            "was damaged, too large, or not OTLP over http://."
        )
    if counts.calls_without_spans:
        yield (
            f"No spans arrived for {counts.calls_without_spans:,} of {plural(counts.calls, 'call')}: check that the "
            "agent continues the trace in the `traceparent` header, and sends its spans to the port of --trace-port "
            "(default: 4318)."
        )
    if counts.late:
        cases = f" (in {', '.join(counts.late_cases)})" if counts.late_cases else ""
        yield (
            f"{plural(counts.late, 'span')} arrived after the answer was scored{cases}, so its tool calls may be "
            "incomplete. Raise `trace_wait` of the target, or let the agent export more often "
            "(OTEL_BSP_SCHEDULE_DELAY)."
        )
    if counts.repeated:
        yield f"{plural(counts.repeated, 'span')} arrived more than once, and counted once."
    if counts.unmatched:
        yield (
            f"{plural(counts.unmatched, 'span')} had no trace of this run, and matched no case: let the agent continue "
            "the trace of the `traceparent` header (for a command: of TRACEPARENT) instead of starting its own."
        )
    if counts.discarded:
        yield f"{plural(counts.discarded, 'span')} of calls that failed or were stopped are not used."
    if counts.rejected:
        yield f"{plural(counts.rejected, 'span')} were rejected: more than 10,000 spans or 32 MB in one call."
