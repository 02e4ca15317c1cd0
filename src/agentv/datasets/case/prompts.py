"""Prompt templates that turn a row's variables into messages, as in AgentMark. Values are inserted, never rendered."""

from collections.abc import Callable
from typing import Any, Protocol

import minijinja
import msgspec

from agentv.datasets.case.shorthand import MessageReader
from agentv.datasets.files import FileError, FileFinder, is_address, is_guideline, read_image, read_text
from agentv.errors import DatasetError
from agentv.model.case import EvalCase, case_to_data
from agentv.model.diagnostics import KeyPath, Problems, did_you_mean
from agentv.model.message import FilePart, ImagePart, Message, TextPart
from agentv.registry import service
from agentv.support.templates import TemplateProblem, environment, first_line, is_file_name, missing_name, names_in

AGENTMARK_ENDING = ".prompt.mdx"


class Prompt(msgspec.Struct, frozen=True):
    """A validated prompt: messages whose texts are templates. `names` are the variables they use."""

    id: str
    messages: tuple[Message, ...]
    names: frozenset[str]

    def render(self, variables: dict[str, Any], problems: Problems) -> tuple[Message, ...] | None:
        """Return the messages for one row; None after adding an error to `problems`."""
        path = ("input",)
        if "self" in variables:
            problems.error(path, "A variable cannot be called 'self'", "Rename it")
            return None
        # Integers of more than 128 bits are passed as text: minijinja would convert them to floats.
        exact = {
            name: str(value) if isinstance(value, int) and value.bit_length() > 127 else value
            for name, value in variables.items()
        }
        try:
            return tuple(_rendered(message, exact) for message in self.messages)
        except minijinja.TemplateError as error:
            if (missing := missing_name(error, self.names, variables)) is None:
                problems.error(path, f"Cannot render the prompt: {first_line(error)}")
            else:
                hint = did_you_mean(missing, variables) or f"The row has: {', '.join(variables) or 'no variables'}"
                problems.error(path, f"The prompt uses the variable '{missing}', which is missing in this row", hint)
        except Exception as error:  # methods of values, which templates may call, raise any type
            problems.error(path, f"Cannot render the prompt: {error}")
        return None


class RenderablePrompt(Protocol):
    """A prompt of either syntax."""

    @property
    def id(self) -> str:
        """The name of the variant."""

    def render(self, variables: dict[str, Any], problems: Problems) -> tuple[Message, ...] | None:
        """Return the messages for one row; None after adding an error to `problems`."""


ReadPrompt = Callable[[Any, KeyPath, Problems, str], RenderablePrompt | None]
"""Reads text or messages as a prompt of another syntax: the service `SYNTAX-prompts`."""

ReadFile = Callable[[str, KeyPath, Problems, FileFinder, str], RenderablePrompt | None]
"""Reads a prompt file: the service `agentmark-prompts`."""


class PromptReader(msgspec.Struct, frozen=True):
    """Reads prompts of one syntax: text, a list of messages, or a file name."""

    finder: FileFinder
    syntax: str | None = None

    def read(self, value: Any, path: KeyPath, problems: Problems, id: str = "default") -> RenderablePrompt | None:
        """Return a prompt; None after adding an error to `problems`."""
        if self.syntax not in (None, "minijinja"):
            messages = MessageReader(self.finder).messages(value, path, problems) if isinstance(value, list) else None
            read: ReadPrompt = service(f"{self.syntax}-prompts", "A prompt of promptfoo")
            return read(value if messages is None else messages, path, problems, id)
        if isinstance(value, str) and value.strip().endswith(AGENTMARK_ENDING) and is_file_name(value):
            read_file: ReadFile = service("agentmark-prompts", f"The prompt file '{value}'")
            return read_file(value, path, problems, self.finder, id)
        return _read_prompt(value, path, problems, self.finder, id)


def _read_prompt(value: Any, path: KeyPath, problems: Problems, finder: FileFinder, id: str) -> Prompt | None:
    if isinstance(value, str):
        text = prompt_text(value, path, problems, finder) if is_file_name(value) else value
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


def prompt_text(value: str, path: KeyPath, problems: Problems, finder: FileFinder) -> str | None:
    """Return the text of a prompt's file; None after adding an error to `problems`."""
    name = value.strip().removeprefix("file://")
    try:
        return read_text(FilePart(name, path=finder.find(name).path))
    except FileError as error:
        problems.error(path, error.message, error.hint)
        return None


def _names_used(messages: tuple[Message, ...], path: KeyPath, problems: Problems) -> set[str] | None:
    names: set[str] = set()
    for message in messages:
        parts = [part.value for part in message.parts if isinstance(part, TextPart)]
        for text in [message.content] if isinstance(message.content, str) else parts:
            try:
                names |= names_in(text)
            except TemplateProblem as error:
                problems.error(path, f"The prompt is not a valid template: {error}")
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
    """Return a case as data, like `case_to_data`, with the text of files, the data URIs of images, and guidelines."""
    data = case_to_data(case)
    if not case.names_files:
        return data
    _fill(case, case.input, data.get("input", []))
    _fill(case, case.expected_output, data.get("expected_output", []))
    for prompt, entry in zip(case.prompts, data.get("prompts", []), strict=True):
        _fill(case, prompt.input, entry["input"])
    for turn, entry in zip(case.turns, data.get("turns", []), strict=True):
        _fill(case, turn.input, entry["input"])
        _fill(case, turn.expected_output, entry.get("expected_output", []))
    return data


def _fill(case: EvalCase, messages: tuple[Message, ...], entries: list[dict[str, Any]]) -> None:
    for message, data in zip(messages, entries, strict=True):
        for part, part_data in zip(message.parts, data["content"] if message.parts else (), strict=True):
            if isinstance(part, FilePart | ImagePart) and part.path:
                part_data.update(_contents(case, part))


def _contents(case: EvalCase, part: FilePart | ImagePart) -> dict[str, Any]:
    try:
        if isinstance(part, ImagePart):
            return {} if is_address(part.value) else {"data": read_image(part)}
        contents: dict[str, Any] = {"text": read_text(part)}
    except FileError as error:
        headline = f"Invalid eval case at line {case.line} in {case.path}"
        raise DatasetError(headline, error.message, error.hint, path=case.path, line=case.line) from None
    origin = case.place.origin
    if is_guideline(part.path, origin.root, origin.guideline_patterns):
        contents["guideline"] = True
    return contents
