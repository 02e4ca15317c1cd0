"""Writes the pages of docs/reference from the commands, the key structs and the registry: `python docs/generate.py`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
import msgspec
from msgspec.structs import FieldInfo

from agentv.cli import cli
from agentv.config import ProjectConfig, RunDefaults
from agentv.datasets.keys import (
    CASE_LIST_KEYS,
    CaseKeys,
    ExecutionKeys,
    HeaderKeys,
    PromptEntry,
    TurnKeys,
    UserKeys,
    WorkspaceKeys,
)
from agentv.evaluators.base import RESERVED
from agentv.model.execution import Verdicts
from agentv.model.message import PART_KINDS, ROLES, ToolCall
from agentv.registry import EVALUATORS, TARGETS, Registry
from agentv.settings import aliases_of
from agentv.targets.agents import CodingAgent
from agentv.targets.base import ModelApi, Target
from agentv.targets.cli import PLACEHOLDERS

Kind = type[msgspec.Struct]
Lines = Iterator[str]

FOLDER = Path(__file__).resolve().parent / "reference"
_NOTE = "<!-- Written by docs/generate.py. Change the code, then run it. -->"

_MEANINGS: dict[Kind, dict[str, str]] = {
    CaseKeys: {
        "id": "the case's name, unique in its dataset; an integer counts as the text it is written as",
        "expected_outcome": "what a good answer does, in words",
        "input": "what the target is asked: see [shorthand](../datasets.md#shorthand)",
        "expected_output": "a reference answer: see [shorthand](../datasets.md#shorthand)",
        "conversation_id": "cases of one conversation share it",
        "execution": "how this case runs; key by key over the dataset's",
        "evaluators": "what scores it; replaces the dataset's list; `[]` means nothing does",
        "evaluator": "one type, when there is no list",
        "rubrics": "what a judge checks item by item: one rubric, put before the other evaluators",
        "context": "retrieved passages, for evaluators that judge against them",
        "prompt": "a template for this case's variables: text, messages, or a file",
        "turns": "user turns that follow the input",
        "user": "a simulated user",
        "workspace": "a folder for the target to work in",
        "description": "a note for people",
        "metadata": "data of your own, kept and filterable",
        "tags": "labels, kept and filterable",
    },
    HeaderKeys: {
        "dataset": "the display name; without it, the file's base name",
        "description": "a note for people",
        "execution": "how the cases run",
        "target": "old spelling of `execution.target`",
        "evaluator": "one type, when there is no list",
        "evaluators": "what scores the cases that name nothing themselves",
        "prompt": "a template for cases whose input is an object: text, messages, or a file",
        "prompts": "several templates; each makes a variant of every case",
        "format": "`agentmark` makes `id` and `expected_outcome` optional",
        "metadata": "goes into every case; a case's own keys win",
        "tags": "go into every case, before its own",
        "$schema": "for editors; has no effect",
        "version": "for people; has no effect",
    },
    ExecutionKeys: {
        "target": "the target that answers",
        "targets": "several targets; each answers every case",
        "evaluators": "as `evaluators` beside it, and stronger",
        "inherit_evaluators": "in a case: its list is added to the dataset's",
        "trials": "how often each case is asked",
        "timeout_seconds": "how long one answer may take",
        "verdicts": "from which score on a case passes",
        "thresholds": "per evaluator, the lowest mean score of a run",
    },
    Verdicts: {
        "pass": "from this score on a case passes",
        "borderline": "from this score on it is borderline",
    },
    PromptEntry: {
        "id": "the variant's name",
        "prompt": "text, messages, or a file",
    },
    TurnKeys: {
        "input": "what the user says: as `input` of a case, without variables",
        "expected_output": "a reference for the reply",
        "evaluators": "what scores the reply",
    },
    UserKeys: {
        "target": "the target that plays the user",
        "persona": "who the user is",
        "goal": "what the user wants",
        "max_turns": "after so many turns the conversation ends",
        "stop": "a text that ends the conversation",
    },
    WorkspaceKeys: {
        "template": "the folder to copy",
        "setup": "commands before the target starts",
        "teardown": "commands after it has ended",
        "keep": "whether the copy stays",
    },
    ToolCall: {
        "tool": "the tool's name",
        "input": "its arguments",
        "output": "what it returned",
        "id": "the call's own name",
        "timestamp": "when it was made",
        "duration_ms": "how long it took",
    },
    ProjectConfig: {
        "$schema": "for editors; has no effect",
        "version": "for people; has no effect",
        "guideline_patterns": "globs over paths relative to the project root; a file that fits is a guideline",
        "execution": "what a run takes where nothing else is said",
    },
    RunDefaults: {
        "target": "the target that answers",
        "workers": "how many cases at a time",
        "trials": "how often each case is asked",
        "timeout_seconds": "how long one answer may take",
        "max_retries": "how often a failed call is made again",
        "verdicts": "from which score on a case passes",
    },
}

_ENTRY: dict[str, tuple[str, str]] = {
    "type": ("string", "one of the types below; `not-` before it turns the score around"),
    "name": ("string", "how results call it; without it, the type"),
    "metric": ("string", "the same as `name`"),
    "weight": ("number ≥ 0", "its share in the case's score; 1 without it"),
    "required": ("boolean or number from 0 to 1", "the case fails when this evaluator does, or scores below the number"),
    "negate": ("boolean", "turns the score around"),
    "transform": ("object", "what cleans the answer before this evaluator sees it"),
    "target": ("string or list of strings", "the judge, or several judges"),
}


def pages() -> dict[str, str]:
    """Every page by its file name."""
    builders = {"cli.md": _cli, "keys.md": _keys, "evaluators.md": _evaluators, "targets.md": _targets}
    return {name: "\n".join([_NOTE, "", *build()]).rstrip() + "\n" for name, build in builders.items()}


def main() -> None:
    """Writes the pages where the repository has them."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")


def _cli() -> Lines:
    yield from ("# Commands", "", str(cli.help), "", *_options(cli), "")
    yield from ("| command | what it does |", "|---|---|")
    context = click.Context(cli, info_name="agentv")
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    for name, command in commands.items():
        assert command is not None
        yield f"| [`agentv {name}`](#agentv-{name}) | {_first_line(str(command.help))} |"
    yield from ("", "Data goes to standard output, messages to standard error. Exit codes:", "")
    yield from ("| code | meaning |", "|---|---|")
    yield from ("| 0 | all went well |", "| 1 | `agentv validate` has findings |")
    yield from ("| 2 | wrong usage, or a dataset that cannot be loaded |", "| 130 | interrupted |")
    for name, command in commands.items():
        assert command is not None
        yield from _command(name, command)


def _command(name: str, command: click.Command) -> Lines:
    arguments = [str(param.name).upper() for param in command.params if isinstance(param, click.Argument)]
    yield from ("", f"## agentv {name}", "", f"`{' '.join(['agentv', name, '[OPTIONS]', *arguments])}`", "")
    for paragraph in inspect.cleandoc(str(command.help)).split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.split("\n")[1:], "```", "")
        else:
            yield from (" ".join(paragraph.split("\n")), "")
    for param in command.params:
        if isinstance(param, click.Argument) and isinstance(param.type, click.Choice):
            yield from (f"`{str(param.name).upper()}` is {_choices(param.type.choices)}.", "")
    yield from _options(command)
    if command.epilog:
        lines = command.epilog.removeprefix("\b\n").split("\n")
        yield from ("", "```text", *(part for line in lines for part in line.split("  ·  ")), "```")


def _options(command: click.Command) -> Lines:
    yield from ("| option | value | meaning |", "|---|---|---|")
    for param in command.params:
        if isinstance(param, click.Option):
            meaning = str(param.help or _hidden_help(param))
            if param.show_default and not param.is_flag:
                meaning += f" Default: `{param.default}`."
            yield f"| {_code(sorted(param.opts, key=len))} | {_option_value(param)} | {_cell(meaning)} |"
    yield "| `-h` `--help` |  | Show the help and exit. |"


def _hidden_help(option: click.Option) -> str:
    """An option that a command's own help leaves out says what it means at another command."""
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        for param in command.params if command else ():
            if isinstance(param, click.Option) and param.name == option.name and param.help:
                return param.help
    raise ValueError(f"{option.opts[0]} has no help")


def _option_value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return _choices(option.type.choices)
    if option.metavar:
        return _cell(f"`{option.metavar}`")
    if isinstance(option.type, click.IntRange):
        return f"integer ≥ {option.type.min}"
    return "integer" if option.type is click.INT else "text"


def _keys() -> Lines:
    yield from ("# Keys of datasets, sidecars and configuration", "")
    yield "Generated from the types that files are read into. The guide is [datasets.md](../datasets.md)."
    yield "`null` means the same as leaving a key out. The same as JSON Schema: `agentv schema dataset`, `line`,"
    yield "`sidecar`, `config`."
    yield from ("", "## Dataset", "")
    yield f"A YAML document lists its cases under `{CASE_LIST_KEYS[0]}` ({_code(CASE_LIST_KEYS[1:])} are read as the"
    yield "same). The other keys of the document are also the keys of a sidecar:"
    yield from ("", *_table(HeaderKeys), "", *_refused(HeaderKeys))
    informational = _code(HeaderKeys.informational)
    yield from ("", f"{informational} are taken with a warning: they have no effect.")
    yield from ("", "## Case", "", *_table(CaseKeys), "", *_refused(CaseKeys))
    yield from ("", "## Message", "", "| key | type |", "|---|---|")
    yield from (f"| `role` (required) | {_code(ROLES, ' or ')} |", "| `content` | string, object, or list of parts |")
    yield from ("| `tool_calls` | list of [tool calls](#tool-call) |", "| `name` | string |")
    yield from ("", "A message has `content`, `tool_calls`, or both. A part is a string, or an object with")
    yield f"`type` ({_code(PART_KINDS, ' or ')}) and `value`, a string."
    sections: dict[str, Kind] = {
        "Tool call": ToolCall,
        "Execution": ExecutionKeys,
        "Verdicts": Verdicts,
        "Prompt entry": PromptEntry,
        "Turn": TurnKeys,
        "User": UserKeys,
        "Workspace": WorkspaceKeys,
    }
    for title, kind in sections.items():
        yield from ("", f"## {title}", "", *_table(kind))
        if getattr(kind, "unsupported", None):
            yield from ("", *_refused(kind))
    yield from ("", "## Configuration", "", "The file `.agentv/config.yaml`:", "", *_table(ProjectConfig))
    yield from ("", "Its `execution`:", "", *_table(RunDefaults))


def _evaluators() -> Lines:
    if set(_ENTRY) != set(RESERVED):
        raise ValueError(f"keys of an entry: documented {sorted(_ENTRY)}, reserved {sorted(RESERVED)}")
    yield from ("# Evaluators", "")
    yield "These are the settings that files are checked against. This version reads and checks evaluators;"
    yield "it does not run them."
    yield from ("", "An entry of `evaluators` is a string, which is an item of a rubric, or an object:", "")
    yield from ("```yaml", "evaluators:", "  - Greets the user", "  - type: contains", "    value: hello", "```", "")
    yield from ("## Every entry", "", "| key | type | meaning |", "|---|---|---|")
    yield from (f"| `{key}` | {type_} | {meaning} |" for key, (type_, meaning) in _ENTRY.items())
    yield from ("", "A type may be written in snake_case or kebab-case, a setting in camelCase too. A type")
    yield "`file.py:Class` is yours: the file must be there, and its settings are not checked."
    yield from ("", *_index(EVALUATORS))
    refused: dict[str, str] = {}
    inner: dict[str, Kind] = {}
    for name in EVALUATORS.names():
        kind = EVALUATORS.find(name)
        yield from ("", f"## {name}", "", *_about(EVALUATORS, name, kind), *_settings(kind, ()))
        refused |= kind.unsupported
        inner |= {struct.__name__: struct for struct in _structs_in(kind)}
    yield from _inner_blocks(inner)
    yield from ("", "## Keys that are refused", "", *_reasons(refused))


def _targets() -> Lines:
    yield from ("# Targets", "")
    yield "These are the settings that files are checked against. This version reads and checks targets;"
    yield "it does not call them."
    yield from ("", "A targets file is `.agentv/targets.yaml`, or `targets.yaml` beside a dataset:", "")
    yield from ("```yaml", "targets:", "  - name: default", "    provider: openai", "    model: gpt-5-mini")
    yield from ("    api_key: ${{ OPENAI_API_KEY }}", "```", "")
    yield "`${{ NAME }}` stands for an environment variable, in any setting. It is not looked up when a file is"
    yield "checked. An unknown key is an error. A setting may be written in camelCase or kebab-case too."
    yield from ("", *_index(TARGETS))
    shared: dict[str, Kind] = {
        "Every target": Target,
        "Every model API": ModelApi,
        "Every coding agent": CodingAgent,
    }
    for title, kind in shared.items():
        base = () if kind is Target else (Target,)
        yield from ("", f"## {title}", "", *_settings(kind, base))
    refused: dict[str, str] = {}
    inner: dict[str, Kind] = {}
    for name in TARGETS.names():
        kind = TARGETS.find(name)
        bases = tuple(base for base in shared.values() if issubclass(kind, base))
        taken = " and ".join(f"[{title.lower()}](#{_slug(title)})" for title, base in shared.items() if base in bases)
        yield from ("", f"## {name}", "", *_about(TARGETS, name, kind), f"Settings of {taken}", "")
        yield from _settings(kind, bases)
        refused |= kind.unsupported
        inner |= {struct.__name__: struct for struct in _structs_in(kind)}
    yield from ("", "### Placeholders", "", "In `command_template`: " + _code(f"{{{name}}}" for name in PLACEHOLDERS))
    yield from _inner_blocks(inner)
    yield from ("", "## Keys that are refused", "", "Unless a provider lists the key above.", "", *_reasons(refused))


def _index(registry: Registry) -> Lines:
    yield " · ".join(f"[{name}](#{_slug(name)})" for name in registry.names())


def _about(registry: Registry, name: str, kind: Kind) -> Lines:
    yield from (*_paragraphs(str(kind.__doc__)), "")
    others = [alias for alias, meant in registry.aliases().items() if meant == name]
    if others:
        yield from (f"Also written {_code(others)}.", "")


def _settings(kind: Kind, bases: tuple[Kind, ...]) -> Lines:
    inherited = [field for base in bases for field in msgspec.structs.fields(base)]
    own = [field for field in msgspec.structs.fields(kind) if field not in inherited]
    if not own:
        yield "No settings of its own."
        return
    yield from ("| setting | type | default | other names |", "|---|---|---|---|")
    for field in own:
        yield f"| {_key(field)} | {_type(field.type)} | {_default(field)} | {_code(_others(kind, field))} |"


def _inner_blocks(kinds: Mapping[str, Kind]) -> Lines:
    if kinds:
        yield from ("", "## Blocks inside settings")
    for name, kind in kinds.items():
        yield from ("", f"### {_words(name)}", "", *_paragraphs(str(kind.__doc__)), "", *_settings(kind, ()))


def _table(kind: Kind) -> Lines:
    meanings = _MEANINGS[kind]
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    if set(fields) != set(meanings):
        raise ValueError(f"keys of {kind.__name__}: documented {sorted(meanings)}, declared {sorted(fields)}")
    yield from ("| key | type | meaning | other names |", "|---|---|---|---|")
    for key, field in fields.items():
        yield f"| {_key(field)} | {_type(field.type)} | {meanings[key]} | {_code(_others(kind, field))} |"


def _refused(kind: Kind) -> Lines:
    yield from ("Known and refused, with the reason:", "", *_reasons(getattr(kind, "unsupported", {})))


def _reasons(refused: Mapping[str, str]) -> Lines:
    yield from ("| key | what to do |", "|---|---|")
    for key, reason in refused.items():
        yield f"| `{key}` | {_cell(reason.removeprefix('It is a setting of AgentV 4.x or 5.x. '))} |"


def _key(field: FieldInfo) -> str:
    return f"`{field.encode_name}`" + (" (required)" if field.required else "")


def _default(field: FieldInfo) -> str:
    if field.required or field.default in (None, msgspec.NODEFAULT):
        return ""
    value = field.default
    if isinstance(value, tuple | list | dict | str) and not value:
        return ""
    return _code(map(str, value), " ") if isinstance(value, tuple) else f"`{_json(value)}`"


def _json(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text.strip('"').removesuffix(".0")


def _others(kind: Kind, field: FieldInfo) -> list[str]:
    return [alias for alias, name in aliases_of(kind).items() if name == field.encode_name]


def _type(type_: Any) -> str:
    """A type in the words of JSON, bounds included."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return f"{_type(arguments[0])}{_bounds(arguments[1])}"
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(option) for option in arguments if option is not NoneType))
    if origin is Literal:
        return _code(arguments, " or ")
    if origin in (list, tuple):
        return _list(origin, arguments)
    if origin is dict:
        return "object" if arguments[1] is Any else f"object of {_plural(_type(arguments[1]))}"
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return f"[{_words(type_.__name__).lower()}](#{_slug(_words(type_.__name__))})"
    words = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any JSON"}
    return words[type_]


def _list(origin: Any, arguments: tuple[Any, ...]) -> str:
    if origin is tuple and Ellipsis not in arguments:
        return f"list of {len(arguments)}: {_type(arguments[0])} each"
    return f"list of {_plural(_type(arguments[0]))}"


def _plural(words: str) -> str:
    return " or ".join(f"{word}s" if word.isalpha() else word for word in words.split(" or "))


def _bounds(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f" from {meta.ge} to {meta.le}"
    signs = {" ≥ ": meta.ge, " > ": meta.gt, " ≤ ": meta.le, " < ": meta.lt}
    return "".join(f"{sign}{bound}" for sign, bound in signs.items() if bound is not None)


def _structs_in(kind: Kind) -> Lines | Iterator[Kind]:
    """The structs inside a struct's fields, those inside these included."""
    for field in msgspec.structs.fields(kind):
        yield from _structs_of(field.type)


def _structs_of(type_: Any) -> Iterator[Any]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        yield type_
        yield from _structs_in(type_)
    for argument in get_args(type_) if get_origin(type_) is not Literal else ():
        yield from _structs_of(argument)


_NAMES = {
    "ExecutionKeys": "Execution",
    "TurnKeys": "Turn",
    "UserKeys": "User",
    "WorkspaceKeys": "Workspace",
    "RunDefaults": "Configuration",
}


def _words(name: str) -> str:
    """A class's name as a heading: `RubricItem` is a rubric item."""
    if name in _NAMES:
        return _NAMES[name]
    spaced = "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
    return spaced[:1].upper() + spaced[1:]


def _slug(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def _paragraphs(docstring: str) -> Lines:
    yield from inspect.cleandoc(docstring).split("\n")


def _first_line(text: str) -> str:
    return inspect.cleandoc(text).split("\n", 1)[0]


def _choices(values: Iterable[Any]) -> str:
    return _code(values, " or ")


def _code(names: Iterable[Any], between: str = ", ") -> str:
    return between.join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
