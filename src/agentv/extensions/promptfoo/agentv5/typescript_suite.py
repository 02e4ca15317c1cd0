"""Suites of AgentV (TypeScript) in TypeScript: the object that a trusted `.eval.ts` file exports, as a document."""

from __future__ import annotations

import os
import re
from typing import Any

from agentv.datasets.foreign.foreign_format import document_of, record_file
from agentv.datasets.foreign.values import object_at
from agentv.extensions.promptfoo.functions import CodeNotRun
from agentv.extensions.promptfoo.functions.exported_object import exported_object, functions_in
from agentv.extensions.promptfoo.script_config import NOT_CALLED
from agentv.model.values import to_json
from agentv.support.yaml.yaml_parser import parse_yaml

_ENDINGS = (".eval.ts", ".eval.mts")
_SNAKE_CASE = (
    *("after_all", "after_each", "args_match", "before_all", "before_each", "budget_usd", "cache_path"),
    *("conversation_id", "cost_limit_usd", "depends_on", "early_exit", "expected_output", "fail_on_error"),
    *("input_files", "max_concurrency", "max_cost_usd", "max_duration_ms", "max_tool_calls", "min_score", "max_steps"),
    *("on_dependency_failure", "on_turn_failure", "output_path", "score_ranges", "skip_defaults", "timeout_ms"),
    *("timeout_seconds", "use_target", "window_size"),
)
_NAMES = {re.sub(r"_(.)", lambda match: match[1].upper(), name): name for name in _SNAKE_CASE}
"""Keys of TypeScript, and those of YAML."""

_OPTIONS = {"workers": "max_concurrency", "budget_usd": "budget_usd", "repeat": "repeat"}
"""Keys of a suite in TypeScript that are options of the evaluation."""

_DATA = ("vars", "metadata")
"""Keys whose values are the user's own data."""


def is_typescript(path: str) -> bool:
    """Whether a file is a suite in TypeScript, by its name."""
    return path.lower().endswith(_ENDINGS)


def document_at(path: str) -> dict[str, Any]:
    """Return the document of a suite: of a file, or the object that a TypeScript file exports. Raises ValueError."""
    if not is_typescript(path):
        return document_of(record_file(path))
    name = os.path.basename(path)
    try:
        exported = exported_object(path)
    except CodeNotRun:
        test = {"id": f"(the tests of {name})", "input": "(the input)", "assert": [{"type": "regex", "value": "."}]}
        return {NOT_CALLED: True, "tests": [test]}
    if not isinstance(exported, dict) or exported.keys().isdisjoint(("tests", "scenarios", "specFile")):
        raise ValueError(f"'{name}' must export a suite with `tests`, as its default, `config` or `evalConfig`")
    if "specFile" in exported:
        raise ValueError(f"'{name}' names another suite in `specFile`. Pass that file: {exported['specFile']}")
    for place in functions_in(exported):
        raise ValueError(f"'{place}' of '{name}' is a function. Write a target or a `script` assertion instead")
    document: dict[str, Any] = parse_yaml(to_json(_as_yaml(exported)))  # whose objects have positions
    return document


def _as_yaml(exported: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the keys of a suite in YAML."""
    document: dict[str, Any] = _renamed(exported)
    options = {name: document.pop(key) for key, name in _OPTIONS.items() if key in document}
    if options:
        document["evaluate_options"] = {**options, **object_at(document, "evaluate_options")}
    return {key: value for key, value in document.items() if value is not None}


def _renamed(value: Any) -> Any:
    """Return a value with the keys of YAML; `assertions` are `assert`."""
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {**_NAMES, "assertions": "assert"}
    return {names.get(key, key): item if key in _DATA else _renamed(item) for key, item in value.items()}
