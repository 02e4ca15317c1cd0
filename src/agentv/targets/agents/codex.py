"""OpenAI's Codex CLI: `codex exec --json`, items that begin and end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from agentv.model.response import Response
from agentv.model.values import to_json
from agentv.targets.agents.agent import Call, CodingAgent, Invocation
from agentv.targets.agents.events import Event, NoAnswer, Transcript, failure_of, usage
from agentv.targets.apis.model_api import UsageFields

_OUTSIDE_THE_INPUT = frozenset(
    {"id", "type", "status", "aggregated_output", "exit_code", "result", "error", "server", "tool", "arguments"}
)
_USAGE = UsageFields(
    ("input_tokens",),
    ("output_tokens",),
    "cached_input_tokens",
    "reasoning_output_tokens",
    "cache_write_input_tokens",
)


class Codex(CodingAgent, frozen=True, kw_only=True):
    """OpenAI's Codex CLI."""

    secrets: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY", "CODEX_API_KEY")
    package: ClassVar[str] = "@openai/codex"

    executable: str = "codex"

    def invocation(self, call: Call) -> Invocation:
        """The prompt on stdin; no approvals and no sandbox of its own, which fails inside most containers."""
        arguments = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        if self.model:
            arguments += ["--model", self.model]
        if self.system_prompt:
            # A JSON string is one of TOML, but for a character that TOML wants escaped.
            quoted = to_json(self.system_prompt).decode().replace("\x7f", "\\u007f")
            arguments += ["--config", f"developer_instructions={quoted}"]
        if call.home is None:
            arguments.append("--ephemeral")  # in a home of its own every session goes with the home
        env = {} if call.home is None else {"CODEX_HOME": f"{call.home}/.codex"}
        key = call.environment.get("OPENAI_API_KEY")
        if key and "CODEX_API_KEY" not in call.environment:
            env["CODEX_API_KEY"] = key  # `exec` reads this one only
        files = {".codex/config.toml": "check_for_update_on_startup = false\n"}
        return Invocation(arguments=(*arguments, *self.args, "-"), stdin=call.prompt, env=env, files=files)

    @staticmethod
    def answer_of(events: Iterable[Event]) -> Response:
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
                known["usage"] = usage(data.get("usage"), _USAGE)
            elif kind == "turn.failed":
                error = str((data.get("error") or {}).get("message") or "The turn failed")
            elif kind == "error":
                error = str(data.get("message"))
            elif isinstance(item, dict) and kind in ("item.started", "item.completed"):
                _item(transcript, item, at_ms, kind == "item.completed")
        if error:
            raise failure_of(error)
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
