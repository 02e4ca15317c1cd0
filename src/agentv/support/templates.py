"""Render user templates with minijinja. Values are inserted and never rendered as templates.

Plain templates, with placeholders, conditions and loops over values, are rendered in this process. All others could
grow without limit (`{% set s = s ~ s %}`) or overflow the stack of the parser, which would end the process. They are
rendered in another one.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import minijinja
import msgspec

from agentv.support.processes.forked_call import LimitExceeded, forked_call

FUEL = 1_000_000
"""Maximum number of steps of a template, so that nested loops end with an error."""
MAX_CHARACTERS = 10_000_000
"""Maximum size of a rendered text, estimated before it is rendered, for a template that is rendered in this process."""

_STRING = r"""(?:"[^"{}%\\]{0,200}+"|'[^'{}%\\]{0,200}+')"""
_ARGUMENT = rf"(?:{_STRING}|-?\d\d?|true|false)"
_FILTER = (
    r"\|\s*+(?:upper|lower|title|capitalize|trim|length|count|first|last|default|d|tojson|string|int|float|round|abs|sort"
    r"|reverse|unique|list|safe|escape|e|items|join|indent|dump)"
    rf"\b(?:\((?:{_ARGUMENT}(?:,\s*+{_ARGUMENT}){{0,2}}+)?\))?"
)
_BODY = rf"(?:[\w\s.,:<>=!\[\]]|-(?![%}}])|{_STRING}|{_FILTER}){{1,400}}+"
_PLAIN_TAG = re.compile(
    rf"\{{\{{-?{_BODY}-?\}}\}}"
    rf"|\{{%-?\s*+(?P<statement>if|elif|else|endif|for|endfor)\b(?:{_BODY})?-?%\}}"
)
_TAG = re.compile(r"\{[{%#]")
_GROWS = re.compile(r"\|\s*(?:join|indent|tojson|dump)")
_MOST_BRANCHES = 500

_FILE_ENDINGS = (".md", ".txt", ".prompt.mdx")


class TemplateProblem(Exception):
    """A template that is invalid, or that cannot be rendered with the given values."""


def is_file_name(value: str) -> bool:
    """Whether a prompt is a file name rather than text."""
    return value.startswith("file://") or ("\n" not in value.strip() and value.strip().endswith(_FILE_ENDINGS))


@lru_cache(maxsize=128)
def names_in(text: str) -> frozenset[str]:
    """Return the names that a template uses. Raises TemplateProblem."""
    try:
        return frozenset(environment().undeclared_variables_in_str(text))
    except minijinja.TemplateError as error:
        raise TemplateProblem(first_line(error)) from None


def render(text: str, values: Mapping[str, Any], engine: minijinja.Environment | None = None) -> str:
    """Render a template: strings unchanged, null as nothing, other values as compact JSON. Raises TemplateProblem."""
    try:
        return (engine or environment()).render_str(text, **values)
    except minijinja.TemplateError as error:
        raise TemplateProblem(first_line(error)) from None


def as_text(value: Any) -> Any:
    """Convert a value for insertion into a template."""
    if isinstance(value, str):
        return value
    # minijinja passes 1.0 as 1; with NotImplemented it prints the original number.
    if type(value) is int:
        return NotImplemented
    return "" if value is None else msgspec.json.encode(value).decode()


def _dump(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, as the filter of Nunjucks does: compact, and without escapes for HTML."""
    separators = None if indent else (",", ":")
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)


class _Shape(NamedTuple):
    """The parts of a template that limit its size: whether all its tags are plain, their number, and the loops."""

    is_plain: bool
    tags: int = 0
    loops: int = 0
    growth: int = 1


@lru_cache(maxsize=128)
def _shape(text: str) -> _Shape:
    if _TAG.search(text) is None:
        return _Shape(is_plain=True)
    tags = _PLAIN_TAG.findall(text)
    rest = _PLAIN_TAG.sub("", text)
    is_plain = _TAG.search(rest) is None and tags.count("elif") <= _MOST_BRANCHES
    return _Shape(is_plain, len(tags), tags.count("for"), 200 if _GROWS.search(text) else 1)


def _is_bounded(text: str, values: Mapping[str, Any]) -> bool:
    """Whether a template can be rendered in this process: it is plain, and its result is not too large."""
    shape = _shape(text)
    if not shape.is_plain:
        return False
    if not shape.tags:
        return True
    size = _size(values)
    repeats = min(size**shape.loops, FUEL)
    return bool(repeats * (len(text) + shape.tags * shape.growth * size) <= MAX_CHARACTERS)


def _size(value: Any) -> int:
    """Return the number of characters of all texts in a value, and of its other parts."""
    if isinstance(value, str):
        return len(value) + 1
    if isinstance(value, Mapping):
        return 1 + sum(len(str(key)) + _size(item) for key, item in value.items())
    return 1 + sum(map(_size, value)) if isinstance(value, list | tuple) else 20


class _RenderError(minijinja.TemplateError):
    """An error of a filter, or of a template that was rendered in another process."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self._kind = kind

    @property
    def kind(self) -> str:
        return self._kind

    def __str__(self) -> str:
        return str(self.args[0])


class BoundedEnvironment(minijinja.Environment):
    """A template engine that renders templates without a known limit in another process, where `factory` makes it."""

    factory: Callable[[], minijinja.Environment]

    def render_str(self, text: str, name: str | None = None, /, **values: Any) -> str:
        """Render a template. Raises TemplateError, also if the template exceeds a limit."""
        if _is_bounded(text, values):
            return super().render_str(text, name, **values)
        return _limited(partial(_render, self.factory, text, name, values))

    def undeclared_variables_in_str(self, source: str, nested: bool = False) -> set[str]:
        """Return the names that a template uses. Raises TemplateError."""
        if _shape(source).is_plain:
            return super().undeclared_variables_in_str(source, nested)
        return set(_limited(partial(_names, source, nested)).split("\0")) - {""}


def _render(factory: Callable[[], minijinja.Environment], text: str, name: str | None, values: dict[str, Any]) -> str:
    return minijinja.Environment.render_str(factory(), text, name, **values)


def _names(source: str, nested: bool) -> str:
    return "\0".join(minijinja.Environment.undeclared_variables_in_str(environment(), source, nested))


def _outcome(call: Callable[[], str]) -> bytes:
    try:
        return b"=" + call().encode()
    except minijinja.TemplateError as error:
        return msgspec.json.encode((str(error), str(error.kind)))


def _limited(call: Callable[[], str]) -> str:
    try:
        reply = forked_call(partial(_outcome, call))
    except LimitExceeded as limit:
        raise _RenderError(f"the template {limit}", "Limit") from None
    if reply.startswith(b"="):
        return reply[1:].decode()
    message, kind = msgspec.json.decode(reply)
    raise _RenderError(message, kind)


@cache
def environment(finalizer: Callable[[Any], Any] = as_text) -> BoundedEnvironment:
    """Return the template engine: strict about undefined names, without escaping, with a step limit.

    `finalizer` converts values to text.
    """
    env = BoundedEnvironment(
        undefined_behavior="strict",
        finalizer=finalizer,
        auto_escape_callback=lambda _: False,
        keep_trailing_newline=True,
        pycompat=False,
    )
    env.factory = partial(environment, finalizer)
    env.fuel = FUEL
    env.add_filter("dump", _dump)
    return env


def missing_name(error: minijinja.TemplateError, names: Iterable[str], values: Iterable[str]) -> str | None:
    """Return the name without a value that caused an error; None if the error has another cause."""
    text, missing = first_line(error), sorted(set(names).difference(values))
    if "` is undefined" in text:
        missing = [name for name in missing if f"`{name}` is undefined" in text]
    elif error.kind != "UndefinedError":
        missing = []
    return missing[0] if missing else None


def first_line(error: minijinja.TemplateError) -> str:
    """Return the first line of an error: the problem, and the line in the template."""
    return str(error).split("\n", 1)[0].replace(" (in <string>:", " (line ")
