"""Read entries of `evaluators` as specs with their evaluators. Classes in user files are loaded on demand."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agentv.errors import UsageError
from agentv.model.diagnostics import KeyPath, Problem, Problems, did_you_mean, field_name
from agentv.model.evaluator import COMMON_KEYS, RUBRIC_TYPE, Evaluator, EvaluatorSpec
from agentv.model.values import FrozenDict, FrozenList, freeze
from agentv.registry import EVALUATORS
from agentv.settings.settings_reader import UNKNOWN_FIELD, field_of, known_keys, read_settings, read_value
from agentv.settings.transform import check_transform
from agentv.support.user_code import FunctionError, UninspectableError, load

_MinimumScore = bool | Annotated[float, Meta(ge=0, le=1)]
_COMMON_TYPES: dict[str, Any] = {
    "name": str,
    "weight": Annotated[float, Meta(ge=0, le=1e100)],
    "required": _MinimumScore,
    "min_score": _MinimumScore,
    "gate": bool,
    "negate": bool,
    "transform": dict[str, Any] | list[dict[str, Any]],
    "target": str | tuple[str, ...],
}


def read_entries(entries: Any, path: KeyPath, problems: Problems) -> tuple[EvaluatorSpec, ...]:
    """Read a list of entries as named specs. All plain strings form one rubric, at the position of the first."""
    if not isinstance(entries, list):
        problems.wrong_type(path, "an array", entries)
        return ()
    texts = [entry for entry in entries if isinstance(entry, str)]
    first_text = next((index for index, entry in enumerate(entries) if isinstance(entry, str)), None)
    specs: list[EvaluatorSpec | None] = []
    for index, entry in enumerate(entries):
        place = (*path, index)
        if isinstance(entry, str) and _canonical_type(entry.strip())[0] is not None:
            message = f"Field '{field_name(place)}' is read as a rubric item: '{entry}'"
            hint = f"To use the evaluator of this type, write {{type: {entry.strip()}}}"
            problems.warning(place, message, hint, topic=f"a type as a rubric item: {entry}")
        if index == first_text:
            # The weight is the number of strings: each counts like an evaluator.
            specs.append(read_entry({"type": RUBRIC_TYPE, "weight": len(texts), "rubrics": texts}, place, problems))
        elif isinstance(entry, dict):
            specs.append(read_entry(entry, place, problems))
        elif not isinstance(entry, str):
            problems.wrong_type(place, "an object or a string", entry)
    return named(tuple(spec for spec in specs if spec is not None))


ListsTests = bool | Literal["agentv-4"]
"""Whether cases are read as those under `tests`; `agentv-4` if the file is one of AgentV (TypeScript) itself."""


def with_agentv_defaults(entries: Any, *, lists_tests: ListsTests) -> Any:
    """Return entries with the defaults of AgentV (TypeScript) 4.x where they differ from those here.

    In a file with `tests`, tool trajectories compare arguments exactly, code judges have the protocol of 4.x, and the
    verdict of a composite does not decide that of its case. An `llm-rubric` that only has a prompt is a judge. In one
    of AgentV itself, texts and patterns are those of JavaScript, and cached tokens are added to the others. In other
    files, `code-grader` has the protocol too, because it is a name of 4.x. Returns the list itself if nothing changes.
    """
    if not isinstance(entries, list):
        return entries
    defaults = _AGENTV_ASSERTIONS if lists_tests == "agentv-4" else _AGENTV_DEFAULTS
    result = [_with_defaults(entry, lists_tests, defaults) if isinstance(entry, dict) else entry for entry in entries]
    return entries if all(new is old for new, old in zip(result, entries, strict=True)) else result


LISTS = ("evaluators", "assertions", "assert")
_AGENTV_DEFAULTS = {
    "tool_trajectory": (("args_match", "argsMatch", "args-match"), "exact"),
    "code_judge": (("grader_protocol",), "agentv-4"),
}
"""The spellings of a setting by the type of evaluator, and its default in AgentV (TypeScript) 4.x."""

_AGENTV_ASSERTIONS: dict[str, tuple[tuple[str, ...], Any]] = {
    **_AGENTV_DEFAULTS,
    "regex": (("syntax",), "javascript"),
    "equals": (("exact",), "trimmed"),
    "token_usage": (("counts_cached",), True),
    **{f"{case}contains{which}": (("exact",), True) for case in ("", "i") for which in ("", "_any", "_all")},
}


def _with_defaults(entry: dict[str, Any], lists_tests: ListsTests, defaults: Mapping[str, Any]) -> dict[str, Any]:
    type_name = entry.get("type", entry.get("name"))
    type_ = _canonical_type(type_name)[0] if isinstance(type_name, str) else None
    if type_ is not None and type_ in defaults and (lists_tests or type_name == "code-grader"):
        names, default = defaults[type_]
        return entry if any(entry.get(name) is not None for name in names) else {**entry, names[0]: default}
    if type_name in ("llm-rubric", "llm_rubric") and "prompt" in entry and not {"value", "rubrics"} & entry.keys():
        return {**entry, "type": "llm_judge"}  # which has a prompt and no items
    if type_ == "composite" and lists_tests and _is_share(entry) and "gate" not in entry:
        if lists_tests == "agentv-4" and isinstance(entry["aggregator"], dict):
            entry = {**entry, "aggregator": {"pass_score": 0.8, **entry["aggregator"]}}
        entry = _scored_share(entry)
    lists = [key for key in entry if key in LISTS]
    new = {key: with_agentv_defaults(entry[key], lists_tests=lists_tests) for key in lists}
    return entry if all(new[key] is entry[key] for key in new) else {**entry, **new}


def _is_share(entry: dict[str, Any]) -> bool:
    """Whether a composite scores the share of members that pass. In AgentV (TypeScript), only that score counts."""
    aggregator = entry.get("aggregator")
    return (aggregator.get("type") if isinstance(aggregator, dict) else aggregator) == "threshold"


def _scored_share(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a composite whose share counts as a score; one with a minimum is the member of another composite."""
    if not entry.get("required"):
        return {**entry, "gate": False}
    outer = {key: value for key, value in entry.items() if key in COMMON_KEYS}
    inner = {key: value for key, value in entry.items() if key in ("type", "name") or key not in COMMON_KEYS}
    return {**outer, "aggregator": "weighted_average", "evaluators": [inner]}


def read_entry(
    entry: dict[str, Any], path: KeyPath, problems: Problems, places: Mapping[str, KeyPath] = {}
) -> EvaluatorSpec | None:
    """Read one entry as a spec; None after an error. `places` has the paths of keys that are outside the entry."""
    before = len(problems.errors)
    type_, negated = _type_of(entry, path, problems, places)
    kind = None if type_ is None else find_kind(type_, path, problems)
    if type_ is None or len(problems.errors) > before:
        return None
    own = {key: freeze(value) for key, value in entry.items() if key not in COMMON_KEYS and value is not None}
    if kind is not None and kind.target_field and isinstance(entry.get("target"), bool | dict):
        own[kind.target_field] = freeze(entry["target"])  # not the name of a judge
        entry = {key: value for key, value in entry.items() if key != "target"}
    common = _read_common(entry, path, problems)
    check_transform(common.get("transform"), (*path, "transform"), problems)
    evaluator = None
    if kind is not None:
        others = len(problems.errors)
        own, read = _settings_of(kind, own, path, problems)
        if len(problems.errors) == others:
            entry_problems = Problems()
            evaluator = build_evaluator(kind, read, entry_problems)
            problems += _placed(entry_problems, kind, path, places)
    if len(problems.errors) > before:
        return None
    return EvaluatorSpec(
        type=type_,
        name=common["name"].strip(),
        weight=common.get("weight", 1.0),
        required=common.get("required", False),
        gate=common.get("gate", True),
        negate=bool(common.get("negate", False)) != negated,
        transform=freeze(common["transform"]) if "transform" in common else None,
        target=common.get("target"),
        settings=freeze(own),
        evaluator=evaluator,
    )


def named(specs: tuple[EvaluatorSpec, ...]) -> tuple[EvaluatorSpec, ...]:
    """Return the specs with unique names. The default name is the type; repeats get `-2`, `-3` and so on."""
    counts: dict[str, int] = {}
    result = []
    for spec in specs:
        name = base = spec.name or spec.type
        while name in counts:
            counts[base] = counts.get(base, 1) + 1
            name = f"{base}-{counts[base]}"
        counts.setdefault(name, 1)
        result.append(spec if spec.name == name else msgspec.structs.replace(spec, name=name))
    return tuple(result)


def build_evaluator(kind: type[Evaluator], settings: Mapping[str, Any], problems: Problems) -> Evaluator | None:
    """Build an evaluator; None after adding an error. Kinds with open settings keep unknown keys in `config`."""
    if kind.open_settings:
        own_settings = {key: value for key, value in settings.items() if field_of(kind, key) is not None}
        further = {key: value for key, value in settings.items() if key not in own_settings}
        if further and isinstance(config := own_settings.get("config", {}), dict):
            own_settings["config"] = further | config
        settings = own_settings
    read = read_settings(kind, settings, (), problems, strict=True)
    evaluator: Evaluator | None = _frozen(read)
    for complaint in evaluator.complaints() if evaluator is not None else ():
        problems.error((), complaint)
    return evaluator


def _frozen(value: Any) -> Any:
    """Return a value with immutable containers, including those inside structs."""
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        changes = {name: _frozen(item) for name, item in fields if isinstance(item, list | dict | msgspec.Struct)}
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, list):
        return FrozenList(map(_frozen, value))
    return FrozenDict({key: _frozen(item) for key, item in value.items()}) if isinstance(value, dict) else value


def find_kind(type_: str, path: KeyPath, problems: Problems) -> type[Evaluator] | None:
    """Return the class of a type; None for a class in a user's file, or after adding an error."""
    if ".py:" in type_:
        return None
    try:
        kind = EVALUATORS.find(type_)
    except UsageError as error:
        problems.error(path, f"{error.headline}: {error.detail}")
        return None
    if not (isinstance(kind, type) and issubclass(kind, Evaluator)):
        problems.error(path, f"The plug-in '{type_}' is not a subclass of agentv.evaluators.base.Evaluator")
        return None
    return kind


def _settings_of(
    kind: type[Evaluator], own: dict[str, Any], path: KeyPath, problems: Problems
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the type's own settings by field name, with normalized members, and with members that were read."""
    settings, read = {}, dict(own)
    for key, value in own.items():
        field = field_of(kind, key)
        if field is not None and field.name == kind.members_field:
            read[key] = read_entries(value, (*path, key), problems)
            value = [member.to_data() for member in read[key]]
        settings[key if field is None else field.encode_name] = value
    return settings, read


def _placed(
    problems: Problems, kind: type[Evaluator], path: KeyPath, places: Mapping[str, KeyPath]
) -> Iterator[Problem]:
    """Yield the problems of an entry with their paths inside the case, and suggestions for unknown keys."""
    for problem in problems:
        place = (*path, *problem.path)
        if problem.message.startswith(UNKNOWN_FIELD) and len(problem.path) == 1:
            keys = sorted({*known_keys(kind), *COMMON_KEYS})
            hint = did_you_mean(str(problem.path[0]), keys) or f"Known fields: {', '.join(keys)}"
            problem = msgspec.structs.replace(problem, hint=hint)
        if problem.path and problem.path[0] in places:
            place = (*places[str(problem.path[0])], *problem.path[1:])
        # Messages have the path inside the entry; users need the path inside the case.
        message = problem.message.replace(f"'{field_name(problem.path)}'", f"'{field_name(place)}'", 1)
        yield msgspec.structs.replace(problem, path=place, message=message)


def _type_of(
    entry: dict[str, Any], path: KeyPath, problems: Problems, places: Mapping[str, KeyPath]
) -> tuple[str | None, bool]:
    """Return the canonical type (None after an error), and whether it has promptfoo's prefix `not-`."""
    key = "type" if entry.get("type") is not None else "name"
    type_name = entry.get(key)
    if not isinstance(type_name, str):
        if type_name is None:
            type_ = next(filter(EVALUATORS.canonical, map(str, entry)), None)
            hint = f"Write {{type: {type_}, …}}" if type_ else "An evaluator needs a 'type'"
            problems.missing((*path, "type"), hint)
        else:
            problems.wrong_type((*path, key), "a string", type_name)
        return None, False
    type_, negated = _canonical_type(type_name)
    if type_ is None:
        what = "Unknown evaluator type" if key == "type" else "Missing evaluator 'type', and the name is not a type:"
        hint = EVALUATORS.suggestion(_without_not(type_name))
        problems.error(places.get("type", (*path, key)), f"{what} '{type_name}'", hint)
    return type_, negated


def _canonical_type(type_name: str) -> tuple[str | None, bool]:
    """Return the type, and whether it is negated by `not-`; a plug-in's own name may begin with `not-`."""
    type_ = EVALUATORS.canonical(type_name)
    bare = _without_not(type_name)
    return (type_, False) if type_ is not None or bare == type_name else (EVALUATORS.canonical(bare), True)


def _without_not(type_name: str) -> str:
    return type_name[4:] if type_name.startswith(("not-", "not_")) else type_name


def _read_common(entry: dict[str, Any], path: KeyPath, problems: Problems) -> dict[str, Any]:
    """Read the keys that all entries have in common."""
    fields = {key: value for key, value in entry.items() if value is not None}
    fields.setdefault("name", fields.get("metric", fields.get("id", "")))
    types = _COMMON_TYPES.items()
    values = {key: read_value(type_, fields[key], (*path, key), problems) for key, type_ in types if key in fields}
    if "min_score" in fields:
        # AgentV (TypeScript) has a separate key for the minimum score of a required evaluator.
        if fields.get("required") is True:
            values["required"] = values["min_score"]
        else:
            problems.warning((*path, "min_score"), "Field 'min_score' has no effect without 'required: true'")
            values["required"] = bool(fields.get("required", False))
    return values


def evaluator_of(spec: EvaluatorSpec, find_file: Callable[[str], str] = str) -> Evaluator:
    """Return the evaluator of a spec. Raises UsageError with all problems if it cannot be used.

    `find_file` resolves the file of a type `file.py:Class`.
    """
    if spec.evaluator is not None:
        return spec.evaluator
    problems = Problems()
    if ".py:" in spec.type:
        evaluator = build_evaluator(_load_kind(spec, find_file), spec.settings, problems)
        check_transform(spec.transform, (), problems)
    elif EVALUATORS.canonical(spec.type) is None:
        raise UsageError(f"Unknown evaluator type '{spec.type}'", hint=EVALUATORS.suggestion(spec.type))
    else:
        read = read_entry(spec.to_data(), (), problems)
        evaluator = None if read is None else read.evaluator
    if problems.errors or evaluator is None:
        messages = [f"{problem.message}. {problem.hint}".removesuffix(". ") for problem in problems.errors]
        raise _unusable(spec, "\n".join(messages))
    return evaluator


def _load_kind(spec: EvaluatorSpec, find_file: Callable[[str], str]) -> type[Evaluator]:
    try:
        kind = load(spec.type, find_file)
    except UninspectableError:
        raise
    except FunctionError as error:
        raise _unusable(spec, str(error)) from error
    if isinstance(kind, type) and issubclass(kind, Evaluator):
        return kind
    hint = ""
    if callable(kind) and not isinstance(kind, type):
        hint = f"For a function, use `type: python` and `function: {spec.type}`"
    raise _unusable(spec, f"'{spec.type}' is not a subclass of agentv.evaluators.base.Evaluator", hint)


def _unusable(spec: EvaluatorSpec, detail: str, hint: str = "") -> UsageError:
    return UsageError(f"Cannot use evaluator '{spec.name or spec.type}'", detail, hint)
