"""Read a prompt file of AgentMark (`.prompt.mdx`): its front matter, its messages, and the components it imports."""

import os
import re
from collections.abc import Set
from typing import Any

import msgspec

from agentv.datasets.case.prompts import prompt_text
from agentv.datasets.files import FileFinder
from agentv.extensions.agentmark.mdx import parse_mdx
from agentv.extensions.agentmark.nodes import Copies, MdxError, Node, descendants
from agentv.extensions.agentmark.template import (
    ROLES,
    TAGS,
    Components,
    MissingVariable,
    Properties,
    check_nodes,
    inline_components,
    render_messages,
)
from agentv.model.diagnostics import KeyPath, Problems, did_you_mean
from agentv.model.message import Message
from agentv.support.templates import TemplateProblem
from agentv.support.yaml.yaml_parser import Map, YamlError, parse_yaml

_FRONT = re.compile(
    r"\A\ufeff?(?:\s|(?>\{/\*.*?\*/\})|(?><!--.*?-->))*+^---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*\r?$\n?",
    re.DOTALL | re.MULTILINE,
)
_IMPORT = re.compile(r"import\s+(?P<name>[A-Za-z_$][\w$]*)\s+from\s+(?P<quote>['\"])(?P<file>.+?)(?P=quote)\s*;?\s*")
_DEEPEST_IMPORT = 20


class PromptFileError(Exception):
    """A part of a prompt file that cannot be used. `line` counts from 1."""

    def __init__(self, message: str, line: int, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.hint = message, line, hint


def read_settings(text: str) -> tuple[dict[str, Any], int]:
    """Return the front matter of a prompt file, and where its messages begin. Raises PromptFileError."""
    if (front := _FRONT.match(text)) is None:
        raise PromptFileError("The file must begin with front matter between two lines of ---", 1)
    line = text.count("\n", 0, front.start("yaml"))
    try:
        settings = parse_yaml(front["yaml"].encode())
    except YamlError as error:
        what = f"The front matter is not valid YAML: {error.what}"
        raise PromptFileError(what, line + error.line, error.hint) from None
    if settings is not None and not isinstance(settings, Map):
        raise PromptFileError("The front matter must be a mapping", line + 1)
    return settings or {}, front.end()


class AgentmarkPrompt(msgspec.Struct, frozen=True):
    """A validated prompt file. `optional` are properties that a row may omit; they are empty then."""

    id: str
    nodes: list[Node]
    optional: frozenset[str]
    kind: str

    def render(self, variables: dict[str, Any], problems: Problems) -> tuple[Message, ...] | None:
        """Return the messages for one row; None after adding an error to `problems`."""
        try:
            messages = render_messages(self.nodes, Properties(variables, self.optional), self.kind)
        except MissingVariable as missing:
            hint = did_you_mean(str(missing), variables) or f"The row has: {', '.join(variables) or 'no variables'}"
            problems.error(("input",), f"The prompt uses the variable '{missing}', which is missing in this row", hint)
            return None
        except (MdxError, TemplateProblem, RecursionError) as problem:
            problems.error(("input",), f"Cannot render the prompt: {problem}")
            return None
        if any(message.role == "system" for message in messages[1:]):
            problems.error(("input",), "Cannot render the prompt: <System> may only be the first message")
            return None
        return tuple(messages)


def read_prompt_file(
    name: str, path: KeyPath, problems: Problems, finder: FileFinder, id: str
) -> AgentmarkPrompt | None:
    """Return the prompt of a file; None after adding an error to `problems`."""
    if (text := prompt_text(name, path, problems, finder)) is None:
        return None
    try:
        settings, start = read_settings(text)
        folder = os.path.dirname(finder.find(name.strip().removeprefix("file://")).path)
        kind = next((name for name in TAGS if settings.get(name)), "")
        nodes = _Reader(finder, path, TAGS[kind]).nodes(text, start, folder)
        if not any(node.is_tag and node.settings["name"] in ROLES for node in descendants(nodes)):
            raise PromptFileError("There is no <System>, <User> or <Assistant> message", text.count("\n") + 1)
    except (PromptFileError, MdxError) as error:
        hint = error.hint if isinstance(error, PromptFileError) else ""
        problems.error(path, f"Prompt file '{name}', line {error.line}: {error}", hint)
        return None
    except RecursionError:
        problems.error(path, f"Prompt file '{name}': Its tags or expressions are nested too deeply")
        return None
    return AgentmarkPrompt(id, nodes, _optional_properties(settings), kind)


class _Reader:
    """Reads the messages of a prompt file, and the components that it and they import."""

    def __init__(self, finder: FileFinder, path: KeyPath, tags: Set[str]) -> None:
        self._finder = finder
        self._path = path
        self._tags = tags
        self._files: dict[str, str] = {}
        self._parsed: dict[str, list[Node]] = {}
        self._copies = Copies()
        self._names: set[str] = set()
        self._repeated: set[str] = set()

    def nodes(self, text: str, start: int, folder: str, depth: int = 0) -> list[Node]:
        """Return the blocks of a text, with the components in their place."""
        parsed = parse_mdx(text[start:], text.count("\n", 0, start) + 1)
        components = Components(self._copies)
        for node in [node for node in descendants(parsed) if node.type == "esm"]:
            if (imported := _IMPORT.fullmatch(node.value)) is None:
                raise PromptFileError("Only `import Name from './file.mdx'` is supported", node.line)
            if depth >= _DEEPEST_IMPORT:
                raise PromptFileError("Components import each other", node.line)
            name, file = imported["name"], self._finder.below(folder, imported["file"])
            if file not in self._parsed:
                self._parsed[file] = self._component(imported["file"], folder, node.line, depth)
            components[name] = self._parsed[file]
            if file in self._files:
                self._repeated |= {name, self._files[file]}
            self._files[file] = name
        nodes = [node for node in parsed if node.type != "esm"]
        check_nodes(nodes, components, self._tags)
        self._names.update(node.settings["name"] for node in descendants(nodes) if node.is_tag)
        if not depth and (repeated := self._repeated & self._names):
            what = f"<{min(repeated)}> is imported twice, and AgentMark's engine renders it as nothing then"
            raise PromptFileError(what, nodes[0].line)
        return inline_components(nodes, components)

    def _component(self, file: str, folder: str, line: int, depth: int) -> list[Node]:
        name = self._finder.below(folder, file)
        own = Problems()
        if (text := prompt_text(name, self._path, own, self._finder)) is None:
            raise PromptFileError(f"Cannot import '{file}': {next(iter(own)).message}", line)
        front = _FRONT.match(text)
        below = os.path.dirname(self._finder.find(name).path)
        return self.nodes(text, front.end() if front else 0, below, depth + 1)


def _optional_properties(settings: dict[str, Any]) -> frozenset[str]:
    """Return the properties that the input schema declares and does not require."""
    schema = settings.get("input_schema")
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return frozenset()
    required = schema.get("required")
    return frozenset(schema["properties"]).difference(required if isinstance(required, list) else ())
