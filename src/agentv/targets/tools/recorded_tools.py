"""Tools that answer from recorded results: calls and their outputs in runs, chat messages, sessions or eval sets."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from agentv.errors import UsageError, file_errors
from agentv.model.values import to_json
from agentv.targets.tools.tool import DeclaredTool, RecordedTools, ToolResult

_ARGUMENTS = ("args", "arguments", "input", "parameters")
_RESULTS = ("output", "response", "content", "result")
_RESULT_IDS = ("tool_call_id", "tool_use_id", "call_id", "id")
_RESULT_TYPES = ("tool_result", "function_call_output", "function_response")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


class RecordedToolCall(NamedTuple):
    """A call of a tool with its result."""

    tool: str
    arguments: dict[str, Any]
    output: Any


class RecordedRunner:
    """Answers calls of one tool with the recorded result for the same arguments. Other calls fail."""

    def __init__(self, name: str, calls: Iterable[RecordedToolCall]) -> None:
        calls = list(calls)
        self._outputs: dict[bytes, list[Any]] = {}
        for call in calls:
            outputs = self._outputs.setdefault(_key(call.arguments), [])
            outputs += [] if call.output in outputs else [call.output]
        names = {key: value for call in calls for key, value in call.arguments.items()}
        properties = {
            key: {"type": _TYPES[type(value)]} if type(value) in _TYPES else {} for key, value in names.items()
        }
        required = [key for key in names if all(key in call.arguments for call in calls)]
        parameters = {"type": "object", "properties": properties, "required": required}
        self.declared: DeclaredTool = {"name": name, "description": None, "parameters": parameters}

    async def run(self, arguments: dict[str, Any], workspace: str | None, timeout_s: float) -> ToolResult:  # noqa: ARG002
        """Return the recorded output, or a failure that names the problem."""
        outputs = self._outputs.get(_key(arguments), [])
        if len(outputs) == 1:
            return ToolResult(outputs[0])
        what = "several results were" if outputs else "no result was"
        return ToolResult(f"Error: {what} recorded for these arguments: {to_json(arguments).decode()}", failed=True)


def open_recorded(tools: RecordedTools, home: str) -> list[RecordedRunner]:
    """Return a runner for each tool that has recorded results. Raises UsageError if none has."""
    path = os.path.join(home, tools.recorded)
    by_name: dict[str, list[RecordedToolCall]] = {}
    for call in recorded_calls(path):
        if not tools.only or call.tool in tools.only:
            by_name.setdefault(call.tool, []).append(call)
    missing = [name for name in tools.only if name not in by_name]
    if missing or not by_name:
        what = f"of '{missing[0]}'" if missing else "of tools"
        hint = "Name a file with calls and their results: results.jsonl of a run, chat messages, or an eval set"
        raise UsageError(f"{tools.recorded} has no recorded results {what}", hint=hint)
    return [RecordedRunner(name, calls) for name, calls in by_name.items()]


def recorded_calls(path: str) -> Iterator[RecordedToolCall]:
    """Yield the calls with results in a JSON or JSON Lines file. Raises UsageError if it cannot be read."""
    with file_errors(f"Cannot read {path}"), open(path, "rb") as stream:
        data = stream.read()
    try:
        documents: list[Any] = [msgspec.json.decode(data)]
    except msgspec.DecodeError:
        try:
            documents = [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
        except msgspec.DecodeError as error:
            raise UsageError(f"{path} is not valid JSON or JSON Lines", str(error)) from None
    for document in documents:  # ids are unique in a document only
        objects = list(_objects(document))
        results = {id: output for item in objects for id, output in _result(item)}
        for item in objects:
            yield from _call(item, results)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(item)


def _result(item: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the id and the output of an object that is the result of a call."""
    is_result = item.get("role") == "tool" or item.get("type") in _RESULT_TYPES or "response" in item
    id = next((item[key] for key in _RESULT_IDS if isinstance(item.get(key), str)), None)
    output = next((item[key] for key in _RESULTS if item.get(key) is not None), None)
    if is_result and id is not None and output is not None:
        yield id, output


def _call(item: dict[str, Any], results: dict[str, Any]) -> Iterator[RecordedToolCall]:
    """Yield the call that an object describes: with its output, or with an id for which there is a result."""
    function = item["function"] if isinstance(item.get("function"), dict) else item
    name = next((function[key] for key in ("tool", "name") if isinstance(function.get(key), str)), None)
    arguments = next((function[key] for key in _ARGUMENTS if function.get(key) is not None), None)
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            return
    if name is None or not isinstance(arguments, dict):
        return
    if "tool" in item and item.get("output") is not None:
        yield RecordedToolCall(name, arguments, item["output"])
    elif item.get("id") in results:
        yield RecordedToolCall(name, arguments, results[item["id"]])


def _key(arguments: dict[str, Any]) -> bytes:
    return msgspec.json.encode(arguments, order="sorted")
