"""Builds an evaluator from its spec, where it runs: the class its type names, with the settings of the entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentv.errors import UsageError
from agentv.evaluators.base import Evaluator
from agentv.model.evaluator import EvaluatorSpec
from agentv.registry import EVALUATORS
from agentv.settings.diagnostics import Problems
from agentv.settings.settings_reader import field_of, read_settings
from agentv.support.transform import transform_complaints
from agentv.support.user_code import FunctionError, load


def build(spec: EvaluatorSpec, find_file: Callable[[str], str] = str) -> Evaluator:
    """The evaluator of a spec. Raises UsageError for one that cannot be used, with everything that is wrong.

    `find_file` finds the file of a type `file.py:Class`, as it finds other files that a dataset names.
    """
    custom = ".py:" in spec.type
    kind = _custom_kind(spec, find_file) if custom else _known_kind(spec)
    problems = Problems()
    # Loading has warned of keys that a built-in type does not know; of a custom type it could not know any.
    evaluator = read_settings(kind, _own_settings(kind, spec.settings), (), problems, strict=custom)
    found = [f"{problem.message}. {problem.hint}".removesuffix(". ") for problem in problems.errors]
    if evaluator is not None:
        found += evaluator.complaints()
    found += transform_complaints(spec.transform)
    if found or evaluator is None:
        raise _unusable(spec, "\n".join(found))
    return evaluator


def _known_kind(spec: EvaluatorSpec) -> type[Evaluator]:
    name = EVALUATORS.canonical(spec.type)
    if name is None:
        raise UsageError(f"Unknown evaluator type '{spec.type}'", hint=EVALUATORS.suggestion(spec.type))
    kind = EVALUATORS.find(name)
    return _checked_kind(spec, kind)


def _custom_kind(spec: EvaluatorSpec, find_file: Callable[[str], str]) -> type[Evaluator]:
    try:
        kind = load(spec.type, find_file)
    except FunctionError as error:
        raise _unusable(spec, str(error)) from error
    return _checked_kind(spec, kind)


def _checked_kind(spec: EvaluatorSpec, kind: Any) -> type[Evaluator]:
    if isinstance(kind, type) and issubclass(kind, Evaluator):
        return kind
    hint = ""
    if callable(kind) and not isinstance(kind, type):
        hint = f"A function is used with `type: python` and `function: {spec.type}`"
    raise _unusable(spec, f"'{spec.type}' is no subclass of agentv.evaluators.base.Evaluator", hint)


def _own_settings(kind: type[Evaluator], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as the class declares them; of an open type, keys that are no fields join `config`."""
    own = {key: value for key, value in settings.items() if field_of(kind, key) is not None}
    further = {key: value for key, value in settings.items() if key not in own}
    if not kind.open_settings:
        return own | further
    if further and isinstance(own.get("config", {}), Mapping):
        own["config"] = further | own.get("config", {})
    return own


def _unusable(spec: EvaluatorSpec, detail: str, hint: str = "") -> UsageError:
    return UsageError(f"Evaluator '{spec.name or spec.type}' cannot be used", detail, hint)
