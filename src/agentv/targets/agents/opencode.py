"""The opencode agent: `opencode run --format json`, steps with their tokens and cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from agentv.model.response import Response
from agentv.model.values import to_json
from agentv.targets.agents.agent import Call, CodingAgent, Invocation, keys_of, prefixed
from agentv.targets.agents.events import (
    Event,
    NoAnswer,
    Transcript,
    added,
    failure_of,
    number,
    usage,
)
from agentv.targets.apis.model_api import UsageFields, amount

_USAGE = UsageFields(
    # What was cached and what was thought is counted apart.
    ("input", "cache.read", "cache.write"),
    ("output", "reasoning"),
    "cache.read",
    "reasoning",
    "cache.write",
)


class OpenCode(CodingAgent, frozen=True, kw_only=True):
    """The opencode agent; `model` is `provider/model`."""

    secrets: ClassVar[tuple[str, ...]] = ("OPENCODE_API_KEY",)
    package: ClassVar[str] = "opencode-ai"

    executable: str = "opencode"

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Its own, and those of the model API that it asks."""
        return (*self.secrets, *keys_of((self.model or "").partition("/")[0]))

    def invocation(self, call: Call) -> Invocation:
        """The prompt on stdin, every permission given; nothing shared, nothing updated."""
        arguments = ["run", "--format", "json", "--auto"]
        if self.model:
            arguments += ["--model", self.model]
        if call.home is None:
            return Invocation(arguments=(*arguments, *self.args), stdin=prefixed(self.system_prompt, call.prompt))
        settings = {"autoupdate": False, "share": "disabled"}
        files = {".config/opencode/opencode.json": to_json(settings).decode()}
        if self.system_prompt:
            files[".config/opencode/AGENTS.md"] = self.system_prompt
        env = {
            "XDG_CONFIG_HOME": f"{call.home}/.config",
            "XDG_DATA_HOME": f"{call.home}/.local/share",
            "XDG_STATE_HOME": f"{call.home}/.local/state",
        }
        return Invocation(arguments=(*arguments, *self.args), stdin=call.prompt, env=env, files=files)

    @staticmethod
    def answer_of(events: Iterable[Event]) -> Response:
        """A message id for each turn; a tool's call and its end are one event with its own times."""
        transcript = Transcript()
        usages, costs = [], []
        ended = False
        known: dict[str, Any] = {}
        for data, at_ms in events:
            kind, part = data.get("type"), data.get("part")
            known["id"] = data.get("sessionID") or known.get("id")
            if kind == "error":
                error = data.get("error") or {}
                details = error.get("data") or {}
                raise failure_of(str(details.get("message") or error.get("name")), details.get("statusCode"))
            if not isinstance(part, dict):
                continue
            if kind in ("step_start", "step_finish"):
                ended = kind == "step_finish" and part.get("reason") != "tool-calls"
            if kind in ("text", "tool_use"):
                transcript.turn(part.get("messageID"))
            if kind == "text":
                transcript.say(part.get("text") or "")
            elif kind == "tool_use":
                _tool(transcript, part, at_ms)
            elif kind == "step_finish":
                known["stop_reason"] = part.get("reason")
                usages.append(usage(part.get("tokens"), _USAGE))
                costs.append(part.get("cost"))
        if not ended:
            raise NoAnswer("opencode ended in the middle of a step")
        cost = sum(filter(None, map(amount, costs))) or None
        return transcript.response(usage=added(usages), cost_usd=cost, **known)


def _tool(transcript: Transcript, part: dict[str, Any], at_ms: float) -> None:
    state, id = part.get("state") or {}, part.get("callID", "")
    times = state.get("time") or {}
    transcript.call(id, part.get("tool", ""), state.get("input"), at_ms)
    if state.get("status") in ("completed", "error"):
        took = times["end"] - times["start"] if {"start", "end"} <= times.keys() else None
        refused = state["status"] == "error"
        output = state.get("error") if refused else state.get("output")
        failed = refused or number(state.get("metadata"), "exit") > 0
        transcript.output(id, output, at_ms, failed=failed, duration_ms=took)
