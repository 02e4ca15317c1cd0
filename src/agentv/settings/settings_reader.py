"""Reads settings that users write into the struct that declares them, and says of every key what is wrong with it.

A struct's fields are its schema: evaluators, targets, execution and configuration are all checked here. Three
class attributes refine a struct: `aliases` (other spelling → field), `unsupported` (key of another tool →
why) and `hints` (field → what to do when its value is wrong).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from agentv.model.evaluator import Verdicts
from agentv.settings.diagnostics import KeyPath, Problems, did_you_mean, field_name, nearest, type_word

Settings = TypeVar("Settings", bound=msgspec.Struct)

_WORDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]+)`(?:, got `(?P<got>[^`]+)`)?")
_BOUNDS = {" >= ": " of at least ", " <= ": " of at most ", " > ": " greater than ", " < ": " less than "}
_WHERE = re.compile(r" - at `\$(?P<where>[^`]*)`$")


def read_settings(
    kind: type[Settings], data: Mapping[str, Any], path: KeyPath, problems: Problems, *, strict: bool = False
) -> Settings | None:
    """The settings in `data` as a `kind`, or None after noting at least one error.

    Null means absent. An unknown key is a warning, with `strict` an error; either has a did-you-mean. Of two names of
    one field the field's own is read, else the first.
    """
    before = len(problems.errors)
    values: dict[str, Any] = {}
    for key, value in data.items():
        field = field_of(kind, key)
        if field is None:
            _note_unknown(kind, key, (*path, key), problems, strict)
        elif value is not None:
            noted = len(problems)
            read = read_value(field.type, value, (*path, key), problems, strict=strict)
            _add_hint(kind, field.name, problems, noted)
            if key != field.encode_name and (field.name in values or data.get(field.encode_name) is not None):
                name, own = field_name((*path, key)), field_name((*path, field.encode_name))
                problems.warning((*path, key), f"Field '{name}' is ignored beside '{own}'")
            else:
                values[field.name] = read
    for field in _required(kind):
        if field.name not in values:
            meant = nearest(field.encode_name, [key for key in data if field_of(kind, key) is None])
            misspelt = f"There is '{meant}': did you mean '{field.encode_name}'?" if meant is not None else ""
            problems.missing((*path, field.encode_name), misspelt or _choices(field.type))
    contradiction = getattr(kind, "contradiction", None)
    if contradiction is not None and len(problems.errors) == before and (message := contradiction(values)):
        problems.error(path, message)
    return None if len(problems.errors) > before else kind(**values)


def read_value(type_: Any, value: Any, path: KeyPath, problems: Problems, *, strict: bool = False) -> Any:
    """One value as the type a field declares; notes an error and returns None when it is none."""
    struct, item_type = _struct_of(type_)
    if struct is not None and isinstance(value, dict):
        return read_settings(struct, value, path, problems, strict=strict)
    if item_type is not None and isinstance(value, list):
        before = len(problems.errors)
        value = [
            read_value(item_type, item, (*path, index), problems, strict=strict) for index, item in enumerate(value)
        ]
        if len(problems.errors) > before:
            return None
    if isinstance(value, float) and not math.isfinite(value):
        problems.error(path, f"Field '{field_name(path)}' must be a finite number, got {value}")
        return None
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        place, message = _in_our_words(str(error), path)
        problems.error(place, message, _choices(type_, value) if place == path else "")
        return None


def known_keys(kind: type[msgspec.Struct]) -> list[str]:
    """The keys a struct takes, as users write them."""
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def aliases_of(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """Other spellings that a struct takes, each with the field it means."""
    return getattr(kind, "aliases", {})


def field_of(kind: type[msgspec.Struct], key: str) -> msgspec.structs.FieldInfo | None:
    """The field a key means, by its name, an alias, or either in camelCase or kebab-case; None for an unknown key."""
    fields, aliases = _fields(kind), aliases_of(kind)
    for spelling in (key, _snake(key)):
        field = fields.get(spelling) or fields.get(aliases.get(spelling, ""))
        if field is not None:
            return field
    return None


def declares(kind: type[msgspec.Struct], path: KeyPath) -> bool:
    """Whether a path inside settings leads through known keys only; what is wrong at its end is then the value."""
    here: Any = kind
    for step in path:
        struct, item_type = _struct_of(here)
        if isinstance(step, int):
            here = item_type
        elif struct is not None:
            field = field_of(struct, step)
            if field is None:
                return False
            here = field.type
    return True


@cache
def _struct_of(type_: Any) -> tuple[type[msgspec.Struct] | None, Any]:
    """The struct that a field may hold, and the type of a list's items when these may be structs; None for neither."""
    struct, item_type = None, None
    for option in _options(type_):
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            struct = option
        elif get_origin(option) in (list, tuple):
            inner = get_args(option)[0]
            item_type = inner if _struct_of(inner) != (None, None) else None
    return struct, item_type


def _options(type_: Any) -> tuple[Any, ...]:
    """The members of a union, or the type alone; bounds taken off."""
    if get_origin(type_) is Annotated:
        type_ = get_args(type_)[0]
    if get_origin(type_) in (Union, UnionType):
        return tuple(option for member in get_args(type_) for option in _options(member))
    return (type_,)


def _choices(type_: Any, written: Any = "") -> str:
    """A hint for a closed set: the word that was probably meant, else all, each in one spelling."""
    words = [str(word) for option in _options(type_) if get_origin(option) is Literal for word in get_args(option)]
    if not words or not isinstance(written, str):
        return ""
    shown = [word for word in words if "-" not in word or word.replace("-", "_") not in words]
    return did_you_mean(written, words) or f"Known values: {', '.join(shown)}"


@cache
def _required(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return tuple(field for field in _fields(kind).values() if field.required)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _add_hint(kind: type[msgspec.Struct], field: str, problems: Problems, first: int) -> None:
    """Puts the hint that a struct gives for a field behind errors of type that have none of their own."""
    hint = getattr(kind, "hints", {}).get(field)
    for position in range(first, len(problems)) if hint else ():
        if not problems[position].hint and ", got " in problems[position].message:
            problems[position] = msgspec.structs.replace(problems[position], hint=hint)


def _note_unknown(kind: type[msgspec.Struct], key: str, path: KeyPath, problems: Problems, strict: bool) -> None:
    unsupported: Mapping[str, str] = getattr(kind, "unsupported", {})
    reason = unsupported.get(key) or unsupported.get(_snake(key))
    if reason is not None:
        problems.error(path, f"Field '{field_name(path)}' is not supported", reason)
        return
    hint = did_you_mean(key, known_keys(kind)) or f"Known fields: {', '.join(known_keys(kind))}"
    note = problems.error if strict else problems.warning
    note(path, f"Unknown field '{field_name(path)}'", hint)


def _in_our_words(message: str, path: KeyPath) -> tuple[KeyPath, str]:
    """msgspec's sentence as ours: `Field 'a.b' must be an array, got string`."""
    where = _WHERE.search(message)
    if where:
        steps = re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", where["where"])
        path += tuple(name or (int(index) if index.isdigit() else "*") for name, index in steps)
        message = message[: where.start()]
    name = field_name(path)
    found = _EXPECTED.match(message)
    if found and found["got"]:
        expected = " or ".join(_WORDS.get(word, word) for word in found["expected"].split(" | ") if word != "null")
        got = _WORDS.get(found["got"], found["got"]).split(" ", 1)[-1]
        return path, f"Field '{name}' must be {expected}, got {got}"
    if found:
        expected = _WORDS.get(found["expected"], found["expected"])
        return path, f"Field '{name}' must be {expected}{_bound(message[found.end() :])}"
    if message.startswith("Invalid enum value"):
        return path, f"Field '{name}' has an unknown value{message.removeprefix('Invalid enum value')}"
    if message.startswith("Object missing required field"):
        missing = message.split("`")[1]
        return (*path, missing), f"Missing required field: '{field_name((*path, missing))}'"
    if message.startswith("Object contains unknown field"):
        unknown = message.split("`")[1]
        return (*path, unknown), f"Unknown field '{field_name((*path, unknown))}'"
    return path, f"Field '{name}': {message[:1].lower()}{message[1:]}"


def _bound(text: str) -> str:
    """msgspec's bounds in words: ` >= 1` as ` of at least 1`."""
    if text == " of length >= 1":
        return " that is not empty"
    for sign, words in _BOUNDS.items():
        text = text.replace(sign, words)
    return text.removesuffix(".0")


def _snake(key: str) -> str:
    """camelCase and kebab-case as snake_case; anything else (`MODEL`) stays what it is."""
    return re.sub(r"(?<=[a-z0-9])[A-Z]+", lambda capitals: "_" + capitals[0].lower(), key).replace("-", "_")


class RunDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What a run takes where the command, the dataset and the target say nothing."""

    target: str | None = None
    workers: Annotated[int, Meta(ge=1)] | None = None
    trials: Annotated[int, Meta(ge=1)] | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    max_retries: Annotated[int, Meta(ge=0)] | None = None
    verdicts: Verdicts | None = None


class ProjectConfig(msgspec.Struct, frozen=True, kw_only=True, rename={"schema": "$schema"}):
    """The whole file. `guideline_patterns` are globs over paths relative to the project root."""

    aliases: ClassVar[dict[str, str]] = {}

    schema: str | None = None
    version: str | int | float | None = None
    guideline_patterns: tuple[str, ...] = ()
    execution: RunDefaults = RunDefaults()


def check_config(data: Any) -> Problems:
    """Everything wrong with a parsed configuration; an empty file is a configuration without settings."""
    problems = Problems()
    if data is None:
        return problems
    if not isinstance(data, dict):
        problems.error((), f"A configuration must be an object, got {type_word(data)}")
        return problems
    config = read_settings(ProjectConfig, data, (), problems)
    patterns = config.guideline_patterns if config is not None else ()
    for index, pattern in enumerate(patterns):
        if not pattern.strip():
            problems.error(("guideline_patterns", index), f"Field 'guideline_patterns[{index}]' is blank")
    if data.get("guideline_patterns") == []:
        problems.warning(("guideline_patterns",), "Field 'guideline_patterns' is empty: no file is a guideline")
    return problems
