"""Chooses the evaluators of a case: its own, its dataset's, or the default; and those that the command line gives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from agentv.datasets.case.keys import Memo
from agentv.datasets.formats.yaml_dataset import parse_yaml_file
from agentv.datasets.formats.yaml_parser import YamlError, parse_yaml
from agentv.errors import UsageError
from agentv.model.evaluator import DEFAULT_EVALUATOR, RUBRIC_TYPE, EvaluatorSpec
from agentv.settings.diagnostics import KeyPath, Problem, Problems, field_name
from agentv.settings.evaluator_reader import named, read_entries, read_entry

LIST_KEYS = ("evaluators", "assertions", "assert")
_FILES = (".yaml", ".yml", ".json")

_remembered_entries = Memo(read_entries)


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
    place = (*path, "evaluator")
    spec = read_entry({"type": kind}, place, problems, {"type": place})
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
    return read_entry({"type": RUBRIC_TYPE, "rubrics": items}, path, problems, {"rubrics": path})


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
