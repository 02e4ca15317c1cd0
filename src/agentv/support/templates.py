"""Render user templates with minijinja. Values are inserted and never rendered as templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import minijinja
import msgspec

FUEL = 1_000_000
"""Maximum number of steps of a template, so that nested loops end with an error."""

_FILE_ENDINGS = (".md", ".txt", ".prompt.mdx")


class TemplateProblem(Exception):
    """A template that is invalid, or that cannot be rendered with the given values."""


def is_file_name(value: str) -> bool:
    """Whether a prompt is a file name rather than text."""
    return value.startswith("file://") or ("\n" not in value.strip() and value.strip().endswith(_FILE_ENDINGS))


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


@cache
def environment(finalizer: Callable[[Any], Any] = as_text) -> minijinja.Environment:
    """Return the template engine: strict about undefined names, without escaping, with a step limit."""
    made = minijinja.Environment(
        undefined_behavior="strict",
        finalizer=finalizer,
        auto_escape_callback=lambda _: False,
        keep_trailing_newline=True,
        pycompat=False,
    )
    made.fuel = FUEL
    return made


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
