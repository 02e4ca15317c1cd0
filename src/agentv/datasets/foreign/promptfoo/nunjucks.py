"""The templates of promptfoo, which are Nunjucks: translated to minijinja, and rendered with missing names as empty."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import minijinja

from agentv.support.templates import TemplateProblem, environment, first_line, names_in, printed_in_javascript

_ENV = re.compile(r"""\{\{\s*env(?:\.(\w+)|\[\s*['"](\w+)['"]\s*\])\s*\}\}""")
_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_METHODS = {
    "toUpperCase": "upper",
    "toLowerCase": "lower",
    **{name: name for name in ("trim", "split", "join", "includes", "slice", "replace")},
}
"""The filter for each method of JavaScript."""
_VALUE = r"(?<![\w.\0])((?:(?!loop\b)[^\W\d]\w*|\0\d+\0)(?:\.\w+|\[[^\[\]()]*\])*?)"
_METHOD = re.compile(rf"{_VALUE}\.({'|'.join(_METHODS)})(\([^()]*\))")
_LENGTH = re.compile(rf"{_VALUE}\.length\b(?!\()")
_CALL = re.compile(r"(?<![\w.])\w*\([^()]*\)")
_OTHER_METHOD = re.compile(r"\.(\w+)\(")
_UNSUPPORTED = (
    "UnknownMethod",
    "UnknownFilter",
    "UnknownFunction",
    "UnknownTest",
    "TooManyArguments",
    "InvalidOperation",
)
_PAIRS = re.compile(r"^(\{%-?\s*for\s+\w+\s*,\s*\w+\s+in\s+.*?)\s*(-?%\})$", re.DOTALL)
_PRINTED = re.compile(r"\{\{-?\s*(\w+)\s*-?\}\}")
_MARK = re.compile(r"\0(\d+)\0")
_FILTER = re.compile(r"\|\s*(default|d|truncate|wordcount|nl2br)\b")
_DEFINED = re.compile(r"(?<![\w.\]])([^\W\d]\w*)\s+is\s+(not\s+)?(un)?defined\b")
_NULLABLE = re.compile(r"(?<![\w.])([^\W\d]\w*)(?:\s*\|\s*js_\w+|\s+is\s+(?:not\s+)?none\b)")


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
    """Return a template of Nunjucks in the syntax of minijinja. Raises ValueError for methods without a counterpart."""
    return _TAG.sub(lambda tag: _Tag(tag[0]).translated(), text) if "{" in text and "\0" not in text else text


class _Tag:
    """A tag whose strings and calls are replaced by marks, so that the rest has no quotes and parentheses."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._parts: list[str] = []

    def translated(self) -> str:
        """Return the tag with the filters for methods of JavaScript."""
        text, before = _STRING.sub(lambda part: self._mark(part[0]), self._tag), ""
        text = text.replace("!==", "!=").replace("===", "==")
        text = _FILTER.sub(lambda name: f"| js_{'default' if name[1] == 'd' else name[1]}", text)
        text = _DEFINED.sub(lambda test: f"{test[1]} is {'not ' if bool(test[2]) == bool(test[3]) else ''}none", text)
        while text != before:
            before = text
            text = _METHOD.sub(lambda call: self._mark(f"{call[1]}|js_{_METHODS[call[2]]}{call[3]}"), text)
            text = _LENGTH.sub(lambda name: self._mark(f"{name[1]}|js_length"), text)
            if text == before:
                text = _CALL.sub(lambda call: self._mark(call[0]), text)
        if other := _OTHER_METHOD.search(text):
            raise ValueError(f"The method '{other[1]}' in a template is not supported. Known: {', '.join(_METHODS)}")
        return _PAIRS.sub(r"\1|js_pairs \2", self._without_marks(text))

    def _mark(self, part: str) -> str:
        self._parts.append(part)
        return f"\0{len(self._parts) - 1}\0"

    def _without_marks(self, text: str) -> str:
        while "\0" in text:
            text = _MARK.sub(self._part, text)
        return text

    def _part(self, mark: re.Match[str]) -> str:
        part = self._parts[int(mark[1])]
        has_more = mark.string[mark.end() : mark.end() + 1] in (".", "[")
        return f"({part})" if has_more and "|js_" in part else part


def is_template(text: str) -> bool:
    """Whether a text has placeholders or statements."""
    return "{{" in text or "{%" in text


def names_of(text: str) -> frozenset[str]:
    """Return the variables that a template uses; none if it is not a valid template."""
    if not is_template(text):
        return frozenset()
    try:
        return names_in(template_of(text)) - {"range"}
    except TemplateProblem:
        return frozenset()


def unset_values(text: str, names: Iterable[str]) -> dict[str, str | None]:
    """Return the values of variables that a test does not set: null where a template asks for one, or else empty."""
    nullable = {name for tag in _TAG.findall(template_of(text)) for name in _NULLABLE.findall(tag)}
    return {name: None if name in nullable else "" for name in names}


def printed_names(text: str) -> list[str]:
    """Return the variables that a template inserts as they are, without a filter or a part of them."""
    return sorted(set(_PRINTED.findall(text)))


def check_templates(value: Any) -> None:
    """Raise ValueError if a text, or one in a list, is not a valid template; promptfoo fails on it too."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and is_template(text):
            try:
                names_in(template_of(text))
            except TemplateProblem as problem:
                raise ValueError(f"'{text[:80]}' is not a valid template: {problem}") from None


def rendered_strictly(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with the templates of AgentV rendered: missing parts are invalid, and objects are JSON."""
    return rendered(value, variables, environment())


def rendered(value: Any, variables: Mapping[str, Any], engine: minijinja.Environment | None = None) -> Any:
    """Return a value with its templates rendered; a text that is not a valid template is left as it is.

    Raises ValueError for a method or a filter that does not exist here.
    """
    engine = engine or environment(printed_in_javascript, "chainable")
    if isinstance(value, list):
        return [rendered(item, variables, engine) for item in value]
    if isinstance(value, dict):
        return {key: rendered(item, variables, engine) for key, item in value.items()}
    if not isinstance(value, str) or not is_template(value):
        return value
    template = template_of(value)
    try:
        missing = unset_values(template, names_of(value) - variables.keys())
        return engine.render_str(template, **{**missing, **variables})
    except minijinja.TemplateError as error:
        if error.kind in _UNSUPPORTED:
            raise ValueError(f"The template '{value[:80]}': {first_line(error)}") from None
        return value
