"""Render a case's input as messages, text, or text with file references; shared by target and evaluators."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentv.datasets.files import is_address, is_guideline, read_image, read_text
from agentv.model.call_trace import CallTrace
from agentv.model.case import NO_DETAILS, EvalCase, stored_input
from agentv.model.message import FilePart, ImagePart, Message, TextPart, message_to_data
from agentv.model.response import Hold, OpenLog, Prepare, content_text
from agentv.model.values import to_json

if TYPE_CHECKING:
    from agentv.engine.job.workspace import JobWorkspace


class CaseRequest:
    """A request to a target, made from a case; see `agentv.model.response.Request` for its forms."""

    # Class attributes, because every job creates a request and few of these are ever set.
    attempt = 1
    turn = 0
    user_turn = 0
    repeat = 0
    timeout_s = 300.0
    open_log: OpenLog | None = None
    job_workspace: JobWorkspace | None = None
    opens_job = False
    prepare: Prepare | None = None
    hold: Hold | None = None
    trace: CallTrace | None = None
    ticket: Any = None

    def __init__(self, case: EvalCase, *, prompt_id: str | None = None, trial: int = 1) -> None:
        self.case = case
        self.prompt_id = prompt_id
        self.trial = trial
        self._messages: tuple[Message, ...] | None = None

    @cached_property
    def input(self) -> tuple[Message, ...]:
        """The messages of the case, or of one of its prompts."""
        for prompt in self.case.prompts:
            if prompt.id == self.prompt_id:
                return prompt.input
        return self.case.input

    @property
    def workspace(self) -> str | None:
        return None if self.job_workspace is None else self.job_workspace.path

    @property
    def messages(self) -> tuple[Message, ...]:
        if self._messages is None:
            self._messages = self._render()
        return self._messages

    def followed_by(self, messages: Sequence[Message], timeout_s: float) -> CaseRequest:
        """Return the request with more messages after its own, and another timeout."""
        longer = copy.copy(self)
        longer._messages = (*self.messages, *messages)
        longer.timeout_s = timeout_s
        return longer

    def _render(self) -> tuple[Message, ...]:
        case, text = self.case, stored_input(self.case)
        if type(text) is str and case.details is NO_DETAILS:  # the common case
            return (Message("user", text),) if text else ()
        if not case.names_files:
            return tuple(filter(_has_content, case.input))
        messages = tuple(self._inlined(message) for message in self._visible)
        if not self.guidelines:
            return messages
        return (Message("system", self.guidelines), *messages)

    @cached_property
    def prompt(self) -> str:
        return self._as_text(self.messages)

    @cached_property
    def prompt_with_references(self) -> str:
        messages = tuple(self._referenced(message) for message in self._visible)
        if self.guidelines:
            messages = (Message("system", self.guidelines), *messages)
        return self._as_text(messages)

    @cached_property
    def guidelines(self) -> str:
        blocks = [_file_block(part, os.path.basename(part.value)) for part in self._guideline_parts]
        return "[[ ## Guidelines ## ]]\n\n" + "\n\n".join(blocks) if blocks else ""

    @cached_property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.path for part in self._file_parts if not self._is_guideline(part)))

    @cached_property
    def guideline_files(self) -> tuple[str, ...]:
        return tuple(part.path for part in self._guideline_parts)

    @cached_property
    def _file_parts(self) -> list[FilePart]:
        return [part for message in self.input for part in message.parts if isinstance(part, FilePart)]

    @cached_property
    def _guideline_parts(self) -> list[FilePart]:
        parts = {part.path: part for part in self._file_parts if self._is_guideline(part)}
        return list(parts.values())

    def _is_guideline(self, part: FilePart) -> bool:
        origin = self.case.place.origin
        return is_guideline(part.path, origin.root, origin.guideline_patterns)

    @cached_property
    def _visible(self) -> tuple[Message, ...]:
        """The messages that have content other than guidelines."""
        return tuple(message for message in map(self._without_guidelines, self.input) if _has_content(message))

    def _without_guidelines(self, message: Message) -> Message:
        if not message.parts or not self.case.place.origin.guideline_patterns:
            return message
        parts = tuple(part for part in message.parts if not (isinstance(part, FilePart) and self._is_guideline(part)))
        return Message(message.role, parts, message.tool_calls, message.name)

    def _inlined(self, message: Message) -> Message:
        """Replace files by their contents: text as blocks, images as data URIs."""
        if not message.parts:
            return message
        parts = tuple(_inlined_part(part) for part in message.parts)
        if all(isinstance(part, TextPart) for part in parts):
            return Message(message.role, "\n".join(part.value for part in parts), message.tool_calls, message.name)
        return Message(message.role, parts, message.tool_calls, message.name)

    def _referenced(self, message: Message) -> Message:
        if not message.parts:
            return message
        texts = (part.value if isinstance(part, TextPart) else f'<file: path="{part.path}">' for part in message.parts)
        return Message(message.role, "\n".join(texts), message.tool_calls, message.name)

    def _as_text(self, messages: tuple[Message, ...]) -> str:
        """Return the text of a single user or system message; several messages get a heading each."""
        if len(messages) == 1 and messages[0].role in ("user", "system"):
            return _text_of(messages[0])
        return "\n\n".join(f"@[{message.role.capitalize()}]:\n{_text_of(message)}" for message in messages)


def _has_content(message: Message) -> bool:
    return bool(message.tool_calls) or message.content not in (None, "", ())


def _text_of(message: Message) -> str:
    text = "" if message.content is None else content_text(message.content)
    if not message.tool_calls:
        return text
    calls = to_json(message_to_data(message)["tool_calls"]).decode()
    return f"{text}\n{calls}" if text else calls


def _inlined_part(part: TextPart | FilePart | ImagePart) -> TextPart | ImagePart:
    if isinstance(part, FilePart):
        return TextPart(_file_block(part, part.value))
    if isinstance(part, ImagePart) and not is_address(part.value):
        return ImagePart(read_image(part), part.digest, part.path)
    return part


def _file_block(part: FilePart, name: str) -> str:
    return f'<file path="{name}">\n{read_text(part).strip()}\n</file>'
