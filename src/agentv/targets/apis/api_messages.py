"""A conversation as every model API takes it: each tool call with an id and its result. Knows no API's own form."""

from __future__ import annotations

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
    """What an image part holds: bytes in base64, or an address where `data` is None."""

    address: str
    media_type: str | None
    data: str | None

    @property
    def is_image(self) -> bool:
        """False for a document; an address is taken for an image unless it ends as a PDF does."""
        if self.data is None:
            return self.media_type != "application/pdf"
        return self.media_type is not None and self.media_type.startswith("image/")

    @property
    def text(self) -> str:
        """The bytes as text."""
        return b64decode(self.data or "").decode(errors="replace")

    @property
    def file_name(self) -> str:
        """A name for a document, of which some APIs want one."""
        return f"document{guess_extension(self.media_type or '') or '.bin'}"


def attach_tool_results(messages: tuple[Message, ...]) -> Iterable[Message]:
    """The messages without those of tools: every tool call has an id, and its result as `output`.

    A result that belongs to no call gets one of its own, and a call that nothing answered an empty result: no API takes
    one without the other. Calls that are not the assistant's become the assistant's.
    """
    if not any(message.tool_calls or message.role == "tool" for message in messages):
        return messages
    folding = _Folding(messages)
    for message in messages:
        if message.role == "tool":
            folding.add_results(message)
        else:
            folding.add(message)
    folding.close()
    return folding.done


class _Folding:
    """The messages so far, and the calls of the last one that still wait for their results."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.done: list[Message] = []
        self._speaker: Message | None = None
        self._calls: list[ToolCall] = []
        self._waiting: list[tuple[int, ToolCall]] = []
        self._given_ids = {call.id for message in messages for call in message.tool_calls}
        self._used_ids: set[str] = set()

    def add(self, message: Message) -> None:
        """A message of anyone but a tool, and the results that its calls brought along."""
        self.close()
        if not message.tool_calls:
            self.done.append(message)
            return
        self._speaker = message
        if message.role != "assistant":
            if message.content is not None:
                self.done.append(msgspec.structs.replace(message, tool_calls=()))
            self._speaker = Message("assistant")
        self._calls = [self._named(call) for call in message.tool_calls]
        # Kept as they were given, because a result names the id that was given.
        self._waiting = [(index, call) for index, call in enumerate(message.tool_calls) if call.output is None]

    def add_results(self, message: Message) -> None:
        """Results for calls that wait, found by id, else by name, else the first that waits."""
        said = None if message.content is None else content_text(message.content)
        for result in message.tool_calls or (ToolCall(message.name or "", output=said),):
            index = self._waiting_for(result)
            if index is None:
                self.add(Message("assistant", None, (msgspec.structs.replace(result, tool=result.tool or "tool"),)))
                index = 0
                self._waiting.clear()
            self._calls[index] = msgspec.structs.replace(self._calls[index], output=result.output)

    def close(self) -> None:
        """Ends the message whose calls were open; what nothing answered has an empty result."""
        if self._speaker is not None:
            calls = (msgspec.structs.replace(call, output="") if call.output is None else call for call in self._calls)
            self.done.append(msgspec.structs.replace(self._speaker, tool_calls=tuple(calls)))
        self._speaker, self._calls, self._waiting = None, [], []

    def _waiting_for(self, result: ToolCall) -> int | None:
        for place, (index, call) in enumerate(self._waiting):
            if result.id == call.id if result.id else result.tool in ("", call.tool):
                del self._waiting[place]
                return index
        return None

    def _named(self, call: ToolCall) -> ToolCall:
        """The call with an id that no other has: some datasets give none, others the same one in every turn."""
        id, number = call.id, 1
        while not id or id in self._used_ids or (id != call.id and id in self._given_ids):
            id, number = f"call_{number}", number + 1
        self._used_ids.add(id)
        return call if id == call.id else msgspec.structs.replace(call, id=id)


def media_of(value: str) -> Media:
    """What stands in an image part: a data URI taken apart, in base64 in any case, or anything else as an address."""
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
    """The arguments of a call as data; none where the text is empty, as some servers write it.

    What is no JSON stays the text it is: evaluators see what the model wrote.
    """
    if arguments == "":
        return {}
    return json_or(arguments, arguments) if isinstance(arguments, str) else arguments


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call as the object that some APIs insist on; anything else stands in one."""
    given = read_arguments({} if call.input is None else call.input)
    return dict(given) if isinstance(given, dict) else {"input": given}


class Function(msgspec.Struct, frozen=True):
    """A tool that the caller runs: its name, what it does, and the JSON Schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """That an answer is JSON, and of which JSON Schema; None is any."""

    schema: dict[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None
    description: str | None = None


def parse_function(tool: dict[str, Any]) -> Function | None:
    """A declared tool as a function; None for one of the API's own, which is sent as it is.

    Taken are OpenAI's form, a function by itself (`name`, `description`, `parameters`), Anthropic's and MCP's.
    """
    if tool.get("type", "function") != "function" and "input_schema" not in tool:
        return None
    inner = tool.get("function", tool)
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(name, str):
        return None
    parameters = next((inner[key] for key in ("parameters", "input_schema", "inputSchema") if key in inner), None)
    return Function(name, inner.get("description"), parameters, inner.get("strict"))


def parse_response_format(value: dict[str, Any] | str | None) -> ResponseFormat | dict[str, Any] | None:
    """`response_format` in one shape: `json`, OpenAI's object of either API, or a bare JSON Schema.

    An object that is none of them is an API's own and comes back as it is; a text other than `json` is a type.
    """
    if value is None or value == "text":
        return None
    if isinstance(value, str):
        return ResponseFormat() if value in ("json", "json_object") else {"type": value}
    kind = value.get("type")
    if kind == "json_object" and len(value) == 1:
        return ResponseFormat()
    if kind == "json_schema":
        inner = value.get("json_schema", value)
        if isinstance(inner, dict) and isinstance(inner.get("schema"), dict):
            name, description = inner.get("name") or "answer", inner.get("description")
            return ResponseFormat(inner["schema"], name, inner.get("strict"), description)
    if kind in ("object", "array") or "$schema" in value or "anyOf" in value:
        name = re.sub(r"[^\w-]", "_", str(value.get("title") or "answer"))[:64]
        return ResponseFormat(value, name, _can_be_strict(value))
    return value


def _can_be_strict(schema: Any) -> bool:
    """Whether OpenAI would take a schema as strict: no object in it is open, none has keys that may be left out."""
    if isinstance(schema, list):
        return all(map(_can_be_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", ())):
            return False
    return all(_can_be_strict(value) for key, value in schema.items() if key not in ("enum", "const", "default"))
