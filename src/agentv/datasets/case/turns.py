"""The turns of a conversation, and the settings of AgentV (TypeScript) for them."""

from collections.abc import Iterable
from typing import Any

import msgspec

from agentv.datasets.case.header import read_evaluators
from agentv.datasets.case.keys import LIST_KEYS, CaseKeys
from agentv.datasets.case.shorthand import MessageReader, note_unknown
from agentv.model.case import EvalCase, Turn
from agentv.model.diagnostics import KeyPath, Problems, field_name
from agentv.model.evaluator import DEFAULT_EVALUATOR
from agentv.model.message import Message
from agentv.settings.evaluator_reader import ListsTests
from agentv.settings.settings_reader import fields_of, read_value

CONVERSATION_KEYS = ("mode", "aggregation", "on_turn_failure", "window_size")
_FIELDS = fields_of(CaseKeys)
_TURN_KEYS = ("input", "expected_output", *LIST_KEYS)


def read_conversation_settings(row: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """Check the settings of a conversation, and return those that are fields of `CaseDetails`."""
    keys = [key for key in CONVERSATION_KEYS if row.get(key) is not None]
    for key in keys:
        if not row.get("turns"):
            problems.error((key,), f"Field '{key}' needs 'turns'")
            return {}
    read = {key: read_value(_FIELDS[key].type, row[key], (key,), problems) for key in keys}
    if read.get("mode") is not None:
        read.setdefault("aggregation", "mean")  # the default of AgentV (TypeScript): each turn counts once
    return {key: value for key, value in read.items() if key != "mode" and value != "continue"}


def read_turns(
    entries: Iterable[Any],
    reader: MessageReader,
    problems: Problems,
    *,
    lists_tests: ListsTests = False,
    judges_reference: bool = False,
) -> list[Turn]:
    """Read the entries of `turns`; after an error they are incomplete.

    With `judges_reference`, a turn with a reference and no evaluators gets a judge, as in AgentV (TypeScript).
    """
    turns = [
        _read_turn(entry, ("turns", index), reader, problems, lists_tests=lists_tests)
        for index, entry in enumerate(entries)
    ]
    if not judges_reference:
        return turns
    judge = (DEFAULT_EVALUATOR,)
    return [
        msgspec.structs.replace(turn, evaluators=turn.evaluators or (judge if turn.expected_output else ()))
        for turn in turns
    ]


def _read_turn(
    data: Any, path: KeyPath, reader: MessageReader, problems: Problems, *, lists_tests: ListsTests = False
) -> Turn:
    """Read one entry of `turns`; after an error it is incomplete."""
    if not isinstance(data, dict):
        problems.wrong_type(path, 'an object such as {"input": "…"}', data)
        return Turn(())
    note_unknown(data, "turn", _TURN_KEYS, path, problems)
    if data.get("input") is None:
        problems.missing((*path, "input"))
        return Turn(())
    turn_input = reader.input(data["input"], (*path, "input"), problems)
    if not isinstance(turn_input, str) and turn_input and turn_input[-1].role not in ("user", "tool"):
        message = f"Field '{field_name((*path, 'input'))}' must end with a user or tool message"
        problems.error((*path, "input"), message)
    expected: Any = ()
    if data.get("expected_output") is not None:
        expected = reader.expected_output(data["expected_output"], (*path, "expected_output"), problems)
    choice = read_evaluators(data, reader.finder, path, problems, lists_tests=lists_tests)
    return Turn(
        (Message("user", turn_input),) if isinstance(turn_input, str) else turn_input,
        (Message("assistant", expected),) if isinstance(expected, str) else expected,
        choice.specs if choice else (),
    )


def checks_turns(row: dict[str, Any]) -> bool:
    """Return whether any turn of a row has evaluators, or in AgentV (TypeScript) a reference, which is judged there."""
    turns = row.get("turns")
    turns = [turn for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
    keys = LIST_KEYS if row.get("mode") is None else (*LIST_KEYS, "expected_output")
    return any(turn.get(key) for turn in turns for key in keys)


def with_input_in_first_turn(case: EvalCase) -> EvalCase:
    """Move the user messages at the end of a case's input into its first turn, as AgentV (TypeScript) does."""
    start = len(case.input)
    while start and case.input[start - 1].role == "user":
        start -= 1
    if not case.turns or start == len(case.input):
        return case
    first, *others = case.turns
    first = msgspec.structs.replace(first, input=(*case.input[start:], *first.input))
    details = msgspec.structs.replace(case.details, turns=(first, *others))
    return msgspec.structs.replace(case, input=case.input[:start], details=details)
