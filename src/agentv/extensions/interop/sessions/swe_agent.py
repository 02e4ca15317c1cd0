"""Trajectories of SWE-agent (`.traj`) and mini-SWE-agent (`.traj.json`). The submission is the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentv.model.message import Message
from agentv.model.token_counts import UsageFields, usage
from agentv.sessions.session import ReadLog, Session, SessionBuilder, SessionFormat, decoded, object_in, objects_in
from agentv.sessions.session_file import SessionFile
from agentv.sessions.turns import text_of

_USAGE = UsageFields(("tokens_sent",), ("tokens_received",))
_CALL_USAGE = UsageFields(("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
_COMMAND = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)


class _SweAgent(SessionFormat):
    agent = "swe-agent"
    title = "a trajectory of SWE-agent"
    marks = (b'"trajectory"', b'"history"', b'"trajectory_format"', b'"mini_version"')

    def fits(self, file: SessionFile) -> bool:
        document = file.document if not file.is_lines else None
        if not isinstance(document, dict):
            return False
        is_mini = str(document.get("trajectory_format", "")).startswith("mini-swe-agent")
        return is_mini or any(
            "message_type" in item or "action" in item for item in objects_in(document.get("history"))
        )

    def read(self, file: SessionFile, log: ReadLog) -> Iterator[Session]:
        document = file.document
        info = object_in(document, "info")
        is_mini = "trajectory_format" in document
        builder = SessionBuilder("mini-swe-agent" if is_mini else self.agent)
        stats = object_in(info, "model_stats")
        builder.learn(model=object_in(object_in(info, "config"), "model").get("model_name"))
        builder.learn(id=document.get("instance_id") or file.stem.removesuffix(".traj"))
        builder.total_usage, builder.total_cost = usage(stats, _USAGE), stats.get("instance_cost")
        open_calls: list[str] = []
        for number, item in enumerate(objects_in(document.get("messages" if is_mini else "history"))):
            if not item.get("is_demo"):
                open_calls = _take(builder, item, (number, open_calls), log)
        if isinstance(info.get("submission"), str):
            builder.start_turn("submission")
            builder.add_text(info["submission"])
        yield from builder.finish(file.path, log)


SWE_AGENT = _SweAgent()


def _take(builder: SessionBuilder, item: dict[str, Any], place: tuple[int, list[str]], log: ReadLog) -> list[str]:
    """Add one message. Returns the ids of calls whose result is the next message of the user."""
    number, open_calls = place
    role, text, extra = item.get("role"), text_of(item.get("content")), object_in(item, "extra")
    seconds = extra.get("timestamp")
    at_ms = builder.see_time(seconds * 1000 if isinstance(seconds, int | float) else item.get("timestamp"))
    if role == "assistant":
        builder.start_turn(number)
        builder.usages[number] = usage(object_in(extra, "response").get("usage"), _CALL_USAGE)
        builder.costs[number] = extra.get("cost")
        builder.add_text(text)
        calls = _calls(item, text)
        for index, (id, tool, arguments) in enumerate(calls):
            builder.add_call(id or f"{number}.{index}", tool, arguments, at_ms)
        return [f"{number}.{index}" for index, call in enumerate(calls) if not call[0]]
    if role == "tool" or (role == "user" and open_calls):
        ids = item.get("tool_call_ids") or [item.get("tool_call_id")] if role == "tool" else open_calls
        for id in open_calls if ids == [None] else ids:
            builder.add_result(str(id), text, at_ms, failed=extra.get("returncode") not in (None, 0))
    elif role == "user":
        builder.add_request(text)
    elif role == "system":
        builder.add_message(Message("system", text))
    elif role != "exit":
        log.meet_unknown(builder.agent, role)
    return []


def _calls(item: dict[str, Any], text: str) -> list[tuple[str, str, Any]]:
    """Return the calls of a message, each with its id: tool calls, the action, or the commands in its text."""
    functions = [
        (str(call.get("id") or ""), object_in(call, "function")) for call in objects_in(item.get("tool_calls"))
    ]
    if functions:
        return [(id, str(own.get("name", "")), decoded(own.get("arguments"))) for id, own in functions]
    commands = [item["action"]] if isinstance(item.get("action"), str) else object_in(item, "extra").get("actions")
    if not isinstance(commands, list):
        commands = _COMMAND.findall(text)
    texts = [command.get("command") if isinstance(command, dict) else command for command in commands]
    return [("", "bash", {"command": command}) for command in texts if command]
