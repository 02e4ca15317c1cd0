"""Coding agents that call their vendor's own models: Claude Code, Codex and the Gemini CLI."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from agentv.model.response import Response
from agentv.model.result import TokenUsage
from agentv.model.values import to_json
from agentv.targets.agents.agent import Call, CodingAgent, Invocation, options
from agentv.targets.agents.events import (
    Event,
    NoAnswer,
    Transcript,
    classify_failure,
    milliseconds,
    sum_usage,
    text_of,
    usage,
)
from agentv.targets.apis.model_api import UsageFields

_CACHE = "cacheReadInputTokens", "cacheCreationInputTokens"
_OF_MODEL = UsageFields(("inputTokens", *_CACHE), ("outputTokens",), _CACHE[0], cache_write=_CACHE[1])
_CACHED = "cache_read_input_tokens", "cache_creation_input_tokens"
_OF_ALL = UsageFields(("input_tokens", *_CACHED), ("output_tokens",), _CACHED[0], cache_write=_CACHED[1])


class ClaudeCode(CodingAgent, frozen=True, kw_only=True):
    """Claude Code."""

    secrets: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    package: ClassVar[str] = "@anthropic-ai/claude-code"
    home_variables: ClassVar[dict[str, str]] = {"CLAUDE_CONFIG_DIR": "/.claude"}

    executable: str = "claude"

    def invocation(self, call: Call) -> Invocation:
        """The prompt on stdin, every permission given: nobody is there to ask."""
        arguments = ["-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
        arguments += options({"--model": self.model, "--append-system-prompt": self.system_prompt})
        env = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            env["IS_SANDBOX"] = "1"  # as root it gives up its permissions' questions only where this is said
        return self.build_invocation(call, arguments, env)

    @staticmethod
    def read_events(events: Iterable[Event]) -> Response:
        """Messages of the main agent; what it hands on to another is the work of the tool that did."""
        transcript = Transcript()
        result: dict[str, Any] | None = None
        model = None
        for data, at_ms in events:
            kind, message = data.get("type"), data.get("message")
            if kind == "result":
                result = data
            elif isinstance(message, dict) and not data.get("parent_tool_use_id"):
                content = message.get("content")
                if kind == "assistant":
                    model = message.get("model") or model
                    transcript.turn(message.get("id"))
                    transcript.add_parts(content, at_ms)
                elif kind == "user" and isinstance(content, list):
                    for block in content:
                        if block.get("type") == "tool_result":
                            id, failed = block.get("tool_use_id", ""), bool(block.get("is_error"))
                            transcript.output(id, text_of(block.get("content")), at_ms, failed=failed)
        if result is None:
            raise NoAnswer("Claude Code ended before its result")
        subtype = str(result.get("subtype"))
        ran_out = subtype.startswith("error_max_")  # of turns or of money: what there is, is the answer
        if result.get("is_error") and not ran_out:
            raise classify_failure(_complaint(result), result.get("api_error_status"))
        return transcript.response(
            usage=_usage(result),
            cost_usd=result.get("total_cost_usd"),
            id=result.get("session_id"),
            model=model,
            stop_reason=subtype.removeprefix("error_") if ran_out else result.get("stop_reason"),
        )


def _usage(result: dict[str, Any]) -> TokenUsage | None:
    """All models together, as the cost is: a small one may have helped. Cached tokens are counted apart there."""
    models = result.get("modelUsage")
    if isinstance(models, dict) and models:
        return sum_usage(usage(each, _OF_MODEL) for each in models.values())
    return usage(result.get("usage"), _OF_ALL)


def _complaint(result: dict[str, Any]) -> str:
    errors = result.get("errors")
    said = result.get("result") or ("; ".join(map(str, errors)) if isinstance(errors, list) else "")
    return str(said or f"Claude Code ended with {result.get('subtype')}")


_OUTSIDE_THE_INPUT = frozenset(
    {"id", "type", "status", "aggregated_output", "exit_code", "result", "error", "server", "tool", "arguments"}
)
_CODEX_USAGE = UsageFields(
    ("input_tokens",), ("output_tokens",), "cached_input_tokens", "reasoning_output_tokens", "cache_write_input_tokens"
)


class Codex(CodingAgent, frozen=True, kw_only=True):
    """OpenAI's Codex CLI."""

    secrets: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY", "CODEX_API_KEY")
    package: ClassVar[str] = "@openai/codex"
    home_variables: ClassVar[dict[str, str]] = {"CODEX_HOME": "/.codex"}

    executable: str = "codex"

    def invocation(self, call: Call) -> Invocation:
        """The prompt on stdin; no approvals and no sandbox of its own, which fails inside most containers."""
        arguments = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        arguments += options({"--model": self.model})
        if self.system_prompt:
            # A JSON string is one of TOML, but for a character that TOML wants escaped.
            quoted = to_json(self.system_prompt).decode().replace("\x7f", "\\u007f")
            arguments += ["--config", f"developer_instructions={quoted}"]
        if call.home is None:
            arguments.append("--ephemeral")  # in a home of its own every session goes with the home
        key = call.environment.get("CODEX_API_KEY") or call.environment.get("OPENAI_API_KEY")
        env = {"CODEX_API_KEY": key} if key else {}  # `exec` reads this one only
        files = {".codex/config.toml": "check_for_update_on_startup = false\n"}
        made = self.build_invocation(call, arguments, env, files)
        return msgspec.structs.replace(made, arguments=(*made.arguments, "-"))

    @staticmethod
    def read_events(events: Iterable[Event]) -> Response:
        """Messages are items, and so is whatever the agent used: commands, edits, searches, tools of others."""
        transcript = Transcript()
        known: dict[str, Any] = {}
        error, completed = "", False
        for data, at_ms in events:
            kind = data.get("type")
            item = data.get("item")
            if kind == "thread.started":
                known["id"] = data.get("thread_id")
            elif kind == "turn.completed":
                error, completed = "", True
                known["usage"] = usage(data.get("usage"), _CODEX_USAGE)
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
        return transcript.response(**known)


def _item(transcript: Transcript, item: dict[str, Any], at_ms: float, completed: bool) -> None:
    kind, id = item.get("type"), str(item.get("id"))
    if kind == "agent_message":
        if completed:
            transcript.turn()  # a message comes whole, and is never the rest of another
            transcript.say(item.get("text") or "")
    elif kind not in ("reasoning", "error", "todo_list"):
        tool, input = _called(item)
        transcript.call(id, tool, input, at_ms)
        if completed:
            transcript.output(id, _result(item), at_ms, failed=item.get("status") == "failed")


def _called(item: dict[str, Any]) -> tuple[str, Any]:
    """The tool of an item and what went in; a tool of another server by both names."""
    if item.get("type") == "mcp_tool_call":
        return f"{item.get('server')}.{item.get('tool')}", item.get("arguments")
    return str(item.get("type")), {key: value for key, value in item.items() if key not in _OUTSIDE_THE_INPUT}


def _result(item: dict[str, Any]) -> Any:
    if item.get("type") == "command_execution":
        return item.get("aggregated_output")
    return item.get("result") or item.get("error") or item.get("status")


_GEMINI_USAGE = UsageFields(("input_tokens",), ("output_tokens",), "cached")


class GeminiCli(CodingAgent, frozen=True, kw_only=True):
    """Google's Gemini CLI."""

    secrets: ClassVar[tuple[str, ...]] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    package: ClassVar[str] = "@google/gemini-cli"
    home_variables: ClassVar[dict[str, str]] = {"GEMINI_CLI_HOME": ""}
    instructions: ClassVar[str] = ".gemini/GEMINI.md"

    executable: str = "gemini"

    def invocation(self, call: Call) -> Invocation:
        """Every tool allowed, the folder trusted; files outside the folder are named, or it would not read them."""
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
    def read_events(events: Iterable[Event]) -> Response:
        """Text comes in pieces; events have their own times."""
        transcript = Transcript()
        result: dict[str, Any] | None = None
        known: dict[str, Any] = {}
        for data, arrived_ms in events:
            kind = data.get("type")
            at_ms = milliseconds(data.get("timestamp"), arrived_ms)
            if kind == "init":
                known |= {"id": data.get("session_id"), "model": data.get("model")}
            elif kind == "message" and data.get("role") == "assistant":
                transcript.say(data.get("content") or "")
            elif kind == "tool_use":
                tool, input = data.get("tool_name", ""), data.get("parameters")
                transcript.call(data.get("tool_id", ""), tool, input, at_ms, data.get("timestamp"))
            elif kind == "tool_result":
                failed = data.get("status") == "error"
                output = data.get("output") or (data.get("error") or {}).get("message")
                transcript.output(data.get("tool_id", ""), output, at_ms, failed=failed)
            elif kind == "result":
                result = data
        if result is None:
            raise NoAnswer("The Gemini CLI ended before its result")
        if result.get("status") == "error":
            raise classify_failure(str((result.get("error") or {}).get("message") or "The Gemini CLI reports an error"))
        return transcript.response(usage=usage(result.get("stats"), _GEMINI_USAGE), **known)
