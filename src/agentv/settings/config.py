"""The project's configuration, `.agentv/config.yaml`: guidelines, and defaults for what runs leave open."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.model.execution import Verdicts
from agentv.settings.diagnostics import Problems, type_word
from agentv.settings.settings_reader import read_settings


class RunDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What a run takes where the command, the dataset and the target say nothing."""

    target: str | None = None
    workers: Annotated[int, Meta(ge=1)] | None = None
    trials: Annotated[int, Meta(ge=1)] | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    max_retries: Annotated[int, Meta(ge=0)] | None = None
    verdicts: Verdicts | None = None


class ProjectConfig(msgspec.Struct, frozen=True, kw_only=True, rename={"schema": "$schema"}):
    """The whole file. `guideline_patterns` are globs over paths relative to the project root."""

    aliases: ClassVar[dict[str, str]] = {}

    schema: str | None = None
    version: str | int | float | None = None
    guideline_patterns: tuple[str, ...] = ()
    execution: RunDefaults = RunDefaults()


def check_config(data: Any) -> Problems:
    """Everything wrong with a parsed configuration; an empty file is a configuration without settings."""
    problems = Problems()
    if data is None:
        return problems
    if not isinstance(data, dict):
        problems.error((), f"A configuration must be an object, got {type_word(data)}")
        return problems
    config = read_settings(ProjectConfig, data, (), problems)
    patterns = config.guideline_patterns if config is not None else ()
    for index, pattern in enumerate(patterns):
        if not pattern.strip():
            problems.error(("guideline_patterns", index), f"Field 'guideline_patterns[{index}]' is blank")
    if data.get("guideline_patterns") == []:
        problems.warning(("guideline_patterns",), "Field 'guideline_patterns' is empty: no file is a guideline")
    return problems
