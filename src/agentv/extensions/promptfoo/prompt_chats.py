"""Prompts of promptfoo that are chats because of their variables."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from agentv.extensions.promptfoo.config_templates import is_template
from agentv.extensions.promptfoo.nunjucks.prompt import rendered_prompt
from agentv.extensions.promptfoo.prompt_sources import PromptTemplate, chat_of
from agentv.extensions.promptfoo.providers.suite_targets import SuiteTargets
from agentv.support.templates import TemplateProblem


def with_chat(targets: SuiteTargets, prompt: PromptTemplate, variables: dict[str, Any]) -> PromptTemplate:
    """Return a prompt with its messages if its variables make it the JSON of a chat, as promptfoo sends it to models.

    Raises ValueError if it is sent to a program as well, which receives the text there.
    """
    if prompt.key or prompt.messages or not prompt.text.lstrip().startswith(("{{", "{%")):
        return prompt
    with suppress(TemplateProblem):  # reported when the prompt is read as a part of the dataset
        text = rendered_prompt(prompt.text, variables)
        chat = chat_of(text) if targets.sends_chats and text.lstrip().startswith(("[", "- role:")) else ()
        if chat and not all(map(targets.is_model, targets.names)):
            raise ValueError("The variables make the prompt a chat, which a model and a program receive in other forms")
        return msgspec.structs.replace(prompt, messages=tuple(map(_as_written, chat))) if chat else prompt
    return prompt


def _as_written(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose text is not a template."""
    content = message.get("content")
    is_open = isinstance(content, str) and is_template(content)
    return {**message, "content": f"{{% raw %}}{content}{{% endraw %}}"} if is_open else message
