"""Run defaults of `.agentv/config.yaml`, and which value holds where several give one.

From strongest: command line, case, dataset, target, configuration, default. Datasets and cases are merged when they are
read; the rest of the order is what `first_given` is called with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from agentv.config import ProjectConfig, RunDefaults, check_config
from agentv.datasets.guidelines import config_file
from agentv.datasets.yaml_document import parse_yaml_file
from agentv.datasets.yaml_nodes import locate
from agentv.errors import DatasetWarning, InvalidDatasetError, UsageError
from agentv.model.execution import DEFAULT_TARGET
from agentv.problems import Problems
from agentv.settings import read_settings
from agentv.suggest import did_you_mean

Value = TypeVar("Value")


def first_given(*values: Value | None) -> Value | None:
    """The first that is not None: values go from strongest to weakest."""
    return next((value for value in values if value is not None), None)


def load_defaults(folder: str, root: str, warn: Callable[[DatasetWarning], None]) -> RunDefaults:
    """What the nearest configuration from a folder up to the root says of runs; nothing where there is none."""
    path = config_file(folder, root)
    if path is None:
        return RunDefaults()
    data = parse_yaml_file(path)
    for problem in check_config(data):
        mark = locate(data, problem.path)
        line = mark.line if mark else 1
        if problem.severity == "warning":
            hint = f" ({problem.hint})" if problem.hint else ""
            message = f"{path}, line {line}: {problem.message}{hint}"
            warn(DatasetWarning(message, path=path, line=line, field=problem.field, hint=problem.hint))
            continue
        headline = f"Invalid configuration at line {line} in {path}"
        raise InvalidDatasetError(headline, problem.message, problem.hint, path=path, line=line)
    config = read_settings(ProjectConfig, data, (), Problems()) if data is not None else None
    return config.execution if config is not None else RunDefaults()


def given_defaults(defaults: RunDefaults) -> dict[str, Any]:
    """What a configuration says, as a manifest keeps it."""
    said: dict[str, Any] = msgspec.to_builtins(defaults)
    return {name: value for name, value in said.items() if value is not None}


def default_target(known: Sequence[str], defaults: RunDefaults) -> str | None:
    """Who answers where nobody is named: the configuration's target, else `default`, else the only one there is."""
    if defaults.target is not None:
        if defaults.target not in known:
            hint = did_you_mean(defaults.target, known) or f"Known targets: {', '.join(known) or 'none'}"
            detail = "'execution.target' of .agentv/config.yaml names it"
            raise UsageError(f"Unknown target '{defaults.target}'", detail, hint)
        return defaults.target
    if DEFAULT_TARGET in known:
        return DEFAULT_TARGET
    return known[0] if len(known) == 1 else None
