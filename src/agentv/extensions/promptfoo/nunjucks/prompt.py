"""Prompts of promptfoo: Nunjucks in a text, in the strings of JSON, or in the texts of messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from agentv.extensions.promptfoo.nunjucks.scope import Filter
from agentv.extensions.promptfoo.nunjucks.template import Template, read_template
from agentv.extensions.promptfoo.nunjucks.template_names import template_roots
from agentv.model.diagnostics import KeyPath, Problems
from agentv.model.message import Message, TextPart
from agentv.support.javascript.values import UNDEFINED, is_list, stringify
from agentv.support.templates import TemplateProblem

_LINE_END = re.compile("[\n\r\u2028\u2029]")
_MARKS = (("{{", "}"), ("{%", "%"), ("{#", "#"))
_RAW = re.compile(r"\{%\s*raw\s*%\}.*\{%\s*endraw\s*%\}", re.DOTALL)


class PromptfooPrompt(msgspec.Struct, frozen=True):
    """A validated prompt: a text, which may be JSON, or messages."""

    id: str
    content: str | tuple[Message, ...]

    def render(self, variables: dict[str, Any], problems: Problems) -> tuple[Message, ...] | None:
        """Return the messages for one row; None after adding an error to `problems`."""
        try:
            if isinstance(self.content, str):
                return (Message("user", rendered_prompt(self.content, variables)),)
            return tuple(_with_variables(message, variables) for message in self.content)
        except TemplateProblem as problem:
            problems.error(("input",), f"Cannot render the prompt: {problem}")
        return None


def read_promptfoo_prompt(value: Any, path: KeyPath, problems: Problems, id: str) -> PromptfooPrompt | None:
    """Return a prompt that is text or messages; None after adding an error to `problems`."""
    if not isinstance(value, str | tuple):
        problems.wrong_type(path, "a string or an array of messages", value)
        return None
    try:
        for text in [value] if isinstance(value, str) else _texts(value):
            prompt_names(text)
    except TemplateProblem as problem:
        problems.error(path, f"The prompt is not a valid template: {problem}")
        return None
    return PromptfooPrompt(id, value)


def prompt_names(text: str) -> frozenset[str]:
    """Return the variables that a prompt uses. Raises TemplateProblem."""
    data = _json(text)
    names = frozenset[str]().union(*(_template(leaf).names for leaf in _leaves(text if data is None else data)))
    if "env" in names:
        raise TemplateProblem("'env' can only be inserted as `{{ env.NAME }}`, in the configuration itself")
    return names


def rendered_prompt(text: str, variables: Mapping[str, Any], filters: Mapping[str, Filter] = {}) -> str:
    """Return a prompt with its variables: indented JSON if it is JSON. Raises TemplateProblem."""
    data = _json(text)
    if data is not None:
        with suppress(TemplateProblem):  # promptfoo renders such a prompt as text
            return str(stringify(filled(data, variables, filters), 2))
    values = {name: _inserted(value, variables) for name, value in variables.items()}
    return _template(text).render(values, filters=filters)


def rendered_rubric(text: str, variables: Mapping[str, Any]) -> str:
    """Return a judge's prompt: compact JSON if it is JSON. Objects are inserted as JSON. Raises TemplateProblem."""
    values = {
        name: [_as_json(item) for item in value] if is_list(value) else _as_json(value)
        for name, value in variables.items()
    }
    data = _json(text)
    if data is not None:
        with suppress(TemplateProblem):
            return str(stringify(filled(data, values)))
    return read_template(text).render(values)


def _as_json(value: Any) -> Any:
    return stringify(value) if is_list(value) or isinstance(value, Mapping) else value


def _json(text: str) -> Any:
    """Return the data of a prompt that is JSON; None for text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _template(text: str) -> Template:
    """Return a template; a text with a tag that is not closed is a text without tags."""
    is_raw = _is_partial(text) and _RAW.search(text) is None
    return read_template(f"{{% raw %}}{text}{{% endraw %}}" if is_raw else text)


def _is_partial(text: str) -> bool:
    """Whether a line has a tag that does not end in it."""
    lines = _LINE_END.split(text) if any(mark in text for mark, _ in _MARKS) else ()
    return any(mark in line and end not in line[line.rindex(mark) + 2 :] for line in lines for mark, end in _MARKS)


def filled(value: Any, variables: Mapping[str, Any], filters: Mapping[str, Filter] = {}) -> Any:
    """Return data with the templates in its texts rendered."""
    if isinstance(value, str):
        return read_template(value).render(variables, filters=filters)
    if isinstance(value, list):
        return [filled(item, variables, filters) for item in value]
    return {key: filled(item, variables, filters) for key, item in value.items()} if isinstance(value, dict) else value


def _leaves(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _leaves(item)]


def _inserted(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a variable; one that is a template itself is rendered, unless it uses a variable that is not set."""
    if not isinstance(value, str) or all(mark not in value for mark, _ in _MARKS):
        return value
    if any(variables.get(name, UNDEFINED) is UNDEFINED for name in template_roots(value) - {"env"}):
        return value
    return _template(value).render(variables)


def _with_variables(message: Message, variables: Mapping[str, Any]) -> Message:
    content: Any = message.content
    if isinstance(content, str):
        content = read_template(content).render(variables)
    elif message.parts:
        parts = message.parts
        content = tuple(
            TextPart(read_template(part.value).render(variables)) if isinstance(part, TextPart) else part
            for part in parts
        )
    return Message(message.role, content, message.tool_calls, message.name)


def _texts(messages: tuple[Message, ...]) -> list[str]:
    parts = [part.value for message in messages for part in message.parts if isinstance(part, TextPart)]
    return [*parts, *(message.content for message in messages if isinstance(message.content, str))]
