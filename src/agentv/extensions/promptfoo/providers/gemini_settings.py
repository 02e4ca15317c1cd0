"""The config of promptfoo's providers for Gemini: what they send, in the settings of a target."""

from __future__ import annotations

from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import first_of, is_blank, object_at, text_of
from agentv.extensions.promptfoo.config_templates import is_template

GEMINI_ADDRESS = "https://generativelanguage.googleapis.com"
_SCHEMA_KEYS = (
    *("type", "format", "description", "nullable", "enum", "maxItems", "minItems", "properties", "required"),
    *("propertyOrdering", "items"),
)
"""What promptfoo keeps of the schema of a function's parameters."""

_GENERATION = ("topP", "topK", "stopSequences")
_HANDLED = (
    *(*_GENERATION, "generationConfig", "responseSchema", "safetySettings", "toolConfig", "tool_config", "passthrough"),
    *("systemInstruction", "tools", "tool_choice", "apiHost", "apiBaseUrl", "apiVersion"),
)


def gemini_config(config: dict[str, Any], lose: Lose) -> dict[str, Any]:
    """Return a config with the settings of other providers, and the rest of the request as `passthrough`."""
    if not is_blank(config.get("tool_choice")):
        lose("'tool_choice' of a provider for Gemini: write `toolConfig`")
    generation = {key: config[key] for key in _GENERATION if not is_blank(config.get(key))}
    generation |= object_at(config, "generationConfig")
    if not is_blank(config.get("responseSchema")):
        generation |= {"response_schema": config["responseSchema"], "response_mime_type": "application/json"}
    body = {
        "generationConfig": generation,
        "safetySettings": _safety(config.get("safetySettings")),
        **_tool_config(config),
    }
    own = {key: value for key, value in config.items() if key not in _HANDLED}
    host = text_of(config.get("apiHost"))
    address = text_of(config.get("apiBaseUrl")) or (f"https://{host}" if host else GEMINI_ADDRESS)
    own["apiBaseUrl"] = f"{address.rstrip('/')}/{config.get('apiVersion') or 'v1beta'}"
    tools = config.get("tools")
    if not is_blank(tools):
        tools = [tools] if isinstance(tools, dict) else tools
        own["tools"] = list(map(_tool, tools)) if isinstance(tools, list) else tools
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
    content = value.get("parts", value.get("text", value)) if isinstance(value, dict) else value
    return "\n\n".join(map(_system_text, content)) if isinstance(content, list) else text_of(content)


def _safety(value: Any) -> Any:
    """Return settings with a category and a threshold."""
    if isinstance(value, list):
        return list(map(_safety, value))
    if not isinstance(value, dict):
        return value
    return {"category": value.get("category"), "threshold": first_of(value, "threshold", "probability") or ""}


def _tool(tool: Any) -> Any:
    """Return a tool with what Gemini accepts of the schemas of its functions."""
    functions = tool.get("functionDeclarations") if isinstance(tool, dict) else None
    if not isinstance(functions, list):
        return tool
    declared = [
        {**function, "parameters": _schema(function["parameters"])} if object_at(function, "parameters") else function
        for function in functions
    ]
    return {**tool, "functionDeclarations": declared}


def _schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    result = {key: value for key, value in schema.items() if key in _SCHEMA_KEYS}
    if isinstance(result.get("type"), str):
        result["type"] = "STRING" if result["type"].lower() == "null" else result["type"].upper()
    if isinstance(result.get("properties"), dict):
        result["properties"] = {name: _schema(value) for name, value in result["properties"].items()}
    return {**result, "items": _schema(result["items"])} if "items" in result else result
