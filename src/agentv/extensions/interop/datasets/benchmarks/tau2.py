"""Tasks of tau2: a simulated user with instructions, expected actions and statements to check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentv.datasets.foreign.foreign_format import ForeignFormat, Lose, all_have, document_of, objects
from agentv.datasets.foreign.records import Record, RecordFile
from agentv.datasets.foreign.values import (
    expected_calls,
    filled,
    is_blank,
    messages_of,
    metadata_of,
    object_at,
    text_of,
    texts_of,
)

GREETING = "Hi! How can I help you today?"
"""The agent's first message: the simulated user, whose instructions the agent must not see, replies to it."""

_LIMITS = {"stop": "###STOP###", "max_turns": 100}
"""The text with which the user of tau2 ends a conversation, and half of its 200 steps."""

_BASIS = ("DB", "COMMUNICATE")
"""What tau2 rewards if a task does not say it."""

_LOSSES = {
    "DB": "that the database must be as the expected actions leave it (DB): these calls must be made",
    "ENV_ASSERTION": "assertions about the environment of a task (ENV_ASSERTION), which needs tau2",
}
_PARTS = ("reason_for_call", "known_info", "unknown_info", "task_instructions")


class _Tau2(ForeignFormat):
    title = "tasks of tau2"
    strength = 0.55
    names_unchecked = False  # parts of `evaluation_criteria` are the evaluators
    fields = "user_scenario → user, actions → tool_trajectory, communicate_info → contains_all, nl_assertions → rubrics"

    def fits(self, file: RecordFile) -> bool:
        return all_have(objects(file) or [document_of(file)], "id", "user_scenario")

    def rows(self, record: Record, lose: Lose) -> Iterable[dict[str, Any]]:
        data = record.data
        scenario = data["user_scenario"] if isinstance(data["user_scenario"], dict) else {}
        goal = _instructions(scenario.get("instructions"))
        criteria = data.get("evaluation_criteria") or {}
        basis = criteria.get("reward_basis") or _BASIS
        for kind in basis:
            if kind in _LOSSES:
                lose(_LOSSES[kind])
        if texts_of(criteria.get("nl_assertions")) and "NL_ASSERTION" not in basis:
            lose("that statements about a conversation (nl_assertions) do not count: here a judge checks them")
        if texts_of(criteria.get("communicate_info")):
            lose("that any reply may have a text of communicate_info, also with commas: the last reply must have it")
        history = object_at(data, "initial_state").get("message_history")
        for key, what in (("initial_state", "the initial state"), ("user_tools", "the tools of the user")):
            value = data.get(key)
            rest = {**value, "message_history": None} if isinstance(value, dict) else value
            if not is_blank(filled(rest) if isinstance(rest, dict) else rest):
                lose(f"{what} of a task: it is in the metadata")
        purpose = data.get("description")
        row = {
            "id": text_of(data["id"]),
            "input": messages_of(history, lose) if history else [{"role": "assistant", "content": GREETING}],
            "user": {**filled({"goal": goal, "persona": text_of(scenario.get("persona"))}), **_LIMITS},
            "expected_outcome": _outcome(purpose),
            "rubrics": texts_of(criteria.get("nl_assertions")),
            "assertions": _checks(criteria),
            "metadata": metadata_of(data, ("id", "user_scenario")),
        }
        return [filled(row)]


TAU2 = _Tau2()


def _outcome(description: Any) -> str:
    purpose = description.get("purpose") if isinstance(description, dict) else description
    return text_of(purpose) or "Does what the user needs"


def _instructions(value: Any) -> str:
    if not isinstance(value, dict):
        return text_of(value)
    return "\n\n".join(text_of(value[key]) for key in _PARTS if not is_blank(value.get(key)))


def _checks(criteria: dict[str, Any]) -> list[dict[str, Any]]:
    """Return evaluators for the actions of the assistant and for texts in its replies."""
    actions = [call for call in criteria.get("actions") or () if call.get("requestor", "assistant") == "assistant"]
    calls = [{"tool": text_of(call.get("name")), "input": _arguments(call)} for call in actions]
    texts = texts_of(criteria.get("communicate_info"))
    return [
        *([expected_calls(calls)] if calls else []),
        *([{"type": "icontains_all", "value": texts}] if texts else []),
    ]


def _arguments(action: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that are compared: those in `compare_args`, or all of them."""
    arguments, compared = action.get("arguments") or {}, action.get("compare_args")
    return {key: value for key, value in arguments.items() if compared is None or key in compared}
