"""Prompts of AgentV (TypeScript) 5 in the forms of promptfoo."""

from __future__ import annotations

from typing import Any

from agentv.datasets.case.shorthand import is_message
from agentv.datasets.foreign.values import is_blank, text_of
from agentv.model.values import to_json

_PROGRAMS = ("function_file", "function", "command")
_TEXTS = ("prompt", "raw", "file")


def prompts_of(prompts: Any) -> Any:
    """Return prompts as a list of texts, chats and objects with a text or a file. Raises ValueError."""
    if isinstance(prompts, list) and not _is_chat(prompts):
        return [_prompt(entry, index) for index, entry in enumerate(prompts)]
    return prompts if is_blank(prompts) else [_prompt(prompts, 0)]


def _prompt(entry: Any, index: int) -> Any:
    if isinstance(entry, list):
        return _text(entry, index)
    if not isinstance(entry, dict):
        return entry
    if is_message(entry):
        return _text([entry], index)
    for key in _PROGRAMS:
        if key in entry:
            raise ValueError(f"'prompts[{index}].{key}' is not supported: write the text that it prints, or `file`")
    messages = entry.get("messages")
    if not is_blank(messages):
        rest = {key: value for key, value in entry.items() if key != "messages"}
        return {**rest, "raw": _text(messages, index)}
    for key in _TEXTS:
        if not is_blank(entry.get(key)):
            return {**entry, key: _text(entry[key], index) if isinstance(entry[key], list) else entry[key]}
    raise ValueError(f"'prompts[{index}]' has no text: {text_of(entry)[:80]}")


def _text(messages: Any, index: int) -> str:
    if not _is_chat(messages):
        raise ValueError(f"'prompts[{index}]' must be a list of messages, got {text_of(messages)[:80]}")
    return to_json(messages).decode()


def _is_chat(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(item, dict) and is_message(item) for item in value)
    )
