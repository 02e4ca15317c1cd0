"""The templates of promptfoo, which are Nunjucks: translated to minijinja, and rendered with missing names as empty."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import minijinja

from agentv.support.templates import TemplateProblem, environment, names_in, render

_ENV = re.compile(r"""\{\{\s*env(?:\.(\w+)|\[\s*['"](\w+)['"]\s*\])\s*\}\}""")
_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


def with_variable_marks(value: Any, own: Mapping[str, Any]) -> Any:
    """Return data with `{{env.X}}` as `${{ X }}`, or as the value that the configuration sets in its own `env`."""
    if isinstance(value, str):
        return _ENV.sub(lambda found: _marked(found[1] or found[2], own), value) if "env" in value else value
    if isinstance(value, dict):
        return {key: with_variable_marks(item, own) for key, item in value.items()}
    return [with_variable_marks(item, own) for item in value] if isinstance(value, list) else value


def _marked(name: str, own: Mapping[str, Any]) -> str:
    return str(own[name]) if name in own else f"${{{{ {name} }}}}"


def template_of(text: str) -> str:
    """Return a template of Nunjucks in the syntax of minijinja."""
    return _TAG.sub(lambda tag: _translated(tag[0]), text) if "{" in text else text


def _translated(tag: str) -> str:
    return tag.replace("!==", "!=").replace("===", "==")


def is_template(text: str) -> bool:
    """Whether a text has placeholders or statements."""
    return "{{" in text or "{%" in text


def names_of(text: str) -> frozenset[str]:
    """Return the variables that a template uses; none if it is not a valid template."""
    if not is_template(text):
        return frozenset()
    try:
        return names_in(template_of(text))
    except TemplateProblem:
        return frozenset()


def rendered(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with its templates rendered; a text that is not a valid template is left as it is."""
    if isinstance(value, list):
        return [rendered(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: rendered(item, variables) for key, item in value.items()}
    if not isinstance(value, str) or not is_template(value):
        return value
    template = template_of(value)
    try:
        missing = dict.fromkeys(names_in(template) - variables.keys(), "")
        return render(template, {**missing, **variables}, environment())
    except (TemplateProblem, minijinja.TemplateError):
        return value
