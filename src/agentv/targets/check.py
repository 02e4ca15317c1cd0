"""Check targets with one small call each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from agentv.errors import AgentvError, TargetsError
from agentv.model.case import EvalCase
from agentv.model.response import Responder, SampleRequest, TargetFailure
from agentv.model.result import TokenUsage
from agentv.settings.environment import redacted
from agentv.targets.catalog import Targets
from agentv.targets.target import Target

PROMPT = "Answer with the single word: ok"
LONGEST_S = 60.0


class TargetCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a call. `error` is the error class, or `settings` if the target cannot be opened."""

    name: str
    provider: str
    ok: bool
    duration_ms: float | None = None
    token_usage: TokenUsage | None = None
    answer: str | None = None
    error: str | None = None
    message: str | None = None
    note: str | None = None


async def check_targets(targets: Targets, names: Iterable[str]) -> list[TargetCheck]:
    """Call each target once, concurrently, and return the checks in the order of the names."""
    return await asyncio.gather(*(_check(targets, name) for name in names))


async def _check(targets: Targets, name: str) -> TargetCheck:
    outcome = await _outcome(targets, name)
    texts = {key: redacted(outcome[key], targets.secrets) for key in ("answer", "message") if outcome.get(key)}
    given = {"provider": str(targets.raw(name)["provider"])}
    return TargetCheck(name=name, ok="error" not in outcome, **{**given, **outcome, **texts})


async def _outcome(targets: Targets, name: str) -> dict[str, Any]:
    try:
        settings = targets.get(name)
        responder = settings.open(targets.home)
    except AgentvError as error:
        # The headline of a TargetsError is only its place.
        headline = "" if isinstance(error, TargetsError) and error.detail else error.headline
        return {"error": "settings", "message": ". ".join(filter(None, (headline, error.detail, error.hint)))}
    except NotImplementedError:
        message = f"Targets of provider '{targets.raw(name)['provider']}' cannot be called"
        return {"error": "settings", "message": message}
    known = {"provider": settings.provider, "note": settings.check_note(targets.home) or None}
    try:
        # A target that is not live has stored answers to certain cases; opening its file is enough.
        return {**known, **await _call(settings, responder)} if settings.is_live else known
    finally:
        await responder.aclose()


async def _call(settings: Target, responder: Responder) -> dict[str, Any]:
    timeout_s = min(settings.timeout_seconds or LONGEST_S, LONGEST_S)
    started = time.perf_counter()
    try:
        response = await responder.respond(SampleRequest(PROMPT, EvalCase("agentv-check", input=PROMPT), timeout_s))
        outcome: dict[str, Any] = {"token_usage": response.usage, "answer": response.text}
    except TargetFailure as failure:
        outcome = {"error": failure.error_class, "message": failure.message}
    return {**outcome, "duration_ms": round((time.perf_counter() - started) * 1000, 1)}
