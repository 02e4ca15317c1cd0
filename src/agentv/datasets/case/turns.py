"""The turns of a conversation, and the settings of AgentV (TypeScript) for them."""

from __future__ import annotations

from typing import Any

from agentv.datasets.case.header import read_evaluators
from agentv.datasets.case.keys import LIST_KEYS, CaseKeys
from agentv.datasets.case.shorthand import MessageReader, note_unknown
from agentv.model.case import Aggregation, Turn
from agentv.model.diagnostics import KeyPath, Problems, field_name
from agentv.model.message import Message
from agentv.settings.settings_reader import field_of, read_value

CONVERSATION_KEYS = ("mode", "aggregation", "on_turn_failure")
_TURN_KEYS = ("input", "expected_output", *LIST_KEYS)


def read_conversation_settings(row: dict[str, Any], problems: Problems) -> Aggregation | None:
    """Check the settings of a conversation and return how the scores of its turns are combined."""
    given = [key for key in CONVERSATION_KEYS if row.get(key) is not None]
    for key in given:
        if not row.get("turns"):
            problems.error((key,), f"Field '{key}' needs 'turns'")
            return None
    if row.get("on_turn_failure") == "stop":
        hint = "All turns are played. Remove it, or use `agentv eval --fail-fast` to stop the run"
        problems.error(("on_turn_failure",), "'on_turn_failure: stop' is not supported", hint)
        return None
    read = {key: read_value(_type_of(key), row[key], (key,), problems) for key in given}
    return read.get("aggregation")


def _type_of(key: str) -> Any:
    field = field_of(CaseKeys, key)
    assert field is not None
    return field.type


def read_turn(
    data: Any, path: KeyPath, reader: MessageReader, problems: Problems, *, lists_tests: bool = False
) -> Turn:
    """Read one entry of `turns`; after an error it is incomplete."""
    if not isinstance(data, dict):
        problems.wrong_type(path, 'an object such as {"input": "…"}', data)
        return Turn(())
    note_unknown(data, "turn", _TURN_KEYS, path, problems)
    if data.get("input") is None:
        problems.missing((*path, "input"))
        return Turn(())
    given = reader.input(data["input"], (*path, "input"), problems)
    if not isinstance(given, str) and given and given[-1].role not in ("user", "tool"):
        message = f"Field '{field_name((*path, 'input'))}' must end with a user or tool message"
        problems.error((*path, "input"), message)
    expected: Any = ()
    if data.get("expected_output") is not None:
        expected = reader.expected_output(data["expected_output"], (*path, "expected_output"), problems)
    chosen = read_evaluators(data, reader.finder, path, problems, lists_tests=lists_tests)
    return Turn(
        (Message("user", given),) if isinstance(given, str) else given,
        (Message("assistant", expected),) if isinstance(expected, str) else expected,
        chosen.specs if chosen else (),
    )
