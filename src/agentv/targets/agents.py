"""Coding agents on the PATH: each a program that gets the prompt and prints its work as JSON events."""

from __future__ import annotations

from typing import ClassVar, Literal

from agentv.targets.base import COMMON_ALIASES, OTHER_TOOLS, Target


class CodingAgent(Target, frozen=True, kw_only=True):
    """Settings every coding agent takes. `log_dir` is where its events are written besides, in `log_format`."""

    aliases: ClassVar[dict[str, str]] = {
        **COMMON_ALIASES,
        "command": "executable",
        "binary": "executable",
        "arguments": "args",
        "log_directory": "log_dir",
        "log_output_format": "log_format",
    }
    unsupported: ClassVar[dict[str, str]] = {
        **OTHER_TOOLS,
        "max_turns": "Give the agent its own flag in `args`",
        "temperature": "Coding agents choose it themselves",
    }

    executable: str
    args: tuple[str, ...] = ()
    model: str | None = None
    system_prompt: str | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    log_dir: str | None = None
    log_format: Literal["summary", "json"] = "summary"

    def complaints(self) -> list[str]:
        """A blank program."""
        return [] if self.executable.strip() else ["'executable' is blank"]


class ClaudeCode(CodingAgent, frozen=True, kw_only=True):
    """Claude Code."""

    executable: str = "claude"


class Codex(CodingAgent, frozen=True, kw_only=True):
    """OpenAI's Codex CLI."""

    executable: str = "codex"


class CopilotCli(CodingAgent, frozen=True, kw_only=True):
    """GitHub's Copilot CLI."""

    executable: str = "copilot"


class GeminiCli(CodingAgent, frozen=True, kw_only=True):
    """Google's Gemini CLI."""

    executable: str = "gemini"


class PiCodingAgent(CodingAgent, frozen=True, kw_only=True):
    """The pi coding agent, which itself chooses among model APIs by `pi_provider`."""

    aliases: ClassVar[dict[str, str]] = {**CodingAgent.aliases, "llm_provider": "pi_provider", "pi_model": "model"}

    executable: str = "pi"
    pi_provider: str | None = None
    api_key: str | None = None
    tools: str | tuple[str, ...] | None = None
    thinking: str | None = None


class OpenCode(CodingAgent, frozen=True, kw_only=True):
    """The opencode agent."""

    executable: str = "opencode"
