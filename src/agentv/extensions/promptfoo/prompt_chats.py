"""Prompts of promptfoo that are chats because of their variables."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from agentv.datasets.foreign.foreign_format import Lose
from agentv.extensions.promptfoo.config_templates import is_template
from agentv.extensions.promptfoo.functions.prompt_function import render_problem
from agentv.extensions.promptfoo.nunjucks.prompt import rendered_prompt
from agentv.extensions.promptfoo.prompt_sources import PromptTemplate, chat_of
from agentv.extensions.promptfoo.providers.suite_targets import SuiteTargets
from agentv.extensions.promptfoo.test_sources import image_url
from agentv.support.templates import TemplateProblem

_ANY_LINES = "user: (the text that a function returns)"


def with_chat(
    targets: SuiteTargets, prompt: PromptTemplate, variables: dict[str, Any], provider: Any
) -> PromptTemplate:
    """Return a prompt with its messages if its variables make it the JSON of a chat, as promptfoo sends it to models.

    `provider` is that of the test, if it has one of its own. Raises ValueError if the prompt is sent to a program as
    well, which receives the text there.
    """
    if prompt.key or prompt.messages:
        return prompt
    with suppress(TemplateProblem):  # reported when the prompt is read as a part of the dataset
        if parts := _image_parts(targets.evaluated(provider), prompt, variables):
            return msgspec.structs.replace(prompt, messages=({"role": "user", "content": parts},))
        if not prompt.text.lstrip().startswith(("{{", "{%")):
            return prompt
        text = rendered_prompt(prompt.text, variables)
        chat = chat_of(text) if targets.sends_chats and text.lstrip().startswith(("[", "- role:")) else ()
        if chat and not all(map(targets.is_model, targets.names)):
            raise ValueError("The variables make the prompt a chat, which a model and a program receive in other forms")
        return msgspec.structs.replace(prompt, messages=tuple(map(_as_written, chat))) if chat else prompt
    return prompt


def with_problem(prompt: PromptTemplate, variables: dict[str, Any]) -> PromptTemplate:
    """Return a prompt with the reason why it cannot be rendered for these variables, if there is one."""
    problem = prompt.problem or render_problem(prompt.key, variables)
    return msgspec.structs.replace(prompt, problem=problem) if problem else prompt


def name_other_forms(
    targets: SuiteTargets, prompt: PromptTemplate, variables: dict[str, Any], test: dict[str, Any], lose: Lose
) -> None:
    """Report the targets that receive the text of a prompt in another form than in promptfoo."""
    if prompt.problem or test.get("providerOutput"):
        return
    text = _ANY_LINES if prompt.key and not prompt.text else prompt.text
    with suppress(TemplateProblem, ValueError):  # reported when the prompt is read
        text = rendered_prompt(text, variables)
        is_chat = bool(prompt.messages or chat_of(text))
        for entry in targets.evaluated(test.get("provider")):
            if is_chat and targets.has_other_chat(entry["name"], text):
                lose(
                    f"the messages of a chat for '{entry['name']}': promptfoo sends its text, as it is not a JSON list"
                )
            elif not is_chat and targets.has_other_form(entry["name"], text):
                what = "promptfoo removes blank lines and indentation, and reads lines such as 'user: Hi' as messages"
                who = "all models of Anthropic, and to no others" if targets.are_anthropic else f"'{entry['name']}'"
                lose(f"the form of texts for '{entry['name']}': {what}, for {who}")


def _image_parts(
    entries: list[dict[str, Any]], prompt: PromptTemplate, variables: dict[str, Any]
) -> list[dict[str, str]]:
    """Return the parts of a text with images, if Gemini receives it: an image is a line that is a variable's Base64.

    `entries` are the targets. Raises ValueError if one of another provider receives the text as well, with the Base64.
    """
    images = {value: image for value in variables.values() if isinstance(value, str) and (image := image_url(value))}
    kinds = {entry["provider"] for entry in entries} if images else set()
    if "gemini" not in kinds:
        return []
    parts: list[dict[str, str]] = []
    for line in rendered_prompt(prompt.text, variables).split("\n"):
        if line.strip() in images:
            parts.append({"type": "image", "value": images[line.strip()]})
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["value"] += f"\n{line}"
        elif line:
            parts.append({"type": "text", "value": line})
    if all(part["type"] == "text" for part in parts):
        return []
    if len(kinds) > 1:
        raise ValueError("Gemini receives the images in the text of the prompt, and other providers their Base64")
    return [{**part, "value": _raw(part["value"])} for part in parts]


def _raw(text: str) -> str:
    return f"{{% raw %}}{text}{{% endraw %}}" if is_template(text) else text


def _as_written(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose text is not a template."""
    content = message.get("content")
    return {**message, "content": _raw(content)} if isinstance(content, str) else message
