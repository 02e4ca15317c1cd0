"""Evaluators that a command or a program gives in place of the cases' own: names, objects, or files with a list."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from agentv.datasets.evaluators import LIST_KEYS, read_entries
from agentv.datasets.yaml_document import parse_yaml_file
from agentv.datasets.yaml_nodes import YamlError, parse_yaml
from agentv.errors import UsageError
from agentv.model.evaluator import EvaluatorSpec
from agentv.problems import Problem, Problems

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
