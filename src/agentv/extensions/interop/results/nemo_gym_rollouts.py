"""Read rollouts of NeMo Gym: the request, the response with its tool calls, and the reward."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentv.extensions.interop.imports.foreign_files import read_rows, row_keys
from agentv.extensions.interop.imports.foreign_values import (
    chat_message,
    chat_messages,
    content_text_of,
    dict_of,
    error_info,
    text_of,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignGrade, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message

_MARKS = ("responses_create_params", "_ng_task_index", "task_index")


class NemoGymRollouts(ForeignResults):
    """One rollout on each line. The reward is the score."""

    title = "rollouts of NeMo Gym"
    unit = "rollout"

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        keys = row_keys(head)
        return {"response", "reward"} <= keys.keys() and any(mark in keys for mark in _MARKS)

    def jobs(self, path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
        for number, row in read_rows(path):
            request, response = row.object("responses_create_params"), row.object("response")
            target = run.target(response.text("model") or "model", "nemo-gym")
            question, usage, error = request.get("input"), response.object("usage"), response.get("error")
            index = next((row[key] for key in ("_ng_task_index", "task_index") if row.get(key) is not None), number)
            trial = row.number("_ng_rollout_index")
            messages = tuple(_messages(response.items_of("output")))
            texts = [message.content for message in messages if isinstance(message.content, str)]
            grade = ForeignGrade(
                name="reward",
                type="nemo-gym:reward",
                value=row.grade("reward"),
                settings={"tool": "nemo-gym", "agent": row.object("agent_ref").get("name")},
            )
            yield ForeignJob(
                case=ForeignCase(
                    id=row.text("id") or f"task-{text_of(index)}",
                    dataset=row.object("agent_ref").text("name") or "nemo-gym",
                    input=chat_messages(question) if isinstance(question, list) else text_of(question),
                    expected=row.get("expected_answer"),
                ),
                target=target,
                trial=None if trial is None else int(trial) + 1,
                answer=response.text("output_text") or (texts[-1] if texts else None),
                messages=messages,
                grades=() if error else (grade,),
                error=error_info(dict_of(error).get("message") or error) if error else None,
                usage=usage.usage("input_tokens", "output_tokens"),
                place=f"line {number}",
            )


def _messages(output: list[Any]) -> Iterator[Message]:
    """Yield the messages and tool calls of a response. Results of tools are part of their calls."""
    items = [dict_of(item) for item in output]
    results = {item.get("call_id"): item.get("output") for item in items if item.get("type") == "function_call_output"}
    for item in items:
        if item.get("type") == "function_call":
            message = chat_message({"role": "assistant", "tool_calls": [{**item, "id": item.get("call_id")}]})
            calls = message.tool_calls if message else ()
            yield Message("assistant", None, tuple(replace(call, output=results.get(call.id)) for call in calls))
        elif item.get("type") == "message":
            yield Message("assistant", content_text_of(item.get("content")))
