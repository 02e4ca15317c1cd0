"""The real coding agents, configured to use the local model server."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentv.model.message import ToolCall
from agentv.model.result import TokenUsage
from agentv_testing import Answer, ReceivedRequest

COMMAND = "echo made > made.txt && ls"
TEXT, ANSWER = "I will make the file.", "The answer is 42."
KEY = "sk-of-nobody-0123456789"
USAGE = TokenUsage(100, 20, 30)


def _config(**files: Any) -> dict[str, Any]:
    return {name.replace("__", "/"): content for name, content in files.items()}


@dataclass(frozen=True)
class RealAgent:
    """A provider, its program, its shell tool as the model calls it and as the agent reports it, and its API.

    `settings` and `home` return target settings and home files for the server's address.
    """

    provider: str
    program: str
    tool: str
    settings: Callable[[str], dict[str, Any]]
    reported: str = ""
    argument: str = "command"
    command: str = COMMAND
    home: Callable[[str], dict[str, str]] = lambda origin: {}
    keys: dict[str, str] = field(default_factory=dict)
    reports_cost: bool = False

    def answers(self, received: ReceivedRequest) -> Any:
        """Return a tool call and then the answer; requests without tools only want a title or the like."""
        if not received.body.get("tools"):
            return "A title"
        input = {self.argument: self.command, "description": "Makes a file"}
        call = ToolCall(self.tool, input, id="call_1")
        return [Answer(TEXT, (call,), USAGE), Answer(ANSWER, usage=USAGE)]


def _codex(origin: str) -> dict[str, Any]:
    provider = f'{{name="fake", base_url="{origin}/v1", env_key="FAKE_KEY", wire_api="responses"}}'
    args = ["-c", 'model_provider="fake"', "-c", f"model_providers.fake={provider}"]
    return {"model": "gpt-5.1-codex", "args": args, "env": {"FAKE_KEY": KEY}}


def _copilot(origin: str) -> dict[str, Any]:
    own = {"COPILOT_OFFLINE": "true", "COPILOT_PROVIDER_BASE_URL": f"{origin}/v1", "COPILOT_PROVIDER_TYPE": "openai"}
    return {"model": "gpt-4.1", "env": own}


def _pi_home(origin: str) -> dict[str, str]:
    model = {"id": "gpt-x", "cost": {"input": 1, "output": 2, "cacheRead": 0.5, "cacheWrite": 0}}
    provider = {"baseUrl": f"{origin}/v1", "api": "openai-completions", "apiKey": KEY, "models": [model]}
    return {".pi/agent/models.json": json.dumps({"providers": {"fake": provider}})}


def _opencode_home(origin: str) -> dict[str, str]:
    options = {"baseURL": f"{origin}/v1", "apiKey": KEY}
    models = {"gpt-x": {"name": "x", "cost": {"input": 1, "output": 2}}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    return {".config/opencode/opencode.json": json.dumps({"provider": {"fake": provider}, "autoupdate": False})}


AGENTS = (
    RealAgent(
        "claude-code",
        "claude",
        "Bash",
        lambda origin: {"model": "claude-sonnet-4-5", "env": {"ANTHROPIC_BASE_URL": origin}},
        keys={"ANTHROPIC_API_KEY": KEY},
        reports_cost=True,
    ),
    RealAgent("codex", "codex", "exec_command", _codex, reported="command_execution", argument="cmd"),
    RealAgent(
        "gemini-cli",
        "gemini",
        "run_shell_command",
        lambda origin: {"model": "gemini-2.5-flash", "env": {"GOOGLE_GEMINI_BASE_URL": origin}},
        keys={"GEMINI_API_KEY": KEY},
    ),
    RealAgent("copilot-cli", "copilot", "bash", _copilot, keys={"COPILOT_PROVIDER_API_KEY": KEY}),
    RealAgent(
        "pi-coding-agent",
        "pi",
        "bash",
        lambda origin: {"model": "gpt-x", "pi_provider": "fake", "env": {"PI_OFFLINE": "1"}},
        home=_pi_home,
        reports_cost=True,
    ),
    RealAgent(
        "opencode", "opencode", "bash", lambda origin: {"model": "fake/gpt-x"}, home=_opencode_home, reports_cost=True
    ),
)

_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_OTHER_IDS = re.compile(r"\b(ses|msg|prt)_[0-9A-Za-z]{20,}")
_PATHS = re.compile(r"/[\w./-]*agentv-[\w-]+/(?:\d+/)?")
_PORTS = re.compile(r"127\.0\.0\.1:\d+")
_LISTS = ("tools", "slash_commands", "agents", "skills", "memory_paths")


def cleaned(lines: list[str]) -> str:
    """Normalize recorded events: paths, ports and ids are replaced, and long lists are truncated."""
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return names.setdefault(found.group(), f"id-{len(names) + 1}")

    kept = []
    for line in lines:
        data = json.loads(line)
        for key in _LISTS:
            if key in data:
                del data[key]
        if str(data.get("type", "")).startswith(("session.skills", "session.mcp", "session.tools", "session.custom")):
            continue
        text = json.dumps(data, ensure_ascii=False)
        text = _PORTS.sub("127.0.0.1:1", _PATHS.sub("/agent/", text))
        kept.append(_OTHER_IDS.sub(name, _IDS.sub(name, text)))
    return "\n".join(kept) + "\n"
