"""Read settings into the struct that declares them, and report the problems of every key.

The fields of a struct are its schema. Five class attributes refine it: `aliases` (other spelling → field),
`unsupported` (key of another tool → reason), `switches` (those of them that may be off), `ignored` (key of another tool
without effect here → hint, or empty) and `hints` (field → hint for an invalid value).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from agentv.lazy_regex import lazy_regex
from agentv.model.diagnostics import MOST_TRIALS, KeyPath, Problems, did_you_mean, field_name, nearest, type_word
from agentv.model.evaluator import Verdicts
from agentv.model.sandbox_settings import Sandboxed
from agentv.registry import optional_service

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
_EXPECTED = lazy_regex(r"Expected `(?P<expected>[^`]+)`(?:, got `(?P<got>[^`]+)`)?")
UNKNOWN_FIELD = "Unknown field"
"""The beginning of every message about a key that is not a setting."""

_BOUNDS = {" >= ": " of at least ", " <= ": " of at most ", " > ": " greater than ", " < ": " less than "}
_WHERE = lazy_regex(r" - at `\$(?P<where>[^`]*)`$")


def read_settings(
    kind: type[Settings], data: Mapping[str, Any], path: KeyPath, problems: Problems, *, strict: bool = False
) -> Settings | None:
    """Return the settings in `data` as a `kind`, or None after adding at least one error.

    Null means absent. An unknown key is a warning, or an error with `strict`. If several names of one field are used,
    its own name has precedence, then the first alias.
    """
    before = len(problems.errors)
    values: dict[str, Any] = {}
    for key, value in data.items():
        field = field_of(kind, key)
        if field is None and value is False and key in getattr(kind, "switches", ()):
            continue
        if field is None:
            _note_unknown(kind, key, (*path, key), problems, strict)
        elif value is not None:
            noted = len(problems)
            read = read_value(field.type, value, (*path, key), problems, strict=strict)
            _add_hint(kind, field.name, problems, noted)
            if key != field.encode_name and (field.name in values or data.get(field.encode_name) is not None):
                name, own = field_name((*path, key)), field_name((*path, field.encode_name))
                problems.warning((*path, key), f"Field '{name}' is ignored because '{own}' is set")
            else:
                values[field.name] = read
    for field in fields_of(kind).values():
        if field.required and field.name not in values:
            typo = nearest(field.encode_name, [key for key in data if field_of(kind, key) is None])
            misspelt = f"Did you mean '{field.encode_name}' instead of '{typo}'?" if typo is not None else ""
            problems.missing((*path, field.encode_name), misspelt or _choices(field.type))
    contradiction = getattr(kind, "contradiction", None)
    if contradiction is not None and len(problems.errors) == before and (message := contradiction(values)):
        problems.error(path, message)
    return None if len(problems.errors) > before else kind(**values)


def read_value(type_: Any, value: Any, path: KeyPath, problems: Problems, *, strict: bool = False) -> Any:
    """Convert a value to the type of a field. Return None after adding an error."""
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
    """Return the keys of a struct, as users write them."""
    return list(kind.__struct_encode_fields__)


def aliases_of(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the aliases of a struct's fields, each with its field."""
    return getattr(kind, "aliases", {})


def field_of(kind: type[msgspec.Struct], key: str) -> msgspec.structs.FieldInfo | None:
    """Return the field for a key: its name or an alias, also in camelCase or kebab-case; None for an unknown key."""
    fields, aliases = fields_of(kind), aliases_of(kind)
    for spelling in (key, _snake(key)):
        field = fields.get(spelling) or fields.get(aliases.get(spelling, ""))
        if field is not None:
            return field
    return None


def declares(kind: type[msgspec.Struct], path: KeyPath) -> bool:
    """Whether all keys of a path are known, so that a problem at the path is about the value."""
    here: Any = kind
    for step in path:
        struct, item_type = _struct_of(here)
        if isinstance(step, int):
            here = item_type
        elif struct is not None:
            if (field := field_of(struct, step)) is None:
                return False
            here = field.type
    return True


@cache
def _struct_of(type_: Any) -> tuple[type[msgspec.Struct] | None, Any]:
    """Return the struct in a field's type, and the item type of a list that may contain structs."""
    struct, item_type = None, None
    for option in _options(type_):
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            struct = option
        elif get_origin(option) in (list, tuple):
            inner = get_args(option)[0]
            item_type = inner if _struct_of(inner) != (None, None) else None
    return struct, item_type


def _options(type_: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself, without annotations."""
    if get_origin(type_) is Annotated:
        type_ = get_args(type_)[0]
    if get_origin(type_) in (Union, UnionType):
        return tuple(option for member in get_args(type_) for option in _options(member))
    return (type_,)


def _choices(type_: Any, value: Any = "") -> str:
    """Return a hint for a `Literal` type: the most similar value, or else all values, each in one spelling."""
    words = [str(word) for option in _options(type_) if get_origin(option) is Literal for word in get_args(option)]
    if not words or not isinstance(value, str):
        return ""
    spellings = [word for word in words if "-" not in word or word.replace("-", "_") not in words]
    return did_you_mean(value, words) or f"Known values: {', '.join(spellings)}"


@cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields of a struct by their keys."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _add_hint(kind: type[msgspec.Struct], field: str, problems: Problems, first: int) -> None:
    """Add a struct's hint for a field to type errors without a hint."""
    hint = getattr(kind, "hints", {}).get(field)
    for position in range(first, len(problems)) if hint else ():
        if not problems[position].hint and ", got " in problems[position].message:
            problems[position] = msgspec.structs.replace(problems[position], hint=hint)


def _note_unknown(kind: type[msgspec.Struct], key: str, path: KeyPath, problems: Problems, strict: bool) -> None:
    ignored: Mapping[str, str] = getattr(kind, "ignored", {})
    if (hint := ignored.get(key, ignored.get(_snake(key)))) is not None:
        problems.warning(path, f"Field '{field_name(path)}' is ignored: it has no effect here", hint)
        return
    unsupported: Mapping[str, str] = getattr(kind, "unsupported", {})
    reason = unsupported.get(key) or unsupported.get(_snake(key))
    if reason is not None:
        problems.error(path, f"Field '{field_name(path)}' is not supported", reason)
        return
    hint = did_you_mean(key, known_keys(kind)) or f"Known fields: {', '.join(known_keys(kind))}"
    note = problems.error if strict else problems.warning
    note(path, f"{UNKNOWN_FIELD} '{field_name(path)}'", hint)


def _in_our_words(message: str, path: KeyPath) -> tuple[KeyPath, str]:
    """Rewrite msgspec's message in our style: `Field 'a.b' must be an array, got string`."""
    if where := _WHERE.search(message):
        steps = re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", where["where"])
        path += tuple(name or (int(index) if index.isdigit() else "*") for name, index in steps)
        message = message[: where.start()]
    name = field_name(path)
    match = _EXPECTED.match(message)
    if match and match["got"]:
        expected = " or ".join(_WORDS.get(word, word) for word in match["expected"].split(" | ") if word != "null")
        actual = _WORDS.get(match["got"], match["got"]).split(" ", 1)[-1]
        return path, f"Field '{name}' must be {expected}, got {actual}"
    if match:
        expected = _WORDS.get(match["expected"], match["expected"])
        return path, f"Field '{name}' must be {expected}{_bound(message[match.end() :])}"
    if message.startswith("Invalid enum value"):
        return path, f"Field '{name}' has an unknown value{message.removeprefix('Invalid enum value')}"
    return path, f"Field '{name}': {message[:1].lower()}{message[1:]}"


def _bound(text: str) -> str:
    """Return msgspec's bounds in words: ` >= 1` as ` of at least 1`."""
    if text == " of length >= 1":
        return " that is not empty"
    for sign, words in _BOUNDS.items():
        text = text.replace(sign, words)
    return text.removesuffix(".0")


def _snake(key: str) -> str:
    """Convert camelCase and kebab-case to snake_case; leave anything else (`MODEL`) unchanged."""
    if key.islower():
        return key.replace("-", "_")
    return re.sub(r"(?<=[a-z0-9])[A-Z]+", lambda capitals: "_" + capitals[0].lower(), key).replace("-", "_")


class RunDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for runs, used if the command, the dataset and the target do not set a value."""

    ignored: ClassVar[dict[str, str]] = {
        "verbose": "Pass --verbose",
        "keep_workspaces": "Set `keep` of the workspace",
        **dict.fromkeys(("otel_file", "export_otel", "otel_backend"), "Pass --otel"),
        **dict.fromkeys(("otel_capture_content", "otel_group_turns"), "See `agentv eval --otel`"),
    }

    target: str | None = None
    """Target to evaluate."""

    workers: Annotated[int, Meta(ge=1)] | None = None
    """Maximum concurrent calls."""

    trials: Annotated[int, Meta(ge=1, le=MOST_TRIALS)] | None = None
    """Number of times to run each case."""

    timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    """Time limit for one answer."""

    max_retries: Annotated[int, Meta(ge=0)] | None = None
    """Maximum retries of a failed call."""

    verdicts: Verdicts | None = None
    """Scores required for a verdict."""

    sandbox: Sandboxed | None = None
    """Sandbox of all programs: an engine such as `auto`, or an object."""

    pass_env: tuple[str, ...] | None = None
    """Your variables that all programs of a run get, in addition to [the usual
    ones](../how-to/own-code.md#variables-of-programs).
    """

    judge_must_agree: Annotated[float, Meta(ge=-1, le=1)] | None = None
    """Lower bound of Cohen's κ between judge and labels that makes the judge calibrated in `agentv compare` ([default:
    0.6](../how-to/calibrate-a-judge.md#compare-runs-that-a-judge-scored)).
    """


_OTHER_CONFIG = frozenset(("providers", "targets", "graders", "defaults", "max_concurrency", "refs"))
"""Keys that only configurations of AgentV (TypeScript) 5 have."""


class ProjectConfig(msgspec.Struct, frozen=True, kw_only=True, rename={"schema": "$schema"}):
    """The configuration file of a project. `guideline_patterns` are globs for paths relative to the project root."""

    ignored: ClassVar[dict[str, str]] = {
        "required_version": "It is a version of AgentV (TypeScript)",
        "eval_patterns": "Pass the datasets, or a folder, to the command",
        "hooks": "Run the command of `before_session` before agentv",
    }

    schema: str | None = None
    """For editors; no effect."""

    version: str | int | float | None = None
    """For your information; no effect."""

    guideline_patterns: tuple[str, ...] = ()
    """Globs over paths relative to the project root; matching files are
    [guidelines](../how-to/files.md#mark-files-as-guidelines).
    """

    execution: RunDefaults = RunDefaults()
    """Defaults for settings that commands, datasets and targets do not define."""


def as_config(data: Any, path: str) -> Any:
    """Return the parsed data of a configuration. An extension may read that of another tool."""
    execution = data.get("execution") if isinstance(data, dict) else None
    keys = {*data, *(execution if isinstance(execution, dict) else ())} if isinstance(data, dict) else set()
    has_overlay = os.path.isfile(os.path.join(os.path.dirname(path), "config.local.yaml"))
    if _OTHER_CONFIG.isdisjoint(keys) and not has_overlay and not isinstance(execution, str):
        return data
    read = optional_service("config-files")
    return read(data, path) if read else data


def check_config(data: Any) -> Problems:
    """Return the problems of a parsed configuration. An empty file is valid."""
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
        problems.warning(("guideline_patterns",), "Field 'guideline_patterns' is empty: no file will be a guideline")
    return problems
