"""What an API reports when it does not answer: the class of the failure, its words, and how long to wait.

Overloads have statuses and words of each vendor's own (529, `overloaded_error`); they count as 503, so that they are
tried again and slow calls down wherever 503 does. What is too long for the model's context is a 400 and stays one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agentv.environment import redacted
from agentv.model.response import TargetFailure
from agentv.model.result import ErrorClass
from agentv.targets.retry_after import details_of, retry_after_s, retry_delay_s

_MESSAGE_CHARACTERS = 500

_CLASS_BY_STATUS: dict[int, ErrorClass] = {
    401: "auth",
    402: "auth",
    403: "auth",
    407: "auth",
    408: "timeout",
    429: "rate_limit",
}
_STATUS_AS = {498: 429, 520: 502, 521: 502, 522: 504, 523: 502, 524: 504, 529: 503}
"""Vendors' and proxies' own statuses, each with the standard one that is meant."""

_STATUS_BY_CODE = {
    "overloaded_error": 503,
    "overloaded": 503,
    "engine_overloaded": 503,
    "server_overloaded": 503,
    "model_overloaded": 503,
    "slow_down": 503,
    "UNAVAILABLE": 503,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "RESOURCE_EXHAUSTED": 429,
    "server_error": 500,
    "api_error": 500,
    "INTERNAL": 500,
    "timeout_error": 504,
    "authentication_error": 401,
    "permission_error": 403,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "DEADLINE_EXCEEDED": 504,
}
"""What the words of an error mean where its status says nothing: under 200, or as another."""

_CLASS_BY_CODE: dict[str, ErrorClass] = {
    # Sent with 429, but no waiting brings the money back.
    "insufficient_quota": "auth",
    "billing_hard_limit_reached": "auth",
    # Google's words for a wrong key, which it sends with 400.
    "API_KEY_INVALID": "auth",
    "content_filter": "refused",
    "content_policy_violation": "refused",
    "image_content_policy_violation": "refused",
    "misalignment_policy_violation": "refused",
    "bio_policy": "refused",
    "invalid_prompt": "refused",
    "moderation_blocked": "refused",
    "flagged_input": "refused",
}
_CLASS_BY_WORDS: tuple[tuple[str, ErrorClass], ...] = (
    # What Anthropic sends as any other bad request, and nothing but its words tells apart.
    ("content filtering policy", "refused"),
    ("credit balance is too low", "auth"),
)


def reported_failure(error: Any, status: int, headers: Mapping[str, str], secrets: Iterable[str] = ()) -> TargetFailure:
    """The failure that an API reports: its own words, its class, and how long it asks to wait."""
    message, codes = api_error(error)
    # Redacted before it is cut, for half a secret would not be found.
    said = redacted(" ".join(message.split()), secrets)[:_MESSAGE_CHARACTERS]
    words = f"HTTP {status}: {said or 'no message'}"
    told = [_CLASS_BY_CODE[code] for code in codes if code in _CLASS_BY_CODE]
    told += [error_class for phrase, error_class in _CLASS_BY_WORDS if phrase in said]
    if told:
        # Without the status, by which some of these would be tried again.
        return TargetFailure(told[0], words)
    status = meant_status(status, codes)
    wait_s = retry_after_s(headers, time.time())
    if wait_s is None:
        wait_s = retry_delay_s(error)
    return TargetFailure(error_class_of(status), words, status=status, retry_after_s=wait_s)


def error_class_of(status: int) -> ErrorClass:
    """The class of an answer with a status that is no success."""
    if status >= 500:
        return "server"
    return _CLASS_BY_STATUS.get(status, "invalid_response")


def api_error(error: Any) -> tuple[str, tuple[str, ...]]:
    """The message of an error body and its codes, in the forms of the usual APIs; a text is its own message."""
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, dict) and isinstance(error.get("error"), dict | str):
        error = error["error"]
    if isinstance(error, str):
        return error, ()
    if not isinstance(error, dict):
        return _json_text(error), ()
    found = next((error[key] for key in ("message", "detail", "title") if error.get(key)), error)
    told = [error.get(key) for key in ("code", "type", "status")]
    told += [detail.get("reason") for detail in details_of(error)]
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and "flagged_input" in metadata:  # what OpenRouter's moderation stopped
        told.append("flagged_input")
    codes = tuple(code for code in told if isinstance(code, str))
    return found if isinstance(found, str) else _json_text(found), codes


def meant_status(status: int, codes: tuple[str, ...] = ()) -> int:
    """The standard status that a failure comes to. Its words decide where the status is a good one or an overload."""
    by_code = next((_STATUS_BY_CODE[code] for code in codes if code in _STATUS_BY_CODE), None)
    if by_code is not None and (status < 400 or by_code == 503):
        return by_code
    return _STATUS_AS.get(status, status)


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
