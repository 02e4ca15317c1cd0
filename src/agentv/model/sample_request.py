"""A request without a run around it: for `agentv targets check`, and for tests of targets."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentv.model.case import EvalCase
from agentv.model.message import Message
from agentv.model.response import OpenLog, Prepare, content_text


@dataclass
class SampleRequest:
    """An `agentv.model.response.Request`: messages, or a text that becomes the user's message."""

    asked: str | tuple[Message, ...] = "Hello"
    case: EvalCase = field(default_factory=lambda: EvalCase("sample"))
    timeout_s: float = 10.0
    prompt_id: str | None = None
    turn: int = 0
    said: int = 0
    repeat: int = 0
    trial: int = 1
    attempt: int = 1
    workspace: str | None = None
    open_log: OpenLog | None = None
    prepare: Prepare | None = None
    guidelines: str = ""
    files: tuple[str, ...] = ()
    guideline_files: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages."""
        return (Message("user", self.asked),) if isinstance(self.asked, str) else self.asked

    @property
    def prompt(self) -> str:
        """The texts of the messages, separated by blank lines."""
        return "\n\n".join(content_text(message.content) for message in self.messages if message.content is not None)

    @property
    def prompt_with_references(self) -> str:
        """The same: no files are looked up here."""
        return self.prompt
