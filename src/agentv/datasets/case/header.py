"""What a dataset says once for all its cases: the keys of a YAML document or of a sidecar, and their defaults."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from agentv.datasets.case.keys import ExecutionKeys, HeaderKeys, Memo
from agentv.datasets.case.prompts import Prompt, read_prompt
from agentv.datasets.files import CONFIG_FILE, FileFinder
from agentv.datasets.formats.yaml_dataset import parse_yaml_file
from agentv.datasets.formats.yaml_parser import YamlError, locate, parse_yaml
from agentv.errors import InvalidDatasetError, UsageError
from agentv.model.evaluator import DEFAULT_EVALUATOR, RUBRIC_TYPE, EvaluatorSpec, Execution
from agentv.model.values import FrozenDict, freeze
from agentv.settings.diagnostics import KeyPath, Problem, Problems, field_name
from agentv.settings.evaluator_reader import named, read_entries, read_entry
from agentv.settings.settings_reader import read_settings, read_value
from agentv.support.patterns import upward

LIST_KEYS = ("evaluators", "assertions", "assert")
_FILES = (".yaml", ".yml", ".json")

_remembered_entries = Memo(read_entries)


class Chosen(msgspec.Struct, frozen=True):
    """The evaluators one level gives. `kind_only`: by `evaluator: <type>`, so that a list elsewhere would beat it."""

    specs: tuple[EvaluatorSpec, ...]
    kind_only: bool = False


DEFAULT_CHOICE = Chosen((DEFAULT_EVALUATOR,), kind_only=True)


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset's settings, checked, with defaults in place."""

    dataset: str
    description: str = ""
    execution: Execution = Execution()
    evaluators: Chosen = DEFAULT_CHOICE
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
    for key in HeaderKeys.informational:
        if key in data:
            problems.warning((key,), f"Field '{key}' has no effect", "Keep such notes under 'metadata'")
    data = {key: value for key, value in data.items() if key not in HeaderKeys.informational}
    keys = read_settings(HeaderKeys, data, (), problems) or HeaderKeys()
    _note_rivals(data, problems)
    execution = read_execution(keys.execution)
    if execution.target is None and not execution.targets and keys.target is not None:
        execution = msgspec.structs.replace(execution, target=keys.target)
    prompts = _read_prompts(data, keys, finder, problems)
    return Header(
        dataset=(keys.dataset or "").strip() or default_name,
        description=keys.description or "",
        execution=execution,
        evaluators=read_level(data, data.get("execution"), (), problems) or DEFAULT_CHOICE,
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
    thresholds = None if keys.thresholds is None else freeze(keys.thresholds)
    return Execution(keys.target, keys.targets, keys.trials, keys.timeout_seconds, keys.verdicts, thresholds)


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
    return () if path is None else _patterns(path, os.stat(path).st_mtime_ns)


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
        headline = f"Invalid configuration at line {line} in {path}"
        raise InvalidDatasetError(headline, problem.message, path=path, line=line)
    return tuple(patterns)


def read_level(data: dict[str, Any], execution: Any, path: KeyPath, problems: Problems) -> Chosen | None:
    """What one level (a case, or a document) says: `execution.evaluators`, else its list, else its kind; None: nothing.

    Two lists on one level are an error: nobody could say which was meant.
    """
    lists = {(*path, key): data[key] for key in LIST_KEYS if data.get(key) is not None}
    if isinstance(execution, dict) and execution.get("evaluators") is not None:
        lists = {(*path, "execution", "evaluators"): execution["evaluators"], **lists}
    if len(lists) > 1:
        names = " and ".join(f"'{field_name(place)}'" for place in lists)
        problems.error(list(lists)[1], f"Two lists of evaluators on one level: {names}", "Keep one of them")
    kind, place = data.get("evaluator"), (*path, "evaluator")
    if lists:
        list_place, entries = next(iter(lists.items()))
        if kind is not None:
            problems.warning(place, f"Field 'evaluator' is ignored beside '{field_name(list_place)}'")
        return Chosen(_remembered_entries(entries, list_place, problems))
    if kind is None:
        return None
    if not isinstance(kind, str):
        problems.wrong_type(place, "a string", kind, "Several evaluators go into the list 'evaluators'")
        return None
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
            try:
                entries.append(parse_yaml(value.encode()))
            except YamlError as error:
                raise UsageError(f"--evaluator: {error.what}, in {value!r}", hint=error.hint) from None
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


def _in_file(path: str) -> list[Any]:
    if not os.path.isfile(path):
        hint = "--evaluator takes a type, an object, or a file with a list of them"
        raise UsageError(f"No such file: {path}", hint=hint)
    data = parse_yaml_file(path)
    if isinstance(data, dict):
        listed = next((data[key] for key in LIST_KEYS if data.get(key) is not None), None)
        return listed if isinstance(listed, list) else [data]
    if isinstance(data, list):
        return data
    raise UsageError(f"No evaluators in {path}", "It holds neither an object nor a list")
