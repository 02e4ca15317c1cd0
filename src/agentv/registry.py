"""The available evaluators, targets, formats and executors by name, imported on use; plug-ins add entry points."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any

from agentv.errors import UsageError

EXTENSIONS = {
    "agentmark": "dataset_formats services",
    "agents": "targets",
    "batch": "services",
    "bisect": "commands",
    "convert": "commands",
    "generate": "commands",
    "github": "commands",
    "init": "commands",
    "interop": "commands evaluators foreign_formats foreign_folders result_formats session_formats services",
    "javascript": "evaluators services targets",
    "judge": "commands services",
    "maintenance": "commands",
    "mcp": "commands services",
    "noise": "commands",
    "otel": "services session_formats",
    "plan": "commands",
    "promptfoo": "evaluators foreign_formats services targets",
    "pydantic_ai": "targets",
    "pytest": "services",
    "ray": "executors",
    "select": "commands",
    "sentence_transformers": "targets",
    "skill": "commands",
    "spreadsheets": "services",
    "swap": "commands",
    "text_overlap": "evaluators",
    "view": "commands",
    "watch": "services",
    "windows": "services",
}
"""The built-in extensions, each a folder of `agentv.extensions`, and the registries that it adds to."""


class Registry:
    """The kinds of one extension point: of the kernel, of built-in extensions, and of plug-ins by entry points.

    A row is "module:attribute", aliases, and optionally " | " with one line about the kind.
    """

    def __init__(
        self, group: str, noun: str, rows: Mapping[str, str], elsewhere: Mapping[str, str] | None = None
    ) -> None:
        self._group = group
        self._noun = noun
        self._kernel_rows = rows
        self.elsewhere = {name: hint for names, hint in (elsewhere or {}).items() for name in names.split()}

    @cached_property
    def _rows(self) -> dict[str, str]:
        added = [name for name, groups in EXTENSIONS.items() if self._group.removeprefix("agentv.") in groups.split()]
        extensions = [import_module(f"agentv.extensions.{name}").ROWS[self._group] for name in added]
        return {**self._kernel_rows, **{name: row for rows in extensions for name, row in rows.items()}}

    @cached_property
    def _aliases(self) -> dict[str, str]:
        return {alias: name for name, row in self._rows.items() for alias in row.partition(" | ")[0].split()[1:]}

    def names(self) -> list[str]:
        """Return the built-in kinds in table order: those of the kernel, then those of extensions."""
        return list(self._rows)

    def kernel_names(self) -> list[str]:
        """Return the kinds of the kernel in table order."""
        return list(self._kernel_rows)

    def all_names(self) -> Iterator[str]:
        """Yield the built-in kinds, then those of plug-ins, which are looked up lazily."""
        yield from self._rows
        yield from (name for name in self._plugins() if name not in self._rows)

    def aliases(self) -> dict[str, str]:
        """Return the aliases and the kind of each."""
        return dict(self._aliases)

    def summary(self, name: str) -> str:
        """Return the line about a built-in kind; empty for a plug-in."""
        return (self._row(name) or "").partition(" | ")[2]

    def canonical(self, name: str) -> str | None:
        """Return the kind with this name or alias, in snake_case or kebab-case; None if it is unknown."""
        if name in self._kernel_rows:
            return name
        for spelling in (name, name.replace("-", "_"), name.replace("_", "-")):
            if spelling in self._rows:
                return spelling
            if spelling in self._aliases:
                return self._aliases[spelling]
        return name if ".py:" in name or name in self._plugins() else None

    def find(self, name: str) -> Any:
        """Return the class of a kind. Raise KeyError if it is unknown. Does not import `file.py:Class`."""
        if (row := self._row(name)) is not None:
            module, _, attribute = row.split()[0].partition(":")
            return getattr(import_module(module), attribute)
        point = self._plugins()[name]
        try:
            return point.load()
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}"
            raise UsageError(f"Cannot load plug-in '{name}' ({point.value})", why) from error

    def suggestion(self, name: str) -> str:
        """Return a hint for an unknown kind: its replacement, a similar name, or the known names."""
        from agentv.model.diagnostics import did_you_mean  # late: only needed for a mistake

        names = [*self._rows, *self._aliases, *self._plugins()]
        instead = self.elsewhere.get(name.replace("_", "-"))
        return instead or did_you_mean(name, names) or f"Known {self._noun}: {', '.join(self._rows)}"

    def _row(self, name: str) -> str | None:
        """Return the row of a built-in kind. Extensions are imported only if it is not one of the kernel."""
        return self._kernel_rows.get(name) or self._rows.get(name)

    def _plugins(self) -> dict[str, Any]:
        return _entry_points(self._group, tuple(sys.path))


@lru_cache(maxsize=8)
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, Any]:
    if not _may_have_plugins(path):
        return {}
    from importlib.metadata import entry_points  # late: importing it and scanning packages takes 50 ms

    return {point.name: point for point in entry_points(group=group)}


@lru_cache(maxsize=1)
def _may_have_plugins(path: tuple[str, ...]) -> bool:
    """Return whether an installed package may have entry points for agentv. Archives always may."""
    for folder in path:
        try:
            names = os.listdir(folder or ".")
        except NotADirectoryError:
            return True
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                with suppress(OSError), open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    if b"[agentv." in file.read():
                        return True
    return False


FORMATS = Registry(
    "agentv.dataset_formats",
    "dataset formats",
    {
        "yaml": "agentv.datasets.formats.yaml_dataset:YAML",
        "jsonl": "agentv.datasets.formats.jsonl:JSONL",
    },
)
"""Dataset formats, each a `DatasetFormat`; the strongest that recognizes a file reads it."""

_FOREIGN = "agentv.datasets.foreign"

FOREIGN_FORMATS = Registry(
    "agentv.foreign_formats",
    "formats of other tools",
    {
        "sessions": f"{_FOREIGN}.session_cases:SESSIONS",
        "records": f"{_FOREIGN}.mapped_records:MAPPED_RECORDS",
    },
)
"""Formats of other tools' files, each a `ForeignFormat`; the strongest that recognizes a file reads it."""

FOREIGN_FOLDERS = Registry(
    "agentv.foreign_folders",
    "formats of other tools' folders",
    {
        "session-folder": f"{_FOREIGN}.session_cases:SESSION_FOLDER",
    },
)
"""Formats of other tools whose datasets are folders. The others are not imported to look at a folder."""

_TEXT = "agentv.evaluators.checks.text_checks"
_JSON = "agentv.evaluators.checks.json_checks"
_LIMITS = "agentv.evaluators.checks.limits"
_JUDGE = "agentv.evaluators.judges.llm_judge"

_ELSEWHERE = {
    "assert-set": "Use `composite`, with `aggregator: {type: threshold, threshold: …}`",
    "webhook": "Use `code_judge` with a program that calls the URL",
    "agent-rubric agent-judge": "Use `rubric`, with a coding agent as its `target`",
    "trajectory:tool-used": "Use `tool_trajectory` with `mode: any_order` and `minimums: {TOOL: 1}`",
    "trajectory:tool-sequence": "Use `tool_trajectory` with `mode: in_order` or `exact`, and `expected`",
    "trajectory:tool-args-match": "Use `tool_trajectory` with `expected: [{tool: TOOL, args: {…}}]`",
    "trajectory:step-count": "Use `execution_metrics` with `max_tool_calls`",
    "trajectory:goal-success": "Use `llm_judge`",
    "tool-call-f1": "Use `tool_trajectory` with `mode: superset` or `subset`",
    "skill-used trigger-judge": "Use `skill_trigger`",
    "similar:cosine similar:dot similar:euclidean": "Use `embedding_similarity`, or `similarity` for one text",
    "is-valid-openai-tools-call is-valid-openai-function-call is-valid-function-call": (
        "Use `tool_trajectory` for tool calls, or `json_schema` for a JSON answer"
    ),
    "contains-json": "Use `is_json` or `json_schema` with `anywhere: true`",
    "is-xml is-sql is-html contains-xml contains-sql contains-html": "Use `python` with your own function",
    "rouge-n": "Use `rouge` with `variant: rouge1`",
    "gleu meteor": "Use `bleu`, `rouge` or `similarity`, or `python` with your own function",
    "g-eval": "Use `llm_judge` with a `prompt`, or `rubric`",
    "classifier": "Use `python` with your own function",
    "word-count": "Use `regex`, or `python` with your own function",
    "select-best": "Use `pairwise`, or compare two runs with `agentv compare`",
}
"""Types of AgentV (TypeScript) and promptfoo that agentv does not have, and their replacements."""

EVALUATORS = Registry(
    "agentv.evaluators",
    "types",
    {
        "llm_judge": f"{_JUDGE}:LlmJudge llm_grader",
        "factuality": f"{_JUDGE}:Factuality model_graded_factuality",
        "faithfulness": f"{_JUDGE}:Faithfulness context_faithfulness",
        "answer_relevance": f"{_JUDGE}:AnswerRelevance",
        "context_recall": f"{_JUDGE}:ContextRecall",
        "context_precision": f"{_JUDGE}:ContextPrecision",
        "context_relevance": f"{_JUDGE}:ContextRelevance",
        "refusal": f"{_JUDGE}:Refusal is_refusal",
        "moderation": f"{_JUDGE}:Moderation",
        "pairwise": f"{_JUDGE}:Pairwise",
        "rubric": "agentv.evaluators.judges.rubric:Rubric rubrics llm_rubric model_graded_closedqa",
        "code_judge": "agentv.evaluators.code.code_judge:CodeJudge code_grader script",
        "python": "agentv.evaluators.code.code_judge:PythonJudge",
        "command": "agentv.evaluators.code.code_judge:CommandCheck",
        "composite": "agentv.evaluators.composite:Composite",
        "tool_trajectory": "agentv.evaluators.checks.tool_trajectory:ToolTrajectory",
        "skill_trigger": "agentv.evaluators.checks.tool_trajectory:SkillTrigger",
        "field_accuracy": "agentv.evaluators.checks.field_accuracy:FieldAccuracy",
        "latency": f"{_LIMITS}:Latency",
        "cost": f"{_LIMITS}:Cost",
        "token_usage": f"{_LIMITS}:TokenLimits",
        "execution_metrics": f"{_LIMITS}:ExecutionLimits",
        "equals": f"{_TEXT}:Equals",
        "contains": f"{_TEXT}:Contains",
        "contains_any": f"{_TEXT}:ContainsAny",
        "contains_all": f"{_TEXT}:ContainsAll",
        "icontains": f"{_TEXT}:IContains",
        "icontains_any": f"{_TEXT}:IContainsAny",
        "icontains_all": f"{_TEXT}:IContainsAll",
        "starts_with": f"{_TEXT}:StartsWith",
        "ends_with": f"{_TEXT}:EndsWith",
        "regex": f"{_TEXT}:Regex",
        "is_json": f"{_JSON}:IsJson",
        "json_schema": f"{_JSON}:JsonSchema",
        "json_diff": f"{_JSON}:JsonDiff",
        "levenshtein": "agentv.evaluators.checks.similarity:Levenshtein",
        "similarity": "agentv.evaluators.checks.similarity:Similarity similar",
    },
    elsewhere=_ELSEWHERE,
)

EXECUTORS = Registry(
    "agentv.executors",
    "executors",
    {
        "local": "agentv.executors.local:LocalExecutor",
        "process": "agentv.executors.process:ProcessExecutor",
    },
)
"""Executors, which run jobs."""

RESULT_FORMATS = Registry(
    "agentv.result_formats",
    "result formats",
    {
        "jsonl": "agentv.runs.record:RecordLines",
    },
)
"""Formats of results, ours and those of other tools; the strongest that recognizes a file or folder reads it."""

SESSION_FORMATS = Registry("agentv.session_formats", "session formats", {})
"""Formats of recorded sessions, each a `SessionFormat`; the strongest that recognizes a file reads it."""

_COMPATIBLE = "agentv.targets.apis.openai:Compatible"

TARGETS = Registry(
    "agentv.targets",
    "providers",
    {
        "openai": "agentv.targets.apis.openai:OpenAI",
        "azure": "agentv.targets.apis.openai:Azure azure-openai",
        "anthropic": "agentv.targets.apis.anthropic:Anthropic",
        "gemini": "agentv.targets.apis.gemini:Gemini google google-gemini",
        **dict.fromkeys(("openrouter", "groq", "deepseek", "mistral"), _COMPATIBLE),
        "together": f"{_COMPATIBLE} together-ai",
        "fireworks": f"{_COMPATIBLE} fireworks-ai",
        "xai": f"{_COMPATIBLE} grok",
        **dict.fromkeys(("ollama", "vllm"), _COMPATIBLE),
        "lm-studio": f"{_COMPATIBLE} lmstudio",
        "llama-cpp": f"{_COMPATIBLE} llama.cpp llamacpp",
        "cli": "agentv.targets.cli:Cli",
        "python": "agentv.targets.python:PythonTarget",
        "http": "agentv.targets.http:Http",
        "replay": "agentv.targets.recordings.replay:Replay",
        "mock": "agentv.targets.mock:Mock",
    },
    elsewhere={
        "vscode vscode-insiders": "An editor cannot be evaluated here; use `copilot-cli`, which runs the same agent",
        "github-models github": "GitHub retired GitHub Models on 30 July 2026; use `openai`, `openrouter` or `azure`",
        "agentv": "Use a model API such as `openai`, with `tools` if it needs them",
        "cc-mirror": "Use `claude-code`, and set `executable` to the program",
        "pi-agent-sdk": "Use `pi-coding-agent`",
        "transcript": "Use `replay` with a run, a results file, or recorded sessions",
    },
)

SERVICES = Registry("agentv.services", "services", {})
"""Parts of a run that extensions provide. `agentv.model` and `agentv.report.services` have the protocol of each."""


def optional_service(name: str) -> Any:
    """Return a service; None if no extension provides it."""
    with suppress(KeyError):
        return SERVICES.find(name)
    return None


def service(name: str, user: str) -> Any:
    """Return a service. Raises UsageError if no extension provides it; `user` is what needs it."""
    if (value := optional_service(name)) is None:
        raise UsageError(f"{user} needs an extension with the service '{name}', which is not installed")
    return value


REPORTS = Registry(
    "agentv.reports",
    "report formats",
    {
        "html": "agentv.report.html:HTML",
        "junit": "agentv.report.junit:JUNIT",
        "markdown": "agentv.report.markdown:MARKDOWN",
        "csv": "agentv.report.columns:CSV",
        "parquet": "agentv.report.columns:PARQUET",
    },
)
"""Report formats, each a `ReportFormat`."""
