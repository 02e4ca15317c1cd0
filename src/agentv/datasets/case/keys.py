"""The keys of datasets, cases, execution blocks and turns. These types are the documented schema."""

# Without `from __future__ import annotations`: types are read here, and parsing them would take longer.

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from agentv.model.case import Aggregation, DependencyFailure
from agentv.model.diagnostics import MOST_TRIALS, KeyPath, Problems
from agentv.model.evaluator import Execution, Verdicts
from agentv.model.values import freeze
from agentv.settings.settings_reader import aliases_of, known_keys

CASE_LIST_KEYS = ("evalcases", "tests", "eval_cases", "cases")
"""Keys for the list of cases in a YAML document; the first is canonical."""

OUTCOME_KEYS = ("criteria", "expected_outcome", "outcome")
"""Keys for the expected outcome, by descending precedence."""

LIST_KEYS = ("evaluators", "assertions", "assert")
"""Keys for the list of evaluators; the first is canonical."""

JsonObject = dict[str, Any]


def _typescript_only(hints: dict[str, str]) -> dict[str, str]:
    """Return the hint for each key that only AgentV (TypeScript) supports, given hints by space-separated keys."""
    prefix = "This is a setting of AgentV (TypeScript)."
    return {key: f"{prefix} {hint}" for keys, hint in hints.items() for key in keys.split()}


class TrialKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The object form of `trials`. Reports have the mean and pass@k for any `strategy`."""

    ignored: ClassVar[dict[str, str]] = {
        "cost_limit_usd": "Limit the cost of the whole run with `agentv eval --budget-usd`"
    }

    count: Annotated[int, Meta(ge=1, le=MOST_TRIALS)]
    strategy: Literal["pass_at_k", "mean", "confidence_interval"] | None = None


class TargetKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The object form of an entry of `targets`. With `use_target`, it is another name for a target of the project."""

    unsupported: ClassVar[dict[str, str]] = _typescript_only({"hooks": "Use the hooks of `workspace`"})

    name: str
    use_target: str | None = None


class ExecutionKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The `execution` block of a document or a case."""

    ignored: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("cache", "cache_path"), "Use `agentv eval --cache`"),
        "budget_usd": "Limit the cost of the run with `agentv eval --budget-usd`",
        "fail_on_error": "Use `agentv eval --fail-fast` or `--max-errors`",
    }
    switches: ClassVar[tuple[str, ...]] = ("cache", "fail_on_error")

    target: str | None = None
    targets: tuple[str | TargetKeys, ...] = ()
    evaluators: list[str | JsonObject] | None = None
    inherit_evaluators: bool | None = None
    skip_defaults: bool = False
    trials: Annotated[int, Meta(ge=1, le=MOST_TRIALS)] | TrialKeys | None = None
    workers: Annotated[int, Meta(ge=1)] | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    verdicts: Verdicts | None = None
    thresholds: dict[str, float] | None = None

    @classmethod
    def contradiction(cls, data: dict[str, Any]) -> str:
        """Describe the contradiction of two limits for a pass."""
        both = "threshold" in data and "verdicts" in data
        return "'threshold' and 'verdicts' both set the score of a pass: keep one of them" if both else ""

    def to_execution(self) -> Execution:
        """Return the settings without the evaluators. `threshold` is the score of a pass."""
        verdicts = self.verdicts
        if self.threshold is not None:
            verdicts = Verdicts(self.threshold, min(self.threshold, Verdicts().borderline))
        return Execution(
            target=self.target,
            targets=tuple(target.name if isinstance(target, TargetKeys) else target for target in self.targets),
            trials=self.trials.count if isinstance(self.trials, TrialKeys) else self.trials,
            timeout_seconds=self.timeout_seconds,
            verdicts=verdicts,
            thresholds=None if self.thresholds is None else freeze(self.thresholds),
            workers=self.workers,
        )


class PromptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One of several prompts; each is a variant of every case."""

    id: str
    prompt: str | list[JsonObject]


class HookKeys(msgspec.Struct, frozen=True, kw_only=True):
    """One hook of a workspace: a command, as a list of arguments or as text for the shell."""

    aliases: ClassVar[dict[str, str]] = {"script": "command"}

    command: str | tuple[str, ...] | None = None
    cwd: str | None = None
    timeout_ms: Annotated[int, Meta(ge=1)] | None = None
    reset: Literal["none", "fast", "strict"] | None = None


class HooksKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The `hooks` of a workspace."""

    enabled: bool = True
    before_all: HookKeys | None = None
    before_each: HookKeys | None = None
    after_each: HookKeys | None = None
    after_all: HookKeys | None = None


class RepositoryKeys(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `repos`: a Git repository that is checked out in the workspace."""

    unsupported: ClassVar[dict[str, str]] = _typescript_only(
        {"source": "Use `repo`", "checkout": "Use `commit`", "clone": "Use `sparse` if needed"}
    )

    repo: Annotated[str, Meta(min_length=1)]
    path: str | None = None
    commit: str | None = None
    base_commit: str | None = None
    ancestor: Annotated[int, Meta(ge=0)] | None = None
    sparse: tuple[str, ...] = ()


class WorkspaceKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The `workspace` block: a folder that is copied for each job."""

    unsupported: ClassVar[dict[str, str]] = _typescript_only(
        {
            "path": "Use `template` for a folder to copy, or `cwd` of the target for a folder to work in",
            "docker": "Containers are not supported",
            "env": "Check for programs in a hook",
        }
    )

    template: str | None = None
    files: tuple[str, ...] | dict[str, str] = ()
    setup: str | tuple[str, ...] | None = None
    teardown: str | tuple[str, ...] | None = None
    keep: bool | None = None
    isolation: Literal["shared", "per_test"] | None = None
    repos: tuple[RepositoryKeys, ...] = ()
    hooks: HooksKeys | None = None
    mode: Literal["pooled", "temp"] | None = None


class HeaderKeys(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "$schema"}):
    """The settings of a dataset: the keys of a YAML document other than its cases, or of a sidecar."""

    aliases: ClassVar[dict[str, str]] = {"name": "dataset", "assertions": "evaluators", "assert": "evaluators"}
    unsupported: ClassVar[dict[str, str]] = _typescript_only(
        {
            "environment": "Use `workspace`",
            "expected_output": "Give each case its own `expected_output`",
            "depends_on": "Set `depends_on` in the cases",
            "postprocess": "Use `transform` of an evaluator or a target",
            "scenarios": "Write the combinations out as cases",
            "providers": "Use `execution.targets` and a targets file",
            "defaults default_test": "Use `execution` and `evaluators` of the document",
            "evaluate_options": "Use the options of `agentv eval`",
            "timeout_seconds": "Use `execution.timeout_seconds`",
            "threshold": "Use `execution.verdicts`, or `agentv eval --threshold`",
            "experiment": "Use `execution.target`, and `metadata` for a note",
            "derived_metrics": "Use an evaluator of type `composite`",
            "output_path": "Use `agentv eval --out`",
            "env": "Set the variables in the environment or in `.env`",
            "nunjucks_filters": "Templates here have minijinja's filters",
            "extensions": "Use the hooks of `workspace`",
            "targets": "Use `execution.targets`",
            "imports": "Give several files on the command line",
            "vars": "Give each case its `vars`",
        }
    )
    hints: ClassVar[dict[str, str]] = {"prompts": "Write each prompt as `{id: …, prompt: …}`"}
    informational: ClassVar[tuple[str, ...]] = ("category", "author", "license", "requires", "governance")

    dataset: str | None = None
    description: str | None = None
    execution: ExecutionKeys | None = None
    target: str | None = None
    evaluator: str | None = None
    evaluators: list[str | JsonObject] | None = None
    input: str | list[JsonObject] | JsonObject | None = None
    input_files: tuple[str, ...] = ()
    preprocessors: list[JsonObject] | None = None
    prompt: str | list[JsonObject] | None = None
    prompts: list[PromptEntry] | None = None
    prompt_syntax: Literal["minijinja", "promptfoo"] | None = None
    workspace: str | WorkspaceKeys | None = None
    weight: Annotated[float, Meta(gt=0)] | None = None
    cluster: str | None = None
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
    max_turns: Annotated[int, Meta(ge=1, le=1000)] | None = None
    stop: str | None = None


class CaseKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one case, in YAML or in a JSONL row."""

    aliases: ClassVar[dict[str, str]] = {
        "outcome": "expected_outcome",
        "criteria": "expected_outcome",
        "input_messages": "input",
        "expected_messages": "expected_output",
        "assertions": "evaluators",
        "assert": "evaluators",
    }
    unsupported: ClassVar[dict[str, str]] = _typescript_only(
        {
            "options run": "Use `execution`",
            "threshold": "Use `execution.threshold`",
            "environment": "Use `workspace`",
            "provider_output": "Use a target of provider `replay`",
        }
    )

    id: str | int
    expected_outcome: str | None = None
    input: str | list[JsonObject] | JsonObject
    input_files: tuple[str, ...] = ()
    vars: JsonObject | None = None
    expected_output: Any = None
    conversation_id: str | None = None
    cluster: str | int | None = None
    execution: ExecutionKeys | None = None
    evaluators: list[str | JsonObject] | None = None
    evaluator: str | None = None
    rubrics: list[str | JsonObject] | None = None
    context: str | list[str] | None = None
    prompt: str | list[JsonObject] | None = None
    turns: list[TurnKeys] | None = None
    mode: Literal["conversation"] | None = None
    aggregation: Aggregation | None = None
    on_turn_failure: Literal["continue", "stop"] | None = None
    window_size: Annotated[int, Meta(ge=1)] | None = None
    user: UserKeys | None = None
    workspace: str | WorkspaceKeys | None = None
    depends_on: tuple[str, ...] = ()
    on_dependency_failure: DependencyFailure | None = None
    description: str | None = None
    metadata: JsonObject | None = None
    tags: list[str] | None = None
    case_error: str | None = None


def is_header(data: dict[str, Any]) -> bool:
    """Whether a mapping has at least one key of a sidecar, including keys that only other tools support."""
    keys = {*known_keys(HeaderKeys), *aliases_of(HeaderKeys), *HeaderKeys.unsupported, *HeaderKeys.informational}
    return any(key in keys for key in data)


Read = TypeVar("Read")
_SIZE = 1024


class Memo(Generic[Read]):
    """A reader that caches its results for values in which it finds no problems."""

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
