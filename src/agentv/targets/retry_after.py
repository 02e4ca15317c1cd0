"""How long a server asks its callers to wait: `Retry-After` and the rate-limit headers of the model APIs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNITS_S = (3600.0, 60.0, 1.0, 0.001)
_EPOCH_S, _EPOCH_MS = 1e9, 1e12

_BUDGETS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
)
"""What is left of a budget and when it is full again: OpenAI's, Anthropic's, OpenRouter's, the IETF's names."""


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
    waits = [seconds_until(headers.get(reset), now_s) for left, reset in _BUDGETS if headers.get(left) == "0"]
    return max((wait for wait in waits if wait is not None), default=None)


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
