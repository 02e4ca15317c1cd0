"""The run defaults of the project's configuration."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from agentv.datasets.case.header import config_file
from agentv.errors import DatasetWarning, InvalidDatasetError, UsageError
from agentv.model.diagnostics import Problems, did_you_mean
from agentv.model.evaluator import DEFAULT_TARGET
from agentv.settings.frozen_settings import parse_settings_file
from agentv.settings.project import ignored_marks
from agentv.settings.settings_reader import ProjectConfig, RunDefaults, as_config, check_config, read_settings
from agentv.support.yaml.yaml_parser import locate
from agentv.trust.roots import distrust

Value = TypeVar("Value")


def first_given(*values: Value | None) -> Value | None:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


def load_defaults(folder: str, root: str, warn: Callable[[DatasetWarning], None]) -> RunDefaults:
    """Read the run defaults from the nearest configuration file between a folder and the project root."""
    path = config_file(folder, root)
    for note in unsafe_settings(folder, path):
        warn(DatasetWarning(note))
    if path is None or distrust(path):
        return RunDefaults()
    data = as_config(parse_settings_file(path), path)
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


def unsafe_settings(folder: str, config: str | None) -> Iterator[str]:
    """Yield why projects around a folder and a configuration file are not used: others could have written them."""
    for parent, reason in ignored_marks(folder).items():
        yield f"{parent} is not your project: {reason}. If you trust it, pass --trust {shlex.quote(parent)}"
    if config is not None and (reason := distrust(config)):
        yield f"{config} is not used: {reason}"


def given_defaults(defaults: RunDefaults) -> dict[str, Any]:
    """Return the configured run defaults as stored in the manifest."""
    values: dict[str, Any] = msgspec.to_builtins(defaults)
    return {name: value for name, value in values.items() if value is not None}


def default_target(names: Sequence[str], defaults: RunDefaults) -> str | None:
    """Return the default target: the configured one, else the one named `default`, else the only one."""
    if defaults.target is not None:
        if defaults.target not in names:
            hint = did_you_mean(defaults.target, names) or f"Known targets: {', '.join(names) or 'none'}"
            detail = "Set as 'execution.target' in .agentv/config.yaml"
            raise UsageError(f"Unknown target '{defaults.target}'", detail, hint)
        return defaults.target
    if DEFAULT_TARGET in names:
        return DEFAULT_TARGET
    return names[0] if len(names) == 1 else None
