"""Token counts and costs as APIs and agents report them, under their own keys."""

from typing import Any, NamedTuple

import msgspec

from agentv.model.result import TokenUsage

_MOST_TOKENS = 2**53
"""Larger counts are wrong, and not every JSON parser can represent them."""


class UsageFields(NamedTuple):
    """Keys, or dotted paths, of an API's token counts. Several are summed; the first input is required."""

    input: tuple[str, ...]
    output: tuple[str, ...]
    cached: str = ""
    reasoning: str = ""
    cache_write: str = ""


_CLAUDE_CACHE = "cache_read_input_tokens", "cache_creation_input_tokens"
CLAUDE_CODE_USAGE = UsageFields(
    ("input_tokens", *_CLAUDE_CACHE), ("output_tokens",), _CLAUDE_CACHE[0], cache_write=_CLAUDE_CACHE[1]
)
CODEX_USAGE = UsageFields(
    ("input_tokens",), ("output_tokens",), "cached_input_tokens", "reasoning_output_tokens", "cache_write_input_tokens"
)
COPILOT_USAGE = UsageFields(
    ("inputTokens",), ("outputTokens",), "cacheReadTokens", "reasoningTokens", "cacheWriteTokens"
)
OPENCODE_USAGE = UsageFields(
    # Cached and reasoning tokens are counted separately.
    ("input", "cache.read", "cache.write"),
    ("output", "reasoning"),
    "cache.read",
    "reasoning",
    "cache.write",
)
PI_USAGE = UsageFields(("input", "cacheRead", "cacheWrite"), ("output",), "cacheRead", cache_write="cacheWrite")
"""The keys of coding agents, which are the same in their output and in their recorded sessions."""


def read_usage(reported: Any, fields: UsageFields) -> TokenUsage | None:
    """Return the token usage, or None if the counts are malformed: a usable answer must not be lost to that."""
    try:
        if reported.get(fields.input[0]) is None or reported.get(fields.output[0], 0) is None:
            return None
        cached, reasoning, cache_write = [_count(reported, path) if path else None for path in fields[2:]]
        input, output = [sum([_count(reported, path) or 0 for path in paths]) for paths in fields[:2]]
    except (AttributeError, TypeError, ValueError):
        return None
    if max(input, output, cached or 0, reasoning or 0, cache_write or 0) > _MOST_TOKENS:
        return None
    return TokenUsage(input, output, cached, reasoning or None, cache_write or None)


def _count(reported: Any, path: str) -> int | None:
    """Return a non-negative count, or None if it is missing. Numeric strings are accepted."""
    for key in path.split("."):
        reported = reported.get(key) if isinstance(reported, dict) else None
    if reported is None:
        return None
    count = int(reported)
    if count >= 0 and type(reported) is int:
        return count
    if count < 0 or isinstance(reported, bool) or count != float(reported):
        raise ValueError(f"{path} is not a count")
    return count


def amount(value: Any) -> float | None:
    """Return a reported cost, or None if it is not a non-negative number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return None
    return float(value)


def usage(reported: Any, fields: UsageFields) -> TokenUsage | None:
    """Return the token usage, or None if all counts are 0."""
    counts = read_usage(reported, fields)
    if counts is None or not (counts.input or counts.output):
        return None
    return msgspec.structs.replace(counts, cached=counts.cached or None)
