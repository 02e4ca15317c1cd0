"""Paths in an answer, written from the folder that the agent worked in: that folder is another one each time. Pure."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from agentv.model.message import Message, ToolCall
from agentv.model.response import Response
from agentv.model.values import MAX_DEPTH


def from_there(response: Response, folder: str) -> Response:
    """The same answer with `src/a.py` for `/tmp/…/src/a.py`, and with `.` for the folder itself."""
    names = tuple(dict.fromkeys((folder, os.path.realpath(folder))))
    return msgspec.structs.replace(response, messages=tuple(_message(each, names) for each in response.messages))


def _message(message: Message, names: tuple[str, ...]) -> Message:
    calls = tuple(_call(call, names) for call in message.tool_calls)
    return Message(message.role, _shortened(message.content, names), calls, message.name)


def _call(call: ToolCall, names: tuple[str, ...]) -> ToolCall:
    return msgspec.structs.replace(call, input=_shortened(call.input, names), output=_shortened(call.output, names))


def _shortened(value: Any, names: tuple[str, ...], depth: int = 0) -> Any:
    if isinstance(value, str):
        for name in names:
            if name in value:
                value = value.replace(name + os.sep, "").replace(name, ".")
        return value
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {_shortened(key, names): _shortened(item, names, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item, names, depth + 1) for item in value]
    return value
