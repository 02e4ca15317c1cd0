"""Prompts of AgentMark's kind: templates that turn a row's variables into messages. Data is put in, never rendered."""

from __future__ import annotations

from typing import Any

import minijinja
import msgspec

from agentv.datasets.case.shorthand import MessageReader
from agentv.datasets.files import FileError, FileFinder, is_address, is_guideline, read_image, read_text
from agentv.errors import DatasetError
from agentv.model.case import EvalCase, case_to_data
from agentv.model.message import FilePart, ImagePart, Message, TextPart
from agentv.settings.diagnostics import KeyPath, Problems, did_you_mean
from agentv.support.templates import environment, first_line, is_file_name, missing_name


class PromptError(Exception):
    """A prompt that cannot be rendered with a row's variables."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Prompt(msgspec.Struct, frozen=True):
    """One prompt, checked: a text that becomes a user message, or messages whose texts are templates."""

    id: str
    messages: tuple[Message, ...]
    names: frozenset[str]

    def render(self, variables: dict[str, Any]) -> tuple[Message, ...]:
        """The messages for one row. Raises PromptError when the row lacks a variable the prompt uses."""
        if "self" in variables:
            raise PromptError("A variable cannot be called 'self'", "Rename it")
        # Integers of more than 128 bits go in as their digits: the engine would make floats of them.
        exact = {
            name: str(value) if isinstance(value, int) and value.bit_length() > 127 else value
            for name, value in variables.items()
        }
        try:
            return tuple(_rendered(message, exact) for message in self.messages)
        except minijinja.TemplateError as error:
            missing = missing_name(error, self.names, variables)
            if missing is None:
                raise PromptError(f"The prompt cannot be rendered: {first_line(error)}") from None
            hint = did_you_mean(missing, variables) or f"The row has: {', '.join(variables) or 'no variables'}"
            raise PromptError(f"The prompt uses the variable '{missing}', which the row lacks", hint) from None
        except Exception as error:  # a template may call methods of its values, which raise what they like
            raise PromptError(f"The prompt cannot be rendered: {error}") from None


def read_prompt(
    value: Any, path: KeyPath, problems: Problems, finder: FileFinder, id: str = "default"
) -> Prompt | None:
    """A prompt as users give it: text, a list of messages, or the name of a file. None after noting an error."""
    if isinstance(value, str):
        text = _file_text(value, path, problems, finder) if is_file_name(value) else value
        messages: tuple[Message, ...] = () if text is None else (Message("user", text),)
    elif isinstance(value, list):
        messages = MessageReader(finder).messages(value, path, problems)
    else:
        problems.wrong_type(path, "a string or an array of messages", value)
        return None
    if not messages:
        if isinstance(value, list) and not value:
            problems.error(path, "A prompt needs at least one message")
        return None
    names = _names_used(messages, path, problems)
    return None if names is None else Prompt(id, messages, frozenset(names))


def _file_text(value: str, path: KeyPath, problems: Problems, finder: FileFinder) -> str | None:
    name = value.strip().removeprefix("file://")
    if name.endswith(".prompt.mdx"):
        hint = "Write its text into a .md file; variables are {{ name }} there"
        problems.error(path, f"Prompt file '{name}' is in AgentMark's own form, which is not supported", hint)
        return None
    try:
        return read_text(finder.find(name).path, name)
    except FileError as error:
        problems.error(path, error.message, error.hint)
        return None


def _names_used(messages: tuple[Message, ...], path: KeyPath, problems: Problems) -> set[str] | None:
    names: set[str] = set()
    for message in messages:
        parts = [part.value for part in message.parts if isinstance(part, TextPart)]
        for text in [message.content] if isinstance(message.content, str) else parts:
            try:
                names |= environment().undeclared_variables_in_str(text)
            except minijinja.TemplateError as error:
                problems.error(path, f"The prompt is no valid template: {first_line(error)}")
                return None
    return names


def _rendered(message: Message, variables: dict[str, Any]) -> Message:
    def render(text: str) -> str:
        return environment().render_str(text, **variables)

    content: Any = message.content
    if isinstance(content, str):
        content = render(content)
    elif message.parts:
        parts = message.parts
        content = tuple(TextPart(render(part.value)) if isinstance(part, TextPart) else part for part in parts)
    return Message(message.role, content, message.tool_calls, message.name)


def resolved_data(case: EvalCase) -> dict[str, Any]:
    """As `case_to_data`, each file part with its `text`, each image with its data URI, guidelines marked."""
    data = case_to_data(case)
    if not case.names_files:
        return data
    _fill(case, case.input, data.get("input", []))
    _fill(case, case.expected_output, data.get("expected_output", []))
    for prompt, written in zip(case.prompts, data.get("prompts", []), strict=True):
        _fill(case, prompt.input, written["input"])
    for turn, written in zip(case.turns, data.get("turns", []), strict=True):
        _fill(case, turn.input, written["input"])
        _fill(case, turn.expected_output, written.get("expected_output", []))
    return data


def _fill(case: EvalCase, messages: tuple[Message, ...], written: list[dict[str, Any]]) -> None:
    for message, data in zip(messages, written, strict=True):
        for part, part_data in zip(message.parts, data["content"] if message.parts else (), strict=True):
            if isinstance(part, FilePart | ImagePart) and part.path:
                part_data.update(_contents(case, part))


def _contents(case: EvalCase, part: FilePart | ImagePart) -> dict[str, Any]:
    try:
        if isinstance(part, ImagePart):
            return {} if is_address(part.value) else {"data": read_image(part.path, part.value)}
        contents: dict[str, Any] = {"text": read_text(part.path, part.value)}
    except FileError as error:
        headline = f"Invalid eval case at line {case.line} in {case.path}"
        raise DatasetError(headline, error.message, error.hint, path=case.path, line=case.line) from None
    origin = case.place.origin
    if is_guideline(part.path, origin.root, origin.guideline_patterns):
        contents["guideline"] = True
    return contents
