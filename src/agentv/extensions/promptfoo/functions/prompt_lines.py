"""Prompts for models of Anthropic: promptfoo reads a text by its lines."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.extensions.promptfoo.functions.prompt_function import PromptFunction, read_prompt
from agentv.extensions.promptfoo.nunjucks.prompt import PromptfooPrompt
from agentv.model.diagnostics import KeyPath, Problems
from agentv.model.message import Message
from agentv.model.response import content_text


class PromptLines(msgspec.Struct, frozen=True):
    """A prompt that is text, and messages when it is rendered."""

    id: str
    prompt: PromptfooPrompt

    def render(self, variables: dict[str, Any], problems: Problems) -> tuple[Message, ...] | None:
        """Return the messages for one row; None after adding an error to `problems`."""
        messages = self.prompt.render(variables, problems)
        if messages is None:
            return None
        lines = messages_of_lines(content_text(messages[0].content))
        return tuple(Message(message["role"], message["content"]) for message in lines) or messages


def read_prompt_lines(
    value: Any, path: KeyPath, problems: Problems, id: str
) -> PromptLines | PromptfooPrompt | PromptFunction | None:
    """Return a prompt that is text, messages, or the key of a function; None after adding an error to `problems`."""
    prompt = read_prompt(value, path, problems, id)
    if isinstance(prompt, PromptfooPrompt) and isinstance(prompt.content, str):
        return PromptLines(id, prompt)
    return prompt


def messages_of_lines(text: str) -> tuple[dict[str, Any], ...]:
    """Return a text as promptfoo sends it to Anthropic: messages that begin with a role, and no blanks around lines."""
    system: list[dict[str, Any]] = []
    messages: list[tuple[str, list[str]]] = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        role, colon, rest = line.partition(":")
        if colon and role in ("system", "thinking"):
            system = [{"role": role, "content": rest.strip()}] if role == "system" else system
        elif colon and role in ("user", "assistant"):
            messages.append((role, [rest.strip()]))
        elif messages:
            messages[-1][1].append(line)
        else:
            messages.append(("user", [line]))
    return *system, *({"role": role, "content": "\n".join(lines)} for role, lines in messages)
