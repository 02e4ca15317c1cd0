"""What the writers of other tools' formats have in common: parts of a case as their data, and what they lose."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import filled, text_of
from agentv.model.case import EvalCase
from agentv.model.evaluator import DEFAULT_EVALUATOR, EvaluatorSpec
from agentv.model.message import Message, TextPart

_PARTS = {
    "turns": "the later turns of a conversation",
    "user": "a simulated user",
    "workspace": "the workspace of a case",
    "depends_on": "dependencies between cases",
    "rubrics": "rubrics",
    "prompts": "the texts of several prompts",
}


def count_losses(case: EvalCase, lose: Lose, kept: Collection[str] = ()) -> None:
    """Report the evaluators and other parts of a case that are not `kept`, and that most tools do not have."""
    for name, what in _PARTS.items():
        if name not in kept and getattr(case.details, name):
            lose(what)
    for spec in case.evaluators:
        if spec.type not in kept and spec != DEFAULT_EVALUATOR and spec.type != "rubric":
            lose(f"the evaluator `{spec.type}`")


def text_in(messages: tuple[Message, ...], lose: Lose) -> str:
    """Return the text of messages: of one message its content, of several the lines of a dialogue."""
    texts = [_content(message, lose) for message in messages]
    if len(messages) == 1:
        return texts[0]
    return "\n".join(f"{message.role}: {text}" for message, text in zip(messages, texts, strict=True))


def chat_messages(messages: tuple[Message, ...], lose: Lose) -> list[dict[str, Any]]:
    """Return messages with a role and text."""
    return [{"role": message.role, "content": _content(message, lose)} for message in messages]


def extra_data(case: EvalCase, **more: Any) -> dict[str, Any]:
    """Return the metadata of a case, and parts for which most tools have no field."""
    own = {"tags": list(case.tags), "conversation_id": case.conversation_id, "description": case.description}
    return filled({**case.metadata, **own, **more})


def calls_of(case: EvalCase) -> list[dict[str, Any]]:
    """Return the tool calls that the case expects, each with `tool` and maybe `args`."""
    specs: list[EvaluatorSpec] = [spec for spec in case.evaluators if spec.type == "tool_trajectory"]
    return [dict(call) for spec in specs for call in spec.settings.get("expected", ()) if isinstance(call, dict)]


def _content(message: Message, lose: Lose) -> str:
    if message.tool_calls:
        lose("tool calls in messages")
    if not isinstance(message.content, tuple):
        return text_of(message.content)
    for part in message.content:
        if not isinstance(part, TextPart):
            lose("files and images in messages")
    return "\n\n".join(part.value for part in message.content if isinstance(part, TextPart))
