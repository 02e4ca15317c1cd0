"""Errors of vendor APIs in a run: which are retried, and which slow calls down."""

import asyncio
import json
from contextlib import suppress

import pytest

from agentv.engine.calls.open_targets import OpenTargets
from agentv.engine.job.request import CaseRequest
from agentv.engine.job.spec import RunSpec
from agentv.executors.executor import LocalLimits
from agentv.model.case import EvalCase
from agentv.model.response import TargetFailure
from agentv.targets.apis.anthropic import Anthropic
from agentv_testing import FaultyServer, RawReply

pytestmark = pytest.mark.ci

TARGETS = {
    "anthropic": lambda server: {"provider": "anthropic", "base_url": server.origin},
    "gemini": lambda server: {"provider": "gemini", "base_url": server.origin},
    "openai": lambda server: {"provider": "openai", "base_url": server.url},
    "responses": lambda server: {"provider": "openai", "base_url": server.url, "api": "responses"},
    "azure": lambda server: {"provider": "azure", "endpoint": server.origin},
}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
TOO_LONG = {
    "anthropic": {"error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000"}},
    "gemini": {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count exceeds the"}},
    "openai": {"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is"}},
    "responses": {"error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window"}},
    "azure": {"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is"}},
}


def run(project, kind, **options):
    with FaultyServer(**options) as server:
        settings = {"model": "m", "api_key": "planted-key", "retry_initial_delay_ms": 1, **TARGETS[kind](server)}
        project.targets({"name": "default", **settings})
        project.dataset("yes")
        project.eval("--out", "out", "--quiet")
    [record] = project.records()
    return record, server


@pytest.mark.parametrize("status", ["529", "503", "500", "429", "520"])
@pytest.mark.parametrize("kind", TARGETS)
def test_an_overload_is_retried(project, kind, status):
    record, server = run(project, kind, faults=[status])
    assert (record["status"], record["attempts"]) == ("ok", 2)
    assert server.counts.requests == 2


@pytest.mark.parametrize("status", ["401", "403", "400", "404", "413"])
@pytest.mark.parametrize("kind", TARGETS)
def test_permanent_errors_are_not_retried(project, kind, status):
    record, server = run(project, kind, faults=[status])
    expected = "auth" if status in ("401", "403") else "invalid_response"
    assert (record["status"], record["error"]["class"], record["attempts"]) == ("error", expected, 1)
    assert (record["score"], server.counts.requests) == (None, 1)


@pytest.mark.parametrize("kind", TARGETS)
def test_a_prompt_that_is_too_long_is_not_retried(project, kind):
    reply = RawReply(json.dumps(TOO_LONG[kind]).encode(), 400)
    record, _ = run(project, kind, answers=reply)
    assert (record["status"], record["error"]["class"], record["attempts"]) == ("error", "invalid_response", 1)


@pytest.mark.parametrize(
    ("reply", "is_overload"),
    [
        (RawReply(json.dumps(OVERLOADED).encode(), 529), True),
        (RawReply(json.dumps(OVERLOADED).encode(), 200), True),
        (RawReply(b'{"error": {"type": "rate_limit_error", "message": "x"}}', 429), True),
        (RawReply(b'{"error": {"type": "invalid_request_error", "message": "x"}}', 400), False),
    ],
)
def test_an_overload_is_evidence_of_an_outage(reply, is_overload):
    async def limits(server):
        settings = Anthropic(name="t", provider="anthropic", model="m", base_url=server.origin, max_retries=0)
        limits = LocalLimits()
        targets = OpenTargets(RunSpec(run_id="r", targets=(settings,), home="."), limits)
        target = targets.get("t")
        for _ in range(3):
            with suppress(TargetFailure):
                await target.responder.respond(CaseRequest(EvalCase("one", input="Hello")))
        await targets.aclose()
        return limits.limit(target.responder.endpoint, 1, 1, "m").lane.evidence

    with FaultyServer(reply) as server:
        assert bool(asyncio.run(limits(server))) is is_overload
