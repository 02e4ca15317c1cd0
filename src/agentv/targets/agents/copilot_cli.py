"""GitHub's Copilot CLI: the prompt on stdin, `--output-format json`, and a file with what it used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from agentv.model.response import Response, TargetFailure
from agentv.targets.agents.agent import Call, CodingAgent, Invocation, prefixed
from agentv.targets.agents.events import (
    Event,
    NoAnswer,
    Transcript,
    added,
    failure_of,
    milliseconds,
    number,
    usage,
)
from agentv.targets.apis.model_api import UsageFields

_USAGE = UsageFields(("inputTokens",), ("outputTokens",), "cacheReadTokens", "reasoningTokens", "cacheWriteTokens")


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
    passed_over: ClassVar[tuple[bytes, ...]] = (
        b'{"type":"session.background_tasks_changed"',
        b'{"type":"tool.execution_partial_result"',
        b'{"type":"tool.shell_output"',
    )

    executable: str = "copilot"

    def invocation(self, call: Call) -> Invocation:
        """Everything allowed and no questions; text whole and not in pieces."""
        arguments = ["--output-format", "json", "--stream", "off", "--allow-all", "--no-ask-user", "--no-auto-update"]
        arguments += ["--no-color", "--no-remote"]
        if self.model:
            arguments += ["--model", self.model]
        report = f"{call.scratch}/usage.json"
        arguments += ["--usage-output-file", report, *self.args]
        if call.home is None:
            prompt = prefixed(self.system_prompt, call.prompt)
            return Invocation(arguments=tuple(arguments), stdin=prompt, report=report)
        files = {".copilot/copilot-instructions.md": self.system_prompt} if self.system_prompt else {}
        env = {"COPILOT_HOME": f"{call.home}/.copilot"}
        return Invocation(arguments=tuple(arguments), stdin=call.prompt, env=env, files=files, report=report)

    @staticmethod
    def answer_of(events: Iterable[Event]) -> Response:
        """Turns are numbered, events have their own times; an error does not end the stream at once."""
        transcript = Transcript()
        known: dict[str, Any] = {}
        failure: TargetFailure | None = None
        ended, code = False, None
        for event, arrived_ms in events:
            kind, data = event.get("type"), event.get("data")
            at_ms = milliseconds(event.get("timestamp"), arrived_ms)
            if kind == "result":
                known["id"], ended, code = event.get("sessionId"), True, event.get("exitCode")
            elif kind == "report":
                models = ((data or {}).get("modelMetrics") or {}).values()
                known["usage"] = added(usage(each.get("usage"), _USAGE) for each in models if isinstance(each, dict))
            elif not isinstance(data, dict) or data.get("parentToolCallId"):
                continue  # what it handed on is the work of the tool that did
            elif kind == "assistant.message":
                known["model"] = data.get("model")
                _message(transcript, data, at_ms, event.get("timestamp"))
            elif kind == "tool.execution_complete":
                failed = not data.get("success", True) or number(data.get("shellExecution"), "exitCode") > 0
                transcript.output(data.get("toolCallId", ""), _output(data), at_ms, failed=failed)
            elif kind == "session.error":
                failure = failure_of(str(data.get("message")), data.get("statusCode"))
        if failure is not None:
            raise failure
        if not ended:
            raise NoAnswer("The Copilot CLI ended before its result")
        if code:
            raise NoAnswer(f"The Copilot CLI ended with exit code {code}")
        return transcript.response(**known)


def _message(transcript: Transcript, data: dict[str, Any], at_ms: float, timestamp: str | None) -> None:
    transcript.turn(data.get("turnId"))
    transcript.say(data.get("content") or "")
    for call in data.get("toolRequests") or ():
        transcript.call(call.get("toolCallId", ""), call.get("name", ""), call.get("arguments"), at_ms, timestamp)


def _output(data: dict[str, Any]) -> Any:
    """What a tool gave, or why it did not."""
    result, error = data.get("result"), data.get("error")
    return result.get("content") if isinstance(result, dict) else (error or {}).get("message")
