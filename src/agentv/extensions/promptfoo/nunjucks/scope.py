"""The state of a template that is being rendered: its variables, limits and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentv.extensions.promptfoo.nunjucks.filters import FILTERS, FUNCTIONS
from agentv.support.javascript.values import MAX_CHARACTERS, UNDEFINED, printed
from agentv.support.templates import TemplateProblem

_MOST_STEPS = 1_000_000

Expression = Callable[["Scope"], Any]
Statement = Callable[["Scope"], None]
Filter = Callable[..., Any]


class Rendering:
    """What all scopes of a template share: the given variables, the steps so far, and how values are printed.

    `filters` are those of the user.
    """

    def __init__(
        self,
        variables: Mapping[str, Any],
        print_value: Callable[[Any], str] = printed,
        filters: Mapping[str, Filter] = {},
    ) -> None:
        self.variables = dict(variables)
        self.print_value = print_value
        self._filters = filters
        self._steps = 0
        self._characters = 0

    def filter(self, name: str) -> Callable[..., Any]:
        """Return a filter. Raises TemplateProblem if there is none."""
        function = self._filters.get(name) or FILTERS.get(name)
        if function is None:
            raise TemplateProblem(f"unknown filter: {name}")
        return function

    def step(self, characters: int = 0) -> None:
        """Count a step and printed characters. Raises TemplateProblem above the limits."""
        self._steps += 1
        self._characters += characters
        if self._steps > _MOST_STEPS or self._characters > MAX_CHARACTERS:
            raise TemplateProblem("the template is too large, or takes too long")


class Scope:
    """The variables of a loop, a macro or the whole template, and the texts that were printed in it."""

    def __init__(self, rendering: Rendering, parent: Scope | None = None) -> None:
        self.rendering = rendering
        self.names: dict[str, Any] = {}
        self.parent = parent
        self.texts: list[str] = [] if parent is None else parent.texts

    def lookup(self, name: str) -> Any:
        """Return the value of a name; undefined if there is none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return self.rendering.variables.get(name, FUNCTIONS.get(name, UNDEFINED))

    def assign(self, name: str, value: Any) -> None:
        """Set a name in the scope that has it, or else in this one; the outermost scope sets it for macros too."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        (scope or self).names[name] = value
        if self.parent is None:
            self.rendering.variables[name] = value

    def print_text(self, text: str) -> None:
        """Print a text."""
        self.rendering.step(len(text))
        self.texts.append(text)

    def captured(self, body: Statement) -> str:
        """Return the text that a statement prints."""
        texts, self.texts = self.texts, []
        try:
            body(self)
            return "".join(self.texts)
        finally:
            self.texts = texts
