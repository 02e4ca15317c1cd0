"""Dataset settings that apply to all cases, from a YAML document or a sidecar, and the choice of evaluators."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from agentv.datasets.case.evaluator_entries import read_preprocessors, with_includes, with_own_types, with_preprocessors
from agentv.datasets.case.keys import LIST_KEYS, ExecutionKeys, HeaderKeys, Memo
from agentv.datasets.case.shorthand import NO_INPUT, MessageReader, SuiteInput, read_suite_input
from agentv.datasets.case.workspaces import read_workspace, with_target_hooks
from agentv.datasets.files import FileFinder
from agentv.errors import InvalidDatasetError, UsageError
from agentv.model.diagnostics import KeyPath, Problem, Problems, field_name
from agentv.model.evaluator import DEFAULT_EVALUATOR, RUBRIC_TYPE, EvaluatorSpec, Execution
from agentv.model.values import FrozenDict, freeze
from agentv.model.workspace_settings import Workspace
from agentv.registry import optional_service
from agentv.settings.evaluator_reader import (
    ListsTests,
    named,
    read_entries,
    read_entry,
    with_agentv_defaults,
)
from agentv.settings.project import CONFIG_FILE
from agentv.settings.settings_reader import read_settings, read_value
from agentv.support.patterns import upward
from agentv.support.yaml.yaml_file import parse_yaml_file
from agentv.support.yaml.yaml_parser import YamlError, locate, parse_yaml

if TYPE_CHECKING:
    from agentv.datasets.case.prompts import PromptReader, RenderablePrompt

_DEFAULTS_OF_5X = frozenset({"provider", "target", "grader"})
_FILES = (".yaml", ".yml", ".json")

_read_entries = Memo(read_entries)


class EvaluatorChoice(msgspec.Struct, frozen=True):
    """The evaluators of a dataset or a case. `kind_only`: given as `evaluator: <type>`, which rubrics can replace."""

    specs: tuple[EvaluatorSpec, ...]
    kind_only: bool = False


DEFAULT_CHOICE = EvaluatorChoice((DEFAULT_EVALUATOR,), kind_only=True)


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The validated settings of a dataset, with defaults.

    `requires_agentv_pass`: in cases without a threshold of their own, `required: true` is not that of the dataset.
    """

    dataset: str
    description: str = ""
    execution: Execution = Execution()
    evaluators: EvaluatorChoice = DEFAULT_CHOICE
    inherit_evaluators: bool = False
    input: SuiteInput = NO_INPUT
    preprocessors: tuple[FrozenDict, ...] = ()
    workspace: Workspace | None = None
    prompts: tuple[RenderablePrompt, ...] = ()
    prompt_syntax: str | None = None
    several_prompts: bool = False
    prompt_failed: bool = False
    format: str | None = None
    cluster: str | None = None
    requires_agentv_pass: bool = False
    metadata: FrozenDict = FrozenDict()
    tags: tuple[str, ...] = ()

    def with_metadata(self, metadata: dict[str, Any]) -> FrozenDict:
        """Return a case's metadata merged over the dataset's."""
        frozen: FrozenDict = freeze(metadata)
        return FrozenDict({**self.metadata, **frozen}) if self.metadata else frozen

    def with_tags(self, tags: Iterable[str]) -> tuple[str, ...]:
        """Return the dataset's tags and a case's, without repeats."""
        return tuple(dict.fromkeys((*self.tags, *tags)))

    def read_prompt(self, value: Any, finder: FileFinder, problems: Problems) -> RenderablePrompt | None:
        """Return the prompt of a case; None after adding an error to `problems`."""
        return _prompt_reader(finder, self.prompt_syntax).read(value, ("prompt",), problems)


def read_header(
    data: dict[str, Any], default_name: str, finder: FileFinder, problems: Problems, *, lists_tests: ListsTests = False
) -> Header:
    """Read a dataset's settings, and add the problems in them to `problems`.

    With `lists_tests`, a case's list of evaluators adds to the dataset's by default, as in AgentV (TypeScript).
    """
    data = _without_notes(data, problems)
    keys = read_settings(HeaderKeys, data, (), problems) or HeaderKeys()
    workspace_problems = Problems()
    workspace = None if keys.workspace is None else read_workspace(data["workspace"], finder, workspace_problems)
    problems += workspace_problems.errors  # warnings are already known
    if keys.execution is not None:
        workspace = with_target_hooks(workspace, keys.execution, problems)
    execution = Execution() if keys.execution is None else keys.execution.to_execution()
    if execution.target is not None and keys.target is not None:
        problems.warning(("target",), "Field 'target' is ignored because 'execution.target' is set")
    elif not execution.targets and keys.target is not None:
        execution = msgspec.structs.replace(execution, target=keys.target)
    if keys.weight is not None:
        execution = msgspec.structs.replace(execution, weight=keys.weight)
    if keys.execution is not None and keys.execution.skip_defaults:
        problems.warning(("execution", "skip_defaults"), "Field 'skip_defaults' has no effect here", "Set it in a case")
    prompts = _read_prompts(data, keys, finder, problems)
    evaluators = read_evaluators(data, finder, (), problems, lists_tests=lists_tests) or DEFAULT_CHOICE
    inherit = None if keys.execution is None else keys.execution.inherit_evaluators
    execution_limit = None if keys.execution is None else keys.execution.threshold
    return Header(
        dataset=(keys.dataset or "").strip() or default_name,
        description=keys.description or "",
        execution=execution,
        evaluators=evaluators,
        requires_agentv_pass=lists_tests == "agentv-4" and execution_limit is not None,
        inherit_evaluators=bool(lists_tests) and not evaluators.kind_only if inherit is None else inherit,
        input=read_suite_input(data, MessageReader(finder), problems),
        preprocessors=() if keys.preprocessors is None else read_preprocessors(keys.preprocessors, problems),
        workspace=workspace,
        prompts=prompts,
        prompt_syntax=keys.prompt_syntax,
        several_prompts=keys.prompts is not None,
        prompt_failed=bool(data.get("prompt") or data.get("prompts")) and not prompts,
        format=keys.format,
        cluster=keys.cluster,
        metadata=freeze(keys.metadata or {}),
        tags=tuple(dict.fromkeys(keys.tags or ())),
    )


def _without_notes(data: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """Return the settings without keys that have no effect, after a warning about each of them."""
    notes = [key for key in HeaderKeys.informational if key in data]
    defaults = data.get("defaults")
    if isinstance(defaults, dict) and defaults.keys().isdisjoint(_DEFAULTS_OF_5X):
        notes.append("defaults")  # a place for YAML anchors
    for key in notes:
        problems.warning((key,), f"Field '{key}' has no effect", "Put such notes under 'metadata'")
    return {key: value for key, value in data.items() if key not in notes}


def _read_prompts(
    data: dict[str, Any], keys: HeaderKeys, finder: FileFinder, problems: Problems
) -> tuple[RenderablePrompt, ...]:
    entries: list[tuple[Any, KeyPath, str]] = []
    if data.get("prompt") is not None and data.get("prompts") is not None:
        problems.error(("prompts",), "Both 'prompt' and 'prompts' are set", "Keep one of them")
    if keys.prompt is not None:
        entries.append((data["prompt"], ("prompt",), "default"))
    for index, entry in enumerate(keys.prompts or ()):
        if any(entry.id == id for _, _, id in entries):
            problems.error(("prompts", index, "id"), f"The prompt id '{entry.id}' is used twice")
        entries.append((data["prompts"][index]["prompt"], ("prompts", index, "prompt"), entry.id))
    if not entries:
        return ()
    reader = _prompt_reader(finder, keys.prompt_syntax)
    read = [reader.read(value, path, problems, id) for value, path, id in entries]
    return tuple(prompt for prompt in read if prompt is not None)


def _prompt_reader(finder: FileFinder, syntax: str | None) -> PromptReader:
    from agentv.datasets.case import prompts  # late: minijinja is slow to import

    return prompts.PromptReader(finder, syntax)


def guideline_patterns(folder: str, root: str) -> tuple[str, ...]:
    """Return the guideline patterns for datasets in a folder."""
    path = config_file(folder, root)
    return () if path is None else _patterns(path, os.stat(path).st_mtime_ns)


def config_file(folder: str, root: str) -> str | None:
    """Return the nearest configuration file, from a folder up to the root."""
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


def read_evaluators(
    data: dict[str, Any], finder: FileFinder, path: KeyPath, problems: Problems, *, lists_tests: ListsTests = False
) -> EvaluatorChoice | None:
    """Return the evaluators of a document, a case or a turn: `execution.evaluators`, its list, or its `evaluator`.

    None if there are none. Two lists are an error, because either could be meant. In files of AgentV (TypeScript)
    4.x, which have `lists_tests` or call the list `assertions`, entries have the defaults of 4.x.
    """
    execution = data.get("execution")
    lists = {(*path, key): data[key] for key in LIST_KEYS if data.get(key) is not None}
    if isinstance(execution, dict) and execution.get("evaluators") is not None:
        lists = {(*path, "execution", "evaluators"): execution["evaluators"], **lists}
    if len(lists) > 1:
        names = " and ".join(f"'{field_name(place)}'" for place in lists)
        problems.error(list(lists)[1], f"Evaluators are listed twice: {names}", "Keep one of the lists")
    kind, place = data.get("evaluator"), (*path, "evaluator")
    if lists:
        list_place, entries = next(iter(lists.items()))
        if kind is not None:
            problems.warning(place, f"Field 'evaluator' is ignored because '{field_name(list_place)}' is set")
        entries = with_own_types(with_includes(entries, finder, list_place, problems), finder)
        if lists_tests or list_place[-1] != "evaluators":
            entries = with_agentv_defaults(entries, lists_tests=lists_tests)
        if lists_tests == "agentv-4" and entries == []:
            return None  # as there: the criteria are judged
        if lists_tests == "agentv-4" and (warn := optional_service("agentv-entries")):
            warn(entries, list_place, problems)
        return EvaluatorChoice(_read_entries(entries, list_place, problems))
    if kind is None:
        return None
    if not isinstance(kind, str):
        problems.wrong_type(place, "a string", kind, "List several evaluators under 'evaluators'")
        return None
    spec = read_entry({"type": kind}, place, problems, {"type": place})
    return None if spec is None else EvaluatorChoice(named((spec,)), kind_only=True)


def case_evaluators(
    header: Header,
    own: EvaluatorChoice | None,
    rubric: EvaluatorSpec | None,
    execution: ExecutionKeys | None,
    *,
    is_bare: bool,
) -> tuple[EvaluatorSpec, ...]:
    """Return a case's evaluators, or else its dataset's, after its rubric. A rubric replaces the default judge.

    `is_bare`: a row of AgentMark without a reference keeps only those that were chosen explicitly and need none.
    """
    inherit, shared = header.inherit_evaluators, header.evaluators
    if execution is not None and execution.inherit_evaluators is not None:
        inherit = execution.inherit_evaluators
    if execution is not None and execution.skip_defaults:
        inherit, shared = False, DEFAULT_CHOICE
    choice = own or shared
    specs = (*shared.specs, *choice.specs) if inherit and choice is not shared else choice.specs
    if rubric is not None:
        specs = named((rubric,) if choice.kind_only and specs == (DEFAULT_EVALUATOR,) else (rubric, *specs))
    elif inherit:
        specs = named(specs)
    if header.requires_agentv_pass and (execution is None or execution.threshold is None):
        # AgentV (TypeScript) requires 0.8, whatever the threshold of the suite.
        specs = tuple(msgspec.structs.replace(spec, required=0.8) if spec.required is True else spec for spec in specs)
    if is_bare:
        by_default = own is None and rubric is None and shared is DEFAULT_CHOICE
        candidates = () if by_default else specs
        specs = tuple(spec for spec in candidates if spec.evaluator is None or not spec.evaluator.needs.reference)
    return with_preprocessors(specs, header.preprocessors)


def warn_of_replaced(row: dict[str, Any], header: Header, problems: Problems) -> None:
    """Warn of what AgentV (TypeScript) 4.x reads differently in JSON Lines; it adds `assertions` to the sidecar's."""
    key = next((key for key in ("assertions", "assert") if key in row), None)
    execution = row.get("execution")
    own = execution if isinstance(execution, dict) else {}
    ignored: dict[KeyPath, Any] = {("mode",): row.get("mode")}
    if key is not None:
        ignored["execution", "threshold"] = own.get("threshold")
    for path in (path for path, value in ignored.items() if value is not None):
        message = f"AgentV (TypeScript) ignores '{path[-1]}' in JSON Lines; here it is used"
        problems.warning(path, message, "Write the case as YAML, under `tests`", topic=message)
    if key is None or header.inherit_evaluators or header.evaluators.kind_only:
        return
    if own.keys().isdisjoint(("inherit_evaluators", "skip_defaults")):
        message = f"'{key}' replaces the evaluators of the dataset; AgentV (TypeScript) 4.x adds it to them"
        problems.warning((key,), message, "Set `execution: {inherit_evaluators: true}` in the sidecar", topic=message)


def skips_defaults(row: dict[str, Any]) -> bool:
    """Return whether a row opts out of the input and the evaluators of its dataset."""
    return isinstance(execution := row.get("execution"), dict) and execution.get("skip_defaults") is True


def warn_of_target(execution: ExecutionKeys, problems: Problems) -> None:
    """Warn of a case of AgentV (TypeScript) that names its target, which is not used there."""
    if execution.target is not None:
        message = "AgentV (TypeScript) ignores 'execution.target' of a test, and only reads 'targets'; here it is used"
        problems.warning(("execution", "target"), message, topic=message)


def read_rubrics(items: Any, path: KeyPath, problems: Problems) -> EvaluatorSpec | None:
    """Return the `rubrics` of a case as one evaluator."""
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


def evaluator_entries(values: Sequence[str]) -> list[Any]:
    """Return the entries for values of `--evaluator`: types, objects such as `{type: contains, value: x}`, or files."""
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
    """Return the specs of entries, and warnings about them. Raises UsageError for an invalid entry."""
    problems = Problems()
    specs = read_entries(list(entries), ("evaluators",), problems)
    for problem in problems.errors:
        raise UsageError(problem.message, hint=problem.hint)
    return specs, list(problems)


def _in_file(path: str) -> list[Any]:
    if not os.path.isfile(path):
        hint = "--evaluator accepts a type, an object, or a file with evaluators"
        raise UsageError(f"No such file: {path}", hint=hint)
    data = parse_yaml_file(path)
    if isinstance(data, dict):
        entries = next((data[key] for key in LIST_KEYS if data.get(key) is not None), None)
        return entries if isinstance(entries, list) else [data]
    if isinstance(data, list):
        return data
    raise UsageError(f"No evaluators in {path}", "Expected an object or a list")
