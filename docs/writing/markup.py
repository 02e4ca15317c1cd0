"""Helpers for the reference pages: types in JSON terms, tables of settings, headings."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from agentv.datasets.case.keys import (
    ExecutionKeys,
    HookKeys,
    HooksKeys,
    PromptEntry,
    RepositoryKeys,
    TargetKeys,
    TrialKeys,
    TurnKeys,
    UserKeys,
    WorkspaceKeys,
)
from agentv.model.evaluator import Verdicts
from agentv.model.message import ToolCall
from agentv.model.sandbox_settings import HostKey, SandboxSettings
from agentv.registry import Registry
from agentv.schemas import field_docs
from agentv.settings.settings_reader import RunDefaults, aliases_of

Kind = type[msgspec.Struct]
Lines = Iterator[str]

DOCS = Path(__file__).resolve().parent.parent
NOT_YET = "**This version reads and checks it and cannot run it.**"
BLOCKS: dict[str, Kind] = {
    "Tool call": ToolCall,
    "Execution": ExecutionKeys,
    "Trials": TrialKeys,
    "Target": TargetKeys,
    "Verdicts": Verdicts,
    "Prompt entry": PromptEntry,
    "Turn": TurnKeys,
    "User": UserKeys,
    "Workspace": WorkspaceKeys,
    "Hooks": HooksKeys,
    "Hook": HookKeys,
    "Repository": RepositoryKeys,
    "Run defaults": RunDefaults,
    "Sandbox settings": SandboxSettings,
    "Host key": HostKey,
}


WORKSPACE_BLOCKS: tuple[Kind, ...] = (WorkspaceKeys, HooksKeys, HookKeys, RepositoryKeys)
SANDBOX_BLOCKS: tuple[Kind, ...] = (SandboxSettings, HostKey)
PAGES = {**dict.fromkeys(WORKSPACE_BLOCKS, "workspaces.md"), **dict.fromkeys(SANDBOX_BLOCKS, "sandbox.md")}
"""The pages of structs that are not described where they are used."""


def meaning_of(kind: Kind, field: FieldInfo) -> str:
    """Return what a field means: its docstring. Raise ValueError if it has none."""
    docs = field_docs(kind)
    if field.name not in docs:
        raise ValueError(f"{kind.__name__}.{field.name} has no docstring, which the reference needs")
    return docs[field.name]


def setting_table(kind: Kind, bases: tuple[Kind, ...], has_meanings: bool = False) -> Lines:
    """Yield a row for each setting, and the aliases of inherited settings."""
    inherited = [field for base in bases for field in fields(base)]
    own = sorted((field for field in fields(kind) if field not in inherited), key=lambda field: not field.required)
    known = {alias for base in bases for alias in aliases_of(base)}
    renamed = {alias: name for alias, name in aliases_of(kind).items() if alias not in known}
    if own:
        more = (" meaning |", "---|") if has_meanings else ("", "")
        yield from (f"| setting | type | default |{more[0]} other names |", f"|---|---|---|{more[1]}---|")
    for field in own:
        meaning = f" {meaning_of(kind, field)} |" if has_meanings else ""
        others = code(other_names(kind, field))
        is_members = field.name == getattr(kind, "members_field", None)
        type_ = "list of [entries](../evaluators.md#every-entry)" if is_members else type_words(field.type)
        yield f"| {key_cell(field)} | {type_} | {_default(field)} |{meaning} {others} |"
    if not fields(kind):
        yield "It has no settings."
    for field in inherited:
        names = [alias for alias, name in renamed.items() if name == field.encode_name]
        if names and field not in own and kind not in bases and field in fields(kind):
            yield from ("", f"{code(names)}: other names of `{field.encode_name}`.")


def refused_besides(kind: Any, common: Mapping[str, str]) -> Lines:
    """Yield the keys that a kind rejects itself."""
    refused = {key: reason for key, reason in kind.unsupported.items() if key not in common}
    if refused:
        yield from ("", *reasons(refused, "refused key"))


def reasons(refused: Mapping[str, str], heading: str = "key") -> Lines:
    """Yield rejected keys or types, and what to do instead."""
    yield from (f"| {heading} | what to do |", "|---|---|")
    for key, reason in refused.items():
        yield f"| `{key}` | {cell(reason.removeprefix('This is a setting of AgentV (TypeScript). '))} |"


def block(kind: Kind) -> Lines:
    """Yield a struct inside settings, with its own heading."""
    yield from ("", f"### {title_of(kind)}", "", inspect.cleandoc(str(kind.__doc__)), "", *setting_table(kind, ()))


def also_written(registry: Registry, name: str) -> str:
    """Return the aliases of a kind."""
    return code(alias for alias, meant in registry.aliases().items() if meant == name)


def key_cell(field: FieldInfo) -> str:
    """Return a key, and whether it is required."""
    return f"`{field.encode_name}`" + (" (required)" if field.required else "")


def other_names(kind: Kind, field: FieldInfo) -> list[str]:
    """Return the aliases of a field."""
    return [alias for alias, name in aliases_of(kind).items() if name == field.encode_name]


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value is msgspec.NODEFAULT or value in ("", ()):
        return ""
    if isinstance(value, tuple):
        return code(value, " ")
    return f"`{msgspec.json.encode(value).decode().strip(chr(34)).removesuffix('.0')}`"


def type_words(type_: Any) -> str:
    """Describe a type in JSON terms, including bounds."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return f"{type_words(arguments[0])}{_bounds(arguments[1])}"
    if origin in (Union, UnionType):
        words = dict.fromkeys(type_words(option) for option in arguments if option is not NoneType)
        return " or ".join(word for word in words if word != "integer" or "number" not in words)
    if origin is Literal:
        return code((word for word in arguments if word.replace("-", "_") == word), " or ")
    if origin is tuple and Ellipsis not in arguments:
        return f"list of {len(arguments)}, each {type_words(arguments[0])}"
    if origin in (list, tuple):
        return f"list of {_inside(arguments[0])}"
    if origin is dict:
        return "object" if arguments[1] is Any else f"object of {_inside(arguments[1])}"
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return f"[{title_of(type_).lower()}]({PAGES.get(type_, '')}#{slug(title_of(type_))})"
    return {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any JSON"}[type_]


def _inside(type_: Any) -> str:
    words = type_words(type_)
    return f"{words}s" if words.isalpha() else f"({words})" if " or " in words else words


def _bounds(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f" from {meta.ge} to {meta.le}"
    signs = {" ≥ ": meta.ge, " > ": meta.gt, " ≤ ": meta.le, " < ": meta.lt}
    least = "" if meta.min_length is None else f", at least {meta.min_length}"
    return "".join(f"{sign}{bound}" for sign, bound in signs.items() if bound is not None) + least


def structs_in(kind: Kind) -> Iterator[Kind]:
    """Yield the structs inside a struct, recursively."""
    for field in fields(kind):
        yield from _structs_of(field.type)


def _structs_of(type_: Any) -> Iterator[Kind]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        yield type_
        yield from structs_in(type_)
    for argument in get_args(type_) if get_origin(type_) is not Literal else ():
        yield from _structs_of(argument)


def title_of(kind: Kind) -> str:
    """Return the name of a class as a heading: `RubricItem` becomes "Rubric item"."""
    titles = {block: title for title, block in BLOCKS.items()}
    spaced = "".join(f" {char.lower()}" if char.isupper() else char for char in kind.__name__).strip()
    return titles.get(kind, spaced[:1].upper() + spaced[1:])


def slug(heading: str) -> str:
    """Return the anchor of a heading."""
    return heading.lower().replace(" ", "-")


def code(names: Iterable[Any], between: str = ", ") -> str:
    """Format names as code."""
    return between.join(f"`{name}`" for name in names)


def cell(text: str) -> str:
    """Escape text for a table cell."""
    return text.replace("|", "\\|")
