"""What a dataset says once for all its cases: the keys of a YAML document or of a sidecar, and their defaults."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from agentv.datasets.case import evaluator_entries as evaluators
from agentv.datasets.case.keys import ExecutionKeys, HeaderKeys
from agentv.datasets.case.prompts import Prompt, read_prompt
from agentv.datasets.files import CONFIG_FILE, FileFinder
from agentv.datasets.formats.yaml_dataset import parse_yaml_file
from agentv.datasets.formats.yaml_parser import locate
from agentv.errors import InvalidDatasetError
from agentv.model.evaluator import Execution
from agentv.model.values import FrozenDict, freeze
from agentv.settings.diagnostics import KeyPath, Problems
from agentv.settings.settings_reader import read_settings, read_value
from agentv.support.patterns import upward


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset's settings, checked, with defaults in place."""

    dataset: str
    description: str = ""
    execution: Execution = Execution()
    evaluators: evaluators.Chosen = evaluators.DEFAULT
    inherit_evaluators: bool = False
    prompts: tuple[Prompt, ...] = ()
    several_prompts: bool = False
    prompt_failed: bool = False
    format: str | None = None
    metadata: FrozenDict = FrozenDict()
    tags: tuple[str, ...] = ()

    def with_metadata(self, metadata: dict[str, Any]) -> FrozenDict:
        """A case's metadata over the dataset's, by key."""
        frozen: FrozenDict = freeze(metadata)
        return FrozenDict({**self.metadata, **frozen}) if self.metadata else frozen

    def with_tags(self, tags: Iterable[str]) -> tuple[str, ...]:
        """The dataset's tags and a case's, each once."""
        return tuple(dict.fromkeys((*self.tags, *tags)))


def read_header(data: dict[str, Any], default_name: str, finder: FileFinder, problems: Problems) -> Header:
    """The header in `data`; what is wrong in it is noted in `problems`."""
    data = _without_informational(data, problems)
    keys = read_settings(HeaderKeys, data, (), problems) or HeaderKeys()
    _note_rivals(data, problems)
    execution = read_execution(keys.execution)
    if execution.target is None and not execution.targets and keys.target is not None:
        execution = msgspec.structs.replace(execution, target=keys.target)
    name = (keys.dataset or "").strip()
    prompts = _read_prompts(data, keys, finder, problems)
    return Header(
        dataset=name or default_name,
        description=keys.description or "",
        execution=execution,
        evaluators=evaluators.read_level(data, data.get("execution"), (), problems) or evaluators.DEFAULT,
        inherit_evaluators=keys.execution is not None and keys.execution.inherit_evaluators,
        prompts=prompts,
        several_prompts=keys.prompts is not None,
        prompt_failed=bool(data.get("prompt") or data.get("prompts")) and not prompts,
        format=keys.format,
        metadata=freeze(keys.metadata or {}),
        tags=tuple(dict.fromkeys(keys.tags or ())),
    )


def read_execution(keys: ExecutionKeys | None) -> Execution:
    """An `execution` block without what concerns evaluators."""
    if keys is None:
        return Execution()
    return Execution(
        keys.target, tuple(keys.targets), keys.trials, keys.timeout_seconds, keys.verdicts, _frozen(keys.thresholds)
    )


def _frozen(thresholds: dict[str, float] | None) -> FrozenDict | None:
    return None if thresholds is None else freeze(thresholds)


def _without_informational(data: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """Keys that AgentV keeps for people have no effect on a run; that is said once."""
    for key in HeaderKeys.informational:
        if key in data:
            problems.warning((key,), f"Field '{key}' has no effect", "Keep such notes under 'metadata'")
    return {key: value for key, value in data.items() if key not in HeaderKeys.informational}


def _note_rivals(data: dict[str, Any], problems: Problems) -> None:
    """Two keys that say the same thing: which one is taken is said, unless that would be a guess."""
    execution = data.get("execution")
    if isinstance(execution, dict) and execution.get("target") is not None and data.get("target") is not None:
        problems.warning(("target",), "Field 'target' is ignored beside 'execution.target'")
    if data.get("prompt") is not None and data.get("prompts") is not None:
        problems.error(("prompts",), "Both 'prompt' and 'prompts' are given", "Keep one of them")


def _read_prompts(data: dict[str, Any], keys: HeaderKeys, finder: FileFinder, problems: Problems) -> tuple[Prompt, ...]:
    wanted: list[tuple[Any, KeyPath, str]] = []
    if keys.prompt is not None:
        wanted.append((data["prompt"], ("prompt",), "default"))
    for index, entry in enumerate(keys.prompts or ()):
        if any(entry.id == id for _, _, id in wanted):
            problems.error(("prompts", index, "id"), f"The prompt id '{entry.id}' is used twice")
        wanted.append((data["prompts"][index]["prompt"], ("prompts", index, "prompt"), entry.id))
    read = [read_prompt(value, path, problems, finder, id) for value, path, id in wanted]
    return tuple(prompt for prompt in read if prompt is not None)


def guideline_patterns(folder: str, root: str) -> tuple[str, ...]:
    """The patterns that hold for datasets in a folder; none when no configuration gives any."""
    path = config_file(folder, root)
    if path is None:
        return ()
    return _patterns(path, os.stat(path).st_mtime_ns)


def config_file(folder: str, root: str) -> str | None:
    """The nearest configuration from a folder up to the root."""
    places = (os.path.join(parent, CONFIG_FILE) for parent in upward(folder, root))
    return next((path for path in places if os.path.isfile(path)), None)


@lru_cache(maxsize=64)
def _patterns(path: str, modified: int) -> tuple[str, ...]:  # noqa: ARG001  # a changed file is read again
    data = parse_yaml_file(path)
    if not isinstance(data, dict) or data.get("guideline_patterns") is None:
        return ()
    problems = Problems()
    patterns = read_value(list[str], data["guideline_patterns"], ("guideline_patterns",), problems)
    for problem in problems:
        mark = locate(data, problem.path)
        line = mark.line if mark else 1
        raise InvalidDatasetError(
            f"Invalid configuration at line {line} in {path}", problem.message, path=path, line=line
        )
    return tuple(patterns)
