"""Which kinds there are: name → "module:attribute", imported on use. Plug-ins add theirs through entry points."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from agentv.suggest import did_you_mean


class Registry:
    """The kinds of one seam. A kind is one row here and one module; other spellings lead to the same row."""

    def __init__(self, group: str, rows: Mapping[str, str], aliases: Mapping[str, str], noun: str = "types") -> None:
        self._group = group
        self._rows = rows
        self._aliases = aliases
        self._noun = noun

    def names(self) -> list[str]:
        """The built-in kinds, in the order of the table."""
        return list(self._rows)

    def aliases(self) -> dict[str, str]:
        """Other spellings and the kind each stands for."""
        return dict(self._aliases)

    def canonical(self, name: str) -> str | None:
        """The kind that `name` means, snake_case or kebab-case; None when there is no such kind."""
        for spelling in (name, name.replace("-", "_"), name.replace("_", "-")):
            if spelling in self._rows:
                return spelling
            if spelling in self._aliases:
                return self._aliases[spelling]
        return name if _is_path(name) or name in self._plugins() else None

    def find(self, name: str) -> Any:
        """The class behind a kind. Raises KeyError for an unknown one; a `file.py:Class` is not imported here."""
        row = self._rows.get(name)
        if row is not None:
            module, _, attribute = row.partition(":")
            return getattr(import_module(module), attribute)
        return self._plugins()[name].load()

    def suggestion(self, name: str) -> str:
        """A did-you-mean for an unknown kind, or the list of known ones."""
        known = [*self._rows, *self._aliases]
        return did_you_mean(name, known) or f"Known {self._noun}: {', '.join(self._rows)}"

    def _plugins(self) -> dict[str, Any]:
        from importlib.metadata import entry_points  # late: scanning installed packages takes milliseconds

        return {point.name: point for point in entry_points(group=self._group)}


def _is_path(name: str) -> bool:
    return ".py:" in name


READERS: dict[str, tuple[tuple[str, ...], str]] = {
    "yaml": ((".yaml", ".yml"), "agentv.datasets.yaml_document"),
    "jsonl": ((".jsonl", ".ndjson"), "agentv.datasets.jsonl"),
}
"""Dataset formats: the extensions that mean them and the module that reads them."""

_CHECKS = "agentv.evaluators.checks"
_LIMITS = "agentv.evaluators.limits"
_JUDGE = "agentv.evaluators.llm_judge"

EVALUATORS = Registry(
    "agentv.evaluators",
    rows={
        "llm_judge": f"{_JUDGE}:LlmJudge",
        "factuality": f"{_JUDGE}:Factuality",
        "faithfulness": f"{_JUDGE}:Faithfulness",
        "answer_relevance": f"{_JUDGE}:AnswerRelevance",
        "context_recall": f"{_JUDGE}:ContextRecall",
        "rubric": "agentv.evaluators.rubric:Rubric",
        "code_judge": "agentv.evaluators.code_judge:CodeJudge",
        "python": "agentv.evaluators.python:PythonFunction",
        "composite": "agentv.evaluators.composite:Composite",
        "tool_trajectory": "agentv.evaluators.tool_trajectory:ToolTrajectory",
        "field_accuracy": "agentv.evaluators.field_accuracy:FieldAccuracy",
        "latency": f"{_LIMITS}:Latency",
        "cost": f"{_LIMITS}:Cost",
        "token_usage": f"{_LIMITS}:TokenUsage",
        "execution_metrics": f"{_LIMITS}:ExecutionMetrics",
        "equals": f"{_CHECKS}:Equals",
        "contains": f"{_CHECKS}:Contains",
        "contains_any": f"{_CHECKS}:ContainsAny",
        "contains_all": f"{_CHECKS}:ContainsAll",
        "icontains": f"{_CHECKS}:IContains",
        "icontains_any": f"{_CHECKS}:IContainsAny",
        "icontains_all": f"{_CHECKS}:IContainsAll",
        "starts_with": f"{_CHECKS}:StartsWith",
        "ends_with": f"{_CHECKS}:EndsWith",
        "regex": f"{_CHECKS}:Regex",
        "is_json": f"{_CHECKS}:IsJson",
        "json_schema": f"{_CHECKS}:JsonSchema",
        "levenshtein": f"{_CHECKS}:Levenshtein",
        "similarity": f"{_CHECKS}:Similarity",
    },
    aliases={
        "llm_grader": "llm_judge",
        "rubrics": "rubric",
        "llm_rubric": "rubric",
        "code_grader": "code_judge",
        "script": "code_judge",
        "similar": "similarity",
    },
)

TARGETS = Registry(
    "agentv.targets",
    noun="providers",
    rows={
        "openai": "agentv.targets.openai:OpenAI",
        "azure": "agentv.targets.azure:Azure",
        "anthropic": "agentv.targets.anthropic:Anthropic",
        "gemini": "agentv.targets.gemini:Gemini",
        "bedrock": "agentv.targets.hosted:Bedrock",
        "mistral": "agentv.targets.hosted:Mistral",
        "cohere": "agentv.targets.hosted:Cohere",
        "cli": "agentv.targets.cli:Cli",
        "claude-code": "agentv.targets.agents:ClaudeCode",
        "codex": "agentv.targets.agents:Codex",
        "copilot-cli": "agentv.targets.agents:CopilotCli",
        "gemini-cli": "agentv.targets.agents:GeminiCli",
        "pi-coding-agent": "agentv.targets.agents:PiCodingAgent",
        "opencode": "agentv.targets.agents:OpenCode",
        "python": "agentv.targets.python:PythonFunction",
        "http": "agentv.targets.http:Http",
        "replay": "agentv.targets.replay:Replay",
        "mock": "agentv.targets.mock:Mock",
    },
    aliases={
        "azure-openai": "azure",
        "google": "gemini",
        "google-gemini": "gemini",
        "claude": "claude-code",
        "claude-cli": "claude-code",
        "codex-cli": "codex",
        "copilot": "copilot-cli",
        "pi": "pi-coding-agent",
        "pi-cli": "pi-coding-agent",
    },
)
