"""What an API reports when it does not answer: the class of the failure, its words, and how long to wait.

Overloads have statuses and words of each vendor's own (529, `overloaded_error`); they count as 503, so that they are
tried again and slow calls down wherever 503 does. What is too long for the model's context is a 400 and stays one.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from agentv.model.response import TargetFailure
from agentv.model.result import ErrorClass
from agentv.settings.environment import redacted

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNITS_S = (3600.0, 60.0, 1.0, 0.001)
_EPOCH_S, _EPOCH_MS = 1e9, 1e12

_BUDGETS = (
    ("x-ratelimit-{}-requests", False),
    ("x-ratelimit-{}-tokens", True),
    ("anthropic-ratelimit-requests-{}", False),
    ("anthropic-ratelimit-tokens-{}", True),
    ("anthropic-ratelimit-input-tokens-{}", True),
    ("anthropic-ratelimit-output-tokens-{}", True),
    ("x-ratelimit-{}", False),
    ("ratelimit-{}", False),
)
"""The headers of a budget (OpenAI's, Anthropic's, OpenRouter's, the IETF's names), and whether it is one of tokens.

Each has a `limit`, what is left of it (`remaining`), and when it is full again (`reset`).
"""
_HEADERS = tuple(
    (name.format("remaining"), name.format("limit"), name.format("reset"), of_tokens) for name, of_tokens in _BUDGETS
)


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Seconds from `now_s` (of the epoch) until another try makes sense; None when the server does not say.

    `headers` are looked up in lower case. Without `Retry-After`, budgets that are used up count, the slowest of them.
    """
    milliseconds = seconds_until(headers.get("retry-after-ms"), now_s)
    if milliseconds is not None:
        return milliseconds / 1000
    asked = seconds_until(headers.get("retry-after"), now_s)
    if asked is not None:
        return asked
    waits = [seconds_until(headers.get(reset), now_s) for left, _, reset, _ in _HEADERS if headers.get(left) == "0"]
    return max((wait for wait in waits if wait is not None), default=None)


def retry_delay_s(error: Any) -> float | None:
    """Seconds that Google asks to wait, which it says in the body of an error."""
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    waits = [detail["retryDelay"] for detail in details_of(error) if isinstance(detail.get("retryDelay"), str)]
    return seconds_until(waits[0], 0.0) if waits else None


def details_of(error: Any) -> list[dict[str, Any]]:
    """The details of an error in Google's form; none in any other."""
    details = error.get("details") if isinstance(error, dict) else None
    return [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []


def capacity_wait_s(headers: Mapping[str, str], tokens: int, now_s: float) -> float | None:
    """Seconds until an endpoint has room for another call of as many tokens, by the headers of one that it answered.

    None where it has room now, or does not say. Budgets fill up evenly until they are full again.
    """
    waits = []
    for left_name, limit_name, reset_name, of_tokens in _HEADERS:
        left = headers.get(left_name)
        if left is None or (remaining := _number(left)) is None:
            continue
        needed = tokens if of_tokens else 1
        if remaining >= needed:
            continue
        limit, full_in_s = _number(headers.get(limit_name, "")), seconds_until(headers.get(reset_name), now_s)
        if limit and full_in_s and limit > remaining:
            waits.append(full_in_s * min(1.0, (needed - remaining) / (limit - remaining)))
    return max(waits, default=None)


def seconds_until(text: str | None, now_s: float) -> float | None:
    """Seconds, a duration (`6m0s`, `120ms`), a time of the epoch, an ISO or an HTTP date; None when it is none."""
    if text is None or not (text := text.strip()):
        return None
    number = _number(text)
    if number is not None:
        return max(0.0, number - now_s if number > _EPOCH_S else number)
    duration = _DURATION.fullmatch(text)
    if duration:
        return sum(float(part or 0) * unit for part, unit in zip(duration.groups(), _UNITS_S, strict=True))
    moment = _date(text)
    return None if moment is None else max(0.0, moment.timestamp() - now_s)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return number / 1000 if number > _EPOCH_MS else number


def _date(text: str) -> datetime | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = parse(text)
        except ValueError:
            continue
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return None


_MESSAGE_CHARACTERS = 500

_CLASS_BY_STATUS: dict[int, ErrorClass] = {
    **dict.fromkeys((401, 402, 403, 407), "auth"),
    408: "timeout",
    429: "rate_limit",
}
_STATUS_AS = {498: 429, 520: 502, 521: 502, 522: 504, 523: 502, 524: 504, 529: 503}
"""Vendors' and proxies' own statuses, each with the standard one that is meant."""

_CODES_BY_STATUS = {
    503: "overloaded_error overloaded engine_overloaded server_overloaded model_overloaded slow_down UNAVAILABLE",
    429: "rate_limit_error rate_limit_exceeded RESOURCE_EXHAUSTED",
    500: "server_error api_error INTERNAL",
    504: "timeout_error DEADLINE_EXCEEDED",
    401: "authentication_error UNAUTHENTICATED",
    403: "permission_error PERMISSION_DENIED",
}
_STATUS_BY_CODE = {code: status for status, codes in _CODES_BY_STATUS.items() for code in codes.split()}
"""What the words of an error mean where its status says nothing: under 200, or as another."""

_CODES_BY_CLASS: dict[ErrorClass, str] = {
    # Quota is sent with 429, but no waiting brings the money back; a wrong key at Google with 400.
    "auth": "insufficient_quota billing_hard_limit_reached API_KEY_INVALID",
    "refused": "content_filter content_policy_violation image_content_policy_violation misalignment_policy_violation "
    "bio_policy invalid_prompt moderation_blocked flagged_input",
}
_CLASS_BY_CODE = {code: error_class for error_class, codes in _CODES_BY_CLASS.items() for code in codes.split()}
_CLASS_BY_WORDS: tuple[tuple[str, ErrorClass], ...] = (
    # What Anthropic sends as any other bad request, and nothing but its words tells apart.
    ("content filtering policy", "refused"),
    ("credit balance is too low", "auth"),
)


def reported_failure(error: Any, status: int, headers: Mapping[str, str], secrets: Iterable[str] = ()) -> TargetFailure:
    """The failure that an API reports: its own words, its class, and how long it asks to wait."""
    message, codes = parse_error(error)
    # Redacted before it is cut, for half a secret would not be found.
    said = redacted(" ".join(message.split()), secrets)[:_MESSAGE_CHARACTERS]
    words = f"HTTP {status}: {said or 'no message'}"
    told = [_CLASS_BY_CODE[code] for code in codes if code in _CLASS_BY_CODE]
    told += [error_class for phrase, error_class in _CLASS_BY_WORDS if phrase in said]
    if told:
        # Without the status, by which some of these would be tried again.
        return TargetFailure(told[0], words)
    status = standard_status(status, codes)
    wait_s = retry_after_s(headers, time.time())
    if wait_s is None:
        wait_s = retry_delay_s(error)
    return TargetFailure(error_class_of(status), words, status=status, retry_after_s=wait_s)


def error_class_of(status: int) -> ErrorClass:
    """The class of an answer with a status that is no success."""
    if status >= 500:
        return "server"
    return _CLASS_BY_STATUS.get(status, "invalid_response")


def parse_error(error: Any) -> tuple[str, tuple[str, ...]]:
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


def standard_status(status: int, codes: tuple[str, ...] = ()) -> int:
    """The standard status that a failure comes to. Its words decide where the status is a good one or an overload."""
    by_code = next((_STATUS_BY_CODE[code] for code in codes if code in _STATUS_BY_CODE), None)
    if by_code is not None and (status < 400 or by_code == 503):
        return by_code
    return _STATUS_AS.get(status, status)


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
