"""Templates in targets: texts and JSON with places for what a request holds. What is put in is never rendered again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

import minijinja

from agentv.model.message import message_to_data
from agentv.model.response import Request
from agentv.settings.diagnostics import did_you_mean
from agentv.settings.environment import REFERENCE
from agentv.support.templates import TemplateProblem, as_text, environment, names_in, render

NAMES: dict[str, Callable[[Request], Any]] = {
    "prompt": lambda request: request.prompt,
    "messages": lambda request: [message_to_data(message) for message in request.messages],
    "id": lambda request: request.case.id,
    "variables": lambda request: request.case.variables or {},
    "metadata": lambda request: request.case.metadata,
    "conversation_id": lambda request: request.case.conversation_id,
    "trial": lambda request: request.trial,
    "attempt": lambda request: request.attempt,
}
"""What a template can use, and how it is made from a request."""

_ONE_NAME = re.compile(r"\{\{\s*([A-Za-z_]\w*(?:\.\w+)*)\s*\}\}")


def is_template(text: str) -> bool:
    """Whether anything in a text is to be rendered."""
    return "{{" in text or "{%" in text


def template_complaints(field: str, value: Any) -> list[str]:
    """What is wrong with the templates in a setting: text that is none, names that no request has."""
    return [complaint for text in _texts(value) for complaint in _text_complaints(field, text)]


def names_used(value: Any) -> frozenset[str]:
    """The names that the templates in a setting use."""
    return frozenset(name for text in _texts(value) for name in names_in(text))


def render_text(template: str, names: Mapping[str, Any]) -> str:
    """Strings go in as they are, null as nothing, everything else as compact JSON. Raises TemplateProblem."""
    return render(template, names) if is_template(template) else template


def render_address(template: str, names: Mapping[str, Any]) -> str:
    """The same, percent-encoded: what is put in can be one part of a path or one value of a query, and no more."""
    return render(template, names, _address_environment()) if is_template(template) else template


def render_data(value: Any, names: Mapping[str, Any]) -> Any:
    """JSON with every string rendered. One that is nothing but `{{ name }}` becomes the value itself, of any type."""
    if isinstance(value, str):
        alone = _ONE_NAME.fullmatch(value.strip())
        return _looked_up(alone[1], names) if alone else render_text(value, names)
    if isinstance(value, dict):
        return {key: render_data(item, names) for key, item in value.items()}
    return [render_data(item, names) for item in value] if isinstance(value, list) else value


def _texts(value: Any) -> Iterator[str]:
    """The templates among the strings of a setting, keys not among them; variables of the environment taken out."""
    if isinstance(value, str):
        text = REFERENCE.sub("", value)
        if is_template(text):
            yield text
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _text_complaints(field: str, text: str) -> list[str]:
    try:
        unknown = sorted(names_in(text) - NAMES.keys())
    except TemplateProblem as error:
        return [f"'{field}' is no valid template: {error}"]
    hint = did_you_mean(unknown[0], NAMES) or f"It can use: {', '.join(NAMES)}" if unknown else ""
    return [f"'{field}' uses '{unknown[0]}', which no request has. {hint}"] if unknown else []


def _looked_up(path: str, names: Mapping[str, Any]) -> Any:
    value: Any = names
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            raise TemplateProblem(f"'{path}' is undefined")
        value = value[step]
    return value


def _quoted(value: Any) -> Any:
    text = as_text(value)
    return quote(text, safe="") if isinstance(text, str) else text


@cache
def _address_environment() -> minijinja.Environment:
    made = environment(_quoted)
    # Everything is encoded on its way out; encoded twice it would arrive wrong.
    made.add_filter("urlencode", lambda value: value)
    return made
