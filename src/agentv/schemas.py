"""JSON Schemas (2020-12) of every file users write and runs leave, generated from the types that read and write them.

A schema accepts whatever the reader of that file accepts; rules that JSON Schema cannot say are left to `validate`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.datasets.case.keys import CASE_LIST_KEYS, CaseKeys, HeaderKeys, TurnKeys
from agentv.model.manifest import RunManifest
from agentv.model.message import PART_KINDS, ROLES, ToolCall
from agentv.model.result import Result
from agentv.registry import EVALUATORS, TARGETS, Registry
from agentv.settings.settings_reader import ProjectConfig, aliases_of
from agentv.targets.agents.agent import CodingAgent
from agentv.targets.target import ModelApi, Target
from agentv.targets.targets_file import TargetsFile

Schema = dict[str, Any]
Kind = type[msgspec.Struct]

_OLD_NAMES = ("input_messages", "expected_messages", "target")
"""Keys of datasets that still work and that nobody should write any more."""

_NULL: Schema = {"type": "null"}
_STRING: Schema = {"type": "string"}
_NOT_BLANK: Schema = {"type": "string", "pattern": r"\S"}
_VARIABLE: Schema = {"type": "string", "pattern": r"\$\{\{\s*[A-Za-z_][A-Za-z0-9_]*\s*\}\}"}


def schema(name: str) -> Schema:
    """The schema of one kind of file. Raises KeyError for a name that is none of NAMES."""
    title, build = _BUILDERS[name]
    body = build()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"agentv:schema/{name}", "title": title}
    definitions = body.pop("$defs", {})
    return head | body | ({"$defs": definitions} if definitions else {})


def write(folder: Path) -> None:
    """Writes every schema into a folder, as the repository carries them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / f"{name}.json").write_bytes(to_text(schema(name)))


def to_text(value: Schema) -> bytes:
    """A schema as it is printed: two spaces, a final newline."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _dataset() -> Schema:
    any_case, named_case = {"$ref": "#/$defs/CaseKeys"}, {"$ref": "#/$defs/case"}
    is_agentmark = {"properties": {"format": {"const": "agentmark"}}, "required": ["format"]}
    return {
        "description": "A YAML dataset: the list of cases, and what holds for all of them.",
        "$ref": "#/$defs/HeaderKeys",
        "properties": {key: {"type": "array", "minItems": 1, "items": any_case} for key in CASE_LIST_KEYS},
        "oneOf": [{"required": [key]} for key in CASE_LIST_KEYS],
        "if": {"not": is_agentmark},
        "then": {"properties": {key: {"items": named_case} for key in CASE_LIST_KEYS}},
        "$defs": _dataset_definitions(),
    }


def _line() -> Schema:
    definitions = _dataset_definitions()
    del definitions["HeaderKeys"]
    return {
        "description": "A line of a JSONL dataset: a case, or a row of AgentMark's with an object of variables.",
        "anyOf": [{"$ref": "#/$defs/case"}, {"$ref": "#/$defs/agentmark_row"}],
        "$defs": definitions,
    }


def _sidecar() -> Schema:
    definitions = _dataset_definitions()
    for name in ("case", "agentmark_row", "CaseKeys"):
        del definitions[name]
    return {
        "description": "The YAML file beside a JSONL dataset: what holds for all of its cases.",
        "anyOf": [{"$ref": "#/$defs/HeaderKeys"}, _NULL],
        "$defs": definitions,
    }


def _targets() -> Schema:
    kinds = {name: TARGETS.find(name) for name in TARGETS.names()}
    definitions = _definitions([Target, ModelApi, CodingAgent, *kinds.values()], strict=True)
    for definition in definitions.values():
        definition["properties"] = {key: _or_variable(value) for key, value in definition["properties"].items()}
    providers = {name: _spellings(TARGETS, name) for name in kinds}
    provider = {"anyOf": [{"enum": _flat(providers.values())}, {"pattern": r"\.py:"}, {"$ref": "#/$defs/variable"}]}
    branches = [
        {
            "if": {"properties": {"provider": {"enum": providers[name]}}, "required": ["provider"]},
            "then": {"$ref": f"#/$defs/{kind.__name__}"},
        }
        for name, kind in kinds.items()
    ]
    entry = {
        "type": "object",
        "properties": {"name": _NOT_BLANK, "provider": provider},
        "required": ["name", "provider"],
        "allOf": branches,
    }
    return {
        "description": "A targets file: what answers, and what judges.",
        "$ref": "#/$defs/TargetsFile",
        "properties": {"targets": {"type": "array", "items": {"$ref": "#/$defs/target"}}},
        "$defs": {"target": entry, "variable": _VARIABLE, **_definitions([TargetsFile], strict=False), **definitions},
    }


def _config() -> Schema:
    return {
        "description": "The configuration of a project: `.agentv/config.yaml`.",
        "anyOf": [{"$ref": "#/$defs/ProjectConfig"}, _NULL],
        "$defs": _definitions([ProjectConfig], strict=False),
    }


def _plain(kind: Kind) -> Schema:
    """A file that only we write: the type as it stands."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    body: Schema = components.pop(kind.__name__)
    return {**body, "$defs": components}


def _dataset_definitions() -> dict[str, Schema]:
    kinds = {name: EVALUATORS.find(name) for name in EVALUATORS.names()}
    definitions = _definitions([HeaderKeys, CaseKeys, ToolCall, *kinds.values()], strict=False)
    definitions["CaseKeys"] = _case(definitions["CaseKeys"])
    variables = {"type": "object", "not": {"$ref": "#/$defs/message"}}
    return {
        "case": {"$ref": "#/$defs/CaseKeys", **_given("id")},
        "agentmark_row": {"$ref": "#/$defs/CaseKeys", "properties": {"input": variables}, "required": ["input"]},
        "evaluator": {"anyOf": [_STRING, {"$ref": "#/$defs/evaluator_entry"}]},
        "evaluator_type": _evaluator_type(),
        "evaluator_entry": _evaluator_entry(kinds),
        "message": _message(),
        "messages": {"type": "array", "items": {"$ref": "#/$defs/message"}},
        "input": {"anyOf": [_STRING, {"$ref": "#/$defs/messages", "minItems": 1}, {"type": "object"}]},
        **definitions,
    }


def _case(keys: Schema) -> Schema:
    """A case. Beside a value under a new name, the one under an old name is not looked at."""
    messages = {"$ref": "#/$defs/messages"}
    old_names = {
        "input_messages": (("input",), messages | {"minItems": 1}),
        "expected_messages": (("expected_output",), _nullable(messages)),
        "outcome": (("expected_outcome",), _nullable(_STRING)),
        "criteria": (("expected_outcome", "outcome"), _nullable(_STRING)),
    }
    properties = keys["properties"] | {
        "id": {"anyOf": [_NOT_BLANK, {"type": "integer"}, _NULL]},
        **{old: {"deprecated": True} if old in _OLD_NAMES else {} for old in old_names},
    }
    conditions = [
        {"if": {"not": {"anyOf": [_given(name) for name in new]}}, "then": {"properties": {old: value}}}
        for old, (new, value) in old_names.items()
    ]
    has_input = {"anyOf": [_given("input"), {"required": ["input_messages"]}]}
    return keys | {"properties": properties, "allOf": [has_input, *conditions]}


def _given(key: str) -> Schema:
    return {"properties": {key: {"not": _NULL}}, "required": [key]}


def _message() -> Schema:
    part = {
        "type": "object",
        "properties": {"type": {"enum": list(PART_KINDS)}, "value": _STRING},
        "required": ["type", "value"],
    }
    return {
        "type": "object",
        "properties": {
            "role": {"enum": list(ROLES)},
            "content": {"type": ["string", "object", "array", "null"], "items": {"anyOf": [_STRING, part]}},
            "tool_calls": {"type": ["array", "null"], "items": {"$ref": "#/$defs/ToolCall"}},
            "name": {"type": ["string", "null"]},
        },
        "required": ["role"],
        "anyOf": [{"required": ["content"]}, {"required": ["tool_calls"]}],
    }


def _evaluator_type() -> Schema:
    names = _flat(_spellings(EVALUATORS, name) for name in EVALUATORS.names())
    negated = f"^not-({'|'.join(names)})$"
    return {"anyOf": [{"enum": names}, {"pattern": negated}, {"pattern": r"\.py:"}], "type": "string"}


def _evaluator_entry(kinds: dict[str, Kind]) -> Schema:
    """An entry: the keys every type has, and those of its own type."""
    branches = []
    for name, kind in kinds.items():
        pattern = f"^(not-)?({'|'.join(_spellings(EVALUATORS, name))})$"
        condition = {"properties": {"type": {"type": "string", "pattern": pattern}}, "required": ["type"]}
        branches.append({"if": condition, "then": {"$ref": f"#/$defs/{kind.__name__}"}})
    return {
        "type": "object",
        "properties": {
            "type": _nullable({"$ref": "#/$defs/evaluator_type"}),
            "name": {"type": ["string", "null"]},
            "metric": {"description": "Another word for `name`, which comes first."},
            "weight": {"type": ["number", "null"], "minimum": 0, "default": 1},
            "required": {"type": ["boolean", "number", "null"], "minimum": 0, "maximum": 1, "default": False},
            "negate": {"type": ["boolean", "null"], "default": False},
            "transform": {"type": ["object", "null"]},
            "target": {"type": ["string", "array", "null"], "items": _STRING},
        },
        "anyOf": [{"required": ["type"]}, {"required": ["name"]}],
        "allOf": branches,
    }


def _definitions(kinds: Iterable[Kind], *, strict: bool) -> dict[str, Schema]:
    """The settings structs and those inside them, each as users may write it."""
    kinds = list(kinds)
    _, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    inside = {kind.__name__: kind for top in kinds for kind in _structs(msgspec.inspect.type_info(top))}
    return {name: _as_written(inside[name], component, kinds, strict) for name, component in components.items()}


def _structs(info: Any) -> Iterator[Kind]:
    """Every struct that a type leads to; ours do not contain themselves."""
    if isinstance(info, msgspec.inspect.StructType):
        yield info.cls
        for field in info.fields:
            yield from _structs(field.type)
    for part in (*getattr(info, "types", ()), *getattr(info, "item_types", ())):
        yield from _structs(part)
    for name in ("item_type", "value_type", "type"):
        if hasattr(info, name):
            yield from _structs(getattr(info, name))


def _as_written(kind: Kind, component: Schema, shared: list[Kind], strict: bool) -> Schema:
    """A struct with its aliases, other spellings and nulls; with `strict`, without any other key."""
    properties: dict[str, Schema] = {}
    patterns: dict[str, Schema] = {}
    needed: list[Schema] = []
    for field in msgspec.structs.fields(kind):
        key = field.encode_name
        home = _home(kind, field, shared)
        same = {"$ref": f"#/$defs/{home.__name__}/properties/{key}"}
        own = _richer(kind, key, component["properties"][key])
        properties[key] = _nullable(own) if home is kind else same
        names = [key, *(alias for alias, name in aliases_of(kind).items() if name == key)]
        properties |= {name: same | ({"deprecated": True} if name in _OLD_NAMES else {}) for name in names[1:]}
        if kind not in (CaseKeys, TurnKeys):
            patterns |= {_other_spellings(name): same for name in names if "_" in name}
        if field.required:
            spellings = [spelling for name in names for spelling in dict.fromkeys((name, _camel(name), _kebab(name)))]
            needed.append({"anyOf": [{"required": [spelling]} for spelling in spellings]})
    refused = [name for name in getattr(kind, "unsupported", {}) if name not in properties]
    if refused and not strict:
        patterns[f"^({'|'.join(refused)})$"] = _NULL
    return {
        **{key: component[key] for key in ("title", "description") if key in component},
        "type": "object",
        "properties": properties,
        **({"patternProperties": patterns} if patterns else {}),
        **({"allOf": needed} if needed else {}),
        **({"additionalProperties": False} if strict else {}),
    }


def _home(kind: Kind, field: msgspec.structs.FieldInfo, shared: list[Kind]) -> Kind:
    """The class in whose definition a field is written out: the first of its bases that has it just so."""
    for base in reversed(kind.__mro__):
        if base in shared and field in msgspec.structs.fields(base):
            return base
    return kind


def _richer(kind: Kind, key: str, value: Schema) -> Schema:
    """What a type calls any object, where more is known of it: entries, messages, rubric items."""
    known: dict[str, Schema] = {
        "evaluators": {"type": "array", "items": {"$ref": "#/$defs/evaluator"}},
        "evaluator": {"$ref": "#/$defs/evaluator_type"},
        "input": {"$ref": "#/$defs/input"},
        "prompt": {"anyOf": [_STRING, {"$ref": "#/$defs/messages"}]},
        "rubrics": {"type": "array", "items": {"anyOf": [_STRING, {"$ref": "#/$defs/RubricItem"}]}},
    }
    in_datasets = kind.__module__ == CaseKeys.__module__
    return known.get(key, value) if in_datasets or key == "evaluators" else value


def _nullable(value: Schema) -> Schema:
    """The same or null, which everywhere means that the key is absent."""
    if not value or _NULL in value.get("anyOf", ()):
        return value
    if isinstance(value.get("type"), str) and "enum" not in value:
        return value | {"type": [value["type"], "null"]}
    if "anyOf" in value:
        return value | {"anyOf": [*value["anyOf"], _NULL]}
    return {"anyOf": [value, _NULL]}


def _or_variable(value: Schema) -> Schema:
    """The same or a text with `${{ VAR }}` in it, at every depth: what the variable holds shows later."""
    if value in (_STRING, _NULL, {}) or "string" in value.get("type", ()) or "/properties/" in value.get("$ref", ""):
        return value
    inner = dict(value)
    for key in ("items", "additionalProperties"):
        if isinstance(inner.get(key), dict):
            inner[key] = _or_variable(inner[key])
    if "anyOf" in inner:
        return inner | {"anyOf": [*map(_or_variable, inner["anyOf"]), {"$ref": "#/$defs/variable"}]}
    return {"anyOf": [inner, {"$ref": "#/$defs/variable"}]}


def _spellings(registry: Registry, name: str) -> list[str]:
    """A kind's name and other names, each in snake_case and kebab-case."""
    names = [name, *(alias for alias, kind in registry.aliases().items() if kind == name)]
    return list(dict.fromkeys(text for each in names for text in (each, each.replace("-", "_"), _kebab(each))))


def _flat(lists: Iterable[list[str]]) -> list[str]:
    return [item for items in lists for item in items]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _other_spellings(name: str) -> str:
    """camelCase and kebab-case as a pattern, so that editors offer only the name itself."""
    first, *rest = map(re.escape, name.split("_"))
    return f"^({first + ''.join(f'({word.capitalize()}|{word.upper()})' for word in rest)}|{'-'.join([first, *rest])})$"


_BUILDERS: dict[str, tuple[str, Callable[[], Schema]]] = {
    "dataset": ("agentv dataset (YAML)", _dataset),
    "line": ("agentv dataset line (JSONL)", _line),
    "sidecar": ("agentv dataset sidecar", _sidecar),
    "targets": ("agentv targets", _targets),
    "config": ("agentv configuration", _config),
    "result": ("agentv result", lambda: _plain(Result)),
    "run": ("agentv run manifest", lambda: _plain(RunManifest)),
}
NAMES = tuple(_BUILDERS)


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "schemas"))
