"""Templates that users write, in one engine for all of them: data is put in and never rendered again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import minijinja
import msgspec

FUEL = 1_000_000
"""Steps a template may take, so that loops inside loops end as an error and not as a hang."""

_FILE_ENDINGS = (".md", ".txt", ".prompt.mdx")


class TemplateProblem(Exception):
    """A text that is no template, or that cannot be rendered with what it is given."""


def is_file_name(value: str) -> bool:
    """Whether a prompt is the name of a file rather than a text."""
    return value.startswith("file://") or ("\n" not in value.strip() and value.strip().endswith(_FILE_ENDINGS))


def names_in(text: str) -> frozenset[str]:
    """The names that a template uses. Raises TemplateProblem."""
    try:
        return frozenset(environment().undeclared_variables_in_str(text))
    except minijinja.TemplateError as error:
        raise TemplateProblem(first_line(error)) from None


def render(text: str, values: Mapping[str, Any], engine: minijinja.Environment | None = None) -> str:
    """Strings go in as they are, null as nothing, everything else as compact JSON. Raises TemplateProblem."""
    try:
        return (engine or environment()).render_str(text, **values)
    except minijinja.TemplateError as error:
        raise TemplateProblem(first_line(error)) from None


def as_text(value: Any) -> Any:
    """How a value is put into a text."""
    if isinstance(value, str):
        return value
    # The engine hands 1.0 over as 1, and prints either as it is when it is told to do so itself.
    if type(value) is int:
        return NotImplemented
    return "" if value is None else msgspec.json.encode(value).decode()


@cache
def environment(finalizer: Callable[[Any], Any] = as_text) -> minijinja.Environment:
    """The engine: strict about undefined names, no escaping, no Python objects, no end without an end."""
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
    """Which of the `names` that a template uses has no value, where that is what is wrong."""
    text, missing = first_line(error), sorted(set(names).difference(values))
    if "` is undefined" in text:
        missing = [name for name in missing if f"`{name}` is undefined" in text]
    elif error.kind != "UndefinedError":
        missing = []
    return missing[0] if missing else None


def first_line(error: minijinja.TemplateError) -> str:
    """What is wrong, and the line of the template."""
    return str(error).split("\n", 1)[0].replace(" (in <string>:", " (line ")
