"""Preparation of conversations, images, tools and response formats, independent of any one API."""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from mimetypes import guess_extension, guess_type
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import content_text
from agentv.support.json_values import json_or


class Media(NamedTuple):
    """The content of an image part: base64 data, or an address if `data` is None."""

    address: str
    media_type: str | None
    data: str | None

    @property
    def is_image(self) -> bool:
        """Whether it is an image and not a document. An address is an image unless it ends with .pdf."""
        if self.data is None:
            return self.media_type != "application/pdf"
        return self.media_type is not None and self.media_type.startswith("image/")

    @property
    def text(self) -> str:
        """The data decoded as text."""
        return b64decode(self.data or "").decode(errors="replace")

    @property
    def file_name(self) -> str:
        """A file name for a document, which some APIs require."""
        return f"document{guess_extension(self.media_type or '') or '.bin'}"


def attach_tool_results(messages: tuple[Message, ...]) -> Iterable[Message]:
    """Return the messages without tool messages: every tool call has an id, and its result as `output`.

    APIs require a result for each call and a call for each result: a missing result becomes empty, a missing call is
    added. Calls in messages of other roles become the assistant's.
    """
    if not any(message.tool_calls or message.role == "tool" for message in messages):
        return messages
    merger = _ResultMerger(messages)
    for message in messages:
        if message.role == "tool":
            merger.add_results(message)
        else:
            merger.add(message)
    merger.close()
    return merger.done


class _ResultMerger:
    """Merges tool results into the calls of the preceding message."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.done: list[Message] = []
        self._caller: Message | None = None
        self._calls: list[ToolCall] = []
        self._waiting: list[tuple[int, ToolCall]] = []
        self._given_ids = {call.id for message in messages for call in message.tool_calls}
        self._used_ids: set[str] = set()

    def add(self, message: Message) -> None:
        """Add a message that is not a tool's."""
        self.close()
        if not message.tool_calls:
            self.done.append(message)
            return
        self._caller = message
        if message.role != "assistant":
            if message.content is not None:
                self.done.append(msgspec.structs.replace(message, tool_calls=()))
            self._caller = Message("assistant")
        self._calls = [self._with_unique_id(call) for call in message.tool_calls]
        # With their original ids, because results refer to those.
        self._waiting = [(index, call) for index, call in enumerate(message.tool_calls) if call.output is None]

    def add_results(self, message: Message) -> None:
        """Add results to pending calls, matched by id, else by name, else in order."""
        text = None if message.content is None else content_text(message.content)
        for result in message.tool_calls or (ToolCall(message.name or "", output=text),):
            if (index := self._waiting_for(result)) is None:
                self.add(Message("assistant", None, (msgspec.structs.replace(result, tool=result.tool or "tool"),)))
                index = 0
                self._waiting.clear()
            self._calls[index] = msgspec.structs.replace(self._calls[index], output=result.output)

    def close(self) -> None:
        """Finish the message with pending calls; calls without a result get an empty one."""
        if self._caller is not None:
            calls = (msgspec.structs.replace(call, output="") if call.output is None else call for call in self._calls)
            self.done.append(msgspec.structs.replace(self._caller, tool_calls=tuple(calls)))
        self._caller, self._calls, self._waiting = None, [], []

    def _waiting_for(self, result: ToolCall) -> int | None:
        for place, (index, call) in enumerate(self._waiting):
            if result.id == call.id if result.id else result.tool in ("", call.tool):
                del self._waiting[place]
                return index
        return None

    def _with_unique_id(self, call: ToolCall) -> ToolCall:
        """Return the call with a unique id: some datasets have no ids, others repeat them in every turn."""
        id, number = call.id, 1
        while not id or id in self._used_ids or (id != call.id and id in self._given_ids):
            id, number = f"call_{number}", number + 1
        self._used_ids.add(id)
        return call if id == call.id else msgspec.structs.replace(call, id=id)


def media_of(value: str) -> Media:
    """Parse an image part's value: a data URI, converted to base64 if necessary, or else an address."""
    head, comma, data = value.partition(",")
    if not comma or not head.startswith("data:"):
        return Media(value, guess_type(value.partition("?")[0])[0], None)
    media_type, _, encoding = head.removeprefix("data:").partition(";")
    media_type = media_type or "text/plain"
    if encoding.endswith("base64"):
        return Media(value, media_type, data)
    data = b64encode(unquote_to_bytes(data)).decode()
    return Media(f"data:{media_type};base64,{data}", media_type, data)


def read_arguments(arguments: Any) -> Any:
    """Parse a call's arguments. Text that is not valid JSON is returned as is, so that evaluators see it.

    Some servers send an empty text for no arguments.
    """
    if arguments == "":
        return {}
    return json_or(arguments, arguments) if isinstance(arguments, str) else arguments


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments as an object, which some APIs require; other values are wrapped in one."""
    arguments = read_arguments({} if call.input is None else call.input)
    return dict(arguments) if isinstance(arguments, dict) else {"input": arguments}


class Function(msgspec.Struct, frozen=True):
    """A tool that the client runs; `parameters` is a JSON Schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class JsonFormat(msgspec.Struct, frozen=True):
    """A JSON response format. Without a `schema`, any JSON is valid."""

    schema: dict[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None
    description: str | None = None


def parse_function(tool: dict[str, Any]) -> Function | None:
    """Parse a tool declaration. None for an API's built-in tool, which is sent unchanged.

    Accepts OpenAI's format, a bare function (`name`, `description`, `parameters`), Anthropic's and MCP's.
    """
    if tool.get("type", "function") != "function" and "input_schema" not in tool:
        return None
    inner = tool.get("function", tool)
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(name, str):
        return None
    parameters = next((inner[key] for key in ("parameters", "input_schema", "inputSchema") if key in inner), None)
    return Function(name, inner.get("description"), parameters, inner.get("strict"))


def parse_response_format(value: dict[str, Any] | str | None) -> JsonFormat | dict[str, Any] | None:
    """Parse `response_format`: `json`, OpenAI's object for either API, or a bare JSON Schema.

    Any other object is in an API's own format and is returned unchanged; any other text is a type.
    """
    if value is None or value == "text":
        return None
    if isinstance(value, str):
        return JsonFormat() if value in ("json", "json_object") else {"type": value}
    kind = value.get("type")
    if kind == "json_object" and len(value) == 1:
        return JsonFormat()
    if kind == "json_schema":
        inner = value.get("json_schema", value)
        if isinstance(inner, dict) and isinstance(inner.get("schema"), dict):
            name, description = inner.get("name") or "answer", inner.get("description")
            return JsonFormat(inner["schema"], name, inner.get("strict"), description)
    if kind in ("object", "array") or "$schema" in value or "anyOf" in value:
        name = re.sub(r"[^\w-]", "_", str(value.get("title") or "answer"))[:64]
        return JsonFormat(value, name, _can_be_strict(value))
    return value


def _can_be_strict(schema: Any) -> bool:
    """Whether OpenAI accepts a schema as strict: all objects are closed and all their keys are required."""
    if isinstance(schema, list):
        return all(map(_can_be_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", ())):
            return False
    return all(_can_be_strict(value) for key, value in schema.items() if key not in ("enum", "const", "default"))
