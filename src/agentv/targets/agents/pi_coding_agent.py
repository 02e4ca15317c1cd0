"""The pi coding agent: `pi -p --mode json`, whole messages with their usage and cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from agentv.model.response import Response
from agentv.targets.agents.agent import Call, CodingAgent, Invocation, keys_of
from agentv.targets.agents.events import (
    Event,
    NoAnswer,
    Transcript,
    added,
    failure_of,
    text_of,
    usage,
)
from agentv.targets.apis.model_api import UsageFields, amount

_DEFAULT_PROVIDER = "google"
_USAGE = UsageFields(("input", "cacheRead", "cacheWrite"), ("output",), "cacheRead", cache_write="cacheWrite")


class PiCodingAgent(CodingAgent, frozen=True, kw_only=True):
    """The pi coding agent, which itself chooses among model APIs by `pi_provider`."""

    aliases: ClassVar[dict[str, str]] = {**CodingAgent.aliases, "llm_provider": "pi_provider", "pi_model": "model"}
    package: ClassVar[str] = "@mariozechner/pi-coding-agent"
    passed_over: ClassVar[tuple[bytes, ...]] = (
        b'{"type":"message_update"',
        b'{"type":"tool_execution_update"',
        b'{"type":"turn_end"',
        b'{"type":"agent_end"',
    )

    executable: str = "pi"
    pi_provider: str | None = None
    api_key: str | None = None
    tools: str | tuple[str, ...] | None = None
    thinking: str | None = None

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Those of the model API that it asks."""
        return keys_of(self._provider)

    @property
    def _provider(self) -> str:
        named, slash, _ = (self.model or "").partition("/")
        return self.pi_provider or (named if slash else _DEFAULT_PROVIDER)

    def invocation(self, call: Call) -> Invocation:
        """The prompt on stdin, no session kept. A key goes by its variable: arguments can be seen by every process."""
        arguments = ["-p", "--mode", "json", "--no-session"]
        given = {
            "--provider": self.pi_provider,
            "--model": self.model,
            "--thinking": self.thinking,
            "--tools": ",".join(self.tools) if isinstance(self.tools, tuple) else self.tools,
            "--append-system-prompt": self.system_prompt,
        }
        for flag, value in given.items():
            arguments += [flag, value] if value else []
        env = {"PI_TELEMETRY": "0"}
        if call.home is not None:
            env["PI_CODING_AGENT_DIR"] = f"{call.home}/.pi/agent"
        if self.api_key:
            variables = self.key_variables
            if variables:
                env[variables[0]] = self.api_key
            else:
                arguments += ["--api-key", self.api_key]
        return Invocation(arguments=(*arguments, *self.args), stdin=call.prompt, env=env)

    @staticmethod
    def answer_of(events: Iterable[Event]) -> Response:
        """A message that ended is a turn. One that ended in an error is the end, unless another one follows."""
        transcript = Transcript()
        usages, costs = [], []
        known: dict[str, Any] = {}
        error = ""
        for number_of_event, (data, at_ms) in enumerate(events):
            kind = data.get("type")
            if kind == "session":
                known["id"] = data.get("id")
            elif kind == "tool_execution_end":
                output = text_of((data.get("result") or {}).get("content"))
                transcript.output(data.get("toolCallId", ""), output, at_ms, failed=bool(data.get("isError")))
            elif kind == "message_end" and (message := data.get("message") or {}).get("role") == "assistant":
                error = str(message.get("errorMessage")) if message.get("stopReason") in ("error", "aborted") else ""
                known |= {"model": message.get("model"), "stop_reason": message.get("stopReason")}
                _message(transcript, message, number_of_event, at_ms)
                said = message.get("usage")
                usages.append(usage(said, _USAGE))
                cost = said.get("cost") if isinstance(said, dict) else None
                costs.append(cost.get("total") if isinstance(cost, dict) else None)
        if error:
            raise failure_of(error)
        if known.get("stop_reason") in (None, "toolUse"):  # what comes of a tool goes back to the model
            raise NoAnswer("pi ended before an answer")
        total = sum(filter(None, map(amount, costs))) or None
        return transcript.response(usage=added(usages), cost_usd=total, **known)


def _message(transcript: Transcript, message: dict[str, Any], key: int, at_ms: float) -> None:
    transcript.turn(key)
    for part in message.get("content") or ():
        if part.get("type") == "text":
            transcript.say(part.get("text", ""))
        elif part.get("type") == "toolCall":
            transcript.call(part.get("id", ""), part.get("name", ""), part.get("arguments"), at_ms)
