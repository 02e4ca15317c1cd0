"""Messages with files and images as code graders of AgentV (TypeScript) 4.x receive them."""

import os
from base64 import b64decode
from binascii import Error as InvalidBase64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from agentv.model.job import Judgement
from agentv.model.message import FilePart, ImagePart, Message, Part, TextPart, message_to_data

PathOf = Callable[[str], str]
"""Returns the path of an image that is given as a data URI; other addresses unchanged."""


@contextmanager
def image_files(judgement: Judgement) -> Iterator[tuple[PathOf, tuple[str, ...]]]:
    """Yield a function that writes images into a temporary folder, which is removed at the end, and that folder."""
    messages = (*judgement.case.input, *judgement.case.expected_output, *judgement.response.messages)
    if not any(isinstance(part, ImagePart) for message in messages for part in message.parts):
        yield str, ()
        return
    from tempfile import TemporaryDirectory  # late: few answers have images

    with TemporaryDirectory(prefix="agentv-img-") as folder:
        paths: dict[str, str] = {}

        def path_of(value: str) -> str:
            if not value.startswith("data:"):
                return value
            if value not in paths:
                suffix = _media_type(value).partition("/")[2].partition("+")[0].replace("jpeg", "jpg")
                is_plain = suffix.replace("-", "").replace(".", "").isalnum()  # it is part of an answer
                paths[value] = os.path.join(folder, f"img-{len(paths)}.{suffix if is_plain else 'bin'}")
                Path(paths[value]).write_bytes(_content(value))
            return paths[value]

        yield path_of, (folder,)


def messages_with_parts(judgement: Judgement, path_of: PathOf) -> dict[str, list[dict[str, Any]]]:
    """Return the lists of messages that have parts, by their names in the input of a judge."""
    case, output = judgement.case, judgement.response.messages
    lists: dict[str, tuple[Iterable[Message], Callable[[Part, PathOf], dict[str, Any]]]] = {
        "input_messages": (() if case.turns else case.input, _part_of_case),
        "expected_messages": (case.expected_output, _part_of_reference),
        "output_messages": (output, _part_of_answer),
    }
    return {
        name: [
            message_to_data(message)
            | ({"content": [form(part, path_of) for part in message.parts]} if message.parts else {})
            for message in messages
        ]
        for name, (messages, form) in lists.items()
        if any(message.parts for message in messages)
    }


def _part_of_case(part: Part, path_of: PathOf) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "value": part.value}
    if isinstance(part, ImagePart):
        return _image(part.value, part.path or path_of(part.value))
    text = Path(part.path).read_text(encoding="utf-8-sig", errors="replace") if part.path else ""
    return {"type": "file", "value": part.value, "path": part.value, "text": text, "resolved_path": part.path}


def _part_of_reference(part: Part, path_of: PathOf) -> dict[str, Any]:
    data = _part_of_case(part, path_of)
    return {key: value for key, value in data.items() if key != "value" or not isinstance(part, FilePart)}


def _part_of_answer(part: Part, path_of: PathOf) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.value}
    if isinstance(part, FilePart):
        return {"type": "file", "media_type": part.media_type, "path": part.value}
    return _image(part.value, path_of(part.value))


def _image(value: str, path: str) -> dict[str, Any]:
    return {"type": "image", "media_type": _media_type(value), "path": path}


def _media_type(value: str) -> str:
    if value.startswith("data:"):
        return value[5:].partition(",")[0].partition(";")[0] or "text/plain"
    from mimetypes import guess_type  # late: few answers have images

    return guess_type(value.partition("?")[0])[0] or ""


def _content(value: str) -> bytes:
    head, _, data = value.partition(",")
    try:
        return b64decode(unquote_to_bytes(data)) if head.endswith(";base64") else unquote_to_bytes(data)
    except InvalidBase64:
        return b""
