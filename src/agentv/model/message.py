"""Messages, their content parts, and tool calls."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from agentv.model.values import ComparedByContent

ChatFormat = Literal["text", "json"]
Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)


class TextPart(msgspec.Struct, frozen=True, gc=False, tag="text"):
    """Plain text in a message with several parts."""

    value: str


class _LocatedPart(ComparedByContent, frozen=True, gc=False):
    """A part whose value names a file. Equality ignores `path` and includes `digest`, the hash of the file."""

    value: str
    digest: str = ""
    path: str = ""

    @property
    def _content(self) -> tuple[object, ...]:
        return self.value, self.digest


class FilePart(_LocatedPart, frozen=True, gc=False, tag="file"):
    """A file, named as in the dataset or by a target, which may give its media type."""

    media_type: str = ""


class ImagePart(_LocatedPart, frozen=True, gc=False, tag="image"):
    """An image file, or a URL (`https:`, `data:`) that is passed to the target unchanged."""


Part = TextPart | FilePart | ImagePart
PART_KINDS: dict[str, type[Part]] = {"text": TextPart, "file": FilePart, "image": ImagePart}


class ToolCall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One call of a tool: its name, input and output."""

    tool: str
    """Name of the tool."""

    input: Any = None
    """Arguments."""

    output: Any = None
    """Result."""

    id: str | None = None
    """Id of the call."""

    timestamp: str | None = None
    """Time of the call."""

    duration_ms: float | None = None
    """Duration of the call."""


class Message(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One message. `content` is text, a tuple of parts, or data (an object or any other JSON value)."""

    role: Role
    content: Any = None
    tool_calls: tuple[ToolCall, ...] = ()
    name: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content parts; empty for text and data."""
        return self.content if isinstance(self.content, tuple) else ()

    @property
    def text(self) -> str | None:
        """The content if it is plain text."""
        return self.content if isinstance(self.content, str) else None


def message_to_data(message: Message) -> dict[str, Any]:
    """Return a message as written in a dataset, without empty keys."""
    data: dict[str, Any] = {"role": message.role}
    if message.name is not None:
        data["name"] = message.name
    if isinstance(message.content, tuple):
        data["content"] = list(map(_part_to_data, message.content))
    elif message.content is not None:
        data["content"] = message.content
    if message.tool_calls:
        data["tool_calls"] = [msgspec.to_builtins(call) for call in message.tool_calls]
    return data


def messages_as_json(messages: Sequence[Message]) -> str:
    """Return a chat as an indented JSON list, which is the prompt of a program with `chat_format: json`."""
    import json  # late: few programs read messages

    return json.dumps([message_to_data(message) for message in messages], ensure_ascii=False, indent=2)


def _part_to_data(part: Part) -> dict[str, str]:
    data = {"type": str(type(part).__struct_config__.tag), "value": part.value}
    if isinstance(part, FilePart) and part.media_type:
        data["media_type"] = part.media_type
    return data


def tool_calls_in(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the tool calls in order. Those in tool messages are results, and count only if there are no others."""
    calls = [call for message in messages if message.role != "tool" for call in message.tool_calls]
    return calls or [call for message in messages for call in message.tool_calls]


class StoredCall(msgspec.Struct, frozen=True):
    """A tool call in a record: the tool, and its input as data."""

    tool: str
    input: Any


def stored_tool_calls(messages: Sequence[Mapping[str, Any]]) -> list[StoredCall]:
    """Return the tool calls of messages as stored in a record, by the rule of `tool_calls_in`."""
    by_role: dict[bool, list[StoredCall]] = {False: [], True: []}
    for message in messages:
        calls = message.get("tool_calls")
        if isinstance(calls, list | tuple):
            stored_calls = (_stored_call(call) for call in calls if isinstance(call, Mapping))
            by_role[message.get("role") == "tool"] += (call for call in stored_calls if call is not None)
    return by_role[False] or by_role[True]


def _stored_call(call: Mapping[str, Any]) -> StoredCall | None:
    """Return a call; records of other tools may have `name` and `arguments`, or `function`, instead of our fields."""
    function = call.get("function")
    own = function if isinstance(function, Mapping) else call
    name = own.get("tool", own.get("name"))
    arguments = next((own[key] for key in ("input", "args", "arguments") if key in own), None)
    return StoredCall(name, arguments) if isinstance(name, str) else None
