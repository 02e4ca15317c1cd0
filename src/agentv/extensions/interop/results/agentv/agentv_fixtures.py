"""Read the answers that AgentV (TypeScript) records with `--record-replay`. They have no scores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentv.extensions.interop.imports.foreign_files import problem, read_lines, row_keys
from agentv.extensions.interop.imports.foreign_values import (
    Fields,
    chat_message,
    content_text_of,
    dict_of,
)
from agentv.extensions.interop.imports.run import ForeignCase, ForeignJob, ForeignResults, ForeignRun
from agentv.model.message import Message, ToolCall

_VERSION = b'"agentv.replay_fixture.v1"'


class AgentvFixtures(ForeignResults):
    """One answer on each line. A variant of a target is a target of its own: `NAME@VARIANT`."""

    title = "recorded answers of AgentV (TypeScript)"
    unit = "answer"
    strength = 0.95

    def sniff(self, head: bytes, path: Path) -> bool:  # noqa: ARG002
        return row_keys(head).get("schema_version", b"").lstrip().startswith(_VERSION)

    def open(self, path: Path) -> ForeignRun:
        run = ForeignRun(jobs=(), id=path.stem, targets={}, notes=["Recorded answers have no scores: rescore the run"])
        run.jobs = _jobs(path, run)
        return run


def _jobs(path: Path, run: ForeignRun) -> Iterator[ForeignJob]:
    for number, row in read_lines(path):
        row = dict_of(row)
        if not isinstance(row.get("test_id"), str) or not isinstance(row.get("source_target"), str):
            raise problem(path, f"Line {number} has no 'test_id' or 'source_target'")
        target = row["source_target"] + (f"@{row['variant']}" if row.get("variant") else "")
        run.targets.setdefault(target, {"provider": row.object("source").text("provider") or "agentv"})
        usage, output = row.object("token_usage"), row.items_of("output")
        yield ForeignJob(
            case=ForeignCase(id=row["test_id"], dataset=row.text("suite")),
            target=target,
            trial=int(row.number("attempt") or 0) + 1,
            answer=_answer(output),
            messages=tuple(_messages(output)),
            usage=usage.usage("input", "output", cached="cached"),
            cost_usd=row.number("cost_usd"),
            duration_ms=row.number("duration_ms"),
            timestamp=row.text("recorded_at"),
            place=f"line {number}",
        )


def _messages(output: list[Any]) -> Iterator[Message]:
    """Yield the messages of an answer. Tool calls have their results and times."""
    for item in map(dict_of, output):
        message = chat_message(item)
        if message is not None:
            calls = zip(message.tool_calls, item.objects("tool_calls"), strict=False)
            yield replace(message, tool_calls=tuple(_with_result(call, row) for call, row in calls))


def _with_result(call: ToolCall, row: Fields) -> ToolCall:
    duration_ms, timestamp = row.number("duration_ms"), row.text("start_time") or None
    return replace(call, output=row.get("output"), duration_ms=duration_ms, timestamp=timestamp)


def _answer(output: list[Any]) -> str:
    """Return the content of the last message of the assistant that has one."""
    contents = [item.get("content") for item in map(dict_of, output) if item.get("role") == "assistant"]
    return next((text for content in reversed(contents) if (text := content_text_of(content))), "")
