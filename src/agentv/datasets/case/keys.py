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
    """The object form of `trials`. Reports have the mean and pass@k for any `strategy`; it decides gates of cases."""

    ignored: ClassVar[dict[str, str]] = {
        "cost_limit_usd": "Limit the cost of the whole run with `agentv eval --budget-usd`"
    }

    count: Annotated[int, Meta(ge=1, le=MOST_TRIALS)]
    """Number of times to run each case."""

    strategy: Literal["pass_at_k", "mean", "confidence_interval"] | None = None
    """In a file with `tests`, which score of its trials a case has for `threshold` and `--min-score`: that of the first
    that passes, or else the best (`pass_at_k`, the default), their mean, or the lower bound of their 95 % interval.
    """


class HookKeys(msgspec.Struct, frozen=True, kw_only=True):
    """One hook of a workspace: a command, as a list of arguments or as text for the shell."""

    aliases: ClassVar[dict[str, str]] = {"script": "command"}

    command: str | tuple[str, ...] | None = None
    """A list of arguments, or text for the shell; `{{workspace_path}}`, `{{test_id}}`, `{{eval_run_id}}`,
    `{{case_input}}` and `{{case_metadata}}` are inserted.
    """

    cwd: str | None = None
    """Folder in which to run it (default: that of the dataset)."""

    timeout_ms: Annotated[int, Meta(ge=1)] | None = None
    """Time limit (default: 60,000 before jobs, 30,000 after)."""

    reset: Literal["none", "fast", "strict"] | None = None
    """`fast` or `strict`: each job starts with a copy, also with `isolation: shared`."""


class HooksKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The `hooks` of a workspace."""

    enabled: bool = True
    """`false` turns the hooks off."""

    before_all: HookKeys | None = None
    """Runs once, before the workspace is copied for the first job."""

    before_each: HookKeys | None = None
    """Runs before each job."""

    after_each: HookKeys | None = None
    """Runs after the evaluators of each job."""

    after_all: HookKeys | None = None
    """Runs once, after the last job."""


class TargetKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The object form of an entry of `targets`. With `use_target`, it is another name for a target of the project."""

    name: str
    """Target to evaluate."""

    use_target: str | None = None
    """The target of the project that this one is another name for."""

    hooks: HooksKeys | None = None
    """Commands to run in the workspaces of this target only, between those of the workspace and the answer."""


class ExecutionKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The `execution` block of a document or a case."""

    ignored: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("cache", "cache_path"), "Use `agentv eval --cache`"),
        "budget_usd": "Limit the cost of the run with `agentv eval --budget-usd`",
        "fail_on_error": "Use `agentv eval --fail-fast` or `--max-errors`",
    }
    switches: ClassVar[tuple[str, ...]] = ("cache", "fail_on_error")

    target: str | None = None
    """Target to evaluate."""

    targets: tuple[str | TargetKeys, ...] = ()
    """Several targets to evaluate."""

    evaluators: list[str | JsonObject] | None = None
    """Same as `evaluators` next to it; takes precedence."""

    inherit_evaluators: bool | None = None
    """In a case: add its evaluators to those of the dataset (default: only under `tests`)."""

    skip_defaults: bool = False
    """In a case: leave out the evaluators, `input` and `input_files` of the dataset."""

    trials: Annotated[int, Meta(ge=1, le=MOST_TRIALS)] | TrialKeys | None = None
    """Number of times to run each case."""

    workers: Annotated[int, Meta(ge=1)] | None = None
    """Maximum number of concurrent calls."""

    timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    """Time limit for one answer."""

    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Score required for a pass; short for `verdicts`."""

    verdicts: Verdicts | None = None
    """Scores required for a verdict."""

    thresholds: dict[str, float] | None = None
    """Minimum mean score of each evaluator."""

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
    """Name of the variant."""

    prompt: str | list[JsonObject]
    """Text, messages, or a file."""


class RepositoryKeys(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `repos`: a Git repository that is checked out in the workspace."""

    unsupported: ClassVar[dict[str, str]] = _typescript_only(
        {"source": "Use `repo`", "checkout": "Use `commit`", "clone": "Use `sparse` if needed"}
    )

    repo: Annotated[str, Meta(min_length=1)]
    """Path relative to the dataset, URL, or `owner/name` on GitHub."""

    path: str | None = None
    """Folder in the workspace (default: the repository's name)."""

    commit: str | None = None
    """Commit, branch or tag (default: the newest commit)."""

    base_commit: str | None = None
    """Same as `commit`."""

    ancestor: Annotated[int, Meta(ge=0)] | None = None
    """Number of commits to go back."""

    sparse: tuple[str, ...] = ()
    """Folders to check out (default: all)."""


class WorkspaceKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The `workspace` block: a folder that is copied for each job."""

    unsupported: ClassVar[dict[str, str]] = _typescript_only(
        {
            "path static_path static": "Use `template` to copy a folder, or `cwd` of the target to work in one",
            "pool": "Remove it: each job gets a copy",
            "docker": "Containers are not supported",
            "env": "Check for programs in a hook",
        }
    )

    ignored: ClassVar[dict[str, str]] = {"scope": "Each job gets a copy; set `isolation: shared` to share it"}

    template: str | None = None
    """Folder to copy (default: an empty workspace)."""

    files: tuple[str, ...] | dict[str, str] = ()
    """Files and folders to add: a list of paths, or an object of paths in the workspace and what to copy there."""

    setup: str | tuple[str, ...] | None = None
    """Shell command or commands to run in the copy before the target starts."""

    teardown: str | tuple[str, ...] | None = None
    """Shell command or commands to run after the evaluators."""

    keep: bool | None = None
    """Keep the copy in the run folder."""

    isolation: Literal["shared", "per_test"] | None = None
    """`shared`: jobs work one after another in the same folder (default: `per_test`, a copy for each job)."""

    repos: tuple[RepositoryKeys, ...] = ()
    """Git repositories to check out in the workspace."""

    hooks: HooksKeys | None = None
    """Commands to run around all jobs and around each job."""

    target_hooks: dict[str, HooksKeys] = {}
    """The same for the workspaces of single targets, by name: they run between `hooks` and the answer."""

    mode: Literal["pooled", "temp", "static"] | None = None
    """No effect."""


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
    """Display name (default: base name of the file)."""

    description: str | None = None
    """Comment."""

    execution: ExecutionKeys | None = None
    """Run settings of the cases."""

    target: str | None = None
    """Deprecated spelling of `execution.target`."""

    evaluator: str | None = None
    """A single evaluator [type](evaluators.md), instead of a list."""

    evaluators: list[str | JsonObject] | None = None
    """Evaluators of the cases that do not define their own."""

    input: str | list[JsonObject] | JsonObject | None = None
    """Messages to put before those of every case."""

    input_files: tuple[str, ...] = ()
    """Files to put before the text of every case."""

    preprocessors: list[JsonObject] | None = None
    """Programs that convert files of answers to text, for every judge: see [files in an
    answer](../how-to/judges.md#judge-files-in-an-answer).
    """

    prompt: str | list[JsonObject] | None = None
    """Template for cases whose input is an object: text, messages, or a file."""

    prompts: list[PromptEntry] | None = None
    """Several templates; every case runs with each."""

    prompt_syntax: Literal["minijinja", "promptfoo", "promptfoo-anthropic"] | None = None
    """Language of the templates: `minijinja` (default), or `promptfoo`, which is Nunjucks as promptfoo renders it. With
    `promptfoo-anthropic`, lines such as `user: Hi` begin messages, and blank lines and indentation are removed.
    """

    workspace: str | WorkspaceKeys | None = None
    """Workspace of every case, or the name of a file with it; keys of a case take precedence."""

    weight: Annotated[float, Meta(gt=0)] | None = None
    """Weight of the dataset when `agentv compare` weights datasets (default: 1)."""

    cluster: str | None = None
    """`cluster` of cases without their own; may contain `{{ metadata.NAME }}`, `{{ vars.NAME }}` and `{{ id }}`."""

    format: Literal["agentv", "agentmark"] | None = None
    """`agentmark`: see [AgentMark](../how-to/agentmark.md)."""

    metadata: JsonObject | None = None
    """Added to every case; keys of the case take precedence."""

    tags: list[str] | None = None
    """Added to every case, before its own tags."""

    schema_: str | None = None
    """For editors; no effect."""

    version: str | int | float | None = None
    """For your information; no effect."""


class TurnKeys(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `turns`."""

    aliases: ClassVar[dict[str, str]] = {"assertions": "evaluators", "assert": "evaluators"}

    input: str | JsonObject | list[JsonObject]
    """Message of the user: a string or messages."""

    expected_output: Any = None
    """Reference for the response."""

    evaluators: list[str | JsonObject] | None = None
    """Evaluators of the response."""


class UserKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The `user` block: a simulated user."""

    target: str | None = None
    """Target that simulates the user."""

    persona: str | None = None
    """Description of the user."""

    goal: str
    """Goal of the user."""

    max_turns: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Maximum number of messages of the simulated user (default: 10)."""

    stop: str | None = None
    """When to end: a rule for the simulated user, and words that end the conversation."""


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
    """Id of the case, unique in its dataset; an integer is read as text; optional in [AgentMark
    datasets](../how-to/agentmark.md).
    """

    expected_outcome: str | None = None
    """Description of a good answer; required, except in AgentMark datasets and [under
    `tests`](../how-to/migrating-from-agentv.md).
    """

    input: str | list[JsonObject] | JsonObject
    """Input for the target: see [shorthand](../how-to/datasets.md#shorthand)."""

    input_files: tuple[str, ...] = ()
    """Files to put before an `input` that is text; replace those of the dataset."""

    vars: JsonObject | None = None
    """Values for `{{ name }}` in the texts of this case."""

    expected_output: Any = None
    """Reference answer: see [shorthand](../how-to/datasets.md#shorthand)."""

    conversation_id: str | None = None
    """Shared by the cases of one conversation."""

    cluster: str | int | None = None
    """Shared by cases about the same document, template or user, whose scores are
    [correlated](../explanation/statistics.md#clusters).
    """

    execution: ExecutionKeys | None = None
    """Run settings of this case; override those of the dataset key by key."""

    evaluators: list[str | JsonObject] | None = None
    """Evaluators of this case; replace those of the dataset, or add to them [under
    `tests`](../how-to/migrating-from-agentv.md); `[]` means none.
    """

    evaluator: str | None = None
    """A single evaluator [type](evaluators.md), instead of a list."""

    rubrics: list[str | JsonObject] | None = None
    """Criteria that a judge checks one by one; added before the other evaluators."""

    context: str | list[str] | None = None
    """Retrieved passages; some evaluators check the answer against them."""

    prompt: str | list[JsonObject] | None = None
    """Template for the variables of this case: text, messages, or a file."""

    turns: list[TurnKeys] | None = None
    """User messages sent one after another after the input: see [conversations](../how-to/conversations.md)."""

    mode: Literal["conversation"] | None = None
    """`conversation`, of AgentV (TypeScript): the input is answered together with the first turn."""

    aggregation: Aggregation | None = None
    """How the scores of the turns and of the case are combined: `mean`, `min` or `max` (default: all evaluators in one
    weighted mean).
    """

    on_turn_failure: Literal["continue", "stop"] | None = None
    """`stop` ends the conversation after a turn that fails; the turns after it score 0."""

    window_size: Annotated[int, Meta(ge=1)] | None = None
    """How many of the last exchanges a target receives; instructions are always sent."""

    user: UserKeys | None = None
    """Simulated user: see [conversations](../how-to/conversations.md#simulate-a-user)."""

    workspace: str | WorkspaceKeys | None = None
    """Folder for the target to work in: see [workspaces](../how-to/coding-agents.md#workspaces)."""

    depends_on: tuple[str, ...] = ()
    """Ids of cases in this dataset that must have finished before: see [run cases after
    others](../how-to/datasets.md#run-cases-after-others).
    """

    on_dependency_failure: DependencyFailure | None = None
    """If a case in `depends_on` has no answer: `skip` (default) or `fail` this case, both an error without a score, or
    `run` it.
    """

    description: str | None = None
    """Comment."""

    metadata: JsonObject | None = None
    """Your own data; cases can be filtered by it."""

    tags: list[str] | None = None
    """Tags; cases can be filtered by them."""

    case_error: str | None = None
    """Why the case cannot be run: its jobs end in an error with this message. Conversions of [other tools'
    files](../how-to/other-formats.md#refused-cases) write it.
    """


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
