"""Check targets with one small call each, and model APIs with a second one in the form that judges need."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from agentv.errors import AgentvError, TargetsError
from agentv.model.case import EvalCase
from agentv.model.job import CallOverrides
from agentv.model.response import Responder, SampleRequest, TargetFailure
from agentv.model.result import TokenUsage
from agentv.settings.environment import redacted
from agentv.targets.catalog import Targets
from agentv.targets.response_formats import FORMAT_REJECTED, response_formats
from agentv.targets.target import ModelApi, Target

PROMPT = "Answer with the single word: ok"
LONGEST_S = 60.0

_JSON_PROMPT = 'Answer with this JSON object: {"answer": "ok"}'
_SCHEMA = {
    "title": "answer",
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
_UNCLEAR = 500
"""The status of servers that fail at a response format without an explanation."""


class TargetCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a call. `error` is the error class, or `settings` if the target cannot be opened.

    `response_format` is the best format that a model API accepts, which judges use: `json_schema`, `json_object` or
    `text`.
    """

    name: str
    provider: str
    ok: bool
    duration_ms: float | None = None
    token_usage: TokenUsage | None = None
    answer: str | None = None
    error: str | None = None
    message: str | None = None
    note: str | None = None
    response_format: str | None = None


async def check_targets(targets: Targets, names: Iterable[str]) -> list[TargetCheck]:
    """Call the targets concurrently, and return the checks in the order of the names."""
    return await asyncio.gather(*(_check(targets, name) for name in names))


async def _check(targets: Targets, name: str) -> TargetCheck:
    outcome = await _outcome(targets, name)
    texts = {key: redacted(outcome[key], targets.secrets) for key in ("answer", "message") if outcome.get(key)}
    defaults = {"provider": str(targets.raw(name)["provider"])}
    return TargetCheck(name=name, ok="error" not in outcome, **{**defaults, **outcome, **texts})


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
    details = {"provider": settings.provider, "note": settings.check_note(targets.home) or None}
    try:
        # A target that is not live has stored answers to certain cases; opening its file is enough.
        outcome = await _call(settings, responder) if settings.is_live else {}
    finally:
        await responder.aclose()
    if isinstance(settings, ModelApi) and "error" not in outcome:
        details["response_format"] = await _best_format(settings, targets.home)
    return {**details, **outcome}


async def _call(settings: Target, responder: Responder) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        response = await responder.respond(_request(settings, PROMPT))
        outcome: dict[str, Any] = {"token_usage": response.usage, "answer": response.text}
    except TargetFailure as failure:
        outcome = {"error": failure.error_class, "message": failure.message}
    return {**outcome, "duration_ms": round((time.perf_counter() - started) * 1000, 1)}


async def _best_format(settings: ModelApi, home: str) -> str | None:
    """Return the best response format that an API accepts; None if it cannot be determined."""
    *formats, _ = response_formats(settings, CallOverrides(schema=_SCHEMA))
    if not formats:  # the settings have a response format of their own
        return None
    for overrides in formats:
        responder = settings.with_overrides(overrides).open(home)
        try:
            await responder.respond(_request(settings, _JSON_PROMPT))
            return "json_object" if overrides.schema == "json" else "json_schema"
        except TargetFailure as failure:
            if failure.status not in (*FORMAT_REJECTED, _UNCLEAR):
                return None
        finally:
            await responder.aclose()
    return "text"


def _request(settings: Target, prompt: str) -> SampleRequest:
    timeout_s = min(settings.timeout_seconds or LONGEST_S, LONGEST_S)
    return SampleRequest(prompt, EvalCase("agentv-check", input=prompt), timeout_s)
