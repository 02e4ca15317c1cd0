"""The config of promptfoo's providers for Anthropic: what they send, in the settings of a target."""

from __future__ import annotations

import re
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import is_blank, object_at, texts_of

_ALWAYS_THINKS = re.compile(r"claude-(?:fable|mythos)-5(?![a-z0-9])", re.IGNORECASE)
_THINKS_BY_DEFAULT = re.compile(r"claude-opus-5(?![0-9])", re.IGNORECASE)
_NOT_SAMPLED = re.compile(
    rf"{_ALWAYS_THINKS.pattern}|{_THINKS_BY_DEFAULT.pattern}|claude-sonnet-5(?![0-9])|claude-opus-4-[78](?![0-9])",
    re.IGNORECASE,
)
"""Models that accept no temperature, and no budget for thinking."""

_HANDLED = ("thinking", "temperature", "top_p", "top_k", "max_tokens", "tool_choice", "output_format", "effort", "beta")
_STRUCTURED = "structured-outputs-2025-11-13"
_THINKING = ("enabled", "adaptive")


def anthropic_config(model: str, config: dict[str, Any], lose: Lose) -> dict[str, Any]:
    """Return a config with the defaults of promptfoo, and without what the model does not accept."""
    thinking = _thinking(model, config)
    kind = thinking.get("type")
    is_always, is_enabled = bool(_ALWAYS_THINKS.search(model)), kind in _THINKING
    consumes = is_always or is_enabled or (not thinking and bool(_THINKS_BY_DEFAULT.search(model)))
    own = {key: value for key, value in config.items() if key not in (*_HANDLED, "stream", "apiKeyRequired")}
    limit = config.get("max_tokens")
    own["max_tokens"] = (2048 if consumes else 1024) if is_blank(limit) else limit
    if not _NOT_SAMPLED.search(model):
        own |= _sampling(config, is_enabled=is_enabled)
    choice = config.get("tool_choice")
    if not is_blank(choice) and not (
        kind == "enabled" and object_at(config, "tool_choice").get("type") in ("any", "tool")
    ):
        own["tool_choice"] = choice
    form = object_at(config, "output_format")
    if isinstance(form.get("schema"), str):
        lose("'output_format' of a provider: write its schema into the configuration")
    output = {key: value for key, value in (("format", form), ("effort", config.get("effort"))) if not is_blank(value)}
    betas = [*texts_of(config.get("beta")), *([_STRUCTURED] if form else [])]
    if betas:
        own["headers"] = {**object_at(config, "headers"), "anthropic-beta": ",".join(betas)}
    if output:
        own["passthrough"] = {"output_config": output, **object_at(config, "passthrough")}
    return own | ({"thinking": thinking} if thinking else {})


def _thinking(model: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the thinking that the model accepts; empty for its default."""
    thinking = object_at(config, "thinking")
    if thinking.get("type") == "enabled" and _NOT_SAMPLED.search(model):
        return {key: value for key, value in {**thinking, "type": "adaptive"}.items() if key in ("type", "display")}
    is_capped = _THINKS_BY_DEFAULT.search(model) and config.get("effort") in ("xhigh", "max")
    return {} if thinking.get("type") == "disabled" and (_ALWAYS_THINKS.search(model) or is_capped) else thinking


def _sampling(config: dict[str, Any], *, is_enabled: bool) -> dict[str, Any]:
    """Return either the share of tokens or the temperature, which is 0 by default; no temperature with thinking."""
    share: Any = config.get("top_p")
    first = config.get("top_k")
    sampling: dict[str, Any] = {} if is_blank(first) or is_enabled else {"top_k": first}
    if not is_blank(share):
        is_capped = is_enabled and isinstance(share, int | float)
        return {**sampling, "top_p": max(0.95, min(1, share)) if is_capped else share}
    temperature = config.get("temperature")
    return sampling if is_enabled else {**sampling, "temperature": 0 if is_blank(temperature) else temperature}
