"""Finds the evaluator of a spec: the one that reading built, else a class in a user's file."""

from __future__ import annotations

from collections.abc import Callable

from agentv.errors import UsageError
from agentv.model.evaluator import Evaluator, EvaluatorSpec
from agentv.registry import EVALUATORS
from agentv.settings.diagnostics import Problems
from agentv.settings.evaluator_reader import build_evaluator, read_entry
from agentv.support.transform import transform_complaints
from agentv.support.user_code import FunctionError, load


def evaluator_of(spec: EvaluatorSpec, find_file: Callable[[str], str] = str) -> Evaluator:
    """The evaluator of a spec. Raises UsageError for one that cannot be used, with everything that is wrong.

    `find_file` finds the file of a type `file.py:Class` like other files that a dataset names.
    """
    if spec.evaluator is not None:
        return spec.evaluator
    problems = Problems()
    if ".py:" in spec.type:
        evaluator = build_evaluator(_load_kind(spec, find_file), spec.settings, problems, strict=True)
        for complaint in transform_complaints(spec.transform):
            problems.error((), complaint)
    elif EVALUATORS.canonical(spec.type) is None:
        raise UsageError(f"Unknown evaluator type '{spec.type}'", hint=EVALUATORS.suggestion(spec.type))
    else:
        read = read_entry(spec.to_data(), (), problems)
        evaluator = None if read is None else read.evaluator
    if problems.errors or evaluator is None:
        found = [f"{problem.message}. {problem.hint}".removesuffix(". ") for problem in problems.errors]
        raise _unusable(spec, "\n".join(found))
    return evaluator


def _load_kind(spec: EvaluatorSpec, find_file: Callable[[str], str]) -> type[Evaluator]:
    try:
        kind = load(spec.type, find_file)
    except FunctionError as error:
        raise _unusable(spec, str(error)) from error
    if isinstance(kind, type) and issubclass(kind, Evaluator):
        return kind
    hint = ""
    if callable(kind) and not isinstance(kind, type):
        hint = f"A function is used with `type: python` and `function: {spec.type}`"
    raise _unusable(spec, f"'{spec.type}' is no subclass of agentv.evaluators.base.Evaluator", hint)


def _unusable(spec: EvaluatorSpec, detail: str, hint: str = "") -> UsageError:
    return UsageError(f"Evaluator '{spec.name or spec.type}' cannot be used", detail, hint)
