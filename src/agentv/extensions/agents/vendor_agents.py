"""Coding agents that use their vendor's own models: Claude Code, Codex and the Gemini CLI."""

import os
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.extensions.agents.agent import Call, CodingAgent, Invocation, ModelHost, options
from agentv.extensions.agents.events import Event, NoAnswer, Transcript, classify_failure
from agentv.model.token_counts import CLAUDE_CODE_USAGE, CODEX_USAGE, UsageFields, usage
from agentv.model.values import to_json
from agentv.sessions.turns import milliseconds, text_of
from agentv.targets.target import Positive
from agentv.targets.workspace_target import SkillPlaces

_MODEL_CACHE = "cacheReadInputTokens", "cacheCreationInputTokens"
_MODEL_USAGE = UsageFields(
    ("inputTokens", *_MODEL_CACHE), ("outputTokens",), _MODEL_CACHE[0], cache_write=_MODEL_CACHE[1]
)


class ClaudeCode(CodingAgent, frozen=True, kw_only=True):
    """Claude Code.

    If it reaches `max_turns` or `max_budget_usd`, the work up to then is the answer.
    """

    secrets: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    model_host: ClassVar[ModelHost | None] = ModelHost(
        "api.anthropic.com",
        "ANTHROPIC_BASE_URL",
        {
            "ANTHROPIC_API_KEY": "x-api-key",
            "ANTHROPIC_AUTH_TOKEN": "Authorization",
            "CLAUDE_CODE_OAUTH_TOKEN": "Authorization",
        },
    )
    package: ClassVar[str] = "@anthropic-ai/claude-code"
    login_files: ClassVar[tuple[str, ...]] = (".claude/.credentials.json", ".claude.json")
    home_variables: ClassVar[dict[str, str]] = {"CLAUDE_CONFIG_DIR": "/.claude"}
    skill_places: ClassVar[SkillPlaces] = SkillPlaces((".claude/skills",), (".claude/skills",))

    executable: str = "claude"
    max_turns: Annotated[int, Meta(ge=1)] | None = None
    """Maximum number of turns."""

    max_budget_usd: Positive | None = None
    """Maximum cost of one call in USD."""

    model_reasoning_effort: str | None = None
    """Reasoning effort."""

    def invocation(self, call: Call) -> Invocation:
        """Pass the prompt on stdin and grant all permissions, because no one can confirm them."""
        arguments = ["-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
        flags = {"--model": self.model, "--append-system-prompt": self.system_prompt}
        flags["--effort"] = self.model_reasoning_effort
        flags["--max-turns"] = str(self.max_turns or "")
        flags["--max-budget-usd"] = str(self.max_budget_usd or "")
        arguments += options(flags)
        env = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            env["IS_SANDBOX"] = "1"  # required to skip permission prompts as root
        return self.build_invocation(call, arguments, env)

    @staticmethod
    def follow(events: Iterable[Event], transcript: Transcript) -> None:
        """Read the messages of the main agent. Those of subagents are ignored; their result is a tool result."""
        result: dict[str, Any] | None = None
        for data, at_ms in events:
            kind, message = data.get("type"), data.get("message")
            if kind == "result":
                result = data
            elif isinstance(message, dict) and not data.get("parent_tool_use_id"):
                content = message.get("content")
                if kind == "assistant":
                    transcript.known["model"] = message.get("model") or transcript.known.get("model")
                    transcript.start_turn(message.get("id"))
                    transcript.add_parts(content, at_ms)
                elif kind == "user" and isinstance(content, list):
                    for block in content:
                        if block.get("type") == "tool_result":
                            id, failed = block.get("tool_use_id", ""), bool(block.get("is_error"))
                            transcript.add_result(id, text_of(block.get("content")), at_ms, failed=failed)
        if result is None:
            raise NoAnswer("Claude Code ended without a result")
        transcript.costs.append(result.get("total_cost_usd"))
        models = result.get("modelUsage")  # the cost also covers auxiliary models
        if isinstance(models, dict) and models:
            transcript.usages += [usage(counts, _MODEL_USAGE) for counts in models.values()]
        else:
            transcript.usages.append(usage(result.get("usage"), CLAUDE_CODE_USAGE))
        subtype = str(result.get("subtype"))
        is_limit = subtype.startswith("error_max_")  # of turns or cost: the work so far is the answer
        if result.get("is_error") and not is_limit:
            errors = result.get("errors")
            message = result.get("result") or ("; ".join(map(str, errors)) if isinstance(errors, list) else "")
            message = str(message or f"Claude Code ended with {subtype}")
            raise classify_failure(message, result.get("api_error_status"))
        stop_reason = subtype.removeprefix("error_") if is_limit else result.get("stop_reason")
        transcript.known |= {"id": result.get("session_id"), "stop_reason": stop_reason}


_NOT_INPUT = frozenset(
    {"id", "type", "status", "aggregated_output", "exit_code", "result", "error", "server", "tool", "arguments"}
)


class Codex(CodingAgent, frozen=True, kw_only=True):
    """OpenAI's Codex CLI."""

    secrets: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY", "CODEX_API_KEY")
    model_host: ClassVar[ModelHost | None] = ModelHost(
        "api.openai.com",
        "OPENAI_BASE_URL",
        {"CODEX_API_KEY": "Authorization", "OPENAI_API_KEY": "Authorization"},
        "/v1",
    )
    package: ClassVar[str] = "@openai/codex"
    login_files: ClassVar[tuple[str, ...]] = (".codex/auth.json",)
    home_variables: ClassVar[dict[str, str]] = {"CODEX_HOME": "/.codex"}
    skill_places: ClassVar[SkillPlaces] = SkillPlaces(
        (".codex/skills", ".agents/skills"), (".agents/skills", ".codex/skills")
    )

    executable: str = "codex"
    model_reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """Reasoning effort."""

    def invocation(self, call: Call) -> Invocation:
        """Pass the prompt on stdin, without approvals and without Codex's sandbox, which fails in most containers."""
        arguments = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        arguments += options({"--model": self.model})
        if self.model_reasoning_effort:
            arguments += ["--config", f'model_reasoning_effort="{self.model_reasoning_effort}"']
        if self.system_prompt:
            # A JSON string is a valid TOML string if DEL is escaped.
            quoted = to_json(self.system_prompt).decode().replace("\x7f", "\\u007f")
            arguments += ["--config", f"developer_instructions={quoted}"]
        if call.home is None:
            arguments.append("--ephemeral")  # with its own home, sessions are removed with it
        key = call.environment.get("CODEX_API_KEY") or call.environment.get("OPENAI_API_KEY")
        env = {"CODEX_API_KEY": key} if key else {}  # `exec` reads only this variable
        files = {".codex/config.toml": "check_for_update_on_startup = false\n"}
        invocation = self.build_invocation(call, arguments, env, files)
        return msgspec.structs.replace(invocation, arguments=(*invocation.arguments, "-"))

    @staticmethod
    def follow(events: Iterable[Event], transcript: Transcript) -> None:
        """Read messages and tool calls, which are items: commands, edits, searches and MCP tools."""
        error, completed = "", False
        for data, at_ms in events:
            kind = data.get("type")
            item = data.get("item")
            if kind == "thread.started":
                transcript.known["id"] = data.get("thread_id")
            elif kind == "turn.completed":
                error, completed = "", True
                transcript.usages = [usage(data.get("usage"), CODEX_USAGE)]
            elif kind == "turn.failed":
                error = str((data.get("error") or {}).get("message") or "The turn failed")
            elif kind == "error":
                error = str(data.get("message"))
            elif isinstance(item, dict) and kind in ("item.started", "item.completed"):
                _item(transcript, item, at_ms, kind == "item.completed")
        if error:
            raise classify_failure(error)
        if not completed:
            raise NoAnswer("Codex ended before its turn was completed")


def _item(transcript: Transcript, item: dict[str, Any], at_ms: float, completed: bool) -> None:
    kind, id = item.get("type"), str(item.get("id"))
    if kind == "agent_message" and completed:
        transcript.start_turn()  # messages are always complete
        transcript.add_text(item.get("text") or "")
    if kind in ("agent_message", "reasoning", "error", "todo_list"):
        return
    tool = str(kind)
    input: Any = {key: value for key, value in item.items() if key not in _NOT_INPUT}
    if kind == "mcp_tool_call":
        tool, input = f"{item.get('server')}.{item.get('tool')}", item.get("arguments")
    transcript.add_call(id, tool, input, at_ms)
    if completed:
        result = item.get("result") or item.get("error") or item.get("status")
        output = item.get("aggregated_output") if kind == "command_execution" else result
        transcript.add_result(id, output, at_ms, failed=item.get("status") == "failed")


_GEMINI_USAGE = UsageFields(("input_tokens",), ("output_tokens",), "cached")


class GeminiCli(CodingAgent, frozen=True, kw_only=True):
    """Google's Gemini CLI."""

    secrets: ClassVar[tuple[str, ...]] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    model_host: ClassVar[ModelHost | None] = ModelHost(
        "generativelanguage.googleapis.com",
        "GOOGLE_GEMINI_BASE_URL",
        {"GEMINI_API_KEY": "x-goog-api-key", "GOOGLE_API_KEY": "x-goog-api-key"},
    )
    package: ClassVar[str] = "@google/gemini-cli"
    login_files: ClassVar[tuple[str, ...]] = (".gemini/oauth_creds.json",)
    home_variables: ClassVar[dict[str, str]] = {"GEMINI_CLI_HOME": ""}
    instructions: ClassVar[str] = ".gemini/GEMINI.md"
    skill_places: ClassVar[SkillPlaces] = SkillPlaces(
        (".gemini/skills", ".agents/skills"), (".gemini/skills", ".agents/skills")
    )

    executable: str = "gemini"

    def invocation(self, call: Call) -> Invocation:
        """Allow all tools, trust the folder, and include the folders of other files so that it can read them."""
        arguments = ["--output-format", "stream-json", "--yolo", "--skip-trust", *options({"--model": self.model})]
        for folder in call.folders:
            arguments += ["--include-directories", folder]
        settings: dict[str, Any] = {
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
        }
        if "GEMINI_API_KEY" in call.environment:
            settings["security"] = {"auth": {"selectedType": "gemini-api-key"}}
        return self.build_invocation(call, arguments, {}, {".gemini/settings.json": to_json(settings).decode()})

    @staticmethod
    def follow(events: Iterable[Event], transcript: Transcript) -> None:
        """Read text, which comes in pieces, and tool calls; events have their own timestamps."""
        result: dict[str, Any] | None = None
        for data, arrived_ms in events:
            kind = data.get("type")
            at_ms = milliseconds(data.get("timestamp"), arrived_ms)
            if kind == "init":
                transcript.known = {"id": data.get("session_id"), "model": data.get("model")}
            elif kind == "message" and data.get("role") == "assistant":
                transcript.add_text(data.get("content") or "")
            elif kind == "tool_use":
                tool, input = data.get("tool_name", ""), data.get("parameters")
                transcript.add_call(data.get("tool_id", ""), tool, input, at_ms, data.get("timestamp"))
            elif kind == "tool_result":
                failed = data.get("status") == "error"
                output = data.get("output") or (data.get("error") or {}).get("message")
                transcript.add_result(data.get("tool_id", ""), output, at_ms, failed=failed)
            elif kind == "result":
                result = data
        if result is None:
            raise NoAnswer("The Gemini CLI ended without a result")
        transcript.usages.append(usage(result.get("stats"), _GEMINI_USAGE))
        if result.get("status") == "error":
            message = (result.get("error") or {}).get("message") or "The Gemini CLI reported an error"
            raise classify_failure(str(message))
