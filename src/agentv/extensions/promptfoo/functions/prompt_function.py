"""Prompts that are rendered for each case: functions that return a template, and templates of a chat."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import msgspec

from agentv.datasets.case.shorthand import MessageReader
from agentv.datasets.files import FileFinder
from agentv.extensions.promptfoo.functions import CodeNotRun
from agentv.extensions.promptfoo.functions.calls import call_function, check_allowed, run_program
from agentv.extensions.promptfoo.nunjucks.prompt import PromptfooPrompt, read_promptfoo_prompt, rendered_prompt
from agentv.model.diagnostics import KeyPath, Problems
from agentv.model.message import Message
from agentv.support.javascript.values import stringify
from agentv.support.templates import TemplateProblem

_TOKEN = secrets.token_hex(8)
_functions: dict[str, PromptFunction] = {}


class PromptFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function of a file, a program with a `command`, or a `template` whose result is the JSON of a chat.

    `as_chat` returns the messages of a text that is a chat, if models receive chats. `filters` are the JavaScript files
    of filters, by name. A program runs in the `folder` of the configuration.
    """

    id: str
    finder: FileFinder
    label: str = ""
    path: str = ""
    folder: str = "."
    function: str = ""
    context: dict[str, Any] = {}
    template: str = ""
    command: tuple[str, ...] = ()
    as_chat: Callable[[str], tuple[dict[str, Any], ...]] | None = None
    filters: dict[str, str] = {}
    has_text: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """The text that the function is registered by, as a prompt. It is random, so that no file can have it."""
        place = f"{self.path}:{self.function} {self.command} {stringify(self.context)}{self.template}"
        key = f"(the prompt that {self.label} returns) {_TOKEN} {place}"
        _functions[key] = self
        return key

    def render(self, variables: dict[str, Any], problems: Problems) -> tuple[Message, ...] | None:
        """Return the messages for one row; None after adding an error to `problems`."""
        path: KeyPath = ("prompt",)
        try:
            filters = {name: partial(_filtered, path) for name, path in self.filters.items()}
            text = rendered_prompt(self._template(variables, problems), variables, filters)
            chat = self.as_chat(text) if self.as_chat else ()
        except CodeNotRun:
            return (Message("user", f"(the prompt that {self.label or 'a filter'} returns)"),)
        except (ValueError, TemplateProblem) as error:
            problems.error(path, f"Cannot render the prompt: {error}")
            return None
        return MessageReader(self.finder).messages(list(chat), path, problems) if chat else (Message("user", text),)

    def _template(self, variables: dict[str, Any], problems: Problems) -> str:
        """Return the text that the function returns; the JSON of an object. Raises ValueError."""
        if self.template:
            return self.template
        context = {"vars": variables, **self.context}
        if self.command:
            return run_program(list(self.command), self.path, context, self.folder)
        result = call_function(self.path, self.function, [context])
        if isinstance(result, dict) and "prompt" in result:
            if result.get("config"):
                problems.warning(("prompt",), f"The config that '{self.label}' returns is not applied to the target")
            result = result["prompt"]
        if not isinstance(result, str | dict | list):
            raise ValueError(f"'{self.label}' must return a text or an object, got {stringify(result)}")
        return result if isinstance(result, str) else str(stringify(result))


def render_problem(key: str, variables: dict[str, Any]) -> str:
    """Return why a prompt cannot be rendered for these variables; empty if it can, or if its code may not run."""
    problems = Problems()
    if (source := _functions.get(key)) is not None:
        with suppress(ValueError):  # reported when the case is read
            for path in filter(None, (source.path, *source.filters.values())):
                check_allowed(source.label, path)
            source.render(variables, problems)
    return "; ".join(problem.message for problem in problems.errors)


def _filtered(path: str, *values: Any) -> Any:
    return call_function(path, "", list(values))


def read_prompt(value: Any, path: KeyPath, problems: Problems, id: str) -> PromptfooPrompt | PromptFunction | None:
    """Return a prompt that is text, messages, or the key of a function; None after adding an error to `problems`."""
    source = _functions.get(value) if isinstance(value, str) else None
    return (
        read_promptfoo_prompt(value, path, problems, id) if source is None else msgspec.structs.replace(source, id=id)
    )
