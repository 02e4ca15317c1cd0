"""Which evaluators score a case: entries → specs, the order in which the places that may name them are asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from agentv.datasets.case.keys import Memo
from agentv.datasets.formats.yaml_dataset import parse_yaml_file
from agentv.datasets.formats.yaml_parser import YamlError, parse_yaml
from agentv.errors import UsageError
from agentv.model.evaluator import DEFAULT_EVALUATOR, EvaluatorSpec
from agentv.model.values import FrozenDict, freeze
from agentv.registry import EVALUATORS
from agentv.settings.diagnostics import KeyPath, Problem, Problems, did_you_mean, field_name
from agentv.settings.settings_reader import field_of, known_keys, read_settings, read_value
from agentv.support.transform import transform_complaints

_PLAIN_KEYS: dict[str, Any] = {"name": str, "negate": bool, "transform": dict[str, Any], "target": str | list[str]}
_COMMON = ("type", "metric", "weight", "required", "min_score", *_PLAIN_KEYS)
_MAX_WEIGHT = 1e100
LIST_KEYS = ("evaluators", "assertions", "assert")


class Chosen(msgspec.Struct, frozen=True):
    """The evaluators one level gives. `kind_only`: by `evaluator: <type>`, so that a list elsewhere would beat it."""

    specs: tuple[EvaluatorSpec, ...]
    kind_only: bool = False


DEFAULT = Chosen((DEFAULT_EVALUATOR,), kind_only=True)


def read_level(data: dict[str, Any], execution: Any, path: KeyPath, problems: Problems) -> Chosen | None:
    """What one level (a case, or a document) says: `execution.evaluators`, else its list, else its kind; None: nothing.

    Two lists on one level are an error: nobody could say which was meant.
    """
    places: list[KeyPath] = [(*path, key) for key in LIST_KEYS if data.get(key) is not None]
    lists = [data[key] for key in LIST_KEYS if data.get(key) is not None]
    if isinstance(execution, dict) and execution.get("evaluators") is not None:
        places.insert(0, (*path, "execution", "evaluators"))
        lists.insert(0, execution["evaluators"])
    if len(lists) > 1:
        names = " and ".join(f"'{field_name(place)}'" for place in places)
        problems.error(places[1], f"Two lists of evaluators on one level: {names}", "Keep one of them")
    kind = data.get("evaluator")
    if lists:
        if kind is not None:
            problems.warning((*path, "evaluator"), f"Field 'evaluator' is ignored beside '{field_name(places[0])}'")
        return Chosen(_remembered_entries(lists[0], places[0], problems))
    if kind is None:
        return None
    if not isinstance(kind, str):
        problems.wrong_type((*path, "evaluator"), "a string", kind, "Several evaluators go into the list 'evaluators'")
        return None
    spec = _read_entry({"type": kind}, (*path, "evaluator"), problems, place_of_type=(*path, "evaluator"))
    return None if spec is None else Chosen(named((spec,)), kind_only=True)


def choose(
    case: Chosen | None, dataset: Chosen, rubric: EvaluatorSpec | None, *, inherit: bool
) -> tuple[EvaluatorSpec, ...]:
    """The effective list: the case's or the dataset's, rubrics before it, and alone beside the default judge."""
    chosen = case or dataset
    specs = chosen.specs
    if inherit and case is not None and case is not dataset:
        specs = (*dataset.specs, *specs)
    if rubric is None:
        return named(specs) if inherit else specs
    if chosen.kind_only and specs == (DEFAULT_EVALUATOR,):
        return named((rubric,))
    return named((rubric, *specs))


def read_rubrics(items: Any, path: KeyPath, problems: Problems) -> EvaluatorSpec | None:
    """The `rubrics` of a case as one evaluator."""
    if not isinstance(items, list):
        problems.wrong_type(path, "an array", items)
        return None
    if not items:
        return None
    for index, item in enumerate(items):
        if not isinstance(item, str | dict):
            problems.wrong_type((*path, index), "a string or an object", item)
            return None
    return _read_entry({"type": "rubric", "rubrics": items}, path, problems, place_of_rubrics=path)


def read_entries(entries: Any, path: KeyPath, problems: Problems) -> tuple[EvaluatorSpec, ...]:
    """A list of entries as specs with names. Plain strings are items of one rubric, placed where the first stands."""
    if not isinstance(entries, list):
        problems.wrong_type(path, "an array", entries)
        return ()
    texts = [entry for entry in entries if isinstance(entry, str)]
    first_text = next((index for index, entry in enumerate(entries) if isinstance(entry, str)), None)
    specs: list[EvaluatorSpec] = []
    for index, entry in enumerate(entries):
        place = (*path, index)
        if isinstance(entry, str) and _canonical_type(entry.strip())[0] is not None:
            message = f"Field '{field_name(place)}' is read as a rubric item: '{entry}'"
            hint = f"For the evaluator of this type write {{type: {entry.strip()}}}"
            problems.warning(place, message, hint, topic=f"a type as a rubric item: {entry}")
        if index == first_text:
            specs.append(_text_rubric(texts))
        elif isinstance(entry, str):
            continue
        elif isinstance(entry, dict):
            spec = _read_entry(entry, place, problems)
            if spec is not None:
                specs.append(spec)
        else:
            problems.wrong_type(place, "an object or a string", entry)
    return named(tuple(specs))


_remembered_entries = Memo(read_entries)


def named(specs: tuple[EvaluatorSpec, ...]) -> tuple[EvaluatorSpec, ...]:
    """The same specs with names that differ: the type where none was given, then `type-2` and so on."""
    taken: dict[str, int] = {}
    result = []
    for spec in specs:
        name = base = spec.name or spec.type
        while name in taken:
            taken[base] = taken.get(base, 1) + 1
            name = f"{base}-{taken[base]}"
        taken.setdefault(name, 1)
        result.append(spec if spec.name == name else msgspec.structs.replace(spec, name=name))
    return tuple(result)


class Needs(NamedTuple):
    """What a case must have for an evaluator to score it."""

    reference: bool = False
    context: bool = False


def needs_of(spec: EvaluatorSpec) -> Needs:
    """Whether a case without an expected output, or without `context`, cannot be scored by this evaluator."""
    try:
        kind = EVALUATORS.find(spec.type)
    except KeyError:
        return Needs()
    settings = read_settings(kind, spec.settings, (), Problems())
    return Needs() if settings is None else Needs(settings.needs_reference, settings.needs_context)


def _text_rubric(texts: list[str]) -> EvaluatorSpec:
    """As many checks as there are strings, so it weighs as much as they would each on their own."""
    return EvaluatorSpec(
        type="rubric", name="", weight=float(len(texts)), settings=FrozenDict({"rubrics": freeze(texts)})
    )


def _read_entry(
    entry: dict[str, Any],
    path: KeyPath,
    problems: Problems,
    *,
    place_of_type: KeyPath | None = None,
    place_of_rubrics: KeyPath | None = None,
) -> EvaluatorSpec | None:
    before = len(problems.errors)
    found = _type_of(entry, path, problems, place_of_type)
    if found is None:
        return None
    type_, negated = found
    own = {key: value for key, value in entry.items() if key not in _COMMON}
    if type_ == "code_judge" and isinstance(entry.get("target"), bool | dict):
        # Here `target` does not name a judge: it lets the program ask a model, with a limit on how often.
        own["target_proxy"] = entry["target"]
        entry = {key: value for key, value in entry.items() if key != "target"}
    common = _read_common(entry, path, problems)
    for complaint in transform_complaints(common.get("transform")):
        problems.error((*path, "transform"), complaint)
    _check_own(type_, own, path, problems, place_of_rubrics)
    for key in LIST_KEYS if type_ == "composite" else ():
        if own.get(key) is not None:
            own[key] = [member.to_data() for member in read_entries(own[key], (*path, key), problems)]
    if len(problems.errors) > before:
        return None
    return EvaluatorSpec(
        type=type_,
        name=common["name"].strip(),
        weight=common.get("weight", 1.0),
        required=common.get("required", False),
        negate=bool(common.get("negate", False)) != negated,
        transform=freeze(common["transform"]) if "transform" in common else None,
        target=tuple(target) if isinstance(target := common.get("target"), list) else target,
        settings=freeze({_canonical(type_, key): value for key, value in own.items() if value is not None}),
    )


def _type_of(
    entry: dict[str, Any], path: KeyPath, problems: Problems, place: KeyPath | None
) -> tuple[str, bool] | None:
    """The canonical type and whether it was written with promptfoo's `not-` before it."""
    key = "type" if entry.get("type") is not None else "name"
    written = entry.get(key)
    if not isinstance(written, str):
        if written is None:
            problems.missing((*path, "type"), "An evaluator needs a 'type'")
        else:
            problems.wrong_type((*path, key), "a string", written)
        return None
    type_, negated = _canonical_type(written)
    if type_ is None:
        place = place or (*path, key)
        what = "Unknown evaluator type" if key == "type" else "No evaluator 'type', and the name is no type either:"
        problems.error(place, f"{what} '{written}'", EVALUATORS.suggestion(_without_not(written)))
        return None
    return type_, negated


def _canonical_type(written: str) -> tuple[str | None, bool]:
    """The type, and whether a `not-` turns it around; a plug-in whose own name begins so is itself."""
    type_ = EVALUATORS.canonical(written)
    bare = _without_not(written)
    return (type_, False) if type_ is not None or bare == written else (EVALUATORS.canonical(bare), True)


def _without_not(written: str) -> str:
    return written[4:] if written.startswith(("not-", "not_")) else written


def _read_common(entry: dict[str, Any], path: KeyPath, problems: Problems) -> dict[str, Any]:
    """The keys every entry may have, each checked."""
    given = {key: value for key, value in entry.items() if value is not None}
    given.setdefault("name", given.get("metric", ""))
    values = {
        key: read_value(type_, given[key], (*path, key), problems) for key, type_ in _PLAIN_KEYS.items() if key in given
    }
    if "weight" in given:
        values["weight"] = _weight(given["weight"], path, problems)
    if "required" in given:
        values["required"] = _required(given["required"], path, problems)
    if "min_score" in given:
        values["required"] = _min_score(given, path, problems)
    return values


def _weight(value: Any, path: KeyPath, problems: Problems) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        problems.wrong_type((*path, "weight"), "a number", value)
        return 1.0
    if value < 0:
        problems.error((*path, "weight"), f"Field '{field_name((*path, 'weight'))}' must not be negative, got {value}")
    if value > _MAX_WEIGHT:
        problems.error((*path, "weight"), f"Field '{field_name((*path, 'weight'))}' is too large")
    return float(min(value, _MAX_WEIGHT))


def _min_score(given: dict[str, Any], path: KeyPath, problems: Problems) -> bool | float:
    """AgentV 4.x writes the minimum of a required evaluator apart; without `required` it decides nothing."""
    minimum = _required(given["min_score"], path, problems)
    if given.get("required") is True:
        return minimum
    problems.warning((*path, "min_score"), "Field 'min_score' has no effect without 'required: true'")
    return bool(given.get("required", False))


def _required(value: Any, path: KeyPath, problems: Problems) -> bool | float:
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        name = field_name((*path, "required"))
        problems.error((*path, "required"), f"Field '{name}' must be true, false or a score from 0 to 1")
        return False
    return float(value)


def _check_own(
    type_: str, own: dict[str, Any], path: KeyPath, problems: Problems, place_of_rubrics: KeyPath | None
) -> None:
    """Holds the type's own settings against the class that declares them; composites against their members too."""
    if ".py:" in type_:
        return
    try:
        kind = EVALUATORS.find(type_)
    except UsageError as error:
        problems.error(path, f"{error.headline}: {error.detail}")
        return
    if not hasattr(kind, "open_settings"):
        problems.error(path, f"The plug-in '{type_}' is no subclass of agentv.evaluators.base.Evaluator")
        return
    own_problems = Problems()
    settings = read_settings(kind, own, (), own_problems)
    for problem in own_problems:
        if problem.severity == "warning" and kind.open_settings:
            continue
        place = (*path, *problem.path)
        if problem.severity == "warning" and len(problem.path) == 1:
            meant = did_you_mean(str(problem.path[0]), [*known_keys(kind), *_COMMON])
            problem = msgspec.structs.replace(problem, hint=meant or problem.hint)
        if place_of_rubrics is not None and problem.path[:1] == ("rubrics",):
            place = (*place_of_rubrics, *problem.path[1:])
        problems.append(msgspec.structs.replace(problem, path=place, message=_at(problem.message, problem.path, place)))
    for complaint in settings.complaints() if settings is not None else ():
        problems.error(path, complaint)


def _canonical(type_: str, key: str) -> str:
    """The name of a setting, whichever of its spellings was used; a key that is the user's own stays as it is."""
    field = None if ".py:" in type_ else field_of(EVALUATORS.find(type_), key)
    return key if field is None else field.encode_name


def _at(message: str, path: KeyPath, place: KeyPath) -> str:
    """A message that names a key by its path inside the entry, with the path inside the case instead."""
    return message.replace(f"'{field_name(path)}'", f"'{field_name(place)}'", 1)


_FILES = (".yaml", ".yml", ".json")


def given_entries(values: Sequence[str]) -> list[Any]:
    """The entries that `--evaluator` names: a type, an object such as `{type: contains, value: yes}`, or a file."""
    entries: list[Any] = []
    for value in values:
        if value.lower().endswith(_FILES):
            entries += _in_file(value)
        elif value.lstrip().startswith("{"):
            entries.append(_inline(value))
        else:
            entries.append({"type": value})
    return entries


def specs_of(entries: Sequence[Any]) -> tuple[tuple[EvaluatorSpec, ...], list[Problem]]:
    """Entries as specs, and what there is to warn of. Raises UsageError for what is wrong."""
    problems = Problems()
    specs = read_entries(list(entries), ("evaluators",), problems)
    for problem in problems.errors:
        raise UsageError(problem.message, hint=problem.hint)
    return specs, list(problems)


def _inline(text: str) -> Any:
    try:
        return parse_yaml(text.encode())
    except YamlError as error:
        raise UsageError(f"--evaluator: {error.what}, in {text!r}", hint=error.hint) from None


def _in_file(path: str) -> list[Any]:
    if not os.path.isfile(path):
        raise UsageError(
            f"No such file: {path}", hint="--evaluator takes a type, an object, or a file with a list of them"
        )
    data = parse_yaml_file(path)
    if isinstance(data, dict):
        listed = next((data[key] for key in LIST_KEYS if data.get(key) is not None), None)
        return listed if isinstance(listed, list) else [data]
    if isinstance(data, list):
        return data
    raise UsageError(f"No evaluators in {path}", "It holds neither an object nor a list")
