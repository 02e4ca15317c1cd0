"""Coding agents that use models of several vendors: opencode, pi and the Copilot CLI."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from agentv.extensions.agents.agent import Call, CodingAgent, Invocation, key_variables_of, options
from agentv.extensions.agents.events import Event, NoAnswer, Transcript, classify_failure
from agentv.model.response import TargetFailure
from agentv.model.token_counts import COPILOT_USAGE, OPENCODE_USAGE, PI_USAGE, usage
from agentv.model.values import to_json
from agentv.sessions.turns import milliseconds, number, text_of
from agentv.targets.workspace_target import SkillPlaces


class OpenCode(CodingAgent, frozen=True, kw_only=True):
    """The opencode agent."""

    secrets: ClassVar[tuple[str, ...]] = ("OPENCODE_API_KEY",)
    package: ClassVar[str] = "opencode-ai"
    login_files: ClassVar[tuple[str, ...]] = (".local/share/opencode/auth.json",)
    home_variables: ClassVar[dict[str, str]] = {
        "XDG_CONFIG_HOME": "/.config",
        "XDG_DATA_HOME": "/.local/share",
        "XDG_STATE_HOME": "/.local/state",
    }
    instructions: ClassVar[str] = ".config/opencode/AGENTS.md"
    skill_places: ClassVar[SkillPlaces] = SkillPlaces(
        (".config/opencode/skills", ".config/opencode/skill", ".claude/skills", ".agents/skills"),
        (".opencode/skills", ".opencode/skill", ".claude/skills", ".agents/skills"),
    )

    executable: str = "opencode"

    model: str | None = None
    """`provider/model`."""

    @classmethod
    def keys_of(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return its own key variable, and those of the model's API."""
        return (*cls.secrets, *key_variables_of(str(settings.get("model") or "").partition("/")[0]))

    def invocation(self, call: Call) -> Invocation:
        """Pass the prompt on stdin, grant all permissions, and disable sharing and updates."""
        arguments = ["run", "--format", "json", "--auto", *options({"--model": self.model})]
        settings = {"autoupdate": False, "share": "disabled"}
        return self.build_invocation(
            call, arguments, {}, {".config/opencode/opencode.json": to_json(settings).decode()}
        )

    @staticmethod
    def follow(events: Iterable[Event], transcript: Transcript) -> None:
        """Read turns by message id. A tool call and its result are one event with its own times."""
        fields = transcript.known
        ended = False
        for data, at_ms in events:
            kind, part = data.get("type"), data.get("part")
            fields["id"] = data.get("sessionID") or fields.get("id")
            if kind == "error":
                error = data.get("error") or {}
                details = error.get("data") or {}
                message = str(details.get("message") or error.get("name"))
                raise classify_failure(message, details.get("statusCode"))
            if not isinstance(part, dict):
                continue
            if kind in ("step_start", "step_finish"):
                ended = kind == "step_finish" and part.get("reason") != "tool-calls"
            if kind in ("text", "tool_use"):
                transcript.start_turn(part.get("messageID"))
            if kind == "text":
                transcript.add_text(part.get("text") or "")
            elif kind == "tool_use":
                _tool(transcript, part, at_ms)
            elif kind == "step_finish":
                fields["stop_reason"] = part.get("reason")
                transcript.usages.append(usage(part.get("tokens"), OPENCODE_USAGE))
                transcript.costs.append(part.get("cost") or None)  # 0 means that the price is unknown
        if not ended:
            raise NoAnswer("opencode ended in the middle of a step")


def _tool(transcript: Transcript, part: dict[str, Any], at_ms: float) -> None:
    state, id = part.get("state") or {}, part.get("callID", "")
    times = state.get("time") or {}
    transcript.add_call(id, part.get("tool", ""), state.get("input"), at_ms)
    if state.get("status") in ("completed", "error"):
        duration_ms = times["end"] - times["start"] if {"start", "end"} <= times.keys() else None
        is_error = state["status"] == "error"
        output = state.get("error") if is_error else state.get("output")
        failed = is_error or number(state.get("metadata"), "exit") > 0
        transcript.add_result(id, output, at_ms, failed=failed, duration_ms=duration_ms)


_DEFAULT_PROVIDER = "google"
_PI_NAMES = dict.fromkeys(("azure", "azure-openai", "azure-openai-responses"), "azure-openai-responses")
"""The name of Azure OpenAI in pi."""


class PiCodingAgent(CodingAgent, frozen=True, kw_only=True):
    """The pi coding agent; `pi_provider` selects its model API."""

    aliases: ClassVar[dict[str, str]] = {
        **CodingAgent.aliases,
        **dict.fromkeys(("llm_provider", "subprovider"), "pi_provider"),
        "pi_model": "model",
        "model_reasoning_effort": "thinking",
    }
    package: ClassVar[str] = "@mariozechner/pi-coding-agent"
    login_files: ClassVar[tuple[str, ...]] = (".pi/agent/auth.json",)
    home_variables: ClassVar[dict[str, str]] = {"PI_CODING_AGENT_DIR": "/.pi/agent"}
    ignored_prefixes: ClassVar[tuple[bytes, ...]] = (
        b'{"type":"message_update"',
        b'{"type":"tool_execution_update"',
        b'{"type":"turn_end"',
        b'{"type":"agent_end"',
    )
    skill_places: ClassVar[SkillPlaces] = SkillPlaces(
        (".pi/agent/skills", ".agents/skills"), (".pi/skills", ".agents/skills")
    )

    executable: str = "pi"
    pi_provider: str | None = None
    """Model API to use."""

    api_key: str | None = None
    """Key of the model API."""

    base_url: str | None = None
    """Address or resource of Azure OpenAI, with `pi_provider: azure`."""

    tools: str | tuple[str, ...] | None = None
    """Tools to allow."""

    thinking: str | None = None
    """Reasoning effort."""

    @classmethod
    def keys_of(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the key variables of the model's API."""
        vendor, slash, _ = str(settings.get("model") or "").partition("/")
        provider = str(settings.get("pi_provider") or (vendor if slash else _DEFAULT_PROVIDER))
        return key_variables_of(_PI_NAMES.get(provider, provider))

    def complaints(self) -> list[str]:
        """Check that the key can be passed in a variable, because other processes can see arguments."""
        complaints = super().complaints()
        if self.api_key and not self.key_variables:
            complaints.append("'api_key' needs a known `pi_provider`; for others, set the key's variable in `env`")
        if self.base_url and self.pi_provider not in _PI_NAMES:
            complaints.append("'base_url' needs `pi_provider: azure`")
        return complaints

    def invocation(self, call: Call) -> Invocation:
        """Pass the prompt on stdin and the key in a variable."""
        flags = {
            "--provider": _PI_NAMES.get(self.pi_provider or "", self.pi_provider),
            "--model": self.model,
            "--thinking": self.thinking,
            "--tools": ",".join(self.tools) if isinstance(self.tools, tuple) else self.tools,
            "--append-system-prompt": self.system_prompt,
        }
        env = {"PI_TELEMETRY": "0"}
        if self.api_key:
            env[self.key_variables[0]] = self.api_key
        if self.base_url:
            env[f"AZURE_OPENAI_{'BASE_URL' if '://' in self.base_url else 'RESOURCE_NAME'}"] = self.base_url
        return self.build_invocation(call, ["-p", "--mode", "json", "--no-session", *options(flags)], env)

    @staticmethod
    def follow(events: Iterable[Event], transcript: Transcript) -> None:
        """Read each finished message as a turn. One with an error is final unless another message follows."""
        fields = transcript.known
        error = ""
        for number_of_event, (data, at_ms) in enumerate(events):
            if (kind := data.get("type")) == "session":
                fields["id"] = data.get("id")
            elif kind == "tool_execution_end":
                output = text_of((data.get("result") or {}).get("content"))
                transcript.add_result(data.get("toolCallId", ""), output, at_ms, failed=bool(data.get("isError")))
            elif kind == "message_end" and (message := data.get("message") or {}).get("role") == "assistant":
                error = str(message.get("errorMessage")) if message.get("stopReason") in ("error", "aborted") else ""
                fields |= {"model": message.get("model"), "stop_reason": message.get("stopReason")}
                transcript.start_turn(number_of_event)
                transcript.add_parts(message.get("content"), at_ms)
                reported = message.get("usage")
                transcript.usages.append(usage(reported, PI_USAGE))
                cost = reported.get("cost") if isinstance(reported, dict) else None
                transcript.costs.append((cost.get("total") if isinstance(cost, dict) else None) or None)
        if error:
            raise classify_failure(error)
        if fields.get("stop_reason") in (None, "toolUse"):  # the model still has to see the tool's result
            raise NoAnswer("pi ended before an answer")


class CopilotCli(CodingAgent, frozen=True, kw_only=True):
    """GitHub's Copilot CLI."""

    secrets: ClassVar[tuple[str, ...]] = (
        "COPILOT_GITHUB_TOKEN",
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "COPILOT_PROVIDER_API_KEY",
        "COPILOT_PROVIDER_BEARER_TOKEN",
    )
    package: ClassVar[str] = "@github/copilot"
    login_files: ClassVar[tuple[str, ...]] = (".copilot/config.json",)
    home_variables: ClassVar[dict[str, str]] = {"COPILOT_HOME": "/.copilot"}
    instructions: ClassVar[str] = ".copilot/copilot-instructions.md"
    ignored_prefixes: ClassVar[tuple[bytes, ...]] = (
        b'{"type":"session.background_tasks_changed"',
        b'{"type":"tool.execution_partial_result"',
        b'{"type":"tool.shell_output"',
    )
    skill_places: ClassVar[SkillPlaces] = SkillPlaces(
        (".copilot/skills", ".claude/skills", ".agents/skills"), (".github/skills", ".claude/skills", ".agents/skills")
    )

    executable: str = "copilot"

    def invocation(self, call: Call) -> Invocation:
        """Allow everything, ask no questions, and do not stream text."""
        arguments = ["--output-format", "json", "--stream", "off", "--allow-all", "--no-ask-user", "--no-auto-update"]
        report = f"{call.scratch}/usage.json"
        flags = {"--model": self.model, "--usage-output-file": report}
        invocation = self.build_invocation(call, [*arguments, "--no-color", "--no-remote", *options(flags)], {})
        return msgspec.structs.replace(invocation, report=report)

    @staticmethod
    def follow(events: Iterable[Event], transcript: Transcript) -> None:
        """Read numbered turns; events have their own timestamps, and more events may follow an error."""
        fields = transcript.known
        failure: TargetFailure | None = None
        ended, code = False, None
        for event, arrived_ms in events:
            kind, data = event.get("type"), event.get("data")
            at_ms = milliseconds(event.get("timestamp"), arrived_ms)
            if kind == "result":
                fields["id"], ended, code = event.get("sessionId"), True, event.get("exitCode")
            elif kind == "report":
                models = ((data or {}).get("modelMetrics") or {}).values()
                transcript.usages = [
                    usage(metrics.get("usage"), COPILOT_USAGE) for metrics in models if isinstance(metrics, dict)
                ]
            elif not isinstance(data, dict) or data.get("parentToolCallId"):
                continue  # work of a subagent, whose result is a tool result
            elif kind == "assistant.message":
                fields["model"] = data.get("model")
                transcript.start_turn(data.get("turnId"))
                transcript.add_text(data.get("content") or "")
                for call in data.get("toolRequests") or ():
                    id, tool = call.get("toolCallId", ""), call.get("name", "")
                    transcript.add_call(id, tool, call.get("arguments"), at_ms, event.get("timestamp"))
            elif kind == "tool.execution_complete":
                failed = not data.get("success", True) or number(data.get("shellExecution"), "exitCode") > 0
                result, error = data.get("result"), data.get("error") or {}
                output = result.get("content") if isinstance(result, dict) else error.get("message")
                transcript.add_result(data.get("toolCallId", ""), output, at_ms, failed=failed)
            elif kind == "session.error":
                failure = classify_failure(str(data.get("message")), data.get("statusCode"))
        if failure is not None:
            raise failure
        if not ended:
            raise NoAnswer("The Copilot CLI ended without a result")
        if code:
            raise NoAnswer(f"The Copilot CLI ended with exit code {code}")
