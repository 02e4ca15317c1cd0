"""Parts of a case as the data of other tools, and the parts that such a tool has no field for."""

from collections.abc import Callable, Collection
from typing import Any

from agentv.datasets.foreign.foreign_format import Lose
from agentv.datasets.foreign.values import text_of
from agentv.errors import UsageError
from agentv.model.case import EvalCase
from agentv.model.evaluator import DEFAULT_EVALUATOR, EvaluatorSpec
from agentv.model.message import Message, TextPart

_PARTS = {
    "turns": "the later turns of a conversation",
    "user": "a simulated user",
    "on_turn_failure": "that a conversation stops at a turn that fails",
    "window_size": "how many exchanges are sent (`window_size`)",
    "aggregation": "how the scores of turns are combined (`aggregation`)",
    "workspace": "the workspace of a case",
    "depends_on": "dependencies between cases",
    "variables": "the variables of a template: its text is written with their values",
}
NO_CHECK = "No check of this case could be written for this tool: fail it, and add one."
"""The text of the only check of a case that has lost all of its own."""


def keeps_nothing(spec: EvaluatorSpec) -> bool:  # noqa: ARG001
    """Whether a format without evaluators runs an evaluator: never."""
    return False


def count_losses(
    case: EvalCase, lose: Lose, parts: Collection[str] = (), keeps: Callable[[EvaluatorSpec], bool] = keeps_nothing
) -> None:
    """Report the evaluators and other parts of a case that another tool does not have, and `parts` does not name."""
    if case.prompts and "prompts" not in parts:
        raise UsageError(f"The case '{case.id}' has several prompts", hint="Keep one, or convert it --to promptfoo")
    for name, what in _PARTS.items():
        if name not in parts and getattr(case.details, name):
            lose(what)
    if "verdicts" not in parts and case.execution.verdicts is not None:
        lose("the score limits of verdicts")
    for spec in (*case.evaluators, *(spec for turn in case.turns for spec in turn.evaluators)):
        if spec != DEFAULT_EVALUATOR and not keeps(spec):
            lose(f"the evaluator `{spec.type}`")


def text_in(messages: tuple[Message, ...], lose: Lose) -> str:
    """Return the text of messages: of one message its content, of several the lines of a dialogue."""
    texts = [_content(message, lose) for message in messages]
    if len(messages) == 1:
        return texts[0]
    return "\n".join(f"{message.role}: {text}" for message, text in zip(messages, texts, strict=True))


def first_input(case: EvalCase) -> tuple[Message, ...]:
    """Return the input of a case, or of its first turn."""
    return case.input or (case.turns[0].input if case.turns else ())


def chat_messages(messages: tuple[Message, ...], lose: Lose) -> list[dict[str, Any]]:
    """Return messages with a role and text."""
    return [{"role": message.role, "content": _content(message, lose)} for message in messages]


def _content(message: Message, lose: Lose) -> str:
    if message.tool_calls:
        lose("tool calls in messages")
    if not isinstance(message.content, tuple):
        return text_of(message.content)
    for part in message.content:
        if not isinstance(part, TextPart):
            lose("files and images in messages")
    return "\n\n".join(part.value for part in message.content if isinstance(part, TextPart))
