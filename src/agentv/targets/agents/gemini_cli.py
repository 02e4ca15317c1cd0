"""Google's Gemini CLI: the prompt on stdin, `--output-format stream-json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from agentv.model.response import Response
from agentv.model.values import to_json
from agentv.targets.agents.agent import Call, CodingAgent, Invocation, prefixed
from agentv.targets.agents.events import Event, NoAnswer, Transcript, failure_of, milliseconds, usage
from agentv.targets.apis.model_api import UsageFields

_USAGE = UsageFields(("input_tokens",), ("output_tokens",), "cached")


class GeminiCli(CodingAgent, frozen=True, kw_only=True):
    """Google's Gemini CLI."""

    secrets: ClassVar[tuple[str, ...]] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    package: ClassVar[str] = "@google/gemini-cli"

    executable: str = "gemini"

    def invocation(self, call: Call) -> Invocation:
        """Every tool allowed, the folder trusted; files outside the folder are named, or it would not read them."""
        arguments = ["--output-format", "stream-json", "--yolo", "--skip-trust"]
        if self.model:
            arguments += ["--model", self.model]
        for folder in call.folders:
            arguments += ["--include-directories", folder]
        if call.home is None:
            return Invocation(arguments=(*arguments, *self.args), stdin=prefixed(self.system_prompt, call.prompt))
        settings: dict[str, Any] = {
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
        }
        if "GEMINI_API_KEY" in call.environment:
            settings["security"] = {"auth": {"selectedType": "gemini-api-key"}}
        files = {".gemini/settings.json": to_json(settings).decode()}
        if self.system_prompt:
            files[".gemini/GEMINI.md"] = self.system_prompt
        env = {"GEMINI_CLI_HOME": call.home}
        return Invocation(arguments=(*arguments, *self.args), stdin=call.prompt, env=env, files=files)

    @staticmethod
    def answer_of(events: Iterable[Event]) -> Response:
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
            raise failure_of(str((result.get("error") or {}).get("message") or "The Gemini CLI reports an error"))
        return transcript.response(usage=usage(result.get("stats"), _USAGE), **known)
