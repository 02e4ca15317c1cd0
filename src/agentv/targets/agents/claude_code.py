"""Claude Code: `claude -p`, its stream of JSON events, its own price list."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar

from agentv.model.response import Response
from agentv.model.result import TokenUsage
from agentv.targets.agents.agent import Call, CodingAgent, Invocation
from agentv.targets.agents.events import Event, NoAnswer, Transcript, added, failure_of, text_of, usage
from agentv.targets.apis.model_api import UsageFields

_CACHE = "cacheReadInputTokens", "cacheCreationInputTokens"
_OF_MODEL = UsageFields(("inputTokens", *_CACHE), ("outputTokens",), _CACHE[0], cache_write=_CACHE[1])
_CACHED = "cache_read_input_tokens", "cache_creation_input_tokens"
_OF_ALL = UsageFields(("input_tokens", *_CACHED), ("output_tokens",), _CACHED[0], cache_write=_CACHED[1])


class ClaudeCode(CodingAgent, frozen=True, kw_only=True):
    """Claude Code."""

    secrets: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    package: ClassVar[str] = "@anthropic-ai/claude-code"

    executable: str = "claude"

    def invocation(self, call: Call) -> Invocation:
        """The prompt on stdin, every permission given: nobody is there to ask."""
        arguments = ["-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
        if self.model:
            arguments += ["--model", self.model]
        if self.system_prompt:
            arguments += ["--append-system-prompt", self.system_prompt]
        env = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        if call.home is not None:
            env["CLAUDE_CONFIG_DIR"] = f"{call.home}/.claude"
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            env["IS_SANDBOX"] = "1"  # as root it gives up its permissions' questions only where this is said
        return Invocation(arguments=(*arguments, *self.args), stdin=call.prompt, env=env)

    @staticmethod
    def answer_of(events: Iterable[Event]) -> Response:
        """Messages of the main agent; what it hands on to another is the work of the tool that did."""
        transcript = Transcript()
        result: dict[str, Any] | None = None
        model = None
        for data, at_ms in events:
            kind, message = data.get("type"), data.get("message")
            if kind == "result":
                result = data
            elif isinstance(message, dict) and not data.get("parent_tool_use_id"):
                if kind == "assistant":
                    model = message.get("model") or model
                    _assistant(transcript, message, at_ms)
                elif kind == "user":
                    _tool_results(transcript, message, at_ms)
        if result is None:
            raise NoAnswer("Claude Code ended before its result")
        subtype = str(result.get("subtype"))
        ran_out = subtype.startswith("error_max_")  # of turns or of money: what there is, is the answer
        if result.get("is_error") and not ran_out:
            raise failure_of(_complaint(result), result.get("api_error_status"))
        return transcript.response(
            usage=_usage(result),
            cost_usd=result.get("total_cost_usd"),
            id=result.get("session_id"),
            model=model,
            stop_reason=subtype.removeprefix("error_") if ran_out else result.get("stop_reason"),
        )


def _assistant(transcript: Transcript, message: dict[str, Any], at_ms: float) -> None:
    transcript.turn(message.get("id"))
    content = message.get("content") or ()
    if isinstance(content, str):
        transcript.say(content)
        return
    for block in content:
        if block.get("type") == "text":
            transcript.say(block.get("text", ""))
        elif block.get("type") == "tool_use":
            transcript.call(block.get("id", ""), block.get("name", ""), block.get("input"), at_ms)


def _tool_results(transcript: Transcript, message: dict[str, Any], at_ms: float) -> None:
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if block.get("type") == "tool_result":
            failed = bool(block.get("is_error"))
            transcript.output(block.get("tool_use_id", ""), text_of(block.get("content")), at_ms, failed=failed)


def _usage(result: dict[str, Any]) -> TokenUsage | None:
    """All models together, as the cost is: a small one may have helped. Cached tokens are counted apart there."""
    models = result.get("modelUsage")
    if isinstance(models, dict) and models:
        return added(usage(each, _OF_MODEL) for each in models.values())
    return usage(result.get("usage"), _OF_ALL)


def _complaint(result: dict[str, Any]) -> str:
    errors = result.get("errors")
    said = result.get("result") or ("; ".join(map(str, errors)) if isinstance(errors, list) else "")
    return str(said or f"Claude Code ended with {result.get('subtype')}")
