"""Check targets with one small call each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

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
    checks = await asyncio.gather(*(_check(targets, name) for name in names))
    return [_redacted(check, targets.secrets) for check in checks]


async def _check(targets: Targets, name: str) -> TargetCheck:
    provider = str(targets.raw(name)["provider"])
    try:
        settings = targets.get(name)
        responder = settings.open(targets.home)
    except AgentvError as error:
        what = [error.headline, error.detail]
        if isinstance(error, TargetsError) and error.detail:  # the headline is only the place
            what = [error.detail]
        return _failed(name, provider, "settings", ". ".join(filter(None, (*what, error.hint))))
    except NotImplementedError:
        return _failed(name, provider, "settings", f"Targets of provider '{provider}' cannot be called")
    try:
        check = await _call(settings, responder)
        return msgspec.structs.replace(check, note=settings.check_note(targets.home) or None)
    finally:
        await responder.aclose()


async def _call(settings: Target, responder: Responder) -> TargetCheck:
    if not settings.is_live:
        # It only has stored answers to certain cases; opening its file is enough.
        return TargetCheck(name=settings.name, provider=settings.provider, ok=True)
    timeout_s = min(settings.timeout_seconds or LONGEST_S, LONGEST_S)
    started = time.perf_counter()
    try:
        response = await responder.respond(SampleRequest(PROMPT, EvalCase("agentv-check", input=PROMPT), timeout_s))
    except TargetFailure as failure:
        check = _failed(settings.name, settings.provider, failure.error_class, failure.message)
    else:
        check = TargetCheck(
            name=settings.name, provider=settings.provider, ok=True, token_usage=response.usage, answer=response.text
        )
    return msgspec.structs.replace(check, duration_ms=round((time.perf_counter() - started) * 1000, 1))


def _failed(name: str, provider: str, error: str, message: str) -> TargetCheck:
    return TargetCheck(name=name, provider=provider, ok=False, error=error, message=message)


def _redacted(check: TargetCheck, secrets: frozenset[str]) -> TargetCheck:
    texts = {key: redacted(text, secrets) for key in ("answer", "message") if (text := getattr(check, key))}
    return msgspec.structs.replace(check, **texts)
