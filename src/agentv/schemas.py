"""JSON Schemas (2020-12) of the file formats, generated from the types that read and write them.

A schema accepts whatever the reader of the file accepts; `validate` checks the rules that JSON Schema cannot express.
The parts that no type describes are in `schema_parts.json`.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from agentv.datasets.case.keys import CaseKeys, HeaderKeys, TurnKeys
from agentv.model.manifest import RunManifest
from agentv.model.message import ToolCall
from agentv.model.result import Result
from agentv.registry import EVALUATORS, TARGETS, Registry
from agentv.settings.settings_reader import ProjectConfig, aliases_of
from agentv.targets.target import ModelApi, Target
from agentv.targets.targets_file import TargetsFile

Schema = dict[str, Any]
Kind = type[msgspec.Struct]

_DEPRECATED = ("input_messages", "expected_messages", "target")
"""Dataset keys that still work but should not be used."""

_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
_NULL: Schema = {"type": "null"}
_STRING: Schema = {"type": "string"}


def schema(name: str) -> Schema:
    """Return the schema of a file format. Raise KeyError for an unknown name."""
    body = _BUILDERS[name](_parts())
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"agentv:schema/{name}"}
    definitions = body.pop("$defs", {})
    return head | body | ({"$defs": definitions} if definitions else {})


def _parts() -> Schema:
    """Return the hand-written parts."""
    parts: Schema = msgspec.json.decode((files("agentv") / "schema_parts.json").read_bytes())
    return parts


def write(folder: Path) -> None:
    """Write every schema into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / f"{name}.json").write_bytes(to_text(schema(name)))


def to_text(value: Schema) -> bytes:
    """Encode a schema as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _of_dataset(head: Schema, parts: Schema, *unused: str) -> Schema:
    """Return the schema of a dataset, or a part of one, which has no use for some definitions."""
    definitions = _dataset_definitions(parts)
    return {**head, "$defs": {name: value for name, value in definitions.items() if name not in unused}}


def _targets(parts: Schema) -> Schema:
    kinds = {name: TARGETS.find(name) for name in TARGETS.names()}
    agents = {base for kind in kinds.values() for base in kind.__mro__ if vars(base).get("takes_skills")}
    definitions = _definitions([Target, ModelApi, *agents, *kinds.values()], strict=True)
    for definition in definitions.values():
        definition["properties"] = {key: _or_variable(value) for key, value in definition["properties"].items()}
    shared = parts["targets $defs"]
    spellings = {name: _spellings(TARGETS, name) for name in kinds}
    shared["target"]["properties"]["provider"]["anyOf"].insert(0, {"enum": _flat(spellings.values())})
    shared["target"]["allOf"] = [
        {
            "if": {
                "properties": {"provider": {"enum": spellings[name]}},
                "required": ["provider"],
                "not": {"required": ["use_target"]},
            },
            "then": {"$ref": f"#/$defs/{kind.__name__}"},
        }
        for name, kind in kinds.items()
    ]
    return {**parts["targets"], "$defs": {**shared, **_definitions([TargetsFile], strict=False), **definitions}}


def _plain(kind: Kind, head: Schema) -> Schema:
    """Return the schema of a file that only agentv writes."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for struct in dict.fromkeys(_structs(msgspec.inspect.type_info(kind))):
        _describe(struct, components[struct.__name__]["properties"])
    body: Schema = components.pop(kind.__name__)
    return {**head, **body, "$defs": components}


def _dataset_definitions(parts: Schema) -> dict[str, Schema]:
    kinds = {name: EVALUATORS.find(name) for name in EVALUATORS.names()}
    definitions = _definitions([HeaderKeys, CaseKeys, ToolCall], strict=False)
    definitions |= _evaluator_definitions(list(kinds.values()), parts["dataset $defs"]["evaluator_entry"])
    # A value under an old name is only checked if there is none under the new name.
    keys, case = definitions["CaseKeys"], parts["case"]
    case["properties"]["id"]["description"] = keys["properties"]["id"]["description"]
    definitions["CaseKeys"] = keys | {"properties": keys["properties"] | case["properties"], "allOf": case["allOf"]}
    shared: dict[str, Schema] = parts["dataset $defs"]
    names = _flat(_spellings(EVALUATORS, name) for name in kinds)
    shared["evaluator_type"]["anyOf"][:0] = [{"enum": names}, {"pattern": f"^not-({'|'.join(names)})$"}]
    shared["evaluator_entry"]["allOf"] = branches = []
    for name, kind in kinds.items():
        pattern = f"^(not-)?({'|'.join(_spellings(EVALUATORS, name))})$"
        condition = {"properties": {"type": {"type": "string", "pattern": pattern}}, "required": ["type"]}
        branches.append({"if": condition, "then": {"$ref": f"#/$defs/{kind.__name__}"}})
    return {**shared, **definitions}


def _evaluator_definitions(kinds: list[Kind], entry: Schema) -> dict[str, Schema]:
    """Return the definitions of evaluator types. An entry has the settings of its type and those of every entry."""
    definitions = _definitions(kinds, strict=True)
    common = {key: {"$ref": f"#/$defs/evaluator_entry/properties/{key}"} for key in entry["properties"]}
    for kind in kinds:
        definition = definitions[kind.__name__]
        definition["properties"] = common | definition["properties"]
        if getattr(kind, "open_settings", False):
            del definition["additionalProperties"]
    return definitions


def _definitions(kinds: Iterable[Kind], *, strict: bool) -> dict[str, Schema]:
    """Return the definitions of settings structs and the structs inside them."""
    kinds = list(kinds)
    _, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    inside = {kind.__name__: kind for top in kinds for kind in _structs(msgspec.inspect.type_info(top))}
    definitions = {name: _as_written(inside[name], component, kinds, strict) for name, component in components.items()}
    for name, definition in definitions.items():
        _describe(inside[name], definition["properties"])
    return definitions


def _describe(kind: Kind, properties: dict[str, Schema]) -> None:
    """Add the docstrings of fields to the properties of a struct. Editors show them."""
    own = _class_docs(kind.__module__).get(kind.__name__, {})
    for field in _fields(kind):
        value = properties[field.encode_name]
        text = (own if "/properties/" in value.get("$ref", "") else field_docs(kind)).get(field.name)
        if text:
            properties[field.encode_name] = {"description": _LINK.sub(r"\1", text), **value}


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class and its bases, by field."""
    bases = [base for base in reversed(kind.__mro__) if issubclass(base, msgspec.Struct) and base is not msgspec.Struct]
    return {name: text for base in bases for name, text in _class_docs(base.__module__).get(base.__name__, {}).items()}


@cache
def _class_docs(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings below fields by class, from the source of a module; empty if there is no source."""
    try:
        classes = [
            node for node in ast.parse(inspect.getsource(sys.modules[module])).body if isinstance(node, ast.ClassDef)
        ]
    except OSError:
        return {}
    docs: dict[str, dict[str, str]] = {node.name: {} for node in classes}
    for node in classes:
        for pair in pairwise(node.body):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[node.name][name] = " ".join(text.split()).removesuffix(".")
    return docs


def _structs(info: Any, outer: tuple[Kind, ...] = ()) -> Iterator[Kind]:
    """Yield every struct inside a type; those in `outer` contain it."""
    if isinstance(info, msgspec.inspect.StructType):
        if info.cls in outer:
            return
        yield info.cls
        outer = (*outer, info.cls)
        for field in info.fields:
            yield from _structs(field.type, outer)
    for part in (*getattr(info, "types", ()), *getattr(info, "item_types", ())):
        yield from _structs(part, outer)
    for name in ("item_type", "value_type", "type"):
        if hasattr(info, name):
            yield from _structs(getattr(info, name), outer)


def _as_written(kind: Kind, component: Schema, shared: list[Kind], strict: bool) -> Schema:
    """Return a struct with its aliases, other spellings and nulls; with `strict`, no other keys are allowed."""
    properties: dict[str, Schema] = {}
    patterns: dict[str, Schema] = {}
    needed: list[Schema] = []
    for field in _fields(kind):
        key = field.encode_name
        home = _home(kind, field, shared)
        same = {"$ref": f"#/$defs/{home.__name__}/properties/{key}"}
        own = _richer(kind, key, component["properties"][key])
        properties[key] = _nullable(own) if home is kind else same
        names = [key, *(alias for alias, name in aliases_of(kind).items() if name == key)]
        properties |= {name: same | ({"deprecated": True} if name in _DEPRECATED else {}) for name in names[1:]}
        if kind not in (CaseKeys, TurnKeys):
            patterns |= {_other_spellings(name): same for name in names if "_" in name}
        if field.required:
            spellings = [spelling for name in names for spelling in dict.fromkeys((name, _camel(name), _kebab(name)))]
            needed.append({"anyOf": [{"required": [spelling]} for spelling in spellings]})
    properties |= {name: {} for name in getattr(kind, "ignored", ()) if name not in properties}
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


@cache
def _fields(kind: Kind) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a struct, whose annotations take long to evaluate."""
    return msgspec.structs.fields(kind)


def _home(kind: Kind, field: msgspec.structs.FieldInfo, shared: list[Kind]) -> Kind:
    """Return the class whose definition contains a field: the first base with an identical field."""
    for base in reversed(kind.__mro__):
        if base in shared and field in _fields(base):
            return base
    return kind


def _richer(kind: Kind, key: str, value: Schema) -> Schema:
    """Return a more specific schema for values that the type declares as any object."""
    schemas: dict[str, Schema] = {
        "evaluators": {"type": "array", "items": {"$ref": "#/$defs/evaluator"}},
        "evaluator": {"$ref": "#/$defs/evaluator_type"},
        "input": {"$ref": "#/$defs/input"},
        "prompt": {"anyOf": [_STRING, {"$ref": "#/$defs/messages"}]},
        "rubrics": {"type": "array", "items": {"anyOf": [_STRING, {"$ref": "#/$defs/RubricItem"}]}},
    }
    in_datasets = kind.__module__ == CaseKeys.__module__
    return schemas.get(key, value) if in_datasets or key == "evaluators" else value


def _nullable(value: Schema) -> Schema:
    """Allow null, which means that the key is absent."""
    if not value or _NULL in value.get("anyOf", ()):
        return value
    if isinstance(value.get("type"), str) and "enum" not in value:
        return value | {"type": [value["type"], "null"]}
    if "anyOf" in value:
        return value | {"anyOf": [*value["anyOf"], _NULL]}
    return {"anyOf": [value, _NULL]}


def _or_variable(value: Schema) -> Schema:
    """Allow text with `${{ VAR }}` at every depth, because the value is only known later."""
    if "description" in value:
        rest = {key: part for key, part in value.items() if key != "description"}
        return {"description": value["description"], **_or_variable(rest)}
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
    """Return the name and aliases of a kind, each in snake_case and kebab-case."""
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
    """Return a pattern for camelCase and kebab-case, so that editors only suggest the name itself."""
    first, *rest = map(re.escape, name.split("_"))
    return f"^({first + ''.join(f'({word.capitalize()}|{word.upper()})' for word in rest)}|{'-'.join([first, *rest])})$"


_BUILDERS: dict[str, Callable[[Schema], Schema]] = {
    "dataset": lambda parts: _of_dataset(parts["dataset"], parts),
    "line": lambda parts: _of_dataset(parts["line"], parts, "HeaderKeys"),
    "sidecar": lambda parts: _of_dataset(parts["sidecar"], parts, "case", "agentmark_row", "CaseKeys"),
    "targets": _targets,
    "config": lambda parts: {**parts["config"], "$defs": _definitions([ProjectConfig], strict=False)},
    "result": lambda parts: _plain(Result, parts["result"]),
    "run": lambda parts: _plain(RunManifest, parts["run"]),
}
NAMES = tuple(_BUILDERS)


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "schemas"))
