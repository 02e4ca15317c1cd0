"""The config of promptfoo's providers for Gemini: what they send, in the settings of a target."""

from __future__ import annotations

from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import is_blank, object_at, text_of
from agentv.extensions.promptfoo.config_templates import is_template

_GENERATION = ("topP", "topK", "stopSequences")
_HANDLED = (
    *(*_GENERATION, "generationConfig", "responseSchema", "safetySettings", "toolConfig", "tool_config", "passthrough"),
    *("systemInstruction", "tools", "tool_choice"),
)


def gemini_config(config: dict[str, Any], lose: Lose) -> dict[str, Any]:
    """Return a config with the settings of other providers, and the rest of the request as `passthrough`."""
    if not is_blank(config.get("tool_choice")):
        lose("'tool_choice' of a provider for Gemini: write `toolConfig`")
    generation = {key: config[key] for key in _GENERATION if not is_blank(config.get(key))}
    generation |= object_at(config, "generationConfig")
    if not is_blank(config.get("responseSchema")):
        generation |= {"response_schema": config["responseSchema"], "response_mime_type": "application/json"}
    body = {"generationConfig": generation, "safetySettings": config.get("safetySettings"), **_tool_config(config)}
    own = {key: value for key, value in config.items() if key not in _HANDLED}
    tools = config.get("tools")
    if not is_blank(tools):
        own["tools"] = [tools] if isinstance(tools, dict) else tools
    if not is_blank(text := _system_text(config.get("systemInstruction"))):
        if is_template(text):
            lose("'systemInstruction' with templates: write it as the first message of the prompt")
        else:
            own["systemPrompt"] = text
    more = {key: value for key, value in body.items() if not is_blank(value)} | object_at(config, "passthrough")
    return {**own, "passthrough": more} if more else own


def _tool_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the mode of function calls, and the functions that may be called."""
    calls = object_at(object_at(config, "toolConfig"), "functionCallingConfig")
    if not calls:
        snake = object_at(object_at(config, "tool_config"), "function_calling_config")
        calls = {"mode": snake.get("mode"), "allowedFunctionNames": snake.get("allowed_function_names")}
    calls = {key: value for key, value in calls.items() if not is_blank(value)}
    if calls.get("mode"):
        calls["mode"] = text_of(calls["mode"]).upper()
    return {"toolConfig": {"functionCallingConfig": calls}} if calls else {}


def _system_text(value: Any) -> str:
    """Return the text of an instruction, or of its parts."""
    parts = value.get("parts") if isinstance(value, dict) else None
    return "\n\n".join(text_of(part.get("text")) for part in parts) if isinstance(parts, list) else text_of(value)
