"""The keys users write: of a document, a case, an execution block, a turn. The types here are the documented schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from agentv.model.evaluator import Verdicts
from agentv.settings.diagnostics import KeyPath, Problems
from agentv.settings.settings_reader import aliases_of, known_keys

CASE_LIST_KEYS = ("evalcases", "tests", "eval_cases", "cases")
"""The names under which a YAML document lists its cases; the first is ours."""

OUTCOME_KEYS = ("expected_outcome", "outcome", "criteria")
"""The names for what a good answer does; the first is ours."""

JsonObject = dict[str, Any]

_FOUR = "It is a setting of AgentV 4.x or 5.x."


class ExecutionKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The `execution` block of a document or a case."""

    aliases: ClassVar[dict[str, str]] = {}
    unsupported: ClassVar[dict[str, str]] = {
        "skip_defaults": f"{_FOUR} Here a case's list replaces the dataset's; `inherit_evaluators: true` adds to it",
        "workers": f"{_FOUR} Use `agentv eval --workers`, or `workers` of the target",
        "cache": f"{_FOUR} Use `agentv eval --cache`",
        "cache_path": f"{_FOUR} Use `agentv eval --cache`",
        "budget_usd": f"{_FOUR} Use `agentv eval --budget-usd`",
        "fail_on_error": f"{_FOUR} Use `agentv eval --fail-fast` or `--max-errors`",
        "threshold": f"{_FOUR} Use `verdicts: {{pass: …}}` here, or `agentv eval --threshold`",
    }

    hints: ClassVar[dict[str, str]] = {"trials": "AgentV 4.x's `{count: 2}` is written `trials: 2` here"}

    target: str | None = None
    targets: tuple[str, ...] = ()
    evaluators: list[str | JsonObject] | None = None
    inherit_evaluators: bool = False
    trials: Annotated[int, Meta(ge=1)] | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    verdicts: Verdicts | None = None
    thresholds: dict[str, float] | None = None


class PromptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt of several: each makes a variant of every case."""

    id: str
    prompt: str | list[JsonObject]


class HeaderKeys(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "$schema"}):
    """The keys of a YAML document beside its cases, which are also those of a sidecar."""

    aliases: ClassVar[dict[str, str]] = {"name": "dataset", "assertions": "evaluators", "assert": "evaluators"}
    unsupported: ClassVar[dict[str, str]] = {
        "workspace": f"{_FOUR} Give each case its own `workspace`",
        "input": f"{_FOUR} Write the shared messages into each case, or use a `prompt` with variables",
        "input_files": f"{_FOUR} Use parts of type `file` in each case's `input`",
        "expected_output": f"{_FOUR} Give each case its own `expected_output`",
        "depends_on": f"{_FOUR} Cases run independently here",
        "preprocessors": f"{_FOUR} Use `transform` of an evaluator or a target",
        "postprocess": f"{_FOUR} Use `transform` of an evaluator or a target",
        "scenarios": f"{_FOUR} Write the combinations out as cases",
        "providers": f"{_FOUR} Use `execution.targets` and a targets file",
        "defaults": f"{_FOUR} Use `execution` and `evaluators` of the document",
        "default_test": f"{_FOUR} Use `execution` and `evaluators` of the document",
        "environment": f"{_FOUR} Give each case its own `workspace`",
        "evaluate_options": f"{_FOUR} Use the options of `agentv eval`",
        "timeout_seconds": f"{_FOUR} Use `execution.timeout_seconds`",
        "threshold": f"{_FOUR} Use `execution.verdicts`, or `agentv eval --threshold`",
        "experiment": f"{_FOUR} Use `execution.target`, and `metadata` for a note",
        "derived_metrics": f"{_FOUR} Use an evaluator of type `composite`",
        "output_path": f"{_FOUR} Use `agentv eval --out`",
        "env": f"{_FOUR} Set the variables in the environment or in `.env`",
        "nunjucks_filters": f"{_FOUR} Templates here have minijinja's filters",
        "extensions": f"{_FOUR} Use `setup` and `teardown` of a case's `workspace`",
        "targets": f"{_FOUR} Use `execution.targets`",
        "imports": f"{_FOUR} Give several files on the command line",
        "vars": f"{_FOUR} Use an object `input` with a `prompt`",
    }
    hints: ClassVar[dict[str, str]] = {"prompts": "Each of them is `{id: …, prompt: …}`"}
    informational: ClassVar[tuple[str, ...]] = ("category", "author", "license", "requires", "governance")

    dataset: str | None = None
    description: str | None = None
    execution: ExecutionKeys | None = None
    target: str | None = None
    evaluator: str | None = None
    evaluators: list[str | JsonObject] | None = None
    prompt: str | list[JsonObject] | None = None
    prompts: list[PromptEntry] | None = None
    format: Literal["agentv", "agentmark"] | None = None
    metadata: JsonObject | None = None
    tags: list[str] | None = None
    schema_: str | None = None
    version: str | int | float | None = None


class TurnKeys(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `turns`."""

    aliases: ClassVar[dict[str, str]] = {"assertions": "evaluators", "assert": "evaluators"}

    input: str | JsonObject | list[JsonObject]
    expected_output: Any = None
    evaluators: list[str | JsonObject] | None = None


class UserKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The `user` block: a simulated user."""

    target: str | None = None
    persona: str | None = None
    goal: str
    max_turns: Annotated[int, Meta(ge=1)] | None = None
    stop: str | None = None


class WorkspaceKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The `workspace` block: a folder copied fresh for each job."""

    unsupported: ClassVar[dict[str, str]] = {
        "hooks": f"{_FOUR} Use `setup` and `teardown`",
        "repos": f"{_FOUR} Clone in `setup`, or use a `template` folder",
        "isolation": f"{_FOUR} Every job has its own copy here",
        "mode": f"{_FOUR} Every job has its own copy here",
        "docker": f"{_FOUR} Containers are not supported",
    }

    template: str | None = None
    setup: str | list[str] | None = None
    teardown: str | list[str] | None = None
    keep: bool | None = None


class CaseKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one case, in YAML and in a line of JSONL."""

    aliases: ClassVar[dict[str, str]] = {
        "outcome": "expected_outcome",
        "criteria": "expected_outcome",
        "input_messages": "input",
        "expected_messages": "expected_output",
        "assertions": "evaluators",
        "assert": "evaluators",
    }
    unsupported: ClassVar[dict[str, str]] = {
        "vars": f"{_FOUR} Use an object `input` with a `prompt`",
        "input_files": f"{_FOUR} Use parts of type `file` in `input`",
        "depends_on": f"{_FOUR} Cases run independently here",
        "on_dependency_failure": f"{_FOUR} Cases run independently here",
        "mode": f"{_FOUR} A case with `turns` is a conversation",
        "aggregation": f"{_FOUR} A case's score is the weighted mean of its evaluators",
        "on_turn_failure": f"{_FOUR} All turns are played",
        "window_size": f"{_FOUR} The whole history is sent",
        "options": f"{_FOUR} Use `execution`",
        "threshold": f"{_FOUR} Use `execution.verdicts`",
        "run": f"{_FOUR} Use `execution`",
        "environment": f"{_FOUR} Use `workspace`",
        "provider_output": f"{_FOUR} Use a target of provider `replay`",
    }

    id: str | int
    expected_outcome: str | None = None
    input: str | list[JsonObject] | JsonObject
    expected_output: Any = None
    conversation_id: str | None = None
    execution: ExecutionKeys | None = None
    evaluators: list[str | JsonObject] | None = None
    evaluator: str | None = None
    rubrics: list[str | JsonObject] | None = None
    context: str | list[str] | None = None
    prompt: str | list[JsonObject] | None = None
    turns: list[TurnKeys] | None = None
    user: UserKeys | None = None
    workspace: WorkspaceKeys | None = None
    description: str | None = None
    metadata: JsonObject | None = None
    tags: list[str] | None = None


def is_header(data: dict[str, Any]) -> bool:
    """Whether a mapping has at least one key that a sidecar may have, or that is known to belong into one elsewhere."""
    known = {*known_keys(HeaderKeys), *aliases_of(HeaderKeys), *HeaderKeys.unsupported, *HeaderKeys.informational}
    return any(key in known for key in data)


Read = TypeVar("Read")
_SIZE = 1024


class Memo(Generic[Read]):
    """A reading function with a memory of values in which it found nothing to say."""

    def __init__(self, read: Callable[[Any, KeyPath, Problems], Read]) -> None:
        self._read = read
        self._known: dict[tuple[str, bytes], Read] = {}

    def __call__(self, value: Any, path: KeyPath, problems: Problems) -> Read:
        try:
            key = (type(value).__name__, msgspec.json.encode(value))
        except (TypeError, ValueError, RecursionError):
            return self._read(value, path, problems)
        if key in self._known:
            return self._known[key]
        before = len(problems)
        read = self._read(value, path, problems)
        if len(problems) == before:
            if len(self._known) >= _SIZE:
                self._known.clear()
            self._known[key] = read
        return read
