"""Messages of cases and records as JSON in the GenAI conventions, and the inputs of the cases of a run."""

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.model.result import Result
from agentv.model.values import to_json

_REMEMBERED = 20_000


def input_parts(messages: Any) -> str | None:
    """Return the value of `gen_ai.input.messages`; None if the messages are unknown."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    items = [part for message in messages if isinstance(message, dict) for part in _parts(message)] if messages else []
    return to_json(items).decode() if items else None


def output_parts(record: Result, finish_reason: str) -> str | None:
    """Return the value of `gen_ai.output.messages`: the messages of an answer, or its text."""
    messages = record.output_messages or ({"role": "assistant", "content": record.candidate_answer},)
    if not record.output_messages and record.candidate_answer is None:
        return None
    items = [part for message in messages for part in _parts(message)]
    for message in items:
        if message["role"] == "assistant":
            has_call = any(part["type"] == "tool_call" for part in message["parts"])
            message["finish_reason"] = "tool_call" if has_call else finish_reason
    return to_json(items).decode()


def _parts(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a message, and the results of its tool calls as a message of their own."""
    content = message.get("content")
    texts = content if isinstance(content, list | tuple) else [] if content is None else [content]
    parts: list[dict[str, Any]] = [{"type": "text", "content": _text_of(text)} for text in texts]
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    parts += [
        {"type": "tool_call", "id": call.get("id"), "name": call.get("tool"), "arguments": call.get("input")}
        for call in calls
    ]
    yield {"role": str(message.get("role", "user")), "parts": parts}
    results = [
        {"type": "tool_call_response", "id": call.get("id"), "response": call["output"]}
        for call in calls
        if call.get("output") is not None
    ]
    if results:
        yield {"role": "tool", "parts": results}


def _text_of(content: Any) -> str:
    if isinstance(content, dict) and isinstance(content.get("value"), str):
        return str(content["value"])
    return content if isinstance(content, str) else to_json(content).decode()


class CaseInputs:
    """Finds the inputs of cases in `cases.jsonl`, which may still be written. Cases are read in order, once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._known: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def find(self, record: Result) -> Any:
        """Return the input of a record's case; None if it is not known any more."""
        key = (record.dataset_path, record.eval_id)
        if key not in self._known:
            self._read()
        return self._known.get(key)

    def _read(self) -> None:
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._position)
                for line in stream:
                    if not line.endswith(b"\n"):
                        break
                    self._position += len(line)
                    self._add(line)
        except OSError:
            return

    def _add(self, line: bytes) -> None:
        try:
            case = msgspec.json.decode(line)
            self._known[str(case.get("dataset_path", "")), str(case["id"])] = case.get("input")
        except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, KeyError):
            return
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
