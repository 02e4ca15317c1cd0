"""The templates of promptfoo, which are Nunjucks, in assertions and descriptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from agentv.datasets.variables import copied
from agentv.extensions.promptfoo.nunjucks.template import read_template
from agentv.model.values import to_json
from agentv.support.javascript.values import UNDEFINED, is_list, printed
from agentv.support.templates import TemplateProblem

_PLACEHOLDER = re.compile(r"\{\{(?:[^}]|\}(?!\}))*\}\}")
_VARIABLE = re.compile(r"""\benv(?:\.(\w+)|\[\s*['"]([^'"]+)['"]\s*\])""")
_SIMPLE = re.compile(
    r"""\{\{-?\s*env(?:\.(\w+)|\[\s*['"](\w+)['"]\s*\])"""
    r"""(?:\s*(?:\|\s*default\(|or\b)\s*(?:'([^']*)'|"([^"]*)")\s*(?:,\s*true\s*)?\)?)?\s*-?\}\}"""
)
"""A variable of the environment, with a default or without."""

_ENV_USE = re.compile(r"\{[{%][^}]*\benv\s*[.\[]")


class EnvironmentMarks(msgspec.Struct, frozen=True):
    """Replaces `{{env.X}}` by `${{ X }}`, or by the value that a configuration sets in its `own` variables.

    `variables` are those of the environment; a secret one has no value here. `evaluates` allows expressions too.
    """

    own: Mapping[str, Any]
    variables: Mapping[str, str | None]
    evaluates: bool

    def of(self, value: Any) -> Any:
        """Return data with marks. Raises ValueError for an expression that cannot be evaluated."""
        if isinstance(value, str):
            text = _PLACEHOLDER.sub(lambda match: self._marked(match[0]), value) if "env" in value else value
            if "env" in text and _ENV_USE.search(text):
                what = "can only be inserted as `{{ env.NAME }}`, or with a default"
                raise ValueError(f"'env' {what}, except for variables that are not secret: {value[:80]}")
            return text
        if isinstance(value, dict):
            return copied(value, {key: self.of(item) for key, item in value.items()})
        return copied(value, [self.of(item) for item in value]) if isinstance(value, list) else value

    def _marked(self, text: str) -> str:
        """Return the mark of a variable, its default if it is not set, or the value of an expression."""
        match = _SIMPLE.fullmatch(text)
        if match is not None:
            name, default = match[1] or match[2], match[3] if match[3] is not None else match[4]
            if name in self.own or default is None or self.variables.get(name, "") != "":
                return str(self.own[name]) if name in self.own else f"${{{{ {name} }}}}"
            return default
        names = {first or second for first, second in _VARIABLE.findall(text)}
        values = {name: value for name, value in {**self.variables, **self.own}.items() if name in names}
        if not self.evaluates or not names or None in values.values() or names_of(text) - {"env"}:
            return text
        return str(rendered(text, {"env": values}))


def with_provider_ids(providers: Any, env: Mapping[str, str]) -> Any:
    """Return providers with the variables in their ids replaced, as promptfoo does before it looks them up."""
    if isinstance(providers, str):
        return _PLACEHOLDER.sub(lambda match: _with_value(match[0], env), providers)
    if isinstance(providers, list):
        return [with_provider_ids(item, env) for item in providers]
    if isinstance(providers, dict) and isinstance(providers.get("id"), str):
        return {**providers, "id": with_provider_ids(providers["id"], env)}
    return providers


def _with_value(template: str, env: Mapping[str, str]) -> str:
    """Return the text of a placeholder for a variable that is set, or that has a filter; otherwise itself."""
    name = _VARIABLE.search(template)
    if name is None or not ("|" in template or (name[1] or name[2]) in env):
        return template
    try:
        return read_template(template).render({"env": dict(env)}, printed)
    except TemplateProblem:
        return template


def is_template(text: str) -> bool:
    """Whether a text has placeholders or statements."""
    return "{{" in text or "{%" in text


def names_of(text: str) -> frozenset[str]:
    """Return the variables that a template uses; none if it is not a valid template."""
    try:
        return read_template(text).names if is_template(text) else frozenset()
    except TemplateProblem:
        return frozenset()


def check_templates(value: Any) -> None:
    """Raise ValueError if a text, or one in a list, is not a valid template; promptfoo fails on it too."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and is_template(text):
            try:
                read_template(text)
            except TemplateProblem as problem:
                raise ValueError(f"'{text[:80]}' is not a valid template: {problem}") from None


def rendered_strictly(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with the templates of AgentV rendered: missing parts are invalid, and objects are JSON."""
    return _rendered(value, variables, _printed_strictly, lambda text, _: text)


def _printed_strictly(value: Any) -> str:
    if value is UNDEFINED:
        raise TemplateProblem("a part of a variable is missing")
    return to_json(value).decode() if is_list(value) or isinstance(value, Mapping) else printed(value)


def rendered(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with its templates rendered. Raises ValueError for one that cannot be rendered."""
    return _rendered(value, variables, printed, _refuse)


def _refuse(text: str, problem: TemplateProblem) -> Any:
    raise ValueError(f"The template '{text[:80]}': {problem}") from None


def _rendered(
    value: Any, variables: Mapping[str, Any], print_value: Callable[[Any], str], refuse: Callable[..., Any]
) -> Any:
    if isinstance(value, list):
        return [_rendered(item, variables, print_value, refuse) for item in value]
    if isinstance(value, dict):
        return {key: _rendered(item, variables, print_value, refuse) for key, item in value.items()}
    if not isinstance(value, str) or not is_template(value):
        return value
    try:
        template = read_template(value)
        missing = dict.fromkeys(template.names - variables.keys(), "") if print_value is _printed_strictly else {}
        return template.render({**missing, **variables}, print_value)
    except TemplateProblem as problem:
        return refuse(value, problem)
