"""How long a server asks its callers to wait: `Retry-After`, bodies of errors, rate-limit headers of model APIs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

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


def until_next_s(headers: Mapping[str, str], tokens: int, now_s: float) -> float | None:
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
