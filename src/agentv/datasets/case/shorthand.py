"""Read `input` and `expected_output` as messages, also those of a suite, and recognize AgentMark rows."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.datasets.case.keys import LIST_KEYS, OUTCOME_KEYS
from agentv.datasets.files import FileError, FileFinder, is_address
from agentv.datasets.variables import inserter, replace_texts
from agentv.model.diagnostics import KeyPath, Problems, did_you_mean, type_word
from agentv.model.message import PART_KINDS, ROLES, FilePart, ImagePart, Message, Part, TextPart, ToolCall
from agentv.model.values import freeze
from agentv.settings.settings_reader import read_settings, read_value
from agentv.support.hash_table import PackedIds

if TYPE_CHECKING:
    from json import JSONEncoder


_MESSAGE_KEYS = ("role", "content", "tool_calls", "name")
_PART_KEYS = ("type", "value")
_ROLE_LIST = ", ".join(ROLES)
_SHAPES = 'Write a string, or a list of messages such as [{"role": "user", "content": "…"}]'


class MessageReader(msgspec.Struct, frozen=True):
    """Reads messages for one dataset, and finds and hashes the files they name."""

    finder: FileFinder

    def expected_output(self, value: Any, path: KeyPath, problems: Problems) -> str | tuple[Message, ...]:
        """Read the reference: text, messages, or any other JSON value as the content of one assistant message."""
        if isinstance(value, str):
            return value
        first = value[0] if isinstance(value, list) and value else value
        if is_message(first):
            is_list = first is not value
            return self.messages(value if is_list else [value], path, problems, single=not is_list)
        if isinstance(first, dict) and isinstance(first.get("role"), str) and "content" in first:
            read_as = "the content of one assistant message"
            problems.warning(path, f"Role {first['role']!r} is not one of {_ROLE_LIST}; the value is read as {read_as}")
        return (Message("assistant", freeze(value)),)

    def input(self, value: Any, path: KeyPath, problems: Problems) -> str | tuple[Message, ...]:
        """Read an input that is text or messages, not variables."""
        if isinstance(value, str):
            return value
        if is_message(value):
            return self.messages([value], path, problems, single=True)
        if not isinstance(value, list):
            problems.wrong_type(path, "a string, an array of messages or an object", value, _SHAPES)
            return ()
        return self.messages(value, path, problems)

    def messages(
        self, items: list[Any], path: KeyPath, problems: Problems, *, single: bool = False
    ) -> tuple[Message, ...]:
        """Read every item as a message; `single` means that `path` is the path of the only item."""
        read = [self._message(item, path if single else (*path, index), problems) for index, item in enumerate(items)]
        return tuple(message for message in read if message is not None)

    def _message(self, data: Any, path: KeyPath, problems: Problems) -> Message | None:
        if not isinstance(data, dict):
            problems.wrong_type(path, "a message", data, _SHAPES)
            return None
        if (role := data.get("role")) not in ROLES:
            if role is None:
                problems.missing((*path, "role"), _SHAPES)
                return None
            actual, hint = (repr(role), did_you_mean(role, ROLES)) if isinstance(role, str) else (type_word(role), "")
            problems.error((*path, "role"), f"The role of a message must be one of {_ROLE_LIST}, got {actual}", hint)
            return None
        note_unknown(data, "message", _MESSAGE_KEYS, path, problems)
        content, calls, name = data.get("content"), data.get("tool_calls"), data.get("name")
        if content is None and calls is None:
            problems.error(path, "A message needs 'content' or 'tool_calls'")
        if name is not None and not isinstance(name, str):
            problems.wrong_type((*path, "name"), "a string", name)
        return Message(
            role,
            self._content(content, (*path, "content"), problems),
            self._tool_calls(calls, (*path, "tool_calls"), problems),
            name,
        )

    def _content(self, content: Any, path: KeyPath, problems: Problems) -> Any:
        if isinstance(content, list):
            parts = [self._part(item, (*path, index), problems) for index, item in enumerate(content)]
            return tuple(part for part in parts if part is not None)
        if content is not None and not isinstance(content, str | dict):
            problems.wrong_type(path, "a string, an object or an array of parts", content)
            return None
        return freeze(content)

    def _part(self, data: Any, path: KeyPath, problems: Problems) -> Part | None:
        if isinstance(data, str):
            return TextPart(data)
        if not isinstance(data, dict):
            problems.wrong_type(path, 'a string or an object such as {"type": "text", "value": "…"}', data)
            return None
        kind = PART_KINDS.get(data["type"]) if isinstance(data.get("type"), str) else None
        if kind is None:
            actual = f"got {data['type']!r}" if "type" in data else "but it is missing"
            problems.error((*path, "type"), f"The type of a part must be one of {', '.join(PART_KINDS)}, {actual}")
            return None
        if data.get("value") is None:
            other = next((key for key in data if key not in _PART_KEYS), None)
            hint = f"Put the text or file name in 'value', not in '{other}'" if other else ""
            problems.missing((*path, "value"), hint)
            return None
        if not isinstance(data["value"], str):
            problems.wrong_type((*path, "value"), "a string", data["value"])
            return None
        note_unknown(data, "part", _PART_KEYS, path, problems)
        return TextPart(data["value"]) if kind is TextPart else self._located(kind, data["value"], path, problems)

    def _located(self, kind: type[Part], value: str, path: KeyPath, problems: Problems) -> Part | None:
        if kind is ImagePart and is_address(value):
            return ImagePart(value)
        try:
            file = self.finder.find(value)
        except FileError as error:
            problems.error((*path, "value"), error.message, error.hint)
            return None
        if not os.path.getsize(file.path):
            problems.warning((*path, "value"), f"File '{value}' is empty")
        return (ImagePart if kind is ImagePart else FilePart)(value, file.digest, file.path)

    def _tool_calls(self, calls: Any, path: KeyPath, problems: Problems) -> tuple[ToolCall, ...]:
        if calls is None:
            return ()
        if not isinstance(calls, list):
            problems.wrong_type(path, "an array", calls)
            return ()
        read = [_tool_call(call, (*path, index), problems) for index, call in enumerate(calls)]
        return tuple(call for call in read if call is not None)


def is_message(value: Any) -> bool:
    """Whether a value looks like a message: a known role, and content or tool calls."""
    return isinstance(value, dict) and value.get("role") in ROLES and ("content" in value or "tool_calls" in value)


def is_plain_text(messages: Any) -> bool:
    """Whether there are messages and all contain only text: nothing to resolve or freeze."""
    return bool(messages) and all(type(message.content) is str and not message.tool_calls for message in messages)


def _tool_call(data: Any, path: KeyPath, problems: Problems) -> ToolCall | None:
    if not isinstance(data, dict):
        problems.wrong_type(path, 'an object such as {"tool": "Read", "input": {…}}', data)
        return None
    if "tool" not in data and isinstance(data.get("function"), dict):
        hint = 'Write {"tool": name, "input": arguments}'
        problems.error(path, "A tool call needs 'tool'; this one has the format of a chat API", hint)
        return None
    return read_settings(ToolCall, {key: freeze(value) for key, value in data.items()}, path, problems)


def note_unknown(data: dict[str, Any], noun: str, keys: tuple[str, ...], path: KeyPath, problems: Problems) -> None:
    """Warn about the unknown keys of a message, a part or a turn."""
    for key in data:
        if key not in keys:
            hint = did_you_mean(key, keys) or f"A {noun} has {', '.join(keys)}"
            problems.warning((*path, key), f"Unknown field '{key}' in a {noun}", hint, topic=f"{noun}.{key}")


AGENTMARK = "agentmark"
_OURS = ("id", *OUTCOME_KEYS)


def is_agentmark_row(row: Any) -> bool:
    """Whether the first row of a JSONL file has the shape of an AgentMark row."""
    return holds_variables(row) and not any(key in row for key in _OURS)


def is_result(row: Any) -> bool:
    """Whether a row looks like a record of a run: ours, or an output item of OpenAI's hosted Evals."""
    if not isinstance(row, dict):
        return False
    return ("score" in row and ("eval_id" in row or "test_id" in row)) or "datasource_item" in row


def foreign_note(row: dict[str, Any], keys: frozenset[str]) -> str:
    """Return a line about a row that lacks a key because it is not a case of ours; empty for a row of our keys."""
    if is_result(row):
        return "\nThis looks like a results file, not a dataset"
    is_ours = row.keys() <= keys
    return "" if is_ours else "\nFor other names, `agentv cases FILE --guess` proposes which field is what"


def outcome_notes(row: dict[str, Any], settings_file: str) -> str:
    """Return lines about where a case may omit its expected outcome."""
    notes = ""
    if any(row.get(key) for key in ("expected_output", *LIST_KEYS)):
        notes += "\nIt describes a good answer. A case with a reference or evaluators may omit it if the cases are "
        notes += "under 'tests', such as `tests: ./cases.jsonl` in a YAML file"
    if "id" in row and holds_variables(row):
        notes += f"\nAgentMark rows may omit it: set 'format: agentmark' in {settings_file}"
    return notes


def holds_variables(row: Any) -> bool:
    """Whether a row's input is an object of variables, not a message."""
    return isinstance(row, dict) and isinstance(row.get("input"), dict) and not is_message(row["input"])


@cache
def _canonical_encoder() -> JSONEncoder:
    from json import JSONEncoder  # late: only AgentMark rows need it

    return JSONEncoder(sort_keys=True, separators=(",", ":"))


class ItemIds:
    """Ids of AgentMark rows, computed from their input as AgentMark does; a repeated id gets `-2`, `-3` and so on."""

    def __init__(self) -> None:
        self._seen = PackedIds()
        self._counts: dict[str, int] = {}

    def id_for(self, value: Any) -> str:
        """Return the id of the next row, which has this input."""
        return self.id_for_json(_canonical_encoder().encode(value))

    def id_for_json(self, text: str) -> str:
        """Return the id of the next row, which has this input as JSON with sorted keys, in ASCII, without spaces."""
        name = hashlib.md5(text.encode("ascii"), usedforsecurity=False).hexdigest()[:12]
        if not self._seen.repeats((name,)):
            return name
        self._counts[name] = self._counts.get(name, 1) + 1
        return f"{name}-{self._counts[name]}"

    def distinct(self, name: str) -> str:
        """Return a row's own id, with the same suffixes if an earlier row has it."""
        if not self._seen.repeats((name,)):
            return name
        while True:
            self._counts[name] = self._counts.get(name, 1) + 1
            distinct = f"{name}-{self._counts[name]}"
            if not self._seen.repeats((distinct,)):
                return distinct


def row_problems(row: dict[str, Any], problems: Problems) -> None:
    """Report violations of AgentMark's own rules."""
    value, expected = row.get("input"), row.get("expected_output")
    if value is not None and (not isinstance(value, dict) or is_message(value)):
        actual = "message" if is_message(value) else type_word(value)
        problems.error(("input",), f"AgentMark's 'input' must be an object of variables, got {actual}")
    if expected is not None and not isinstance(expected, str):
        message = f"AgentMark's 'expected_output' must be a string, got {type_word(expected)}"
        problems.error(("expected_output",), message, "Write JSON as a string")


class SuiteInput(msgspec.Struct, frozen=True):
    """The shared messages and files. `template` is the input as written if it may name variables of a case."""

    messages: tuple[Message, ...] = ()
    files: tuple[str, ...] = ()
    template: Any = None

    def messages_for(self, row: dict[str, Any], reader: MessageReader) -> tuple[Message, ...]:
        """Return the shared messages for one case, with its variables inserted."""
        variables = row.get("vars")
        if self.template is None or not isinstance(variables, dict):
            return self.messages
        value = replace_texts(self.template, inserter(variables, Problems()))
        return _input_messages(value, reader, Problems())


NO_INPUT = SuiteInput()


def read_suite_input(data: dict[str, Any], reader: MessageReader, problems: Problems) -> SuiteInput:
    """Read `input` and `input_files` of a suite."""
    value, files = data.get("input"), data.get("input_files")
    if value is None and files is None:
        return NO_INPUT
    names = read_value(tuple[str, ...], files, ("input_files",), problems) if files is not None else ()
    for index, name in enumerate(names or ()):
        if "{{" not in name:
            with_files([name], "", ("input_files", index), reader, problems)
    messages = () if value is None else _input_messages(value, reader, problems)
    return SuiteInput(messages, tuple(names or ()), value if _is_template(value) else None)


def with_files(
    files: list[str], text: str, path: tuple[str | int, ...], reader: MessageReader, problems: Problems
) -> tuple[Message, ...]:
    """Return one user message: the files, then the text. A file that cannot be used is an error at `path`."""
    parts: list[Any] = [{"type": "file", "value": name} for name in files]
    file_problems = Problems()
    messages = reader.messages([{"role": "user", "content": [*parts, text]}], path, file_problems)
    for problem in file_problems:
        problems.append(msgspec.structs.replace(problem, path=path))
    return messages


def _is_template(value: Any) -> bool:
    """Whether any text may name a variable."""
    if isinstance(value, dict | list):
        return any(map(_is_template, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and "{{" in value


def _input_messages(value: Any, reader: MessageReader, problems: Problems) -> tuple[Message, ...]:
    if isinstance(value, dict) and not is_message(value):
        value = [{"role": "user", "content": value}]
    read = reader.input(value, ("input",), problems)
    return (Message("user", read),) if isinstance(read, str) else read


def read_cluster(row: dict[str, Any], shared: str | None, problems: Problems) -> str | None:
    """Return the `cluster` of a row, or else the dataset's, where `{{ metadata.document }}` is a value of the row."""
    if row.get("cluster") is not None:
        own = read_value(str | int, row["cluster"], ("cluster",), problems)
        return None if own is None else str(own)
    if shared is None or "{{" not in shared:
        return shared
    from agentv.support.templates import TemplateProblem, render  # late: minijinja is slow to import

    values = {"id": row.get("id"), "metadata": row.get("metadata") or {}, "vars": row.get("vars") or {}}
    try:
        return render(shared, values)
    except TemplateProblem as problem:
        problems.error(("cluster",), f"The dataset's 'cluster' cannot be rendered: {problem}", f"It is '{shared}'")
        return None
