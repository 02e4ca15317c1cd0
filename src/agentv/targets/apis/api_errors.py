"""Errors that APIs report: the error class, the message, and the time to wait before a retry.

Vendors report overloads with statuses and codes of their own (529, `overloaded_error`). They are treated as 503, so
that calls are retried and slowed down in the same way. An input that exceeds the context window remains a 400.
"""

import math
import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from agentv.errors import start_of
from agentv.model.response import TargetFailure
from agentv.model.result import ErrorClass
from agentv.settings.environment import redacted

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNITS_S = (3600.0, 60.0, 1.0, 0.001)
_EPOCH_S, _EPOCH_MS = 1e9, 1e12
_LONGEST_WAIT_S = 86_400.0
"""A longer wait is a mistake: rate limits are reset at least once a day."""

_LIMITS = (
    *("x-ratelimit-{}-requests", "x-ratelimit-{}-tokens", "anthropic-ratelimit-requests-{}"),
    *("anthropic-ratelimit-tokens-{}", "anthropic-ratelimit-input-tokens-{}", "anthropic-ratelimit-output-tokens-{}"),
    *("x-ratelimit-{}", "ratelimit-{}"),
)
_HEADERS = tuple(
    (name.format("remaining"), name.format("limit"), name.format("reset"), "tokens" in name) for name in _LIMITS
)
"""Rate limit headers of OpenAI, Anthropic, OpenRouter and the IETF draft, and whether they count tokens."""


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return the seconds from `now_s` (Unix time) until a retry makes sense, or None if the headers do not say.

    Without `Retry-After`, this is the time until all exhausted rate limits are reset. Header names are in lower case.
    """
    wait_s = _stated_wait_s(headers, now_s)
    return None if wait_s is None or wait_s > _LONGEST_WAIT_S else wait_s


def _stated_wait_s(headers: Mapping[str, str], now_s: float) -> float | None:
    if (milliseconds := seconds_until(headers.get("retry-after-ms"), now_s)) is not None:
        return milliseconds / 1000
    if (seconds := seconds_until(headers.get("retry-after"), now_s)) is not None:
        return seconds
    waits = [seconds_until(headers.get(reset), now_s) for quota, _, reset, _ in _HEADERS if headers.get(quota) == "0"]
    return max((wait for wait in waits if wait is not None), default=None)


def retry_delay_s(error: Any) -> float | None:
    """Return the seconds to wait that Google puts in the body of an error."""
    waits = (detail.get("retryDelay") for detail in _details(_unwrap(error)))
    return seconds_until(next((wait for wait in waits if isinstance(wait, str)), None), 0.0)


def _unwrap(error: Any) -> Any:
    """Return the error object inside an error body."""
    if isinstance(error, list) and error:
        error = error[0]
    return error["error"] if isinstance(error, dict) and isinstance(error.get("error"), dict | str) else error


def _details(error: Any) -> list[dict[str, Any]]:
    """Return the details of an error in Google's format."""
    details = error.get("details") if isinstance(error, dict) else None
    return [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []


def capacity_wait_s(headers: Mapping[str, str], tokens: int, now_s: float) -> float | None:
    """Return the seconds until the rate limits allow another call with this many tokens, from a response's headers.

    None if they allow it now or are not reported. Limits are assumed to refill evenly until the reset.
    """
    waits = []
    for left_name, limit_name, reset_name, of_tokens in _HEADERS:
        text = headers.get(left_name)
        if text is None or (remaining := _number(text)) is None:
            continue
        needed = tokens if of_tokens else 1
        if remaining >= needed:
            continue
        limit, full_in_s = _number(headers.get(limit_name, "")), seconds_until(headers.get(reset_name), now_s)
        if limit and full_in_s and limit > remaining:
            waits.append(full_in_s * min(1.0, (needed - remaining) / (limit - remaining)))
    return max(waits, default=None)


def seconds_until(text: str | None, now_s: float) -> float | None:
    """Parse seconds, a duration (`6m0s`, `120ms`), a Unix time, or an ISO or HTTP date; None for anything else."""
    if text is None or not (text := text.strip()):
        return None
    if (number := _number(text)) is not None:
        return max(0.0, number - now_s if number > _EPOCH_S else number)
    if duration := _DURATION.fullmatch(text):
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
"""Nonstandard statuses of vendors and proxies, and the standard status each corresponds to."""

_CODES_BY_STATUS = {
    503: "overloaded_error overloaded engine_overloaded server_overloaded model_overloaded slow_down UNAVAILABLE",
    429: "rate_limit_error rate_limit_exceeded RESOURCE_EXHAUSTED",
    500: "server_error api_error INTERNAL",
    504: "timeout_error DEADLINE_EXCEEDED",
    401: "authentication_error UNAUTHENTICATED",
    403: "permission_error PERMISSION_DENIED",
}
_STATUS_BY_CODE = {code: status for status, codes in _CODES_BY_STATUS.items() for code in codes.split()}
"""Statuses by error code, for errors that are sent with status 200 or with a different status."""

_CODES_BY_CLASS: dict[ErrorClass, str] = {
    # An exhausted quota is a 429 that no wait resolves; Google sends 400 for a wrong key.
    "auth": "insufficient_quota billing_hard_limit_reached API_KEY_INVALID",
    "refused": "content_filter content_policy_violation image_content_policy_violation misalignment_policy_violation "
    "bio_policy invalid_prompt moderation_blocked flagged_input",
}
_CLASS_BY_CODE = {code: error_class for error_class, codes in _CODES_BY_CLASS.items() for code in codes.split()}
_CLASS_BY_WORDS: tuple[tuple[str, ErrorClass], ...] = (
    # Anthropic sends these as ordinary bad requests; only the message distinguishes them.
    ("content filtering policy", "refused"),
    ("credit balance is too low", "auth"),
)

_NAMES_FORMAT = re.compile(r"response.?format|json.?(schema|object)|structured.?output|grammar", re.IGNORECASE)
"""Words in the message of a server that does not support a response format; llama.cpp sends it as an error 500."""


def reported_failure(error: Any, status: int, headers: Mapping[str, str], secrets: Iterable[str] = ()) -> TargetFailure:
    """Return the failure that an API reports: its class, its message, and the time to wait."""
    message, codes = parse_error(error)
    # Redacted before truncation, because half a secret would not be recognized.
    message = start_of(redacted(" ".join(message.split()), secrets), _MESSAGE_CHARACTERS)
    text = f"HTTP {status}: {message or 'no message'}"
    classes = [_CLASS_BY_CODE[code] for code in codes if code in _CLASS_BY_CODE]
    classes += [error_class for phrase, error_class in _CLASS_BY_WORDS if phrase in message]
    if classes:
        # Without the status, because some of these statuses would be retried.
        return TargetFailure(classes[0], text)
    status = 400 if status == 500 and _NAMES_FORMAT.search(message) else standard_status(status, codes)
    if (wait_s := retry_after_s(headers, time.time())) is None:
        wait_s = retry_delay_s(error)
    return TargetFailure(error_class_of(status), text, status=status, retry_after_s=wait_s)


def error_class_of(status: int) -> ErrorClass:
    """Return the class of an error status."""
    return "server" if status >= 500 else _CLASS_BY_STATUS.get(status, "invalid_response")


def parse_error(error: Any) -> tuple[str, tuple[str, ...]]:
    """Return the message and the codes of an error body in any of the common formats, or of a text."""
    error = _unwrap(error)
    if isinstance(error, str):
        return error, ()
    if not isinstance(error, dict):
        return _json_text(error), ()
    message = next((error[key] for key in ("message", "detail", "title") if error.get(key)), error)
    codes = [error.get(key) for key in ("code", "type", "status")]
    codes += [detail.get("reason") for detail in _details(error)]
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and "flagged_input" in metadata:  # from OpenRouter's moderation
        codes.append("flagged_input")
    return message if isinstance(message, str) else _json_text(message), tuple(
        code for code in codes if isinstance(code, str)
    )


def standard_status(status: int, codes: tuple[str, ...] = ()) -> int:
    """Return the standard status of a failure. Its codes take precedence over a success status and mark overloads."""
    by_code = next((_STATUS_BY_CODE[code] for code in codes if code in _STATUS_BY_CODE), None)
    if by_code is not None and (status < 400 or by_code == 503):
        return by_code
    return _STATUS_AS.get(status, status)


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
